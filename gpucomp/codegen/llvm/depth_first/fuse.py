"""Chooses layers that are fused on the CPU: those with images between them that go to far memory and back.

An image that is larger than the second-level cache is written to memory beyond it and read again. Fusion saves both.
Its costs are rows that two parts of an image compute twice, and contractions that see one row at a time. Layers are
fused while the model of ``_cost`` finds that the whole takes less time.

``gpucomp.schedule.expected`` cannot decide this. It adds the times of kernels, and an image that goes to far memory
between two of them is in neither time. It also needs whole kernels, so each trial would have to splice a kernel and
pack its weights. ``_cost`` compares only what fusion costs and saves, by the margin ``CLEAR_GAIN``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gpucomp.codegen.llvm import engines as space
from gpucomp.codegen.llvm.contraction import space as contraction_space
from gpucomp.codegen.llvm.depth_first import space as fused_space
from gpucomp.codegen.llvm.depth_first.layers import IMAGE, ROW, LayerRows, layer_rows
from gpucomp.device.limits import Limits
from gpucomp.ir.graph import Value
from gpucomp.kernel import HANDED, Contraction, FusedLayer, FusedLayers, is_kernel_of
from gpucomp.kernel.example import has_sizes
from gpucomp.kernel.passes.pack_weights import pack, packable, packed_step
from gpucomp.kernel.pipeline import Setting
from gpucomp.kernel.splice import Splice
from gpucomp.kernel.step import KernelStep, Step
from gpucomp.schedule.space import Schedule

CLEAR_GAIN = 1.1  # what is saved over what is spent: the model of both is not more exact
FAR_BYTE = 0.15  # cycles to write a byte to memory beyond the second-level cache, or to read it
NEAR_SHARE = 2  # images of at least 1/2 of the second-level cache are written to far memory
WEIGHT_SHARE = 4  # the layers' weights may take 1/4 of the second-level cache


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A step as a layer, and the previous layer's image that it reads; ``None`` if it is first."""

    step: KernelStep
    handed: Value | None
    rows: LayerRows
    limits: Limits

    @cached_property
    def plan(self) -> tuple[Schedule, float] | None:
        """The schedule of a row, and the extra cycles of computing an image row by row instead of all at once.

        ``None`` if a row cannot be computed on its own. This takes long, so it is done only for images that are worth
        it.
        """
        kernel, row, limits = self.rows.kernel, self.rows.row, self.limits
        if row is None or not is_kernel_of(kernel, Contraction):
            (family,) = (f for f in space.ENGINES[type(kernel.body)] if f.engine == "windows")
            problem = family.problem(kernel)
            schedule = {**family.default(problem, limits).numbers, "tasks": 1}
            return None if family.reasons(schedule, problem, limits) else (schedule, 0.0)
        whole, one = (contraction_space.problem(k) for k in (kernel, row))
        if one.form != contraction_space.FORMS.index("gemm") or not packable(kernel, "b") or not limits.vector_bytes:
            return None
        by_rows, at_once = (contraction_space.default(p, limits, threads=(1,)) for p in (one, whole))
        extra = math.prod(self.rows.result.shape[IMAGE : ROW + 1]) * contraction_space.cycles(by_rows, one, 1, limits)
        return by_rows.numbers, extra - contraction_space.cycles(at_once, whole, 1, limits)

    @property
    def schedule(self) -> Schedule:
        assert self.plan is not None
        return self.plan[0]

    @property
    def extra(self) -> float:
        assert self.plan is not None
        return self.plan[1]

    @property
    def weights(self) -> int:
        """Bytes of weights that each row reads."""
        return sum(self.rows.kernel.params[k].nbytes for k in self.rows.kernel.constants)


def fuse(steps: Sequence[Step], at: Setting) -> list[Step]:
    """The pass ``fuse-depth-first``: ``lowering`` says what it takes and gives."""
    target = at.target
    uses = Counter(value for step in steps for value in step.inputs) + Counter(at.graph.outputs)
    writers = Counter(value for step in steps for value in step.outputs)
    # by their result so far: fused layers, or a step that such may begin with
    ending: dict[Value, list[_Candidate] | KernelStep] = {}
    for step in steps:
        if not isinstance(step, KernelStep) or has_sizes(step.kernel):
            continue
        best = _extended(step, ending, uses, target.limits) or step
        if len(step.outputs) == 1 and writers[step.outputs[0]] == 1:
            ending[step.outputs[0]] = best
    made: dict[tuple[object, ...], Value] = {}
    found = [layers for layers in ending.values() if not isinstance(layers, KernelStep)]
    stacks: dict[Step, list[_Candidate]] = {layers[-1].step: layers for layers in found if len(layers) > 1}
    inside: set[Step] = {layer.step for layers in stacks.values() for layer in layers[:-1]}
    return [_fused(stacks[step], made) if step in stacks else step for step in steps if step not in inside]


def _extended(
    step: KernelStep, ending: dict[Value, list[_Candidate] | KernelStep], uses: Counter[Value], limits: Limits
) -> list[_Candidate] | None:
    """The layers that ``step`` extends with a gain, now with the step; they are removed from ``ending``."""
    for value in step.inputs:
        before = ending.get(value)
        if before is None or uses[value] != 1 or not _is_far(value.type.nbytes, limits):
            continue
        layer = _candidate(step, value, limits)
        if layer is None:
            continue
        if isinstance(before, KernelStep):
            first = _candidate(before, None, limits)
            if first is None:
                del ending[value]
                continue
            before = ending[value] = [first]
        longer = [*before, layer]
        if all(c.plan is not None for c in longer) and _cost(longer, limits) < _cost(before, limits):
            del ending[value]
            return longer
    return None


def _candidate(step: KernelStep, handed: Value | None, limits: Limits) -> _Candidate | None:
    found = layer_rows(step.kernel, None if handed is None else step.inputs.index(handed))
    return _Candidate(step, handed, found, limits) if found else None


def _is_far(nbytes: int, limits: Limits) -> bool:
    """Whether an image of this many bytes goes to memory beyond the second-level cache."""
    return nbytes * NEAR_SHARE >= limits.cache_bytes


def _cost(layers: Sequence[_Candidate], limits: Limits) -> float:
    """Extra cycles of fused layers, compared with their own kernels, on one thread; negative if they clearly gain."""
    if len(layers) == 1:
        return 0.0
    p = fused_space.sizes([c.rows for c in layers])
    s = fused_space.default(p, limits)
    kept = fused_space.kept_bytes(s.rows, p)
    weights = sum(c.weights for c in layers)
    if kept > limits.cache_bytes // fused_space.CACHE_SHARE or weights > limits.cache_bytes // WEIGHT_SHARE:
        return math.inf
    images = [c.rows.result.nbytes for c in layers[:-1]]
    spared = sum(2 * FAR_BYTE * nbytes for nbytes in images if _is_far(nbytes, limits))
    spent = sum(c.extra for c in layers) + p.images * (s.parts * p.halo + fused_space.carrying(s.rows, p))
    return CLEAR_GAIN * spent - spared


def _fused(layers: Sequence[_Candidate], made: dict[tuple[object, ...], Value]) -> KernelStep:
    """The step of fused layers. Their weights are packed for the rows that they are multiplied by."""
    parts = [_laid_out(c, made) for c in layers]
    splice = Splice(parts, handed=[v for part in parts[:-1] for v in part.outputs])
    found = []
    for part, candidate, new in zip(parts, layers, splice.renumberings, strict=True):
        params = tuple(new.numbers.get(k, HANDED) for k in range(len(part.kernel.params)))
        found.append(FusedLayer(part.kernel, params, candidate.schedule))
    first, last = parts[0], parts[-1]
    kernel = splice.kernel("fused_layers", FusedLayers(tuple(found)), (), f"{len(layers)} layers: {first.kernel.label}")
    return splice.step(kernel, f"{last.name.partition('_')[0]}_fused_layers", last.why)


def _laid_out(layer: _Candidate, made: dict[tuple[object, ...], Value]) -> KernelStep:
    kernel = layer.step.kernel
    if not is_kernel_of(kernel, Contraction):
        return layer.step
    family = space.REGISTER_BLOCKS
    packing = family.packing(kernel, family.schedule(layer.schedule), family.problem(kernel))
    return layer.step if packing is None else packed_step(layer.step, pack(kernel, packing), made)
