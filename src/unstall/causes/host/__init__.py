"""Causes in the host layer."""
