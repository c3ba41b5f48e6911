"""Rewrites of kernels, one per module. ``gpucomp.lowering.KERNEL_PASSES`` lists them in order.

``pack_weights`` runs later, after a schedule is chosen: ``gpucomp.lowering.SCHEDULED_PASSES``.
"""
