"""Copies weights into large pages, if the system has them and GPUCOMP_LARGE_PAGES is not 0.

A model that reads all its weights once in a run visits each 4 KiB page once. If each visit needs a new address
translation, a core reads memory a third slower than from 2 MiB pages. The cost is one copy of the weights in each process,
whereas all processes that load a file share its mapped pages.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref
from collections.abc import MutableMapping
from pathlib import Path

import numpy as np

from gpucomp import config
from gpucomp.runtime.native import HOST_ALIGNMENT, address_of

LARGE_PAGE = 2 << 20
PART = 8 * LARGE_PAGE  # copied at a time
_rooms: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")


def given() -> bool:
    """Whether the system gives large pages to a process that asks for them.

    Linux has a setting for each page size in newer versions, else one for all (Documentation/admin-guide/mm/transhuge.rst).
    """
    for folder in (SETTINGS / f"hugepages-{LARGE_PAGE >> 10}kB", SETTINGS):
        with contextlib.suppress(OSError):
            setting = (folder / "enabled").read_text(encoding="utf-8")
            if "[inherit]" not in setting:
                return "[never]" not in setting
    return False


def room(nbytes: int) -> np.ndarray | None:
    """Fresh memory that starts at a large page; ``None`` if there is not enough or the system refuses."""
    try:
        memory = mmap.mmap(-1, nbytes + LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        return None
    _rooms.add(memory)
    raw = np.frombuffer(memory, np.uint8)
    start = -address_of(raw) % LARGE_PAGE
    return raw[start : start + nbytes]


def gather(weights: MutableMapping[str, np.ndarray]) -> None:
    """Copy the arrays side by side into large pages.

    Arrays that are there already stay. Nothing is moved if all others are smaller than one large page, if large pages are
    not available or switched off, or if the system does not reserve the memory.

    Each array is replaced in ``weights`` as soon as it is copied, and pages of a mapped file are released part by part, so
    that the memory is not needed twice. Copies begin at multiples of ``HOST_ALIGNMENT`` and are read-only.
    """
    names = [name for name, weight in weights.items() if not (weight.dtype.hasobject or _is_there(weight))]
    sizes = [-(-weights[name].nbytes // HOST_ALIGNMENT) * HOST_ALIGNMENT for name in names]
    if sum(sizes) < LARGE_PAGE or not config.current().large_pages or not given():
        return
    if (memory := room(sum(sizes))) is None:
        return
    start = 0
    for name, size in zip(names, sizes, strict=True):
        weight = weights[name]
        copy = memory[start : start + weight.nbytes].view(weight.dtype).reshape(weight.shape)
        _move(weight, copy)
        copy.flags.writeable = False
        weights[name] = copy
        start += size


def _move(source: np.ndarray, target: np.ndarray) -> None:
    """Copy; release the pages of a mapped file after every ``PART`` bytes."""
    if not source.flags.c_contiguous:
        target[...] = source
        return
    source, target = source.reshape(-1), target.reshape(-1)
    step = max(1, PART // source.itemsize)
    for start in range(0, source.size, step):
        target[start : start + step] = source[start : start + step]
        before = max(0, start - mmap.PAGESIZE // source.itemsize)  # the page that is shared with the part before
        _give_back(source[before : start + step])


def _owner(array: np.ndarray) -> object:
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner


def _is_there(array: np.ndarray) -> bool:
    owner = _owner(array)
    return isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap) and owner.obj in _rooms


def _give_back(array: np.ndarray) -> None:
    """Release the whole pages of a mapped file that ``array`` covers. The system loads them again when they are read."""
    owner = _owner(array)
    if not isinstance(owner, memoryview) or not owner.readonly or not isinstance(owner.obj, mmap.mmap):
        return
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    offset = address_of(array) - address_of(np.frombuffer(owner.obj, np.uint8))
    first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (offset + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        with contextlib.suppress(OSError):  # the process has locked its memory
            owner.obj.madvise(mmap.MADV_DONTNEED, first, last - first)
