"""Turns steps into a plan: the buffers, the offsets of the temporary ones, and the list of launches. Builds nothing.

Buffers are the model's inputs and outputs, the weights that kernels read, and temporaries in one arena. A temporary
lives from the first step that writes it (several steps write the parts of a Concat) to the last one that reads it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from gpucomp import config
from gpucomp.artifact.arena import Lifetime, plan_arena
from gpucomp.artifact.open_plan import Choices, OpenPlan, Stacks, placed, stacks_of
from gpucomp.artifact.plan import (
    CACHE_BYTES,
    COUNTER,
    INPUT,
    NUMBERS,
    OUTPUT,
    TEMP,
    WEIGHT,
    Buffer,
    CompiledKernel,
    Launch,
    Plan,
    Repeat,
)
from gpucomp.device.target import Target
from gpucomp.errors import UnsupportedError, quote
from gpucomp.expr.core import Expr, loads
from gpucomp.expr.simplify import flatten
from gpucomp.ir.conditions import Assumed, assuming
from gpucomp.ir.dim import ANY
from gpucomp.ir.dims import OpenShapes
from gpucomp.ir.graph import Constant, Graph, Sizes, Value
from gpucomp.ir.size import Size, hint, is_zero, same, value_at
from gpucomp.ir.types import I8, TensorType
from gpucomp.kernel import Contraction, Kernel, Loops, Scatter, is_kernel_of
from gpucomp.kernel.example import example_of
from gpucomp.kernel.forms.scatter import copied_in_place
from gpucomp.kernel.source import SOURCE_SUFFIX, KernelSource
from gpucomp.kernel.step import HostStep, KernelStep, RepeatStep, Step
from gpucomp.lazy_dataclass import dataclass
from gpucomp.openings import open_plan
from gpucomp.schedule.analytic import arithmetic, operations, traffic
from gpucomp.schedule.choose import Choice
from gpucomp.schedule.variants import Variants

BINARY_SUFFIX = {"cuda": ".cubin", "opencl": ".clbin", "hip": ".co"}
WORSE = 1.02  # an arena that is so much larger than another one
WHOLE_MODEL = "model.o"  # a CPU model is one object


@dataclass(frozen=True)
class Rendered:
    """The source of a step's kernel, and where its schedule came from."""

    source: KernelSource
    choice: Choice


RenderedVariants = tuple[Variants, Sequence[Rendered]]  # one source for each variant


@dataclass(eq=False)
class _Builder:
    graph: Graph
    buffers: list[Buffer] = field(default_factory=list)
    position: dict[Value, int] = field(default_factory=dict)
    weights: list[np.ndarray] = field(default_factory=list)
    lives: dict[int, list[int]] = field(default_factory=dict)  # buffer -> [first, last]
    replaceable: dict[int, list[int]] = field(default_factory=dict)  # buffer -> operands whose memory it can reuse
    kernels: dict[str, int] = field(default_factory=dict)  # by name, the position among ``compiled``
    compiled: list[CompiledKernel] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    repeats: list[Repeat] = field(default_factory=list)
    open: _Open | None = None

    @cached_property
    def in_place(self) -> dict[Value, Value]:
        return self.graph.in_place()

    def add(self, kind: str, name: str, type: TensorType) -> int:
        self.buffers.append(Buffer(kind, name, type.dtype.name, type.shape, type.nbytes))
        return len(self.buffers) - 1

    def read(self, value: Value) -> int:
        """The buffer of a value that exists: an input, a constant, or the result of an earlier step."""
        if value not in self.position:
            if value.op is Sizes:
                self.position[value] = self.add(NUMBERS, f"n{len(self.buffers)}", value.type)
                values = tuple(value.attrs["values"].reshape(-1))
                self.buffers[-1] = replace(self.buffers[-1], numbers=values)
                return self.position[value]
            assert value.op is Constant, f"{value!r} is read before it is written"
            array = value.attrs["value"]
            self.position[value] = self.add(WEIGHT, f"w{len(self.weights)}", value.type)
            self.weights.append(array)
        return self.position[value]

    def write(self, value: Value, type: TensorType, step: int) -> int:
        """The buffer of a value that ``step`` writes as ``type``, which can be narrower than the value's own between kernels."""
        if value not in self.position:
            if value in self.in_place:
                self.position[value] = self.read(self.in_place[value])
            elif value in self.graph.outputs:
                name = self.graph.output_names[self.graph.outputs.index(value)]
                self.position[value] = self.add(OUTPUT, name, value.type)
            else:
                self.position[value] = self.temporary(f"t{step}_{len(self.buffers)}", type, step)
        self.touch(self.position[value], step)
        return self.position[value]

    def temporary(self, name: str, type: TensorType, step: int) -> int:
        buffer = self.add(TEMP, name, type)
        self.lives[buffer] = [step, step]
        return buffer

    def touch(self, buffer: int, step: int) -> None:
        if buffer in self.lives:
            self.lives[buffer][1] = max(self.lives[buffer][1], step)

    def add_nothing(self, number: int, step: KernelStep) -> None:
        """Results without elements: they have buffers, and no kernel computes them."""
        for value, type in _results(step):
            self.write(value, type, number)

    def add_host_step(self, number: int, step: HostStep) -> None:
        launch = self._launch(number, step)
        for name, value in step.node.attrs.items():
            if any(isinstance(part, Size) for part in (value if isinstance(value, tuple) else (value,))):
                raise UnsupportedError(
                    f"{launch.name}: {name} of {step.node.op.name}, which the host computes, differs from run to run",
                    code="GPC4014",
                )
        self.launches.append(replace(launch, host=step.node.op.name, attributes=dict(step.node.attrs)))

    def add_kernel_step(self, number: int, step: KernelStep, item: Rendered) -> None:
        fresh = [v for v in step.outputs if v not in self.position]
        launch = self._launch(number, step)
        self._let_replace(step, launch, fresh)
        geometry = item.source.geometry
        extra = []
        if not is_zero(geometry.workspace_bytes):
            extra.append(self.temporary(f"s{number}", TensorType(I8, (geometry.workspace_bytes,)), number))
        if not is_zero(geometry.counter_bytes):
            extra.append(self.add(COUNTER, f"c{number}", TensorType(I8, (geometry.counter_bytes,))))
        name = item.source.name
        if name not in self.kernels:
            self.kernels[name] = len(self.compiled)
            self.compiled.append(compiled_kernel(step.kernel, item))
        self.launches.append(replace(launch, kernel=self.kernels[name], args=(*launch.args, *extra)))
        if self.open is not None:
            moved = [self.open.step.bound.get(v, (v, 0))[1] for v in (*step.inputs, *step.outputs)]
            self.open.advances.append((*moved, *[0] * len(extra)))

    def begin_repeat(self, number: int, step: RepeatStep) -> None:
        """Bind the values of a body to memory outside it, which is in use in the whole loop."""
        self.open = _Open(step, number, len(self.launches))
        for value, (outer, _) in step.bound.items():
            buffer = self.write(outer, outer.type, number) if outer.node is step.node else self.read(outer)
            self.touch(buffer, number + step.length)
            self.position[value] = buffer

    def end_repeat(self, number: int) -> None:
        """Close the loop if step ``number`` is its last."""
        if self.open is None or number < self.open.number + self.open.step.length:
            return
        if self.open.advances:
            step, advances = self.open.step, tuple(self.open.advances)
            own = Repeat(self.open.first, len(self.launches), step.count, advances, step.before, step.after)
            self.repeats.append(own)
        self.open = None

    def _launch(self, number: int, step: Step) -> Launch:
        """A step's launch, of no kernel yet, with buffers for what it reads and writes."""
        arguments = [self.read(v) for v in step.inputs]
        for buffer in arguments:
            self.touch(buffer, number)
        results = [self.write(v, type, number) for v, type in _results(step)]
        ops = tuple(n.op.name for n in (*step.prologue, *step.nodes))
        names = tuple(n.name for n in (*step.prologue, *step.nodes) if n.name)
        return Launch(-1, (*arguments, *results), step.name, ops, names, step.why, len(arguments))

    def _let_replace(self, step: KernelStep, launch: Launch, fresh: Sequence[Value]) -> None:
        """Note which results can be stored in an operand's memory: temporary ones that this step is the first to write."""
        inputs = step.kernel.inputs
        for parameter, operand in _replaceable(step.kernel):
            output, buffer = step.outputs[parameter - inputs], launch.args[parameter]
            if output in fresh and self.buffers[buffer].kind == TEMP and self._dies(launch.args[operand]):
                self.replaceable.setdefault(buffer, []).append(launch.args[operand])

    def _dies(self, buffer: int) -> bool:
        """Whether ``buffer`` may be free after its last use: in a loop, what is made before it is used in the next step too."""
        return self.open is None or (buffer in self.lives and self.lives[buffer][0] > self.open.number)


@dataclass
class _Open:
    """A loop whose steps are being added. ``first`` is its first launch, ``number`` the number of its ``RepeatStep``."""

    step: RepeatStep
    number: int
    first: int
    advances: list[tuple[int, ...]] = field(default_factory=list)


def make_plan(
    graph: Graph,
    steps: Sequence[Step],
    rendered: Mapping[KernelStep, Rendered],
    target: Target,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
) -> tuple[Plan, dict[str, np.ndarray]]:
    """The plan of ``steps``, and its weights by the names of their buffers."""
    plan, weights, _ = _planned(graph, steps, rendered, target, precision, keep_fp32)
    return plan, weights


def make_open_plan(
    graph: Graph,
    steps: Sequence[Step],
    rendered: Mapping[KernelStep, Rendered],
    target: Target,
    precision: str,
    keep_fp32: Sequence[str],
    shapes: OpenShapes,
    conditions: Assumed,
    variants: Mapping[str, RenderedVariants],
) -> tuple[OpenPlan, dict[str, np.ndarray]]:
    """As ``make_plan``, of steps whose extents are sizes of ``shapes``: a plan for all sizes that meet ``conditions``.

    ``variants`` has the variants of kernels by the names of their sources.
    """
    with assuming(conditions):
        plan, weights, builder = _planned(graph, steps, rendered, target, precision, keep_fp32)
    kernels, choices = list(plan.kernels), []
    memory_of = {item.source.name: item.source.geometry for item in rendered.values()}
    for name, (found, items) in variants.items():
        if name not in builder.kernels:  # its results have no elements
            continue
        kernel, own, memory = builder.kernels[name], list[int](), memory_of[name]
        for item in items:
            geometry = item.source.geometry  # a launch has the same arguments, whichever variant it runs
            assert same(geometry.workspace_bytes, memory.workspace_bytes)
            assert geometry.counter_bytes == memory.counter_bytes
            own.append(kernel if item.source.name == name else len(kernels))
            if item.source.name != name:
                kernels.append(compiled_kernel(found.kernel, item))
        starts = tuple(variant.start for variant in found.variants)
        regrets = tuple((tuple(sizes[dim] for dim in shapes.dims), round(ratio, 3)) for sizes, ratio in found.regrets)
        choices.append(Choices(kernel, cast(int, found.points), starts, tuple(own), regrets))
    plan = replace(plan, kernels=tuple(kernels))
    orders = _orders(builder, plan.buffers, shapes, target.alignment)
    return open_plan(plan, shapes, conditions, orders, target.alignment, choices), weights


def _orders(builder: _Builder, example: Sequence[Buffer], shapes: OpenShapes, alignment: int) -> tuple[Stacks, ...]:
    """The order of the temporaries that is best in the example, and those that are much better at the ends of the ranges."""

    dying = {b: [d for d in operands if d in builder.lives] for b, operands in builder.replaceable.items()}

    def stacks(offsets: Sequence[int]) -> Stacks:
        return stacks_of({b: offsets[b] for b in builder.lives}, builder.lives, dying)

    found = [stacks([b.offset for b in example])]
    for end in (0, ANY):
        sizes = {name: dim.nearest(end) for name, dim in shapes.dims.items()}
        try:
            nbytes = [max(int(value_at(b.nbytes, sizes)), 0) for b in builder.buffers]
        except ZeroDivisionError:  # the ends need not meet the conditions
            continue
        arena = min(placed(order, nbytes, alignment)[1] for order in found)
        buffers, least, _ = _lay_out(builder, alignment, nbytes)
        if arena > WORSE * least:
            found.append(stacks([b.offset for b in buffers]))
    return tuple(found)


@dataclass(frozen=True)
class Temporary:
    """A temporary buffer. ``inplace`` has the positions, among all of them, of those whose memory it can take over."""

    nbytes: Any
    first: int
    last: int
    inplace: tuple[int, ...]


def arenas_of(
    graph: Graph, steps: Sequence[KernelStep], shapes: OpenShapes, alignment: int
) -> tuple[list[Temporary], tuple[Stacks, ...]]:
    """The temporaries of ``steps``, without those that a kernel may need for itself, and the orders to place them in."""
    builder = _Builder(graph)
    for value in graph.inputs:
        builder.position[value] = builder.add(INPUT, value.attrs["label"], value.type)
    for number, step in enumerate(steps):
        fresh = [v for v in step.outputs if v not in builder.position]
        builder._let_replace(step, builder._launch(number, step), fresh)
    buffers, _, _ = _lay_out(builder, alignment)
    rank = {b: k for k, b in enumerate(builder.lives)}
    orders = _orders(builder, buffers, shapes, alignment)
    found = [
        Temporary(builder.buffers[b].nbytes, first, last, tuple(rank[o] for o in _dying(builder, b)))
        for b, (first, last) in builder.lives.items()
    ]
    ranked = tuple(
        tuple(replace(stack, buffers=tuple(rank[b] for b in stack.buffers)) for stack in order) for order in orders
    )
    return found, ranked


def _dying(builder: _Builder, buffer: int) -> list[int]:
    """The temporaries whose memory ``buffer`` can take over, because they die when it is made."""
    lives = builder.lives
    return [o for o in builder.replaceable.get(buffer, []) if o in lives and lives[o][1] == lives[buffer][0]]


def _planned(
    graph: Graph,
    steps: Sequence[Step],
    rendered: Mapping[KernelStep, Rendered],
    target: Target,
    precision: str,
    keep_fp32: Sequence[str],
) -> tuple[Plan, dict[str, np.ndarray], _Builder]:
    builder = _Builder(graph)
    for value in graph.inputs:
        builder.position[value] = builder.add(INPUT, value.attrs["label"], value.type)
    for number, step in enumerate(steps):
        if isinstance(step, RepeatStep):
            builder.begin_repeat(number, step)
        elif isinstance(step, HostStep):
            builder.add_host_step(number, step)
        elif any(map(is_zero, rendered[step].source.geometry.groups)):
            builder.add_nothing(number, step)
        else:
            builder.add_kernel_step(number, step, rendered[step])
        builder.end_repeat(number)
    kept = {state.output for state in graph.states if state.in_place}
    returned = [k for k, name in enumerate(graph.output_names) if name not in kept]
    outputs = tuple(builder.read(graph.outputs[k]) for k in returned)
    _require_whole_states(builder, target)
    buffers, arena, live = _lay_out(builder, target.alignment)
    weights = [b for b in buffers if b.kind == WEIGHT]
    plan = Plan(
        target=target.name,
        kind=target.kind,
        arch=target.arch,
        buffers=buffers,
        kernels=tuple(builder.compiled),
        launches=tuple(builder.launches),
        inputs=tuple(builder.position[v] for v in graph.inputs),
        outputs=outputs,
        output_names=tuple(graph.output_names[k] for k in returned),
        arena_bytes=arena,
        live_bytes=live,
        model=graph.name,
        features=tuple(sorted(target.features)),
        precision=precision,
        keep_fp32=tuple(keep_fp32),
        input_containers=dict(graph.input_containers),
        output_containers=dict(graph.output_containers),
        repeats=tuple(builder.repeats),
        states=graph.states,
        cache_bytes=target.cache_bytes if builder.repeats else CACHE_BYTES,
    )
    return plan, {b.name: w for b, w in zip(weights, builder.weights, strict=True)}, builder


def _require_whole_states(builder: _Builder, target: Target) -> None:
    """Raise ``UnsupportedError`` (GPC4015) if a loop reads a state slice by slice where that is not in the state's memory."""
    moved = {
        position
        for repeat in builder.repeats
        for launch, row in zip(builder.launches[repeat.first : repeat.last], repeat.advances, strict=True)
        for position, advance in zip(launch.args, row, strict=True)
        if not is_zero(advance)
    }
    for state in builder.in_place.values():
        if target.kind in ("cuda", "hip") and builder.position[state] in moved:
            raise UnsupportedError(
                f"state {quote(state.attrs['label'])}: a loop reads it step by step, which {target.name} does on a copy",
                code="GPC4015",
            )


def _results(step: Step) -> list[tuple[Value, TensorType]]:
    if isinstance(step, HostStep):
        return [(v, v.type) for v in step.outputs]
    return list(zip(step.outputs, step.kernel.params[step.kernel.inputs :], strict=True))


def compiled_kernel(kernel: Kernel, item: Rendered) -> CompiledKernel:
    """The plan's description of a kernel and its launch."""
    source, geometry = item.source, item.source.geometry
    return CompiledKernel(
        name=source.name,
        language=source.language,
        source=f"{source.name}{SOURCE_SUFFIX[source.language]}",
        binary=f"{source.name}{BINARY_SUFFIX[source.language]}" if source.language in BINARY_SUFFIX else WHOLE_MODEL,
        groups=geometry.groups,
        items=geometry.items,
        shared=geometry.dynamic_shared_bytes,
        family=f"{kernel.family}/{engine}" if (engine := item.choice.family.engine) else kernel.family,
        label=kernel.label,
        tier=item.choice.tier,
        schedule=dict(source.schedule),
        tensor_maps=source.tensor_maps,
        programmatic=source.programmatic,
        operations=round(operations(example_of(kernel))),
        traffic=round(traffic(example_of(kernel))),
        arithmetic=arithmetic(kernel),
        numbers=source.sizes,  # type: ignore[arg-type]  # numbers once each run has decided them
    )


def _replaceable(kernel: Kernel) -> list[tuple[int, int]]:
    """Pairs (output, input) of parameters where each input element is read only to make the output element in its place.

    The result can then be stored in the operand's memory, if the operand dies here: no other element of it is read later.
    A scatter in place has nothing to copy. Outputs that row statistics read back are excluded: the kernel may read the
    operand by ``ld.global.nc``, which need not see what is stored.
    """
    if is_kernel_of(kernel, Scatter):
        data = copied_in_place(kernel)
        return [] if data is None else [(kernel.stores[0].target, data)]
    if not isinstance(kernel.body, (Loops, Contraction)):
        return []
    inner, again = set[int](), set[int]()
    if isinstance(kernel.body, Contraction):
        tail = kernel.body.tail.expressions() if kernel.body.tail else ()  # it runs after the stores
        again = {ld.source for e in tail for ld in loads(e)}
        inner = {ld.source for e in (kernel.body.a, kernel.body.b) for ld in loads(e)} | again
    reads: dict[int, set[Expr]] = {}
    for store in kernel.stores:
        for ld in loads(store.value):
            reads.setdefault(ld.source, set()).add(flatten(ld.index, kernel.params[ld.source].shape))
    pairs = []
    for store in kernel.stores:
        target = kernel.params[store.target]
        place = flatten(store.index, target.shape)
        for source, places in reads.items():
            operand = kernel.params[source]
            alike = operand.dtype.nbytes == target.dtype.nbytes and same(operand.size, target.size)
            apart = source not in inner and store.target not in again
            if alike and apart and places == {place} and len(kernel.stores) == 1:
                pairs.append((store.target, source))
    return pairs


def _lay_out(
    builder: _Builder, alignment: int, nbytes: Sequence[int] | None = None
) -> tuple[tuple[Buffer, ...], int, int]:
    """Offsets for the temporaries; the arena's size and the largest live set, in bytes. ``nbytes`` if not the example's."""
    order = list(builder.lives)
    rank = {buffer: k for k, buffer in enumerate(order)}
    lifetimes = [
        Lifetime(
            int(hint(builder.buffers[b].nbytes)) if nbytes is None else nbytes[b],
            builder.lives[b][0],
            builder.lives[b][1],
            tuple(rank[o] for o in _dying(builder, b)),
        )
        for b in order
    ]
    arena = plan_arena(lifetimes, alignment)
    buffers = list(builder.buffers)
    for k, buffer in enumerate(order):
        buffers[buffer] = replace(buffers[buffer], offset=arena.offsets[k])
    return tuple(buffers), arena.arena_bytes, arena.live_bytes


def report(plan: Plan, steps: Sequence[Step], rendered: Mapping[KernelStep, Rendered], target: Target) -> None:
    """Print the kernels for ``GPUCOMP_DEBUG`` and write them for ``GPUCOMP_DUMP``; the passes report themselves."""
    settings = config.current()
    if settings.debug:
        print(
            f"{target.name}: {len(plan.launches)} launches of {len(plan.kernels)} kernels, "
            f"arena {plan.arena_bytes} B ({plan.live_bytes} B live at most)",
            file=sys.stderr,
        )
    if settings.debug >= 2:
        for step in steps:
            choice = rendered[step].choice if isinstance(step, KernelStep) else None
            tier, schedule = (choice.tier, dict(choice.schedule)) if choice else ("host", {})
            print(f"  {step.name:24} {tier:8} {schedule} ends: {step.why}", file=sys.stderr)
            for reason in choice.passed_over if choice else ():
                print(f"  {'':24} not {reason}", file=sys.stderr)
    if settings.debug >= 4:
        for item in {r.source.name: r for r in rendered.values()}.values():
            print(item.source.text, file=sys.stderr)
    if settings.dump is not None:
        folder = settings.dump / "kernels"
        folder.mkdir(parents=True, exist_ok=True)
        for item in rendered.values():
            suffix = SOURCE_SUFFIX[item.source.language]
            (folder / f"{item.source.name}{suffix}").write_text(item.source.text, encoding="utf-8")
        chosen = {
            s.name: {"tier": item.choice.tier, "schedule": dict(item.choice.schedule)} for s, item in rendered.items()
        }
        text = json.dumps(chosen, indent=1, sort_keys=True)
        (settings.dump / "schedule.json").write_text(text + "\n", encoding="utf-8")
        kernels = "\n".join(f"{s.name}: {s.why}\n{s.kernel.text}\n" for s in steps if isinstance(s, KernelStep))
        (settings.dump / "kernels.txt").write_text(kernels, encoding="utf-8")
