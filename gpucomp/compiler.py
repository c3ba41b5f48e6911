"""``compile``: the whole pipeline on one screen. Start reading here; each stage is one call into its own package."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpucomp import checking, config, targets
from gpucomp.artifact.plan import Plan
from gpucomp.device.target import Target
from gpucomp.errors import KernelBuildError, ScheduleError, UnsupportedError, WrongKernelError
from gpucomp.frontend import onnx as frontend
from gpucomp.frontend.onnx.loader import OpenGraph, Source, read
from gpucomp.frontend.onnx.open_shapes import declared_inputs, declared_outputs, open_shapes
from gpucomp.ir import traces
from gpucomp.ir.conditions import assuming
from gpucomp.ir.dims import has_dims
from gpucomp.ir.example import example_now, exemplified
from gpucomp.ir.graph import Graph, Value
from gpucomp.ir.instance import nonempty
from gpucomp.ir.passes import PassRecord
from gpucomp.ir.polynomial import NotPolynomial
from gpucomp.kernel import Kernel
from gpucomp.kernel.passes import precision as narrow
from gpucomp.kernel.pipeline import KernelPass
from gpucomp.kernel.source import KernelSource
from gpucomp.kernel.states import settled
from gpucomp.kernel.step import HostStep, KernelStep, Step
from gpucomp.lazy_dataclass import dataclass
from gpucomp.lowering import SCHEDULED_PASSES, kernels_of, rewritten, scheduled
from gpucomp.planning import Rendered, RenderedVariants, make_open_plan, make_plan, report
from gpucomp.refusal import Refusal
from gpucomp.replacing import Made, Seen, choice_of, none_left, others, rendered_of
from gpucomp.rewrite.pipeline import Pass
from gpucomp.rewrite.states import Given, Kept, pairs_of, with_states
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.inputs import TensorSpec
from gpucomp.runtime.open_program import OpenProgram
from gpucomp.schedule.choose import TIERS, Choice, Tiers, choose, recorded
from gpucomp.schedule.records import Picks, picks_of
from gpucomp.schedule.scheduled import Program, Scheduled, run_scheduled_passes
from gpucomp.schedule.space import Family
from gpucomp.schedule.standing import standing
from gpucomp.schedule.variants import engine_for_all, variants_of
from gpucomp.stages import Progress, watched

if TYPE_CHECKING:
    from onnx import ModelProto

    from gpucomp.dynamic.program import DynamicModel


def compile(
    model: str | Path | bytes | ModelProto | Source,
    *,
    target: str = "auto",
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
    records: str | Path | Picks | None = None,
    progress: Progress | None = None,
    observer: Callable[[PassRecord], None] | None = None,
    specialise_for: Sequence[Mapping[str, Any]] = (),
    usual: Mapping[str, traces.Given | None] | None = None,
    states: Given = None,
    states_precision: Kept = "fp32",
) -> Executable:
    """As ``gpucomp.compile``, but never from the cache of models, and nothing in the background. ``usual``: what is in
    ``shapes_from``, by what messages call each. ``states`` and their precision can be those of ``rewrite.states.with_states``.
    """
    if has_dims(shapes):
        options = {"constants": constants, "precision": precision, "keep_fp32": keep_fp32, "records": picks_of(records)}
        return _for_any_shape(
            model,
            targets.resolve(target),
            shapes or {},
            options,
            specialise_for,
            usual or {},
            states,
            states_precision,
        )
    with watched(progress or silent) as tell:
        device = targets.resolve(target)
        targets.require_compiler(device)
        picks = picks_of(records)
        with targets.begin(device) as begun:
            lowered = lower(
                model,
                device,
                shapes,
                constants,
                precision,
                keep_fp32,
                tell,
                observer,
                picks,
                loaded=begun.expect,
                rendered=begun.start,
                states=states,
                states_precision=states_precision,
            )
            return finish(lowered, device, precision, tell, begun)


def _for_any_shape(
    model: str | Path | bytes | ModelProto | Source,
    device: Target,
    shapes: Mapping[str, Any],
    options: Mapping[str, Any],
    specialise_for: Sequence[Mapping[str, Any]],
    usual: Mapping[str, traces.Given | None],
    states: Given,
    states_precision: Kept,
) -> Executable:
    """The executable for a range of shapes. The model is read once; it is translated here to tell what is wrong with it."""
    targets.require_compiler(device)
    narrow.require(options["precision"], device.features, device.name)
    proto, files = read(model)
    found = open_shapes(proto, shapes, options["constants"] or {})
    pairs = pairs_of(states, *_names(proto))
    found = found.with_empty(pairs)
    found = found.with_usual(traces.sizes_in(usual, found))
    declared = {tuple(one.values()): one for one in (found.sizes_from(g, "specialise_for") for g in specialise_for)}
    kept = partial(with_states, states=pairs, dims=found.dims, precision=states_precision)
    with frontend.keeping(pairs):
        opened = frontend.load_open(Source(proto, files), found, options["constants"], kept)
    types = {n: v.type.dtype.name for n, v in zip(opened.graph.input_names, opened.graph.inputs, strict=True)}
    inputs = {name: (types.get(name, dtype), shape) for name, (dtype, shape) in declared_inputs(proto, found).items()}
    outputs = declared_outputs(proto, found)
    if not opened.rest and opened.varying() == set(found.dims):
        values = zip(opened.graph.output_names, opened.graph.outputs, strict=True)
        outputs = {name: (value.type.dtype.name, value.shape) for name, value in values}

    def make(at: Mapping[str, object], progress: Progress | None = None) -> Executable:
        states = program.open_plan.plan.states if isinstance(program, OpenProgram) else ()
        again = {**options, "states": states, "states_precision": types}
        return compile(Source(proto, files), target=device.name, shapes=at, progress=progress, **again)

    program = _open_program(opened, device, options)
    if pairs and isinstance(program, Refusal):
        raise UnsupportedError(
            f"states need a program for any size, which there is not: {program.reason}", code="GPC4015"
        )
    ins, outs = (tuple(TensorSpec(name, *declared) for name, declared in some.items()) for some in (inputs, outputs))
    fixed = [(sizes, make(found.at(sizes))) for sizes in declared.values()]
    return AnyShapeExecutable(device.name, found, ins, outs, make, program, fixed)


def _names(proto: ModelProto) -> tuple[list[str], list[str]]:
    return [info.name for info in proto.graph.input], [info.name for info in proto.graph.output]


def _open_program(opened: OpenGraph, device: Target, options: Mapping[str, Any]) -> OpenProgram | Refusal:
    """The program for all sizes that meet the conditions of ``opened``, or why there is none."""
    precision, keep_fp32 = options["precision"], options["keep_fp32"]
    if opened.rest:
        return Refusal("shapes depend on values")
    if not opened.varying():
        return Refusal("everything in the model depends on the sizes")
    try:
        with targets.begin(device) as begun:
            begun.expect(len(opened.graph.nodes()))
            with assuming(opened.conditions):
                graph = rewritten(nonempty(opened.graph), device, precision, keep_fp32)
                steps = kernels_of(graph, device, precision, keep_fp32)
                graph = settled(graph, steps)
                picks = picks_of(options["records"])
                every = _Range(opened, device, (*recorded(picks, device), *TIERS) if picks else TIERS)
                laid_out, rendered = render(steps, device, silent, picks, done=begun.start, every=every)
                variants = _variants(steps, laid_out, rendered, every, begun.start)
            for some in (
                [variants, {}] if variants else [{}]
            ):  # a device that refuses a variant may run the first schedules
                plan, weights = make_open_plan(
                    graph,
                    laid_out,
                    rendered,
                    device,
                    precision,
                    keep_fp32,
                    opened.shapes,
                    opened.conditions,
                    some,
                )
                items = chain(rendered.values(), *(items for _, items in some.values()))
                sources = {item.source.name: item.source for item in items}
                binaries, refused = targets.attempt(plan.plan, list(sources.values()), device, silent, begun)
                if not refused:
                    checks = checking.of_any_size(device, plan, opened.example, steps, laid_out)
                    texts = {kernel.source: sources[kernel.name].text for kernel in plan.plan.kernels}
                    program = OpenProgram(plan, texts, binaries | checks, weights, opened.example)
                    there = program.at(opened.example) if checks else None
                    refused = dict(checking.wrong_here(there, device)) if there is not None else {}
                if not refused:
                    break
    except (ScheduleError, UnsupportedError) as error:
        return Refusal(error.message)
    except NotPolynomial as error:  # something computes with sizes what no formula says
        return Refusal(str(error))
    if refused:
        return Refusal(next(iter(refused.values())).message)
    return program


@dataclass(frozen=True, eq=False)
class _Range:
    """What schedules of a program for all sizes are chosen by. ``known`` has what was chosen for examples."""

    opened: OpenGraph
    target: Target
    tiers: Tiers
    known: dict[tuple[object, ...], Choice] = field(default_factory=dict)

    @property
    def examples(self) -> list[dict[str, int]]:
        """Sizes of the range that meet the conditions so far."""
        opened = self.opened
        *less, greatest = opened.shapes.spread(opened.example)
        some = [greatest] if opened.conditions.hold_at(greatest) else self._greatest()
        return [sizes for sizes in less if opened.conditions.hold_at(sizes)] + some

    def _greatest(self) -> list[dict[str, int]]:
        """Where not all dimensions can be large together: about the greatest size of each, where the others are small."""
        opened, found = self.opened, []
        for name, dim in opened.shapes.dims.items():
            sizes = opened.shapes.smallest()
            least, sizes[name] = sizes[name], dim.nearest(dim.high)
            while sizes[name] > least and not opened.conditions.hold_at(sizes):
                sizes[name] = max(sizes[name] // 2 // dim.multiple * dim.multiple, least)
            if opened.conditions.hold_at(sizes):
                found.append(sizes)
        return found

    def between(self, low: Mapping[str, int], high: Mapping[str, int], part: float) -> dict[str, int] | None:
        """Sizes that are this part of the way from ``low`` to ``high``, in factors; ``None`` if they break a condition."""
        sizes = {
            name: dim.nearest(round(max(low[name], 1) ** (1 - part) * max(high[name], 1) ** part))
            for name, dim in self.opened.shapes.dims.items()
        }
        return sizes if self.opened.conditions.hold_at(sizes) else None

    def choice(self, step: KernelStep) -> Choice:
        """The choice for the sizes of the innermost ``exemplified`` block."""
        key = step.kernel.digest, example_now()
        if key not in self.known:
            self.known[key] = choice_of(step, self.target, self.tiers)
        return self.known[key]

    def with_engine(self, step: KernelStep, first: Choice) -> Choice:
        """``first``, or the choice of another engine: see ``engine_for_all``."""

        def of_engine(family: Family) -> Choice:
            return choose(step.kernel, (family,), self.target.limits, self.target.device, tiers=self.tiers)

        return engine_for_all(step.kernel, first, partial(self.choice, step), of_engine, self.examples, self.target)


def _variants(
    steps: Sequence[Step],
    laid_out: Sequence[Step],
    rendered: Mapping[KernelStep, Rendered],
    every: _Range,
    done: Callable[[KernelSource], None],
) -> dict[str, RenderedVariants]:
    """The variants of the kernels of ``steps``, by the names of their sources. ``done`` is called with each new source."""
    opened, target, examples = every.opened, every.target, every.examples
    found: dict[str, RenderedVariants] = {}
    for plain, step in zip(steps, laid_out, strict=True):
        if not (isinstance(plain, KernelStep) and isinstance(step, KernelStep)):
            continue
        item = rendered[step]
        name = item.source.name
        if name in found:
            continue
        made = variants_of(plain.kernel, item.choice, partial(every.choice, plain), examples, target, every.between)
        own = item.choice.schedule, dict(opened.example)
        if made is None or [(v.schedule, v.example) for v in made.variants] == [own]:
            continue
        items = []
        for number, variant in enumerate(made.variants):
            if (variant.schedule, variant.example) == own:
                items.append(item)
                continue
            one = Scheduled(replace(plain, name=f"{name}_{number}"), variant.choice, step.kernel)
            with exemplified(variant.example):
                items.append(rendered_of(one, target))
            done(items[-1].source)
        found[name] = made, items
    return found


def finish(
    lowered: Lowered, device: Target, precision: str, tell: Progress, begun: targets.Begun | None = None
) -> Executable:
    """The second half of ``compile``: plan the buffers and launches, build the kernels, those of ``begun`` no second time.

    A kernel that the device refuses is rendered again with a smaller schedule, then without optional extensions; one that it
    computes wrong, where kernels are tested, with another schedule. A ``RuntimeWarning`` names the first such kernel.
    """
    binaries: dict[str, bytes] = {}
    instead: dict[str, Iterator[Made]] = {}
    told: dict[str, KernelBuildError] = {}
    built: Mapping[str, KernelSource] = {}
    refused: Mapping[str, KernelBuildError]
    while True:
        tell("plan", 0, 1)
        plan, weights = make_plan(lowered.graph, lowered.steps, lowered.rendered, device, precision, lowered.keep_fp32)
        sources = {item.source.name: item.source for item in lowered.rendered.values()}
        fresh = [source for name, source in sources.items() if built.get(name) is not source]
        found, refused = targets.attempt(plan, fresh, device, tell, begun)
        binaries, built = binaries | found, sources
        if not refused:
            checks = checking.of_target(device, plan, lowered.unpacked, lowered.steps)
            texts = {kernel.source: sources[kernel.name].text for kernel in plan.kernels}
            made = Executable(plan, texts, binaries | checks, weights, lowered.dynamic_model, open_dynamic=open_dynamic)
            refused = checking.wrong_here(made, device) if checks else {}
            if not refused:
                break
        lowered = _asking_less(lowered, device, refused, instead)
        told |= {name: error for name, error in refused.items() if name not in told}
    if told:
        _warn(device, told)
    tell("open", 0, 1)
    report(plan, lowered.steps, lowered.rendered, device)
    return made


def _warn(device: Target, told: Mapping[str, KernelBuildError]) -> None:
    """Tell the caller of ``gpucomp.compile`` that kernels were replaced."""
    first = next(iter(told.values()))
    kernels = f"{len(told)} kernels" if len(told) > 1 else "a kernel"
    wrong = isinstance(first, WrongKernelError)
    what = f"computes {kernels} wrong" if wrong else f"refused {kernels}"
    warnings.warn(
        f"{device.name} {what}, now compiled with {'other' if wrong else 'smaller'} schedules: {first.message}",
        RuntimeWarning,
        stacklevel=5,  # the caller of ``gpucomp.compile``
    )


def unbuilt(lowered: Lowered, device: Target, precision: str) -> Executable:
    """The program without machine code, which cannot run: for its kernels, its sources and the sizes of its memory.

    No compiler is needed. Where a device may refuse a kernel (``targets.lesser``), ``finish`` may choose other schedules.
    """
    plan, weights = make_plan(lowered.graph, lowered.steps, lowered.rendered, device, precision, lowered.keep_fp32)
    sources = {item.source.name: item.source.text for item in lowered.rendered.values()}
    texts = {kernel.source: sources[kernel.name] for kernel in plan.kernels}
    return Executable(plan, texts, {}, weights, lowered.dynamic_model, open_dynamic=open_dynamic)


def open_dynamic(plan: Plan, dynamic_model: bytes) -> DynamicModel:
    """The runner of ``dynamic_model``, the dynamic part of the model. It compiles expensive steps as ``plan`` was."""
    from gpucomp.dynamic.program import DynamicModel  # few models have such a part

    return DynamicModel(dynamic_model, lambda graph: compile_graph(graph, plan.target, plan.precision, plan.keep_fp32))


def compile_graph(graph: Graph, target: str, precision: str = "fp32", keep_fp32: Sequence[str] = ()) -> Executable:
    """Compile ``graph``. Patterns in ``keep_fp32`` need not match anything. Raises the same errors as ``compile``."""
    device = targets.resolve(target)
    graph = rewritten(graph, device, precision, keep_fp32)
    steps = kernels_of(graph, device, precision, keep_fp32, None)
    return finish(Lowered(graph, *render(steps, device, silent), steps), device, precision, silent)


@dataclass(frozen=True)
class Lowered:
    """A model with a source for each kernel; nothing is planned or built yet.

    ``steps`` have the kernels to render, ``unpacked`` the kernels that schedules were chosen for, before
    ``SCHEDULED_PASSES``.

    ``dynamic_model`` is the dynamic part of the model, see ``frontend.load_split``; ``keep_fp32`` applies to it too.
    """

    graph: Graph
    steps: list[Step]
    rendered: dict[KernelStep, Rendered]
    unpacked: Sequence[Step] = ()
    dynamic_model: bytes = b""
    keep_fp32: Sequence[str] = ()


def lower(
    model: str | Path | bytes | ModelProto | Source,
    device: Target,
    shapes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
    tell: Progress = lambda stage, done, total: None,
    observer: Callable[[PassRecord], None] | None = None,
    picks: Picks | None = None,
    pipeline: Sequence[Pass] | None = None,
    kernel_passes: Sequence[KernelPass] | None = None,
    watch: Callable[[str, Any], None] | None = None,
    loaded: Callable[[int], None] | None = None,
    rendered: Callable[[KernelSource], None] | None = None,
    states: Given = None,
    states_precision: Kept = "fp32",
) -> Lowered:
    """The first half of ``compile``: turn ``model`` into kernels with schedules and sources. Raises the same errors.

    ``pipeline`` replaces ``rewrite.pipeline.PIPELINE`` and ``kernel_passes`` replaces ``lowering.KERNEL_PASSES``; this
    is how a wrong pass is bisected. ``watch`` is called with every graph and every list of steps, see ``run_passes``.
    ``loaded`` is called with the number of nodes of the model, ``rendered`` with every source, each as soon as it is known.
    """
    narrow.require(precision, device.features, device.name)
    tell("read", 0, 1)
    pairs: Mapping[str, str] = {}
    if states is not None:
        proto, files = read(model)
        model, pairs = Source(proto, files), pairs_of(states, *_names(proto))
    with frontend.keeping(pairs):
        graph, dynamic_model = frontend.load_split(model, shapes=shapes, constants=constants)
    graph = with_states(graph, states, precision=states_precision)
    if graph.states and dynamic_model:
        raise UnsupportedError("states: a part of this model runs on the host, which keeps none", code="GPC4015")
    if loaded is not None:
        loaded(len(graph.nodes()))
    tell("rewrite", 0, 1)
    graph = rewritten(graph, device, precision, keep_fp32, pipeline=pipeline, observer=observer, watch=watch)
    tell("partition", 0, 1)
    elsewhere = frontend.names_in(dynamic_model) if dynamic_model and keep_fp32 else ()
    steps = kernels_of(
        graph, device, precision, keep_fp32, elsewhere, passes=kernel_passes, observer=observer, watch=watch
    )
    graph = settled(graph, steps)
    of_program = () if states is None or isinstance(states, str | Mapping) else states
    if [one.in_place for one in of_program] != [one.in_place for one in graph.states if of_program]:
        raise UnsupportedError("states: they are not kept at these sizes as at all others", code="GPC4015")
    laid_out, sources = render(steps, device, tell, picks, observer, watch, rendered)
    return Lowered(graph, laid_out, sources, steps, dynamic_model, keep_fp32)


def again(lowered: Lowered, target: Target, picks: Picks | None) -> Lowered:
    """Choose the schedules of ``lowered`` again, with other records."""
    laid_out, rendered = render(lowered.unpacked, target, silent, picks)
    return replace(lowered, steps=laid_out, rendered=rendered)


def silent(stage: str, done: int, total: int) -> None:
    pass


def schedule(
    steps: Sequence[Step],
    target: Target,
    tell: Progress,
    picks: Picks | None = None,
    observer: Callable[[PassRecord], None] | None = None,
    watch: Callable[[str, Any], None] | None = None,
    seen: Seen | None = None,
    every: _Range | None = None,
) -> Program:
    """Choose a schedule for the kernel of every step, and run ``SCHEDULED_PASSES``. Equal kernels share both.

    ``seen`` keeps the sources that had to be rendered in order to choose. With ``every`` an engine is chosen for all sizes.
    """
    program = list(_chosen(steps, target, tell, picks, {} if seen is None else seen, every))
    return run_scheduled_passes(program, SCHEDULED_PASSES, observer, watch)


def _chosen(
    steps: Sequence[Step],
    target: Target,
    tell: Progress,
    picks: Picks | None,
    seen: Seen,
    every: _Range | None = None,
) -> Iterator[Scheduled | HostStep]:
    """The steps with their schedules, before any pass."""
    tiers = (*recorded(picks, target), *TIERS) if picks else TIERS
    found: dict[str, Scheduled] = {}
    for number, step in enumerate(steps):
        tell("choose", number, len(steps))
        if isinstance(step, HostStep):
            yield step
            continue
        digest = step.kernel.digest
        if digest not in found:
            choice = _standing(step, target, tiers, seen)
            found[digest] = Scheduled(step, choice if every is None else every.with_engine(step, choice), step.kernel)
        yield replace(found[digest], step=step)


def _one_by_one(program: Iterator[Scheduled | HostStep]) -> Iterator[Scheduled | HostStep]:
    """``program`` after ``SCHEDULED_PASSES``, each kernel as soon as it has a schedule: a compiler need not wait for all."""
    done: dict[Kernel, Scheduled] = {}
    for item in program:
        if isinstance(item, Scheduled):
            if item.kernel not in done:
                done[item.kernel] = scheduled(item.step, item.choice)
            yield replace(done[item.kernel], step=item.step)
        else:
            yield item


def render(
    steps: Sequence[Step],
    target: Target,
    tell: Progress,
    picks: Picks | None = None,
    observer: Callable[[PassRecord], None] | None = None,
    watch: Callable[[str, Any], None] | None = None,
    done: Callable[[KernelSource], None] | None = None,
    every: _Range | None = None,
) -> tuple[list[Step], dict[KernelStep, Rendered]]:
    """Render the kernel of every step, with the schedule of the first tier that has one. Equal kernels share a source.

    The returned steps have the rendered kernels, after ``SCHEDULED_PASSES``. ``done`` is called with each source.
    """
    seen: Seen = {}
    settings = config.current()
    seen_by = observer or watch or settings.debug or settings.dump or settings.verify
    program: Iterable[Scheduled | HostStep]
    if every is None and not seen_by:
        tell("choose", 0, len(steps))
        program = _one_by_one(_chosen(steps, target, silent, picks, seen))
    else:  # what holds for all sizes is noted in the order of the steps, first what decides schedules
        program = schedule(steps, target, tell, picks, observer, watch, seen, every)
    sources: dict[Kernel, Rendered] = {}
    made: dict[tuple[object, ...], Value] = {}
    laid_out: list[Step] = []
    rendered: dict[KernelStep, Rendered] = {}
    for number, one in enumerate(program):
        tell("render", number, len(steps))
        if isinstance(one, HostStep):
            laid_out.append(one)
            continue
        if one.kernel not in sources:
            sources[one.kernel] = rendered_of(one, target, seen)
            if done is not None:
                done(sources[one.kernel].source)
        final = one.launched(made)
        laid_out.append(final)
        rendered[final] = sources[one.kernel]
    return laid_out, rendered


def _standing(step: KernelStep, target: Target, tiers: Tiers, seen: Seen) -> Choice:
    return standing(
        lambda some: choice_of(step, target, some),
        lambda choice: rendered_of(scheduled(step, choice), target, seen).source,
        target,
        tiers,
    )


def _asking_less(
    lowered: Lowered, target: Target, refused: Mapping[str, KernelBuildError], instead: dict[str, Iterator[Made]]
) -> Lowered:
    """Return ``lowered`` with another schedule for each kernel of ``refused``, which maps source names to errors.

    ``instead`` has the remaining candidates of each kernel. If a kernel has none, its error is raised.
    """
    done: dict[str, Made] = {}
    made: dict[tuple[object, ...], Value] = {}
    steps: list[Step] = []
    rendered: dict[KernelStep, Rendered] = {}
    for plain, step in zip(lowered.unpacked, lowered.steps, strict=True):
        if not (isinstance(plain, KernelStep) and isinstance(step, KernelStep)):
            steps.append(step)
            continue
        item = lowered.rendered[step]
        if item.source.name not in refused:
            steps.append(step)
            rendered[step] = item
            continue
        digest = plain.kernel.digest
        if digest not in done:
            error = refused[item.source.name]
            other = next(instead.setdefault(digest, others(plain, target, item, error)), None)
            if other is None:
                raise none_left(error)
            done[digest] = other
        other_item, one = done[digest]
        final = replace(one, step=plain).launched(made)
        steps.append(final)
        rendered[final] = other_item
    return replace(lowered, steps=steps, rendered=rendered)
