"""Causes in the data layer."""
