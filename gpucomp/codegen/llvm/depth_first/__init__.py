"""Depth-first chains of layers."""
