"""Elementwise, row-wise, scanning and scattering kernels."""
