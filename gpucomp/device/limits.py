"""Limits of a device: work-items, registers, shared memory, vectors, and its arithmetic units."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gpucomp.device.lockstep import least, most
from gpucomp.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np

Count = TypeVar("Count", int, "np.ndarray")

HEAD_LIMIT = 256  # widest head: attention engines keep a whole row of it in registers or shared memory


@dataclass(frozen=True, slots=True)
class Core:
    """A processor's core. The first four figures are cycles per instruction on a whole vector, without dependences.

    multiply  a multiply-add of f32
    pairs     a dot product of pairs of bf16, for each 64 bytes
    quads     a dot product of four bytes each, for each 64 bytes
    load      a load, or a load of one number into all lanes
    ways      associativity of the first cache: the lines that it can hold with equal addresses modulo 4 KiB
    fetched   bytes per cycle from memory or the last cache
    """

    multiply: float = 0.5
    pairs: float = 2.0
    quads: float = 1.0
    load: float = 0.5
    ways: int = 12
    fetched: float = 3.2


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a work-group. ``units`` is the device's number of SMs, compute units or cores."""

    threads: int = 256
    shared_bytes: int = 32768
    static_bytes: int = 48 << 10  # of it in arrays of fixed size: CUDA's limit. AMD's compilers allow all that there is
    warp: int = 32
    registers: int = 255
    units: int = 8
    vector_bytes: int = 16
    subgroups: bool = True  # whether templates exchange values between lanes by shuffles: in CUDA
    dots: bool = True  # whether there is an instruction for dot products of four bytes; templates use plain C otherwise
    async_copy: bool = False
    device_fence: bool = True  # whether work-groups can read what other work-groups of the same launch stored
    cache_bytes: int = 1 << 20  # second-level cache of a CPU core
    core: Core = Core()  # for CPUs
    image_width: int = 0  # pixels and rows of the largest image made from a buffer; 0 if there are no such images

    @property
    def is_cpu(self) -> bool:
        """Whether the work-items of a group are iterations of a loop on one core, so that no two run at the same time."""
        return self.warp == 1

    def registers_for(self, threads: int) -> int:
        """Registers of a work-item if a work-group has ``threads``: see ``register_share``."""
        return least(self.registers, register_share(most(1, threads)))


REGISTER_FILE = 65536  # registers of a CUDA multiprocessor, on every architecture
PARTS = 4  # partitions of a multiprocessor; each has its own warp scheduler and registers
EVENLY = PARTS * 32  # threads of one warp in each


def register_share(threads: Count) -> Count:
    """The registers that each of ``threads`` of a work-group can have: a number, or a column of many.

    Each part of a multiprocessor has a quarter of the register file for its share of the warps, in units of eight: nine
    warps have as many registers as twelve.
    """
    return REGISTER_FILE // (-(-threads // EVENLY) * EVENLY) // 8 * 8
