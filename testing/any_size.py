"""CPU kernels whose sizes each run decides: emitted and compiled once, run at any sizes, and compared there with numpy.

    any_matmul = AnySize(lambda m: matmul(m, 96, 40), {"m": Dim("m", 1, 512)}, family=REGISTER_BLOCKS)
    for m in (1, 13, 512):
        any_matmul.check(m=m)

A kernel is emitted in a block that refuses conditions: it is right for the whole range. Every array ends where memory ends.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from gpucomp.artifact.elf import Image
from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.engines import family_of
from gpucomp.device.target import Target
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dim import Dim
from gpucomp.ir.size import Size, size_of, value_at
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.example import at, example_of
from gpucomp.kernel.interpreter import UNWRITTEN, expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernel.source import KernelSource
from gpucomp.schedule.space import Family, Schedule
from gpucomp.targets import cpu
from testing.kernels import random_inputs
from testing.tolerance import assert_identical, assert_rounded_once

Change = Callable[[KernelSource], KernelSource]  # of the text that is compiled
Comparison = Callable[
    [np.ndarray, np.ndarray], None
]  # of what was found and what was expected: asserts that it is right


class Unconditional(Assumed):
    """Refuses every condition."""

    def note(self, relation: str, size: Size) -> bool:
        raise AssertionError(f"a condition: {size} {relation} 0")


class OneKernel:
    """A kernel with its schedule and, if the schedule says so, packed weights; compiled after ``change``."""

    def __init__(
        self, kernel: Kernel, schedule: Schedule, target: Target, family: Family, change: Change | None = None
    ) -> None:
        example = example_of(kernel)
        packing = family.packing(example, family.schedule(schedule), family.problem(example))
        self.packed = None if packing is None else pack(kernel, packing)
        self.kernel = kernel if self.packed is None else self.packed.kernel
        self.source: KernelSource = emit(self.kernel, schedule, target, "k", family)
        text = cpu.module_text([change(self.source) if change else self.source], target, runner=False)
        binary = cpu.compile_text(text, target)
        self.image = Image(len(binary).to_bytes(8, "little") + binary)

    def arguments(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays that are passed for the ``inputs`` of the kernel before packing."""
        if self.packed is None:
            return [np.ascontiguousarray(a) for a in inputs]
        return [*(np.ascontiguousarray(inputs[k]) for k in self.packed.kept), packed_constant(self.packed, inputs)]

    def tasks(self, sizes: Mapping[str, int]) -> int:
        return int(value_at(self.source.geometry.groups[0], sizes))

    def numbers(self, sizes: Mapping[str, int]) -> np.ndarray:
        """What the argument ``sizes`` of the function points to."""
        return np.array([number.at(sizes) for number in self.source.sizes], np.int64)

    def call(self, arrays: Sequence[np.ndarray], numbers: np.ndarray, first: int, last: int) -> None:
        pointers = [a.ctypes.data for a in arrays] + ([numbers.ctypes.data] if self.source.sizes else [])
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64, ctypes.c_int64)
        prototype(self.image.address("k"))(*pointers, first, last)

    def run(self, inputs: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
        """The outputs at ``sizes``, with the tasks run one by one from the last to the first."""
        types = self.kernel.params[self.kernel.inputs :]
        outputs = [np.full([value_at(n, sizes) for n in t.shape], UNWRITTEN).astype(t.dtype.numpy) for t in types]
        arrays = [at_the_end_of_memory(a) for a in (*self.arguments(inputs), *outputs)]
        shared = self.shared(sizes)
        numbers = self.numbers(sizes)
        for task in reversed(range(self.tasks(sizes))):
            self.call([*arrays, *shared], numbers, task, task + 1)
        if shared:
            assert not shared[1].any(), "a launch leaves its counters at zero"
        return [a.copy() for a in arrays[len(arrays) - len(outputs) :]]

    def shared(self, sizes: Mapping[str, int]) -> list[np.ndarray]:
        """The workspace and the counters, if the kernel has them."""
        geometry = self.source.geometry
        if not geometry.counter_bytes:
            return []
        workspace = np.full(value_at(geometry.workspace_bytes, sizes), 255, np.uint8)
        return [at_the_end_of_memory(a) for a in (workspace, np.zeros(geometry.counter_bytes, np.uint8))]


class AnySize:
    """The kernel that ``build`` makes of sizes, for all of ``dims``, compiled once.

    example   the sizes that the schedule is chosen for: the middle of each range if not given
    schedule  the engine's default for the example if not given
    change    changes the text before it is compiled
    features  of the processor that the engine is for, if ``change`` does without them: the target's if not given
    """

    def __init__(
        self,
        build: Callable[..., Kernel],
        dims: Mapping[str, Dim],
        *,
        example: Mapping[str, int] | None = None,
        schedule: Schedule | None = None,
        target: Target | None = None,
        family: Family | None = None,
        change: Change | None = None,
        features: frozenset[str] | None = None,
    ) -> None:
        middle = {name: dim.nearest((dim.low + dim.high) // 2) for name, dim in dims.items()}
        self.dims, self.example = dims, {**middle, **(example or {})}
        self.target, self.change = target or cpu.host(), change
        with self._any():
            self.plain = build(**{name: size_of(dim, self.example[name]) for name, dim in dims.items()})
            small = example_of(self.plain)
            self.family = family or family_of(self.plain)
            assert self.family.any_size, f"{self.family.title} takes no sizes"
            assert not self.family.accepts(self.plain, features or self.target.features)
            problem = self.family.problem(small)
            self.schedule = schedule or self.family.default(problem, self.target.limits).numbers
            self.compiled = OneKernel(self.plain, self.schedule, self.target, self.family, change)

    @contextmanager
    def _any(self) -> Any:
        notes = Unconditional()
        with assuming(notes):
            yield
        assert not notes.conditions

    def concrete(self, **sizes: int) -> Kernel:
        """The kernel at ``sizes``."""
        return at(self.plain, lambda size: value_at(size, sizes))

    def check(self, *, bits: bool = False, compare: Comparison | None = None, **sizes: int) -> None:
        """Asserts that the results at ``sizes`` are right; with ``bits``, those of a kernel compiled for them alone.

        A schedule that cannot run there alone is not compared by ``bits``. ``compare`` has its own idea of what is right.
        """
        assert all(sizes[name] in dim for name, dim in self.dims.items())
        kernel = self.concrete(**sizes)
        inputs = random_inputs(kernel)
        found = self.compiled.run(inputs, sizes)
        for actual, wanted in zip(found, expected(kernel, inputs), strict=True):
            try:
                (compare or partial(assert_rounded_once, terms=terms_of(kernel)))(actual, wanted)
            except AssertionError as error:
                raise AssertionError(f"{sizes}, {self.schedule}: {error}") from error
        if bits and not self.family.reasons(self.schedule, self.family.problem(kernel), self.target.limits):
            alone = OneKernel(kernel, self.schedule, self.target, self.family, self.change)
            for actual, wanted in zip(found, alone.run(inputs, {}), strict=True):
                assert_identical(actual, wanted)


def terms_of(kernel: Kernel) -> int:
    """How many numbers are added to one result."""
    depth = kernel.body.k if isinstance(kernel.body, Contraction) else [a for g in kernel.body.reduced() for a in g]
    return int(np.prod([axis.extent for axis in depth]))


def at_the_end_of_memory(array: np.ndarray) -> np.ndarray:
    """A copy with nothing behind it: to read or write a byte further is a segmentation fault."""
    page = mmap.PAGESIZE
    room = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, room + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(page), 0):
        raise OSError("mprotect")
    copy = np.frombuffer(memory, array.dtype, array.size, room - array.nbytes).reshape(array.shape)
    copy[...] = array
    return copy
