"""The search of one kernel: candidates asked for, rendered, built, checked and timed, and every one of them a record."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from gpucomp.errors import DeviceError, GpucompError, RecordError
from gpucomp.kernel.passes.pack_weights import Packed, packed_constant
from gpucomp.kernel.source import KernelSource
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import Record, source_hash
from gpucomp.tuning import messages
from gpucomp.tuning.checks import RUNS
from gpucomp.tuning.crew import Answer, Crew, Runner
from gpucomp.tuning.engines import Engines
from gpucomp.tuning.measure import Rules
from gpucomp.tuning.messages import Message
from gpucomp.tuning.records import Known, Store
from gpucomp.tuning.samplers.ask_tell import REASON, AskTell
from gpucomp.tuning.setups import subject
from gpucomp.tuning.tasks import NAME, Candidate, Progress, Task, rendered_hash

SAMPLE_S = 2e-3  # that a sample takes at least: as many launches as that needs
LONG_SAMPLE_S = 10e-3  # that it may take for weights to come from where a model's do
MOST_LAUNCHES, MOST_SETS, MOST_BYTES = 64, 8, 256 << 20
DIED = ("killed", "timeout")  # how a process ends over a candidate
TRIES = 2  # of the default, without which nothing can be judged; of anything else one
SEED = 11  # of the data that candidates are checked and timed on
BUILD_S = 30.0  # between two looks at the builders
MOST_RUNNERS = 256  # that measure at once
LOOK_S = 0.2  # between two looks for a runner, where all have left
RULES = Rules()
KILLED = {"invalidity": "killed", REASON: "it ended an earlier search"}  # of a point whose record is a launch only
FACTS = ("invalidity", REASON, "ratio", "source", "timestamp", "runs", "noise")  # of a record, that a trial has too


@dataclass(frozen=True)
class Built:
    """A candidate as the runner takes it. ``rendered`` names its source and packing: candidates that share it are one."""

    candidate: Candidate
    source: KernelSource
    rendered: str
    message: Message
    arrays: Mapping[str, np.ndarray]
    build_s: float


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate on its way to a device: ``identity`` is what the records know it by, ``job`` what the runner is asked."""

    built: Built
    identity: Mapping[str, Any]
    job: Message
    arrays: Mapping[str, np.ndarray]


@dataclass
class Tools:
    """What all studies of a run share. ``facts`` is what the runner's device says of itself.

    others     runners whose devices say the same: candidates are measured by all at once, everything else by ``runner``
    newcomers  gives further ones that have come since it was last asked
    wait       seconds that a search waits for one where all have left
    """

    builders: Crew
    runner: Runner
    store: Store
    facts: Message
    sampler: str
    seed: int
    rules: Rules = RULES
    current: Study | None = None  # whose arrays the runners have
    others: Sequence[Runner] = ()
    newcomers: Callable[[], Sequence[Runner]] = lambda: ()
    wait: float = 0.0

    @property
    def device(self) -> dict[str, Any]:
        return dict(self.facts["facts"])

    @property
    def runners(self) -> list[Runner]:
        """Those that can be asked now; where all have left, who comes in time. Raises ``DeviceError`` where nobody does."""
        deadline = time.monotonic() + self.wait
        while not (found := [runner for runner in (self.runner, *self.others) if not runner.gone]):
            if not self.recruited():
                if time.monotonic() > deadline:
                    raise DeviceError(f"nobody is left to measure: {self.runner.gone}", code="GPC5300")
                time.sleep(LOOK_S)
        return found

    def recruited(self) -> Sequence[Runner]:
        """Those who have come since, who take part from now on."""
        found = self.newcomers()
        self.others = [*self.others, *found]
        return found

    def settle(self) -> None:
        """Where the runner is gone, let another one be the first."""
        if self.runner.gone:
            self.runner, *self.others = self.runners

    def compared(self, job: Message, arrays: Mapping[str, np.ndarray], limit: float) -> Message:
        """The answer of a new process, which has nothing of what was there before, to a comparison.

        A machine that is lost over it need not have been lost because of it: another one is asked, ``TRIES`` in all.
        Where nobody is left the answer says so.
        """
        lost = 0
        while True:
            try:
                self.settle()
            except DeviceError as error:  # what was found before is recorded all the same
                return {"invalidity": "killed", "fault": error.message}
            self.runner.forget()
            self.runner.fresh()
            self.current = None
            answer, _ = self.runner.ask(job, arrays, limit=limit)
            lost += not answer.get("unsent")
            if not self.runner.gone or lost == TRIES:
                return answer


@dataclass(eq=False)
class Study:
    """One task's search: ``search`` is the optuna study of it, in rows of ``table``.

    ``fault`` says why there is none: the default itself does not pass the check.
    """

    task: Task
    table: Engines
    search: AskTell
    tools: Tools
    known: Known
    progress: Progress
    fault: str = ""
    trials: list[Record] = field(default_factory=list)
    _data: dict[int, tuple[list[np.ndarray], list[np.ndarray]]] = field(default_factory=dict)
    _packed: dict[tuple[int, str], np.ndarray] = field(default_factory=dict)
    _measured: dict[str, Record] = field(default_factory=dict)  # by what was rendered
    _waiting: dict[str, list[Candidate]] = field(
        default_factory=dict
    )  # what is being measured, and who else asks for it
    _anchor: Built | None = None
    anchor_s: float = 0.0

    def __post_init__(self) -> None:
        """What only went wrong that once is not known: it may be tried again."""
        lasting = {key: trial for key, trial in self.known.trials.items() if not trial.get("transient")}
        self.known = replace(self.known, trials=lasting)

    # data and candidates

    def data(self, seed: int = SEED) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Inputs, and what the kernel has to make of them."""
        if seed not in self._data:
            self._data[seed] = self.task.data(seed)
        return self._data[seed]

    def close(self) -> None:
        """Let go of the data; what was asked for and not measured failed."""
        self.search.close("the search ended before it was measured")
        self._data.clear()
        self._packed.clear()

    def render(self, candidate: Candidate) -> tuple[KernelSource, Packed | None, str]:
        """Source, packing, and a name of both. Raises ``GpucompError``."""
        source, packed = self.task.rendered(candidate)
        return source, packed, rendered_hash(source, packed)

    def assembled(
        self, candidate: Candidate, source: KernelSource, packed: Packed | None, binary: np.ndarray, seed: int = SEED
    ) -> tuple[Message, dict[str, np.ndarray]]:
        """A candidate on the data of ``seed``, as a message and its arrays."""
        inputs, _ = self.data(seed)
        operand = None
        if packed is not None:
            key = seed, repr(packed.packing)
            if key not in self._packed:
                self._packed[key] = packed_constant(packed, inputs)
            operand = self._packed[key]
        found = subject(self.task.kernel, candidate.family, source, packed, inputs,
                        constants=self.task.kernel.constants, operand=operand)  # fmt: skip
        message, arrays = messages.subject_message(found)
        name = messages.digest(binary)
        return {**message, "binary": name}, {**arrays, name: binary}

    def job(self, seed: int = SEED) -> tuple[Message, dict[str, np.ndarray]]:
        """What is the same for all candidates: how often they are launched, and what is expected of them.

        Weights take turns over as many bytes as the model has between two launches of the kernel: what fits a cache alone
        does not beside all others. On two cores the kernels of ResNet-18 with the most weights are 1.6 times as fast as
        the default where they stay in a cache, by a schedule that is 1.15 times as slow in the model.
        """
        _, wanted = self.data(seed)
        expected = {messages.digest(array): array for array in wanted}
        nbytes = max(1, sum(t.nbytes for t in self.task.kernel.params))
        seconds = self.task.seconds or SAMPLE_S
        launches = max(1, min(MOST_LAUNCHES, math.ceil(SAMPLE_S / seconds)))
        cold = math.ceil(2 * self.tools.facts["cache_bytes"] / nbytes)
        weights = sum(self.task.kernel.params[k].nbytes for k in self.task.kernel.constants)
        far = math.ceil(max(self.task.between, 2 * self.tools.facts["cache_bytes"]) / max(1, weights))
        long = max(launches, math.ceil(LONG_SAMPLE_S / seconds))
        weight_sets = max(1, min(far, long, MOST_LAUNCHES, MOST_BYTES // max(1, weights)))
        if weight_sets * weights <= self.tools.facts["cache_bytes"]:
            weight_sets = 1  # all of them stay in the cache, as one does
        sets = max(1, min(launches, cold, MOST_SETS, MOST_BYTES // nbytes))
        launches = max(launches, weight_sets)
        job = {
            "expected": [messages.digest(array) for array in wanted],
            "terms": self.task.terms,
            "math": self.task.math,
            "sets": sets,
            "weight_sets": weight_sets,
            "launches": launches,
        }
        return job, expected

    # measuring

    def prepare(self) -> None:
        """The default first: it is what everything is measured by. Sets ``fault`` when it cannot be."""
        self.tools.settle()
        if self.tools.current is not self:
            for runner in self.tools.runners:
                runner.forget()
            self.tools.current = self
        if self._anchor is not None or self.fault:
            return
        name = self.task.kernel.digest, *self.task.default.key
        if name not in self.known.trials and self.known.killers.get(name, 0) >= TRIES:
            self.fault = f"the default was launched {TRIES} times without an end"
            return
        default = [self.task.default]  # built once more where that fails: it need not have been to blame
        self._anchor = next(iter([*self._build(default, again=True)] or self._build(default)), None)
        if self._anchor is None:
            self.fault = f"the default cannot be built: {self.trials[-1]['fault']}"
            return
        record = self.known.trials.get(name)
        launches = self.known.killers.get(name, 0)
        while record is None or (record["invalidity"] in DIED and launches < TRIES):  # it need not have been to blame
            record, launches = self._measure(self._anchor, default=True), launches + 1
        if record["invalidity"] != "correct":
            self.fault = f"the default does not pass the check: {record.get('fault', record['invalidity'])}"
            return
        self.anchor_s = statistics.median(record["samples"])
        self.task.seconds = self.task.seconds or self.anchor_s
        self._tell(self.task.default, record)
        for key, trial in self.known.trials.items():
            row = self.table.row(key[1:])
            if key != name and row is not None:
                self._tell(self.table.candidate(row), trial)
        for key in self.known.killers:
            if key not in self.known.trials and key != name and (row := self.table.row(key[1:])) is not None:
                self.search.tell(row, None, facts=KILLED)

    def _seconds(self, record: Record) -> float | None:
        """What a trial took, had the default been as fast as it was in its own."""
        return record["ratio"] * self.anchor_s if record["invalidity"] == "correct" else None

    def _seen(self, record: Record) -> None:
        self.trials.append(record)
        self.progress.trials += 1
        if record["invalidity"] != "correct":
            kind = record["invalidity"]
            self.progress.invalid[kind] = self.progress.invalid.get(kind, 0) + 1

    def _inform(self, candidate: Candidate, record: Record) -> None:
        row = self.table.row(candidate.key)
        if row is not None:
            facts = {name: record[name] for name in FACTS if record.get(name) not in (None, "")}
            self.search.tell(row, self._seconds(record), lost=bool(record.get("transient")), facts=facts)

    def _tell(self, candidate: Candidate, record: Record) -> None:
        """Its trial, and those of all who asked for the same source."""
        for asked in (candidate, *self._waiting.pop(record["rendered"], ())):
            self._inform(asked, record)
        self._measured[record["rendered"]] = record
        self._seen(record)

    def batch(self, count: int, in_time: Callable[[], bool] = lambda: True) -> int:
        """Measure ``count`` candidates that nobody has, as long as it is ``in_time``; how many there were."""
        begin = time.monotonic()
        self.prepare()
        if self.fault:
            self.progress.exhausted = True
            return 0
        fresh: list[Candidate] = []
        while len(fresh) < count:
            rows = self.search.ask(count - len(fresh))
            if not rows:
                self.progress.exhausted = True
                break
            for row in rows:
                candidate = self.table.candidate(row)
                key = (self.task.kernel.digest, *candidate.key)
                if key in self.known.killers:
                    self.search.tell(row, None, facts=KILLED)
                elif candidate.key == self.task.default.key:
                    self.search.tell(row, self.anchor_s)
                else:
                    fresh.append(candidate)
        side_by_side = len(self.tools.runners) > 1
        measured = (self._by_all if side_by_side else self._by_one)(self._build(fresh), in_time)
        self.progress.after(self.best, time.monotonic() - begin)
        return measured

    def _by_one(self, found: Iterator[Built], in_time: Callable[[], bool]) -> int:
        """Measure one after the other, by the runner; how many."""
        measured = 0
        with contextlib.ExitStack() as held:
            for built in found:
                if not measured:
                    held.enter_context(self.tools.runner.exclusive())  # a batch in one go
                if not in_time():
                    break
                self._tell(built.candidate, self._measure(built))
                measured += 1
        return measured

    def _by_all(self, found: Iterator[Built], in_time: Callable[[], bool]) -> int:
        """Measure by all runners at once, each of which has one candidate at a time; how many."""
        idle = self.tools.runners
        launched: list[Trial] = []  # of which there is no record yet
        unsent: list[Built] = []  # that a runner never had, because it was gone
        under_way: dict[Future[Answer], tuple[Runner, Trial, float]] = {}
        pool = ThreadPoolExecutor(MOST_RUNNERS, "trial")
        measured = 0
        try:
            while True:
                built = (unsent.pop() if unsent else next(found, None)) if in_time() else None
                if built is None and not under_way:
                    break
                if built is None:
                    measured += self._landed(under_way, idle, launched, unsent)
                    continue
                idle += self.tools.recruited()
                while not idle and under_way:
                    measured += self._landed(under_way, idle, launched, unsent)
                    idle += self.tools.recruited()
                idle += [] if idle else self.tools.runners  # where all are gone: who comes in time
                runner = idle.pop(0)
                trial = self._trial(built)
                launched.append(trial)  # before it is: whatever comes between the two, it is released
                self.tools.store.append("launch", trial.identity)
                under_way[pool.submit(runner.ask, trial.job, trial.arrays)] = runner, trial, time.monotonic()
        except BaseException:
            for trial in launched:
                self._release(trial)
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return measured

    def _landed(
        self,
        under_way: dict[Future[Answer], tuple[Runner, Trial, float]],
        idle: list[Runner],
        launched: list[Trial],
        unsent: list[Built],
    ) -> int:
        """Record what has been answered, waiting for at least one; how many. Who can be asked again becomes idle."""
        measured = 0
        for future in wait(under_way, return_when=FIRST_COMPLETED).done:
            runner, trial, begin = under_way.pop(future)
            answer, _ = future.result()
            if answer.get("unsent"):
                launched.remove(trial)
                self._release(trial)
                unsent.append(trial.built)
                continue
            record = self._recorded(trial, answer, time.monotonic() - begin)
            launched.remove(trial)  # only now: what ends without a record is released
            self._tell(trial.built.candidate, record)
            measured += 1
            if not runner.gone:
                idle.append(runner)
        return measured

    @property
    def best(self) -> float:
        """The least ratio that a right candidate had."""
        return min((t["ratio"] for t in self.trials if t["invalidity"] == "correct"), default=1.0)

    def leaders(self, count: int) -> list[Candidate]:
        """The right candidates that were fastest, the default not among them, nor what was so slow that it ran only once."""
        families = {family.title: family for family in self.task.engines}
        whole = [t for t in self.trials if t["invalidity"] == "correct" and t.get("runs", RUNS) == RUNS]
        right = sorted(whole, key=lambda t: t["ratio"])
        found = [Candidate(families[t["engine"]], t["configuration"]) for t in right if t["engine"] in families]
        return [c for c in found if c.key != self.task.default.key][:count]

    def built(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Those of ``candidates`` that can be built, in their order."""
        found = {built.candidate.key: built for built in self._build(candidates, again=True)}
        return [found[c.key] for c in candidates if c.key in found]

    def _build(self, candidates: Sequence[Candidate], *, again: bool = False) -> Iterator[Built]:
        """Render and build. What fails is recorded; what was rendered before is told as it was, and left out.

        With ``again`` all are built, and what fails is left out and not recorded: there is a trial of it.
        They come as they are built, or all of them once the last is, where building would disturb the device.
        """
        tools = self.tools
        waiting: dict[int, tuple[Candidate, KernelSource, Packed | None, str]] = {}
        for candidate in candidates:
            try:
                source, packed, name = self.render(candidate)
            except GpucompError as error:
                if not again:
                    self._failed(candidate, "compile", {"fault": error.message}, "", "")
                continue
            if not again and name in self._measured:
                self._inform(candidate, self._measured[name])
                continue
            if not again and name in self._waiting:
                self._waiting[name].append(candidate)
                continue
            self._waiting.setdefault(name, [])
            job = {"do": "build", "source": messages.source_message(source)}
            waiting[tools.builders.submit(job, {})] = candidate, source, packed, name
        found: list[Built] = []
        while waiting:
            for number, (answer, arrays) in tools.builders.gather(BUILD_S):
                if number not in waiting:
                    continue  # of a batch that was given up
                candidate, source, packed, name = waiting.pop(number)
                if "invalidity" in answer:
                    if again:
                        self._waiting.pop(name, None)
                    else:
                        killed = answer["invalidity"] == "killed"
                        kind = "compile" if killed else answer["invalidity"]
                        self._failed(
                            candidate, kind, {"transient": killed} | answer, source_hash(source.text, NAME), name
                        )
                    continue
                message, all_arrays = self.assembled(candidate, source, packed, arrays["binary"])
                found.append(Built(candidate, source, name, message, all_arrays, answer["seconds"]))
            if not tools.facts["noisy"]:
                yield from found
                found = []
        order = {c.key: k for k, c in enumerate(candidates)}
        yield from sorted(found, key=lambda b: order[b.candidate.key])

    def _failed(self, candidate: Candidate, kind: str, answer: Message, source: str, name: str) -> None:
        fields = self._fields(candidate, source) | {"invalidity": kind, "fault": answer["fault"][:500], "samples": []}
        fields |= _transience(answer)
        self._tell(candidate, self.tools.store.append("trial", fields | {"rendered": name}))

    def _trial(self, built: Built, *, default: bool = False) -> Trial:
        tools = self.tools
        common, expected = self.job()
        assert self._anchor is not None
        anchor = None if default else self._anchor
        best = self.best if self.trials else math.inf
        job = {**common, "do": "trial", "candidate": built.message, "anchor": anchor.message if anchor else None}
        job |= {"best": min(best, 1e9), "rules": asdict(tools.rules), "anchor_s": self.anchor_s}
        arrays = {**(anchor.arrays if anchor else {}), **expected, **built.arrays}
        return Trial(built, self._identity(built.candidate), job, arrays)

    def _measure(self, built: Built, *, default: bool = False) -> Record:
        """One candidate on the device. It is in the records before it runs: should it end everything, it is known."""
        tools = self.tools
        trial = self._trial(built, default=default)
        while True:
            tools.settle()
            try:
                tools.store.append("launch", trial.identity)
                begin = time.monotonic()
                answer, _ = tools.runner.ask(trial.job, trial.arrays)
                if not answer.get("unsent"):
                    return self._recorded(trial, answer, time.monotonic() - begin, default=default)
            except BaseException:
                self._release(trial)
                raise
            self._release(trial)

    def _release(self, trial: Trial) -> None:
        """Say in the records that a candidate was not to blame: it was Ctrl-C, or a disk that is full."""
        with contextlib.suppress(RecordError):
            self.tools.store.append("release", trial.identity)

    def _recorded(self, trial: Trial, answer: Message, took: float, *, default: bool = False) -> Record:
        built = trial.built
        fields = self._fields(built.candidate, source_hash(built.source.text, NAME))
        fields |= _outcome(answer, built.build_s, took) | {"rendered": built.rendered, "default": default}
        return self.tools.store.append("trial", fields)

    def _identity(self, candidate: Candidate) -> dict[str, Any]:
        return {
            "kernel": self.task.kernel.digest,
            "device": self.tools.device,
            "engine": candidate.family.title,
            "configuration": dict(candidate.schedule),
        }

    def _fields(self, candidate: Candidate, source: str) -> dict[str, Any]:
        return {
            **self._identity(candidate),
            "label": self.task.label,
            "problem": dict(self.task.problem(candidate.family)),
            "template": engine_hash(candidate.family),
            "source": source,
            "tuner": self.tools.sampler,
            "seed": self.tools.seed,
        }

    def pick(self, candidate: Candidate, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a record that says: this one. ``facts`` are how that was found."""
        source, _, _ = self.render(candidate)
        return self._fields(candidate, source_hash(source.text, NAME)) | dict(facts)


def _transience(answer: Message) -> dict[str, bool]:
    """A mark on what says nothing of the candidate: another run does not go by it."""
    return {"transient": True} if any(answer.get(name) for name in ("transient", "lost", "dead")) else {}


def _outcome(answer: Message, build_s: float, took: float) -> dict[str, Any]:
    """An answer as fields of a trial: those of Kernel Tuner's T4, and everything else that is known."""
    invalidity = answer.get("invalidity", "runtime")
    samples = answer.get("samples", [])
    validation = answer.get("validation_s", 0.0)
    right = invalidity == "correct"
    found: dict[str, Any] = {
        "invalidity": invalidity,
        "correctness": int(right),
        "samples": samples,
        "anchors": answer.get("anchors", []),
        "objectives": ["time"],
        "times": {
            "compilation_time": 1e3 * build_s,
            "validation": 1e3 * validation,
            "benchmark": 1e3 * max(0.0, took - validation),
            "framework": 0.0,
            "search_algorithm": 0.0,
            "runtimes": [1e3 * s for s in samples],
        },
        "measurements": [{"name": "time", "value": 1e3 * statistics.median(samples), "unit": "ms"}] if right else [],
    }
    found |= _transience(answer)
    names = ("fault", "error", "check", "runs", "ratio", "throttled", "ended", "clocks", "noise")
    found |= {name: answer[name] for name in names if answer.get(name) is not None}
    if not math.isfinite(found.get("noise", 0.0)):
        del found["noise"]
    return found
