"""Checks and measurements for a machine with a CUDA GPU; they need no network."""
