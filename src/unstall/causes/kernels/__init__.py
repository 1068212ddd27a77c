"""Causes in the kernels layer."""
