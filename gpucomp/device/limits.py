"""What a device allows: work-items, registers, shared memory, vectors, and the units that multiply."""

from __future__ import annotations

from dataclasses import dataclass

from gpucomp.device.lockstep import least, most

HEAD_LIMIT = 256  # a row of a wider head does not fit where attention engines keep it


@dataclass(frozen=True, slots=True)
class Core:
    """A processor's core: mostly cycles of an instruction on a whole vector, when many of them wait for nothing.

    multiply  a multiply-add of f32
    pairs     a dot product of pairs of bf16, for each 64 bytes
    quads     a dot product of four bytes each, for each 64 bytes
    load      a load, also of one number into all lanes
    ways      lines of the first cache whose addresses are the same modulo 4 KiB
    fetched   bytes a cycle from memory or the last cache
    """

    multiply: float = 0.5
    pairs: float = 2.0
    quads: float = 1.0
    load: float = 0.5
    ways: int = 12
    fetched: float = 3.2


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device allows one work-group; ``units`` is its number of SMs, compute units or cores."""

    threads: int = 256
    shared_bytes: int = 32768
    warp: int = 32
    registers: int = 255
    units: int = 8
    vector_bytes: int = 16
    subgroups: bool = True  # whether templates exchange values between lanes by shuffles there: in CUDA
    dots: bool = True  # whether there is an instruction for dot products of four bytes: templates write them out else
    async_copy: bool = False
    device_fence: bool = True  # whether work-groups of a launch can read what others of it have left
    cache_bytes: int = 1 << 20  # of the second cache of a processor's core
    core: Core = Core()  # of a processor
    image_width: int = 0  # pixels, and rows, of the largest image that shows a buffer; 0 where there are none

    @property
    def is_cpu(self) -> bool:
        """Whether the work-items of a group are turns of a loop on one core: none runs beside another."""
        return self.warp == 1

    def registers_for(self, threads: int) -> int:
        """What a work-item of so many in a work-group may have: all of them share one register file, by eights."""
        return least(self.registers, REGISTER_FILE // most(1, threads) // 8 * 8)


REGISTER_FILE = 65536  # registers of a CUDA multiprocessor, on every architecture
