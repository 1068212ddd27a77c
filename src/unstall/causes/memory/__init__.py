"""Causes in the memory layer."""
