"""Targets and devices as plain data, which all other packages read."""
