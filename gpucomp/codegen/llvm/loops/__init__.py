"""Elementwise kernels, row-wise kernels, scans and scatters."""
