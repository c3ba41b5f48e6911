"""Layers that are fused depth first."""
