"""Checks and measurements for a machine with a GPU; they need no network."""
