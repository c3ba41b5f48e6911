"""Runs aarch64 code on another processor: QEMU's translator, as the package ``unicorn`` has it, on this process's memory."""

from __future__ import annotations

import mmap
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

from unicorn import UC_ARCH_ARM64, UC_HOOK_MEM_UNMAPPED, UC_MODE_ARM, UC_PROT_ALL, Uc, UcError
from unicorn.arm64_const import (
    UC_ARM64_REG_SP,
    UC_ARM64_REG_X0,
    UC_ARM64_REG_X1,
    UC_ARM64_REG_X2,
    UC_ARM64_REG_X3,
    UC_ARM64_REG_X4,
    UC_ARM64_REG_X5,
    UC_ARM64_REG_X6,
    UC_ARM64_REG_X7,
    UC_ARM64_REG_X30,
    UC_CPU_ARM64_MAX,
)

from gpucomp.artifact.elf import Image
from gpucomp.device import processor
from gpucomp.runtime.runner import Call, Runner

ARGUMENTS = (
    UC_ARM64_REG_X0,
    UC_ARM64_REG_X1,
    UC_ARM64_REG_X2,
    UC_ARM64_REG_X3,
    UC_ARM64_REG_X4,
    UC_ARM64_REG_X5,
    UC_ARM64_REG_X6,
    UC_ARM64_REG_X7,
)
PAGE = mmap.PAGESIZE
STACK, STACK_BYTES = 0x10000, 1 << 22  # below what Linux gives to programs
RETURN = STACK + STACK_BYTES  # where nothing is mapped but a page to come back to


class Processor:
    """One processor of 64-bit Arm. Memory has the addresses that it has in this process, and is mapped when it is touched."""

    def __init__(self) -> None:
        self._uc = Uc(UC_ARCH_ARM64, UC_MODE_ARM)
        self._uc.ctl_set_cpu_model(UC_CPU_ARM64_MAX)
        self._uc.mem_map(STACK, STACK_BYTES + PAGE)
        self._uc.hook_add(UC_HOOK_MEM_UNMAPPED, self._map)
        self._strays: list[int] = []
        self._mapped: set[int] = set()

    def call(self, function: int, *arguments: int) -> int:
        """What ``function(*arguments)`` gives, all integers or pointers, if it gives something.

        Raises ``AssertionError`` where it leaves this process's memory.
        """
        on_stack = b"".join((a & (1 << 64) - 1).to_bytes(8, "little") for a in arguments[len(ARGUMENTS) :])
        stack = RETURN - PAGE - len(on_stack) // 16 * 16 - 16
        self._uc.mem_write(stack, on_stack)
        self._uc.reg_write(UC_ARM64_REG_SP, stack)
        self._uc.reg_write(UC_ARM64_REG_X30, RETURN)
        for register, value in zip(ARGUMENTS, arguments, strict=False):
            self._uc.reg_write(register, value & (1 << 64) - 1)
        try:
            self._uc.emu_start(function, RETURN)
        except UcError as error:
            raise AssertionError(f"{error}; outside memory: {[hex(a) for a in self._strays]}") from error
        return int(self._uc.reg_read(UC_ARM64_REG_X0))

    def _map(self, uc: Uc, _access: int, address: int, size: int, _value: int, _data: object) -> bool:
        # of an access that lies in two pages one may be mapped: to map it again is an error
        for page in {address // PAGE * PAGE, (address + size - 1) // PAGE * PAGE} - self._mapped:
            if not _readable(page):
                self._strays.append(address)
                return False
            uc.mem_map_ptr(page, PAGE, UC_PROT_ALL, page)
            self._mapped.add(page)
        return True


def _readable(page: int) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, rights = line.split()[:2]
        first, last = (int(bound, 16) for bound in bounds.split("-"))
        if first <= page < last:
            return rights.startswith("r")
    return False


@contextmanager
def emulated() -> Iterator[None]:
    """Python's runtime opens what is compiled for aarch64, and calls its native runner in an emulated processor.

    A run has one thread (GPUCOMP_THREADS=1, or a model that is too small for more): helpers would be emulated beside it.
    """
    opened = Runner.__init__

    def enter(self: Runner, call: Call, thread: int) -> None:
        table, first, last, context, threads, epoch, notes, loops = call
        given = (table, first, last, context, thread, threads, epoch, notes[thread] if notes else 0)
        Processor().call(self.image.address("gc_run_loops" if loops else "gc_run"), *given, *([loops] if loops else []))

    def alone(
        image: Image, table: int, first: int, last: int, context: int, notes: int | None, loops: int | None
    ) -> None:
        Processor().call(image.address("gc_alone"), table, first, last, context, notes or 0, loops or 0)

    def sizes(image: Image, *given: int) -> int:
        return Processor().call(image.address("gc_sizes"), *given)

    def made(self: Runner, image: Image, *, loops: bool) -> None:
        opened(self, image, loops=loops)
        self.alone = self.brief = partial(alone, image)
        self.sizes = partial(sizes, image)
        self._help = None

    with (
        patch.object(processor, "require", lambda features, arch: None),
        patch.object(processor, "missing", lambda features: []),
        patch.object(platform, "machine", lambda: "aarch64"),
        patch.object(Runner, "__init__", made),
        patch.object(Runner, "enter", enter),
    ):
        yield
