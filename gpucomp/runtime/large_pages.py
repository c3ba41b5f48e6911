"""Weights in large pages, where the system gives them and GPUCOMP_LARGE_PAGES does not say no.

A model that reads all its weights once in a run visits each page of 4 KiB once: where translations of addresses are
looked up anew for each, a core gets a third less from memory than from pages of 2 MiB. The price is a copy of its own in
each process: pages of a mapped file are shared by all that load it.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import MutableMapping
from pathlib import Path

import numpy as np

from gpucomp import config
from gpucomp.runtime.native import ALIGNMENT, address_of

LARGE_PAGE = 2 << 20
PART = 8 * LARGE_PAGE  # copied at a time
SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")


def given() -> bool:
    """Whether the system gives large pages to who asks for them.

    Linux says so for each size of page, newer versions, or for all of them (Documentation/admin-guide/mm/transhuge.rst).
    """
    for folder in (SETTINGS / f"hugepages-{LARGE_PAGE >> 10}kB", SETTINGS):
        with contextlib.suppress(OSError):
            setting = (folder / "enabled").read_text(encoding="utf-8")
            if "[inherit]" not in setting:
                return "[never]" not in setting
    return False


def room(nbytes: int) -> np.ndarray | None:
    """Fresh memory that begins with a large page; ``None`` where there is not as much, or the system refuses."""
    try:
        memory = mmap.mmap(-1, nbytes + LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:
        return None
    raw = np.frombuffer(memory, np.uint8)
    start = -address_of(raw) % LARGE_PAGE
    return raw[start : start + nbytes]


def gather(weights: MutableMapping[str, np.ndarray]) -> None:
    """Put copies of the arrays side by side into large pages; less than one of them stays where it is.

    So does everything where no such pages are given, are not wanted, or the system does not promise the memory.

    Each array is replaced in ``weights`` as soon as it is copied, and pages of a mapped file are given back part by part:
    the memory is needed once. Copies begin at multiples of ``ALIGNMENT`` and are read-only.
    """
    names = [name for name, weight in weights.items() if not weight.dtype.hasobject]
    sizes = [-(-weights[name].nbytes // ALIGNMENT) * ALIGNMENT for name in names]
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
    """Copy; pages of a mapped file are given back as soon as ``PART`` bytes of them are copied."""
    if not source.flags.c_contiguous:
        target[...] = source
        return
    source, target = source.reshape(-1), target.reshape(-1)
    step = max(1, PART // source.itemsize)
    for start in range(0, source.size, step):
        target[start : start + step] = source[start : start + step]
        before = max(0, start - mmap.PAGESIZE // source.itemsize)  # a page that the part before shares with this one
        _give_back(source[before : start + step])


def _give_back(array: np.ndarray) -> None:
    """Let go of the whole pages of a file's mapping that ``array`` lies in. They come again when somebody reads there."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if not isinstance(owner, memoryview) or not owner.readonly or not isinstance(owner.obj, mmap.mmap):
        return
    if not hasattr(mmap, "MADV_DONTNEED"):
        return
    offset = address_of(array) - address_of(np.frombuffer(owner.obj, np.uint8))
    first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (offset + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        with contextlib.suppress(OSError):  # of a process that locked its memory
            owner.obj.madvise(mmap.MADV_DONTNEED, first, last - first)
