"""Causes in the distributed layer."""
