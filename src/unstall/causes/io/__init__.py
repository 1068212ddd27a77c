"""Causes in the io layer."""
