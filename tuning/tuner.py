"""Tuning a model: its tasks, the search where it pays, the finals, and the model with and without what they chose."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpucomp import compiler, targets
from gpucomp.compiler import Lowered
from gpucomp.device.target import Target
from gpucomp.errors import RecordError, UsageError, quote
from gpucomp.kernel.step import KernelStep
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.inputs import random_inputs
from gpucomp.schedule.records import Pick, Picks
from gpucomp.tuning import choice, engines, fleet, records
from gpucomp.tuning.choice import Comparison, Verdict
from gpucomp.tuning.crew import Builders, Runner, required
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.records import Known, Store
from gpucomp.tuning.samplers import DEFAULT, named
from gpucomp.tuning.samplers.ask_tell import AskTell, opened
from gpucomp.tuning.study import RULES, Study, Tools
from gpucomp.tuning.tasks import ENOUGH, Progress, Task, following, forecast, tasks_of, weigh

if TYPE_CHECKING:
    from onnx import ModelProto
    from optuna.storages import BaseStorage

BATCH = 8
PROFILES = 7
MODEL_PROCESSES = 3  # of a comparison: where a model lies in memory changes its time as long as a process lives
MODEL_S = 1.5  # of whole models in turn, in each of them
MODEL_ROUNDS = 20
MODEL_LIMIT_S = 300.0
BUILDS = 2  # files of a model that stay, beside the untuned one's: they have all weights
RESERVED = 0.3  # of a budget at most, for finals and whole models
FINAL_S = 8.0  # that a task's final takes, about
TEN_MINUTES = 600.0
FOREVER = 1e9


@dataclass(frozen=True)
class Options:
    """What a user may ask for.

    budget     seconds, for everything; ``None`` for no end but that nothing is worth it any more
    trials     of all tasks together; ``None`` for no end but that
    sampler    who proposes: a name, ``package.module:Class``, or an optuna sampler
    storage    where the optuna studies are kept, for its dashboard: an URL, the path of a journal file, or an optuna storage
    builders   processes that build
    lock       a file that is locked while anything is timed
    whole      whether the model is run with and without the picks: off for a kernel on its own
    fleet      machines that measure in place of this one, which only builds then
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
    """How far a run is: what a console shows. ``phase`` is ``search``, ``final``, ``model`` or ``done``."""

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
        """Seconds of the budget that are left; what was spent waiting for others to measure does not count."""
        return self.deadline + self.waited() - time.monotonic()


Watch = Callable[[State], None]


@dataclass(frozen=True)
class Tuned:
    """What came of it.

    picks       what the records say of the model's kernels, the defaults' among them
    changed     kernels that another schedule than the default was picked for, by this run or one before
    untuned_s   seconds of a run of the untuned model, in turn with the tuned one
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
    """The model in all its builds."""

    lowered: Lowered
    target: Target
    precision: str
    folder: Path
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    launches: Sequence[str] = ()
    _paths: dict[frozenset[str], Path] = field(default_factory=dict)
    _made: int = 0

    def path(self, names: frozenset[str], picks: Picks | None) -> Path:
        """The file of the model with ``picks``, which ``names`` names."""
        if names not in self._paths:
            self._made += 1
            path = self.folder / f"model{self._made}.gpuc"
            exe = self.executable(picks)
            exe.save(path)
            self.inputs = self.inputs or random_inputs(exe.inputs)
            self.launches = [launch.name for launch in exe.plan.launches]
            self._paths[names] = path
        self._paths[names] = self._paths.pop(names)  # the last that was asked for
        for old in [n for n in self._paths if n][:-BUILDS]:
            self._paths.pop(old).unlink()
        return self._paths[names]

    def executable(self, picks: Picks | None) -> Executable:
        lowered = compiler.again(self.lowered, self.target, picks)
        return compiler.finish(lowered, self.target, self.precision, lambda stage, done, total: None)


def tasks_in(
    model: str | Path | bytes | ModelProto,
    target: Target,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
) -> tuple[Lowered, list[Task]]:
    """A model lowered for a target, untuned, and its tasks. Raises as ``gpucomp.compile``."""
    lowered = compiler.lower(model, target, shapes, None, precision, keep_fp32)
    return lowered, tasks_of(lowered, target)


def tune(
    model: str | Path | bytes | ModelProto,
    *,
    target: str = "auto",
    budget: float | None = None,
    trials: int | None = None,
    records: str | Path = "tuning-records",
    shapes: Mapping[str, Sequence[int]] | None = None,
    precision: str = "fp32",
    keep_fp32: Sequence[str] = (),
    options: Options | None = None,
    watch: Watch | None = None,
) -> Tuned:
    """Search schedules for a model's kernels on the device that is here.

    budget   seconds for everything; without it and without ``trials`` the search ends when nothing promises 0.1 % more
    trials   measurements of all kernels together
    records  a folder, or a .jsonl file: all measurements go there, and what is there is not measured again; give it to
             ``gpucomp.compile``
    options  everything else that ``Options`` has; its own budget and trials, where these are not given here
    watch    called with the ``State`` as the search goes on

    Raises as ``gpucomp.compile``; ``RecordError`` where records cannot be read or written.
    """
    device = targets.resolve(target)
    chosen = options or Options()
    if budget is not None:
        chosen = replace(chosen, budget=budget)
    if trials is not None:
        chosen = replace(chosen, trials=trials)
    place = Path(records)
    lowered, tasks = tasks_in(model, device, shapes=shapes, precision=precision, keep_fp32=keep_fp32)
    return search(lowered, tasks, device, place, chosen, precision=precision, watch=watch or (lambda state: None))


def search(
    lowered: Lowered,
    tasks: Sequence[Task],
    target: Target,
    place: Path,
    options: Options,
    *,
    precision: str = "fp32",
    watch: Watch = lambda state: None,
) -> Tuned:
    """``tune`` from a lowered model on."""
    path = records.in_folder(place)
    if options.resume and not path.exists():
        raise RecordError(f"--resume: there are no records {quote(path)}", code="GPC7103")
    if not tasks:
        raise UsageError("the model has no kernel to tune", code="GPC2020")
    named.check(options.sampler)
    storage = opened(options.storage)
    begin = time.monotonic()
    with (
        Store(path) as store,
        tempfile.TemporaryDirectory(prefix="gpucomp-tune-") as folder,
        _crew(target, options, store) as tools,
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
def _crew(target: Target, options: Options, store: Store) -> Iterator[Tools]:
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
        told = 0

        def newcomers() -> Sequence[Runner]:
            nonlocal told
            joined = found.newcomers()
            for line in found.refused[told:]:
                warnings.warn(f"not in the fleet: {line}", RuntimeWarning, stacklevel=2)
            told = len(found.refused)
            return joined

        first, *others = found.runners
        yield Tools(builders, first, store, found.facts, named.title(options.sampler), options.seed, RULES, others=others,
                    newcomers=newcomers, wait=options.fleet.wait)  # fmt: skip


def _weigh(model: _Model, tasks: Sequence[Task], tools: Tools) -> None:
    """Seconds of each task's launches in the untuned model."""
    path = model.path(frozenset(), None)
    job = {"do": "profile", "path": str(path), "runs": PROFILES}
    answer, _ = tools.runner.ask(job, model.inputs, limit=MODEL_LIMIT_S)
    required(answer)
    steps = model.lowered.unpacked
    names = {step.name: step.kernel.digest for step in steps if isinstance(step, KernelStep)}
    weigh(tasks, names, list(zip(model.launches, answer["seconds"], strict=True)))


def _studies(tasks: Sequence[Task], tools: Tools, options: Options, storage: BaseStorage | None) -> list[Study]:
    """The searches of a run. Each run has studies of its own in a storage; what it knows from records is told to them."""
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
            problem = dict(task.problem(task.default.family))
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


def space_size(task: Task, options: Options) -> int:
    """Candidates of a task that a search proposes from."""
    return len(engines.Engines(task, options.seed))


def _search(state: State, options: Options, watch: Watch) -> None:
    """Batches, each for the task that promises the most, until budget, trials or hope come to an end."""
    reserve = 0.0
    if options.budget is not None:
        reserve = min(RESERVED * options.budget, FINAL_S * len(state.studies) + 4 * MODEL_PROCESSES * MODEL_S)
    enough = ENOUGH if options.trials is None else 0.0
    studies = {id(study.progress): study for study in state.studies}
    tools = state.studies[0].tools
    while state.left > reserve:
        tools.recruited()
        batch = BATCH * len(tools.runners)
        wanted = batch if options.trials is None else min(batch, options.trials - state.trials)
        chosen = following(state.progress, enough=enough) if wanted > 0 else None
        if chosen is None:
            return
        study = state.current = studies[id(chosen)]
        watch(state)
        state.trials += study.batch(wanted, lambda: state.left > reserve)
        watch(state)


def _finals(state: State, watch: Watch) -> None:
    """The heaviest tasks first: for those that the budget does not reach, everything stays as it is."""
    state.phase = "final"
    for study in sorted(state.studies, key=lambda s: -s.task.weight * (1 - s.best)):
        state.current = study
        study.tools.settle()
        watch(state)
        digest = study.task.kernel.digest
        if state.left < FINAL_S / 2:
            state.verdicts[digest] = choice.default_of(study, came="not reached")
        else:
            with study.tools.runner.exclusive():
                state.verdicts[digest] = choice.final(study)
        study.close()
        watch(state)


def _standing(state: State) -> frozenset[str]:
    """Kernels that nothing was decided of, and that have a pick of an earlier run that is not the default's."""
    return frozenset(
        study.task.kernel.digest
        for study in state.studies
        if not state.verdicts[study.task.kernel.digest].decided
        and (pick := study.known.pick) is not None
        and not pick.get("default", False)
    )


def _picks(state: State, names: frozenset[str]) -> Picks:
    """What the records would say with the finals' picks for the kernels ``names``.

    All others that were judged have the default's pick, lest another kernel's answers for them; those that were not
    have the pick that they had.
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


def _whole(state: State, model: _Model, tools: Tools, options: Options, watch: Watch) -> tuple[float, Comparison]:
    """Drop what does not help the model; its untuned seconds, and the tuned model over it."""
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
                break  # what the processes before said counts
            found += Comparison(ratios, processes=[statistics.median(ratios)])
        if not found.ratios:
            failed.append(str(answer.get("fault", "no samples")))
        cost = max(cost, time.monotonic() - begin)
        watch(state)
        return found

    state.kept, comparison = choice.kept(gains, compare, in_time=lambda: not failed and state.left > 2 * cost)
    if not state.kept and not failed and (standing := _standing(state)):
        comparison = compare(frozenset(), standing)  # what earlier runs picked is in the model all the same
    for study in state.studies:
        digest = study.task.kernel.digest
        verdict = state.verdicts[digest]
        if digest in gains and digest not in state.kept:
            came = "failed" if failed else "model"
            state.verdicts[digest] = choice.default_of(study, verdict.finalists, came, verdict.ratio)
    return float(np.median(anchors)) if anchors else 0.0, comparison


def _record(state: State, tools: Tools) -> Picks:
    """A pick for every kernel that was judged, the default's too: no other kernel's record is to answer for it.

    What the budget did not reach, or what failed, has no record of this run: an earlier pick for it stays.
    """
    for study in state.studies:
        verdict = state.verdicts[study.task.kernel.digest]
        if verdict.decided:
            tools.store.append("pick", study.pick(verdict.candidate, verdict.fields))
    return _picks(state, state.kept)
