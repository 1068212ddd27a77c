"""Causes in the compiler layer."""
