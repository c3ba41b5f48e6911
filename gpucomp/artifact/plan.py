"""What an executable does, as plain data: buffers, kernels, launches. It is what ``model.gpuc`` stores.

numpy is all that this module needs: loading an artefact must not import a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpucomp.artifact.tensor_map import TensorMap

INPUT, OUTPUT, WEIGHT, TEMP, COUNTER = "input", "output", "weight", "temp", "counter"


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory, row-major. ``offset`` is the byte offset in the arena, for ``temp`` buffers.

    A ``counter`` is zeroed once, before the first run; the kernels leave it zeroed.

    ``name`` is the model's name of an input or output, a generated one (``w3``, ``t12``) otherwise.
    """

    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int = -1


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel and how to launch it; ``info`` is what ``exe.kernels`` shows.

    ``groups``, ``items``, ``shared``: see ``schedule.space.Geometry``. ``binary`` names the member that holds the
    machine code; several kernels of a CPU model share one. ``tensor_maps`` are passed by value behind the buffers; a
    ``programmatic`` kernel waits itself for the launches before it.

    ``operations`` are those of one launch on numbers of type ``arithmetic``, a multiply-add counted as two, a
    convolution always as the sums of products that define it; ``traffic`` the bytes that must move at least once.
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


@dataclass(frozen=True)
class Launch:
    """Run kernel number ``kernel`` on buffers ``args`` (positions in ``Plan.buffers``), in the kernel's order.

    ``ops`` are the ONNX operators it swallowed and ``nodes`` the names of their nodes: for messages and reports.
    ``host`` is the name of a host operator, with ``kernel`` -1; ``attributes`` are then its attributes.
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
class Plan:
    """``inputs`` and ``outputs`` are positions in ``buffers``; an output may be an input or a weight itself.

    ``features`` are the target's: what a device must have to run the machine code. ``precision`` is what its kernels
    were allowed to round to, but those of nodes that match ``keep_fp32``; both hold for what is compiled while it runs.

    ``input_containers`` and ``output_containers``: the names of the inputs or outputs that make up a sequence of the
    model, ``None`` for an optional that holds nothing; see ``Graph``.
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
    live_bytes: int = 0  # the largest live set: what no plan can go below
    model: str = ""
    features: tuple[str, ...] = ()
    precision: str = "fp32"
    keep_fp32: tuple[str, ...] = ()
    input_containers: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    output_containers: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
