"""The fixed kernels whose machine code is read, as the compiler schedules and renders them for an architecture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from gpucomp.device.target import Target
from gpucomp.frontend import onnx as frontend
from gpucomp.ir.types import BF16, F16, I8, I32
from gpucomp.kernel import Kernel, KernelStep
from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernel.source import KernelSource
from gpucomp.kernel_bench import models
from gpucomp.kernel_bench.reference import operands
from gpucomp.kernel_bench.specs import spec_of
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.lowering import kernels_of, rewritten
from gpucomp.schedule.choose import choose
from gpucomp.targets import cuda, hip
from testing.kernels import attention, conv, depthwise, matmul, stem

ENTRY = "measured"
NVIDIA, AMD = ("sm_80", "sm_90a", "sm_100"), ("gfx90a", "gfx1100")
ARCHITECTURES = (*NVIDIA, *AMD)


def target_of(arch: str) -> Target:
    return hip.manifest(arch) if arch in AMD else cuda.manifest(arch)


def _product(kernel: Kernel) -> Kernel:
    """With one result, and with a constant as the right operand, as layers of models have them."""
    kernel = replace(kernel, params=kernel.params[: kernel.inputs + 1], outputs=1, stores=kernel.stores[:1])
    return replace(kernel, constants=frozenset({1}))


def _of_matmul(*extents: int, **how: object) -> Kernel:
    return _product(matmul(*extents, **how))  # type: ignore[arg-type]


def _of_conv(*extents: object, **how: object) -> Kernel:
    return _product(conv(*extents, **how))  # type: ignore[arg-type]


def _of_spec(text: str, target: Target) -> Kernel:
    """The only kernel of the model that ``gpucomp bench --kernel`` makes of ``text``."""
    spec = spec_of(text)
    graph = rewritten(frontend.load(models.model(spec, operands(spec))), target)
    (step,) = (one for one in kernels_of(graph, target) if isinstance(one, KernelStep))
    return step.kernel


# by name; convolutions read NHWC, as those inside a model do
KERNELS: Mapping[str, Callable[[Target], Kernel]] = {
    "gemm 4096 f16": lambda _: _of_matmul(4096, 4096, 4096, dtype=F16),
    "gemm 2048x2048x512 bf16": lambda _: _of_matmul(2048, 2048, 512, dtype=BF16),
    "gemm 4096 f32": lambda _: _of_matmul(4096, 4096, 4096),
    "gemm 1024 i8": lambda _: _of_matmul(1024, 1024, 1024, dtype=I8, acc=I32),
    "ffn 128x3072x768 f16": lambda _: _of_matmul(128, 3072, 768, dtype=F16),
    "ffn 128x768x3072 f16": lambda _: _of_matmul(128, 768, 3072, dtype=F16),
    "conv 3x3 56x56x64 f16": lambda _: _of_conv((1, 56, 56, 64), 64, (3, 3), pad=1, dtype=F16),
    "conv 1x1 56x56x256 f16": lambda _: _of_conv((1, 56, 56, 256), 64, (1, 1), dtype=F16),
    "conv 3x3 7x7x512 f16": lambda _: _of_conv((1, 7, 7, 512), 512, (3, 3), pad=1, dtype=F16),
    "conv 3x3 56x56x64 f32": lambda _: _of_conv((1, 56, 56, 64), 64, (3, 3), pad=1),
    "stem 7x7 224x224x3 f16": lambda _: _of_stem(),
    "depthwise 3x3 56x56x144 f16": lambda _: depthwise((1, 56, 56, 144), (3, 3), pad=1, dtype=F16),
    "attention 4096 d64 f16": lambda _: attention(4096, 4096, 64, 64, heads=16, dtype=F16),
    "attention 4096 d128 f16": lambda _: attention(4096, 4096, 128, 128, heads=16, dtype=F16),
    "attention decode 4096 d64 f16": lambda _: attention(1, 4096, 64, 64, heads=16, dtype=F16),
    "softmax 4096x1024 f16": partial(_of_spec, "softmax:rows=4096,cols=1024,dtype=f16"),
    "layer norm 128x768 f16": partial(_of_spec, "layer_norm:rows=128,cols=768,dtype=f16"),
}


def _of_stem() -> Kernel:
    kernel = stem((1, 224, 224, 3), 64, (7, 7), stride=2, pad=3, dtype=F16, source=F16)
    return _product(kernel)


@dataclass(frozen=True)
class Built:
    """A kernel of ``KERNELS`` for an architecture, scheduled and rendered. ``results``: elements of a work-item."""

    name: str
    arch: str
    engine: str
    source: KernelSource
    results: float

    @property
    def threads(self) -> int:
        return math.prod(self.source.geometry.items)


def build(name: str, arch: str, schedule: Mapping[str, int] | None = None) -> Built:
    """The kernel ``name`` with the schedule that ``compile`` would choose for it, or with another one of that engine's.

    ``schedule`` must pack constants as the chosen one does.
    """
    target = target_of(arch)
    kernel = KERNELS[name](target)
    choice = choose(kernel, engines_of(kernel, target.features), target.limits, target.device)
    if schedule is not None:
        choice = replace(choice, schedule=schedule)
    family = choice.family
    if choice.packing:
        kernel = pack(kernel, choice.packing).kernel
    source = render(kernel, choice.schedule, target, ENTRY, family)
    elements = sum(math.prod(t.shape) for t in kernel.params[kernel.inputs :])
    items = math.prod(source.geometry.groups) * math.prod(source.geometry.items)
    return Built(name, arch, family.title, source, elements / items)
