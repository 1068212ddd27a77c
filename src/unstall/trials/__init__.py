"""Prove a remedy: which pairs to make, when to stop, and what they show.  Pure functions; `pipeline` makes the trials."""
