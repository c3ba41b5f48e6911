"""Calls of compiled functions, and what they are compared with."""

from __future__ import annotations

import torch

from gpucomp import torch as gpucomp_torch


def compiled(function, *, strict=True, dynamic=None, **options):
    """By default, whatever cannot be compiled is an error."""
    return torch.compile(
        function, backend=gpucomp_torch.backend, options={"strict": strict, **options}, dynamic=dynamic
    )


def graphs():
    return gpucomp_torch.report().graphs


def leaves(value):
    return torch.utils._pytree.tree_leaves(value)


def assert_same(found, wanted, tolerance=1e-5):
    for a, b in zip(leaves(found), leaves(wanted), strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert (a.dtype, a.device, a.shape, a.stride()) == (b.dtype, b.device, b.shape, b.stride())
        assert not a.requires_grad
        torch.testing.assert_close(a, b.detach(), rtol=tolerance, atol=tolerance)
