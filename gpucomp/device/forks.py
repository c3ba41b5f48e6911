"""Whether this process was forked from one that used a GPU. Drivers do not work in such a child: calls fail, or never return."""

from __future__ import annotations

import os

from gpucomp.errors import DeviceError
from gpucomp.lazy_dataclass import dataclass


@dataclass
class _Process:
    uses_gpu: bool = False
    parent_did: bool = False


_process = _Process()


def _after_fork() -> None:
    _process.parent_did |= _process.uses_gpu


os.register_at_fork(after_in_child=_after_fork)


def is_child() -> bool:
    """Whether a driver that this process has was initialised in its parent."""
    return _process.parent_did


def refuse_in_child() -> None:
    """Raise ``DeviceError`` (GPC5021) if this process is a child of one that uses a GPU."""
    if _process.parent_did:
        raise DeviceError(
            "this process was forked from one that uses a GPU, which no child can: start it with "
            "multiprocessing.get_context('spawn'), or fork before the GPU is used",
            code="GPC5021",
        )


def use_gpu() -> None:
    """Note that this process uses a GPU's driver. Raises like ``refuse_in_child``."""
    refuse_in_child()
    _process.uses_gpu = True
