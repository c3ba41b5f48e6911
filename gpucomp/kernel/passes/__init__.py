"""Rewrites of kernels, one a module. ``gpucomp.kernel.pipeline`` has them in order."""
