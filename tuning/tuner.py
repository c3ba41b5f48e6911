"""Tunes a model: its tasks, the search where it pays, the finals, and the comparison of the whole model with the picks."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpucomp import compiler, targets
from gpucomp.compiler import Lowered
from gpucomp.compiling import compile
from gpucomp.device.target import Target
from gpucomp.errors import RecordError, UsageError, quote
from gpucomp.ir.dims import has_dims
from gpucomp.kernel.step import KernelStep
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.inputs import random_inputs
from gpucomp.schedule.records import Pick, Picks
from gpucomp.tuning import any_size, choice, engines, fleet, records
from gpucomp.tuning.any_size import TunedSizes
from gpucomp.tuning.choice import Comparison, Verdict
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.records import Known, Store
from gpucomp.tuning.samplers import DEFAULT, named
from gpucomp.tuning.samplers.ask_tell import AskTell, opened
from gpucomp.tuning.study import RULES, Study, Tools
from gpucomp.tuning.tasks import ENOUGH, Progress, Task, following, forecast, tasks_of, weigh
from gpucomp.tuning.worker_pool import Builders, Runner, required

if TYPE_CHECKING:
    from onnx import ModelProto
    from optuna.storages import BaseStorage

BATCH = 8
PROFILES = 7
MODEL_PROCESSES = 3  # of a comparison: the memory layout of a process changes the model's time for all of its life
MODEL_S = 1.5  # of running whole models in turn, in each process
MODEL_ROUNDS = 20
MODEL_LIMIT_S = 300.0
BUILDS = 2  # built models that are kept as files besides the untuned one: each contains all weights
RESERVED = 0.5  # largest share of a search's time that is kept for finals and whole models
FINAL_S = 12.0  # least time that is kept for one task's final, which runs at least three processes
TEN_MINUTES = 600.0
FOREVER = 1e9


@dataclass(frozen=True)
class TuneOptions:
    """The options of a tuning run.

    budget     seconds for the whole run; ``None``: the run ends when nothing is worth measuring any more
    trials     number of measurements for all tasks together, besides those of the defaults; ``None``: no limit
    sampler    proposes the candidates: a name, ``package.module:Class``, or an optuna sampler
    storage    keeps the optuna studies, for optuna-dashboard: a URL, the path of a journal file, or an optuna storage
    seed       of the sampler's random numbers
    builders   number of processes that build; 0: one for each processor, at most 16
    resume     continue with the records in the folder; without it they must not be there
    lock       a file that is locked during measurements
    whole      whether the whole model is run with and without the picks; off for a single kernel
    fleet      machines that measure instead of this one, which then only builds
    """

    budget: float | None = None
    trials: int | None = None
    sampler: named.Wanted = DEFAULT
    storage: str | BaseStorage | None = None
    seed: int = 0
    builders: int = 0
    resume: bool = False
    lock: Path | None = None
    whole: bool = True
    fleet: fleet.Wanted | None = None


@dataclass(eq=False)
class State:
    """The state of a run, for a console. ``phase`` is ``search``, ``final``, ``model`` or ``done``."""

    studies: Sequence[Study]
    phase: str = "search"
    current: Study | None = None
    trials: int = 0
    started: float = field(default_factory=time.monotonic)
    deadline: float = FOREVER
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    waited: Callable[[], float] = lambda: 0.0

    @property
    def progress(self) -> list[Progress]:
        return [study.progress for study in self.studies]

    @property
    def left(self) -> float:
        """Seconds left of the budget; time spent waiting for other programs' measurements does not count."""
        return self.deadline + self.waited() - time.monotonic()


Watch = Callable[[State], None]


@dataclass(frozen=True)
class Tuned:
    """The result of a tuning run.

    picks       the records' schedules for the model's kernels, including picks of the default
    changed     number of kernels with another schedule than the default, from this run or an earlier one
    untuned_s   seconds of a run of the untuned model, measured in turn with the tuned one
    comparison  the tuned model's time over the untuned one's
    forecast_s  seconds of a run that ten more minutes are expected to save
    """

    executable: Executable
    picks: Picks
    changed: int
    state: State
    untuned_s: float
    comparison: Comparison
    forecast_s: float
    records: Path


@dataclass(eq=False)
class _Model:
    """The builds of a model."""

    lowered: Lowered
    target: Target
    precision: str
    folder: Path
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    launches: Sequence[str] = ()
    _paths: dict[frozenset[str], Path] = field(default_factory=dict)
    _made: int = 0

    def path(self, names: frozenset[str], picks: Picks | None) -> Path:
        """The file of the model with ``picks``; ``names`` names them."""
        if names not in self._paths:
            self._made += 1
            path = self.folder / f"model{self._made}.gpuc"
            exe = self.executable(picks)
            exe.save(path)
            self.inputs = self.inputs or random_inputs(exe.inputs)
            self.launches = [launch.name for launch in exe.plan.launches]
            self._paths[names] = path
        self._paths[names] = self._paths.pop(names)  # move to the end: most recently used
        for old in [n for n in self._paths if n][:-BUILDS]:
            self._paths.pop(old).unlink()
        return self._paths[names]

    def executable(self, picks: Picks | None) -> Executable:
        lowered = compiler.again(self.lowered, self.target, picks)
        return compiler.finish(lowered, self.target, self.precision, compiler.silent)


def tasks_in(
    model: str | Path | bytes | ModelProto,
    target: Target,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
) -> tuple[Lowered, list[Task]]:
    """Lower a model for a target without tuning; return its tasks too. Raises the same errors as ``gpucomp.compile``."""
    lowered = compiler.lower(model, target, shapes, constants, precision, keep_fp32)
    return lowered, tasks_of(lowered, target)


def tune(
    model: str | Path | bytes | ModelProto,
    *,
    target: str = "auto",
    budget: float | None = None,
    trials: int | None = None,
    records: str | Path = "tuning-records",
    shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, Any] | None = None,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
    options: TuneOptions | None = None,
    watch: Watch | None = None,
    shapes_from: str | Path | Sequence[Mapping[str, Any]] = (),
) -> Tuned | TunedSizes:
    """Search schedules for a model's kernels on a device of this machine.

    budget   seconds for the whole run; without it and ``trials``, the search ends when the next batch is expected to save < 0.1 %
    trials   number of measurements for all kernels together, besides one of each default
    records  a folder or a .jsonl file for all measurements; what it has already is not measured again. Give it to
             ``gpucomp.compile``
    options  all other ``TuneOptions``; its budget and trials are used if they are not given here
    watch    called with the ``State`` during the search
    shapes   as for ``gpucomp.compile``. With a ``Dim`` there is a search at each of a few sizes, and the result is ``TunedSizes``
    shapes_from  with a ``Dim``: sizes that runs will have, as for ``gpucomp.compile``, which then needs them too

    Raises the same errors as ``gpucomp.compile``, and ``RecordError`` if records cannot be read or written.
    """
    device = targets.resolve(target)
    chosen = options or TuneOptions()
    if budget is not None:
        chosen = replace(chosen, budget=budget)
    if trials is not None:
        chosen = replace(chosen, trials=trials)
    place = Path(records)
    targets.require_compiler(device)
    how: dict[str, Any] = {"constants": constants, "precision": precision, "keep_fp32": keep_fp32}
    seen = watch or (lambda state: None)

    def at(part_shapes: Mapping[str, Any] | None, part_options: TuneOptions) -> Tuned:
        lowered, tasks = tasks_in(model, device, shapes=part_shapes, **how)
        return search(lowered, tasks, device, place, part_options, precision=precision, watch=seen)

    parts = any_size.parts_of(model, shapes or {}, constants, shapes_from)
    if not has_dims(shapes):
        return at(shapes, chosen)

    def compiled() -> Executable:
        wanted: dict[str, Any] = {"shapes": shapes, "shapes_from": shapes_from, "records": place}
        return compile(model, target=target, **wanted, **how)

    return any_size.tune(lambda part, own: at(part.shapes, own), compiled, parts, chosen, place)


def search(
    lowered: Lowered,
    tasks: Sequence[Task],
    target: Target,
    place: Path,
    options: TuneOptions,
    *,
    precision: str = "fp32",
    watch: Watch = lambda state: None,
) -> Tuned:
    """``tune``, starting from a lowered model."""
    path = records.in_folder(place)
    if options.resume and not path.exists():
        raise RecordError(
            f"there are no records {quote(path)} to continue from; for a new search leave out gpucomp.TuneOptions(resume=True)",
            code="GPC7103",
            in_shell=f"there are no records {quote(path)} to continue from; for a new search leave out --resume",
        )
    if not tasks:
        raise UsageError("the model has no kernel with a search space, so there is nothing to tune", code="GPC2020")
    named.check(options.sampler)
    storage = opened(options.storage)
    begin = time.monotonic()
    with (
        Store(path) as store,
        tempfile.TemporaryDirectory(prefix="gpucomp-tune-") as folder,
        _tools(target, options, store) as tools,
        contextlib.ExitStack() as ended,
    ):
        model = _Model(lowered, target, precision, Path(folder))
        _weigh(model, tasks, tools)
        studies = _studies(tasks, tools, options, storage)
        for study in studies:
            ended.callback(study.close)
        deadline = FOREVER if options.budget is None else begin + options.budget
        state = State(studies, deadline=deadline, started=begin, waited=lambda: tools.runner.waited)
        _search(state, options, watch)
        _finals(state, watch)
        untuned_s, comparison = _whole(state, model, tools, options, watch)
        picks = _record(state, tools)
        state.phase = "done"
        watch(state)
        more = forecast(state.progress, TEN_MINUTES)
        changed = len(state.kept | _standing(state))
        return Tuned(model.executable(picks), picks, changed, state, untuned_s, comparison, more, path)


@contextlib.contextmanager
def _tools(target: Target, options: TuneOptions, store: Store) -> Iterator[Tools]:
    count = options.builders or min(16, len(os.sched_getaffinity(0)))
    with contextlib.ExitStack() as opened:
        builders = Builders(target.name, count)
        opened.callback(builders.close)
        if options.fleet is None:
            runner = Runner(target.name, lock=options.lock)
            opened.callback(runner.close)
            yield Tools(builders, runner, store, runner.facts(), named.title(options.sampler), options.seed, RULES)
            return
        found = opened.enter_context(fleet.opened(options.fleet, target.kind, target.arch))
        first, *others = found.runners
        yield Tools(
            builders,
            first,
            store,
            found.facts,
            named.title(options.sampler),
            options.seed,
            RULES,
            others=others,
            newcomers=found.newcomers,
            wait=options.fleet.wait,
        )


def _weigh(model: _Model, tasks: Sequence[Task], tools: Tools) -> None:
    """Measure the seconds of each task's launches in the untuned model."""
    path = model.path(frozenset(), None)
    job = {"do": "profile", "path": str(path), "runs": PROFILES}
    answer, _ = tools.runner.ask(job, model.inputs, limit=MODEL_LIMIT_S)
    required(answer)
    steps = model.lowered.unpacked
    names = {step.name: step.kernel.digest for step in steps if isinstance(step, KernelStep)}
    weigh(tasks, names, list(zip(model.launches, answer["seconds"], strict=True)))


def _studies(tasks: Sequence[Task], tools: Tools, options: TuneOptions, storage: BaseStorage | None) -> list[Study]:
    """The studies of a run. In a storage each run has studies of its own; records of earlier runs are told to them."""
    started = records.now()
    hashes: dict[str, str] = {}
    for task in tasks:
        hashes |= records.current_hashes(task.engines)
    past = tools.store.read()
    known = records.known(past, tools.device, hashes)
    past += records.beside(tools.store.path)
    found = []
    for number, task in enumerate(tasks):
        digest = task.kernel.digest
        here = known.get(digest, Known())
        if digest not in known:
            fields = {"kernel": digest, "device": tools.device, "label": task.label, "text": task.kernel.text}
            problem = dict(task.problem(task.default.family).numbers)
            tools.store.append("task", {**fields, "problem": problem, "launches": task.launches})
        table = engines.Engines(task, options.seed)
        others = engines.sources(past, task, tools.device)
        points, seed = named.points_of(table, options.sampler), options.seed + number
        make = partial(named.sampler, options.sampler, points, seed, partial(_prior, table, others))
        name = f"{task.label} {digest[:12]} on {tools.device['name'] or tools.device['arch']}, {started}"
        facts = {"kernel": digest, "label": task.label, "device": tools.device, "sampler": tools.sampler, "seed": seed}
        search = AskTell(points, make, storage=storage, name=name, facts=facts)
        found.append(Study(task, table, search, tools, here, Progress(task)))
    return found


def _prior(table: engines.Engines, past: Mapping[str, Sequence[engines.Source]], number: int) -> Prior | None:
    return table.prior(number, past)


def space_size(task: Task, options: TuneOptions) -> int:
    """The number of candidates of a task."""
    return len(engines.Engines(task, options.seed))


def _search(state: State, options: TuneOptions, watch: Watch) -> None:
    """Run batches, each for the task that promises the most, until budget, trials or expected gains are used up.

    The time for the finals of what was found is kept. A task is begun only if there is time for a batch of it and its final.
    """
    enough = ENOUGH if options.trials is None else 0.0
    most = RESERVED * state.left
    studies = {id(study.progress): study for study in state.studies}
    tools = state.studies[0].tools
    while True:
        tools.recruited()
        batch = BATCH * len(tools.runners)
        wanted = batch if options.trials is None else min(batch, options.trials - state.trials)
        possible = [study.progress for study in state.studies if _affordable(state, study, options)]
        chosen = following(possible, enough=enough) if wanted > 0 else None
        if chosen is None:
            return
        study = state.current = studies[id(chosen)]
        kept = min(reserved(state, study, options), most)
        in_time = partial(_in_time, state, kept)
        if not in_time():
            return
        watch(state)
        state.trials += study.batch(wanted, in_time)
        watch(state)


def _in_time(state: State, kept: float) -> bool:
    return state.left > kept


def _affordable(state: State, study: Study, options: TuneOptions) -> bool:
    """Whether ``study`` was begun, or leaves time for all finals after a batch of it. One is begun in any case."""
    if study.progress.batches or not any(s.progress.batches for s in state.studies):
        return True
    return reserved(state, study, options) + final_s(state, study) <= state.left


def reserved(state: State, more: Study, options: TuneOptions) -> float:
    """Seconds that finals need, of the studies with a rival of the default and of ``more``, and comparisons of the model."""
    coming = [study for study in state.studies if study is more or choice.rivals(study)]
    comparisons = 4 * MODEL_PROCESSES * MODEL_S if options.whole else 0.0
    return sum(final_s(state, study) for study in coming) + comparisons


def final_s(state: State, study: Study) -> float:
    """The time that a final is expected to take: it builds and times about as much as a batch."""
    costs = [s.progress.cost for s in state.studies if s.progress.batches]
    own = study.progress.cost if study.progress.batches else statistics.fmean(costs) if costs else FINAL_S
    return max(FINAL_S, own)


def _finals(state: State, watch: Watch) -> None:
    """Run the finals, the largest gains first. Tasks that the budget does not reach stay as they are."""
    state.phase = "final"
    for study in sorted(state.studies, key=lambda s: -s.task.weight * (1 - s.best)):
        state.current = study
        study.tools.settle()
        watch(state)
        digest = study.task.kernel.digest
        if state.left < FINAL_S / 2 and (choice.rivals(study) or len(study.trials) < 2):
            state.verdicts[digest] = choice.default_of(study, came="not reached")
        else:
            with study.tools.runner.exclusive():
                state.verdicts[digest] = choice.final(study)
        study.close()
        watch(state)


def _standing(state: State) -> frozenset[str]:
    """Kernels without a decision in this run that have a pick of an earlier run other than the default."""
    return frozenset(
        study.task.kernel.digest
        for study in state.studies
        if not state.verdicts[study.task.kernel.digest].decided
        and (pick := study.known.pick) is not None
        and not pick.get("default", False)
    )


def _picks(state: State, names: frozenset[str]) -> Picks:
    """The picks that the records would have with the finals' picks for the kernels ``names``.

    Other kernels that were judged get the default as their pick, so that no other kernel's record answers for them. Kernels
    that were not judged keep their earlier pick.
    """
    found = []
    for study in state.studies:
        digest = study.task.kernel.digest
        verdict = state.verdicts[digest]
        if verdict.decided:
            judged = verdict if digest in names else choice.default_of(study, verdict.finalists)
            fields = study.pick(judged.candidate, judged.fields)
        elif study.known.pick is not None:
            fields = study.known.pick
        else:
            continue
        here = {name: fields["device"][name] for name in ("kind", "arch", "name")}
        found.append(Pick.of({**fields, "device": here}))
    return Picks.of(found)


def _whole(state: State, model: _Model, tools: Tools, options: TuneOptions, watch: Watch) -> tuple[float, Comparison]:
    """Drop picks that do not make the model faster; return its untuned seconds, and the tuned model's comparison with it."""
    state.phase, state.current = "model", None
    watch(state)
    total = sum(study.task.weight for study in state.studies) or 1.0
    gains = {
        study.task.kernel.digest: study.task.weight * (1 - verdict.ratio) / total
        for study in state.studies
        if not (verdict := state.verdicts[study.task.kernel.digest]).is_default
    }
    anchors: list[float] = []
    failed: list[str] = []
    cost = MODEL_PROCESSES * MODEL_S  # seconds of a comparison
    if not options.whole:
        state.kept = frozenset(gains)
        return 0.0, Comparison([])

    def compare(anchor: frozenset[str], others: frozenset[str]) -> Comparison:
        nonlocal cost
        begin = time.monotonic()
        paths = [str(model.path(names, _picks(state, names) if names else None)) for names in (anchor, others)]
        job = {"do": "models", "paths": paths, "rounds": MODEL_ROUNDS, "seconds": MODEL_S}
        found = Comparison([])
        for _ in range(MODEL_PROCESSES):
            answer = tools.compared(job, model.inputs, MODEL_LIMIT_S)
            if not anchor:
                anchors.extend(answer.get("anchors", []))
            ratios = [row[1] for row in answer.get("rows", [])]
            if not ratios:
                break  # the ratios of earlier processes still count
            found += Comparison(ratios, processes=[statistics.median(ratios)])
        if not found.ratios:
            failed.append(str(answer.get("fault", "no samples")))
        cost = max(cost, time.monotonic() - begin)
        watch(state)
        return found

    state.kept, comparison = choice.kept(gains, compare, in_time=lambda: not failed and state.left > 2 * cost)
    if not state.kept and not failed and (standing := _standing(state)):
        comparison = compare(frozenset(), standing)  # picks of earlier runs stay in the model
    for study in state.studies:
        digest = study.task.kernel.digest
        verdict = state.verdicts[digest]
        if digest in gains and digest not in state.kept:
            came = "failed" if failed else "model"
            state.verdicts[digest] = choice.default_of(study, verdict.finalists, came, verdict.ratio)
    return float(np.median(anchors)) if anchors else 0.0, comparison


def _record(state: State, tools: Tools) -> Picks:
    """Record a pick for every kernel that was judged, also for the default, so that no other kernel's record answers for it.

    A kernel that the budget did not reach, or that failed, gets no record: an earlier pick stays valid.
    """
    for study in state.studies:
        verdict = state.verdicts[study.task.kernel.digest]
        if verdict.decided:
            tools.store.append("pick", study.pick(verdict.candidate, verdict.fields))
    return _picks(state, state.kept)
