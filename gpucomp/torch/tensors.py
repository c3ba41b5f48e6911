"""Torch's tensors as arrays of the same memory, and back."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """A C-contiguous array of a tensor on the CPU. It is copied only where it is not contiguous."""
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(BFLOAT16)
    try:
        return tensor.numpy()
    except RuntimeError:  # one that needs a gradient, or is lazily negated; to ask each time costs more
        return tensor.numpy(force=True)


def tensor_of(array: Any, device: torch.device) -> torch.Tensor:
    """A tensor on ``device`` of an array that nothing else refers to; not copied where the array is there already."""
    if not isinstance(array, np.ndarray):
        found: torch.Tensor = torch.utils.dlpack.from_dlpack(array)
        return found
    bits = array.view(np.int16) if array.dtype == BFLOAT16 else array
    found = torch.from_numpy(bits).to(device)
    return found.view(torch.bfloat16) if array.dtype == BFLOAT16 else found
