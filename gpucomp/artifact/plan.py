"""A compiled model as plain data: buffers, kernels, launches. ``model.gpuc`` stores it.

This module needs nothing but numpy, because loading a compiled model must not import the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.ir.state import State
from gpucomp.lazy_dataclass import dataclass

# families that do fewer than are counted, which are those of the convolution
FEWER_OPERATIONS = ("contraction/winograd",)
CACHE_BYTES = 1 << 20  # of a plan without loops, and of older files with loops
INPUT, OUTPUT, WEIGHT, TEMP, COUNTER, NUMBERS = "input", "output", "weight", "temp", "counter", "numbers"


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory, row-major. ``offset`` is the byte offset in the arena, for ``temp`` buffers.

    A ``counter`` is zeroed once, before the first run. Kernels leave it at zero. A ``numbers`` buffer holds ``numbers``, which
    follow from the sizes of the run.

    Inputs and outputs have the names of the model; other buffers have generated names (``w3``, ``t12``).
    """

    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int = -1
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel and how to launch it.

    ``groups``, ``items``, ``shared``: see ``kernel.geometry.Geometry``. ``binary`` names the member of the file that
    holds the machine code; several kernels of a CPU model share one. ``tensor_maps`` are passed by value after the
    buffers. ``numbers`` are what a run gives a kernel for any size, as 64-bit integers after these; on the CPU the last
    pointer is to an array of them. A ``programmatic`` kernel itself waits for the launches before it (CUDA: programmatic
    dependent launch).

    ``operations`` is the number of operations of one launch, on numbers of type ``arithmetic``. A multiply-add counts
    as two, and a convolution always as a direct convolution. ``traffic`` is the number of bytes that must be moved at
    least.
    """

    name: str
    language: str
    source: str
    binary: str
    groups: tuple[int, int, int]
    items: tuple[int, int, int]
    shared: int = 0
    family: str = ""
    label: str = ""
    tier: str = ""
    schedule: Mapping[str, int] = field(default_factory=dict)
    tensor_maps: tuple[TensorMap, ...] = ()
    programmatic: bool = False
    operations: int = 0
    traffic: int = 0
    arithmetic: str = ""
    numbers: tuple[int, ...] = ()

    @property
    def is_contraction(self) -> bool:
        """Whether it is one, by any engine: the family's name is before a slash then."""
        return self.family.partition("/")[0] == "contraction"


@dataclass(frozen=True)
class Launch:
    """Run kernel number ``kernel`` on buffers ``args`` (positions in ``Plan.buffers``), in the kernel's order.

    ``ops`` are the ONNX operators that were fused into it and ``nodes`` the names of their nodes, for messages and
    reports. ``host`` is the name of a host operator, ``kernel`` is then -1 and ``attributes`` holds the operator's
    attributes.
    """

    kernel: int
    args: tuple[int, ...]
    name: str = ""
    ops: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    why: str = ""
    inputs: int = 0
    host: str = ""
    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Repeat:
    """Launches ``first .. last - 1`` run in this order ``count`` times.

    ``advances`` has a tuple for each launch: by how many bytes each argument advances with every step. A step whose
    argument advances by -n bytes begins n bytes before the one before it.

    Other loops run ``before`` steps before them, and ``after`` steps after them, on the same buffers. The first step of all
    works at the beginning of a buffer, or as many times n bytes after it as steps follow.
    """

    first: int
    last: int
    count: int
    advances: tuple[tuple[int, ...], ...]
    before: int = 0
    after: int = 0

    def start(self, advance: int) -> int:
        """Where an argument with this ``advance`` begins in the first step, in bytes from the beginning of its buffer."""
        return advance * self.before if advance > 0 else -advance * max(self.count - 1 + self.after, 0)


@dataclass(frozen=True)
class Plan:
    """A whole compiled model. ``inputs`` and ``outputs`` are positions in ``buffers``; an output can be an input or a weight.

    ``features`` are the features of the target that a device needs to run the machine code. ``precision`` is the
    precision that kernels may round to, except for nodes that match ``keep_fp32``. Kernels compiled while the model
    runs obey both.

    ``repeats`` are the loops, in the order of their launches. None overlaps another. ``cache_bytes`` is the size of the
    target's cache, in which what every step of a loop uses anew may stay.

    ``input_containers`` and ``output_containers`` map each sequence or optional of the model to the names of the inputs
    or outputs that hold its elements, or to ``None`` for an empty optional; see ``Graph``.

    ``states`` are the inputs that a context keeps from run to run.
    """

    target: str
    kind: str
    arch: str
    buffers: tuple[Buffer, ...]
    kernels: tuple[CompiledKernel, ...]
    launches: tuple[Launch, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    output_names: tuple[str, ...]
    arena_bytes: int
    live_bytes: int = 0  # the largest live set, a lower bound of the arena's size
    model: str = ""
    features: tuple[str, ...] = ()
    precision: str = "fp32"
    keep_fp32: tuple[str, ...] = ()
    input_containers: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    output_containers: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    repeats: tuple[Repeat, ...] = ()
    cache_bytes: int = CACHE_BYTES
    states: tuple[State, ...] = ()

    def counts(self) -> list[int]:
        """How often each launch runs."""
        counts = [1] * len(self.launches)
        for repeat in self.repeats:
            counts[repeat.first : repeat.last] = [repeat.count] * (repeat.last - repeat.first)
        return counts
