"""Depth-first chains of fused layers."""
