"""Rewrites of kernels, one a module. ``gpucomp.lowering.KERNEL_PASSES`` has them in order.

``pack_weights`` is applied later, once a schedule is chosen: ``gpucomp.lowering.SCHEDULED_PASSES``.
"""
