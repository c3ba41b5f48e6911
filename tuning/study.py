"""The search of one kernel: it asks for candidates, renders, builds, checks and times them, and records every one."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, field, replace
from typing import Any

import numpy as np

from gpucomp.errors import DeviceError, GpucompError, RecordError
from gpucomp.kernel.passes.pack_weights import Packed, packed_constant
from gpucomp.kernel.source import KernelSource
from gpucomp.lazy_dataclass import dataclass
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import Record, ratio_of, source_hash
from gpucomp.tuning import messages
from gpucomp.tuning.checks import RUNS
from gpucomp.tuning.engines import Engines
from gpucomp.tuning.measure import Rules
from gpucomp.tuning.messages import Message
from gpucomp.tuning.records import Known, Store
from gpucomp.tuning.samplers.ask_tell import REASON, AskTell
from gpucomp.tuning.setups import subject
from gpucomp.tuning.tasks import NAME, Candidate, Progress, Task, rendered_hash
from gpucomp.tuning.worker_pool import Answer, Runner, WorkerPool

SAMPLE_S = 2e-3  # least time of a sample, which decides its number of launches
LONG_SAMPLE_S = 10e-3  # a sample may take this long, so that weights come from as far away as in the model
MOST_LAUNCHES, MOST_SETS, MOST_BYTES = 64, 8, 256 << 20
DIED = ("killed", "timeout")  # how a process can end because of a candidate
TRIES = 2  # of the default, without which nothing can be judged; any other candidate has one try
SEED = 11  # of the data that candidates are checked and timed on
BUILD_S = 30.0  # between two polls of the builders
MOST_RUNNERS = 256  # that measure at the same time
LOOK_S = 0.2  # between two polls for a runner, when all have left
RULES = Rules()
KILLED = {"invalidity": "killed", REASON: "it ended an earlier search"}  # for a point with nothing but a launch record
FACTS = ("invalidity", REASON, "ratio", "source", "timestamp", "runs", "noise")  # fields of a record for the trial


@dataclass(frozen=True)
class Built:
    """A candidate ready for the runner. ``rendered`` names its source and packing; candidates with the same name are equal."""

    candidate: Candidate
    source: KernelSource
    rendered: str
    message: Message
    arrays: Mapping[str, np.ndarray]
    build_s: float


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate that is sent to a device: ``identity`` names it in the records, ``job`` is the runner's job."""

    built: Built
    identity: Mapping[str, Any]
    job: Message
    arrays: Mapping[str, np.ndarray]


@dataclass
class Tools:
    """What all studies of a run share. ``facts`` are the facts of the runner's device.

    others     runners whose devices have the same facts: all of them measure candidates; ``runner`` does everything else
    newcomers  returns the runners that have come since the last call
    wait       seconds that a search waits for a runner when all have left
    """

    builders: WorkerPool
    runner: Runner
    store: Store
    facts: Message
    sampler: str
    seed: int
    rules: Rules = RULES
    current: Study | None = None  # the study whose arrays the runners have
    others: Sequence[Runner] = ()
    newcomers: Callable[[], Sequence[Runner]] = lambda: ()
    wait: float = 0.0

    @property
    def device(self) -> dict[str, Any]:
        return dict(self.facts["facts"])

    @property
    def runners(self) -> list[Runner]:
        """The runners that can be asked now. When all have left, wait for one; raises ``DeviceError`` if none comes."""
        deadline = time.monotonic() + self.wait
        while not (found := [runner for runner in (self.runner, *self.others) if not runner.gone]):
            if not self.recruited():
                if time.monotonic() > deadline:
                    raise DeviceError(f"no runner is left to measure: {self.runner.gone}", code="GPC5300")
                time.sleep(LOOK_S)
        return found

    def recruited(self) -> Sequence[Runner]:
        """The runners that have come since the last call. They take part from now on."""
        found = self.newcomers()
        self.others = [*self.others, *found]
        return found

    def settle(self) -> None:
        """If the runner has left, replace it by another one."""
        if self.runner.gone:
            self.runner, *self.others = self.runners

    def compared(self, job: Message, arrays: Mapping[str, np.ndarray], limit: float) -> Message:
        """The answer of a new process to a comparison; the process has none of the earlier arrays.

        A machine that is lost during the job was not necessarily lost because of it, so another one is asked, ``TRIES`` in
        all. If no runner is left, the answer says so.
        """
        lost = 0
        while True:
            try:
                self.settle()
            except DeviceError as error:  # what was found before is still recorded
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
    """One task's search: ``search`` is its optuna study over the rows of ``table``.

    ``fault`` says why the task cannot be searched: the default itself does not pass the check.
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
    _measured: dict[str, Record] = field(default_factory=dict)  # by the name of what was rendered
    _waiting: dict[str, list[Candidate]] = field(
        default_factory=dict
    )  # by the name of what is being measured: other candidates with the same source
    _anchor: Built | None = None
    anchor_s: float = 0.0

    def __post_init__(self) -> None:
        """Forget transient failures: such candidates may be tried again."""
        lasting = {key: trial for key, trial in self.known.trials.items() if not trial.get("transient")}
        self.known = replace(self.known, trials=lasting)

    # data and candidates

    def data(self, seed: int = SEED) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The inputs, and the expected outputs of the kernel."""
        if seed not in self._data:
            self._data[seed] = self.task.data(seed)
        return self._data[seed]

    def close(self) -> None:
        """Drop the data. Candidates that were asked for but not measured fail."""
        self.search.close("the search ended before it was measured")
        self._data.clear()
        self._packed.clear()

    def render(self, candidate: Candidate) -> tuple[KernelSource, Packed | None, str]:
        """The source, the packing, and a name of both. Raises ``GpucompError``."""
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
        found = subject(
            self.task.kernel,
            candidate.family,
            source,
            packed,
            inputs,
            constants=self.task.kernel.constants,
            operand=operand,
        )
        message, arrays = messages.subject_message(found)
        name = messages.digest(binary)
        return {**message, "binary": name}, {**arrays, name: binary}

    def job(self, seed: int = SEED) -> tuple[Message, dict[str, np.ndarray]]:
        """The part of a job that is the same for all candidates: the number of launches, and the expected outputs.

        Weights rotate over as many bytes as the model touches between two launches of the kernel: a schedule that is fast
        while the weights stay in a cache can be slow in the model. On two cores, a schedule for the kernels of ResNet-18 with
        the most weights was 1.6 times as fast as the default with cached weights, and 1.15 times as slow in the model.
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
            weight_sets = 1  # all sets would stay in the cache, so one is enough
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
        """Measure the default, to which everything is compared. Sets ``fault`` if that fails."""
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
        default = [self.task.default]  # a failed build is repeated once: the default need not be to blame
        self._anchor = next(iter([*self._build(default, again=True)] or self._build(default)), None)
        if self._anchor is None:
            self.fault = f"the default cannot be built: {self.trials[-1]['fault']}"
            return
        record = self.known.trials.get(name)
        launches = self.known.killers.get(name, 0)
        while record is None or (record["invalidity"] in DIED and launches < TRIES):  # the default need not be to blame
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
        """The time of a trial, scaled to the default's time in this run."""
        return ratio_of(record) * self.anchor_s if record["invalidity"] == "correct" else None

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
        """Tell the trial's result, also for the other candidates with the same source."""
        for asked in (candidate, *self._waiting.pop(record["rendered"], ())):
            self._inform(asked, record)
        self._measured[record["rendered"]] = record
        self._seen(record)

    def batch(self, count: int, in_time: Callable[[], bool] = lambda: True) -> int:
        """Measure ``count`` new candidates, as long as it is ``in_time``; return how many were measured."""
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
        """Measure candidates one after the other with the runner; return how many."""
        measured = 0
        with contextlib.ExitStack() as held:
            for built in found:
                if not measured:
                    held.enter_context(self.tools.runner.exclusive())  # keep the device for the whole batch
                if not in_time():
                    break
                self._tell(built.candidate, self._measure(built))
                measured += 1
        return measured

    def _by_all(self, found: Iterator[Built], in_time: Callable[[], bool]) -> int:
        """Measure with all runners at once, one candidate at a time each; return how many."""
        idle = self.tools.runners
        launched: list[Trial] = []  # trials without a record so far
        unsent: list[Built] = []  # candidates that no runner got, because it had left
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
                idle += [] if idle else self.tools.runners  # when all have left, wait for one
                runner = idle.pop(0)
                trial = self._trial(built)
                launched.append(trial)  # before the launch record, so that an exception in between releases it
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
        """Wait for at least one answer and record all that have come; return how many. Free runners become idle."""
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
            launched.remove(trial)  # only after the record: a trial without a record is released
            self._tell(trial.built.candidate, record)
            measured += 1
            if not runner.gone:
                idle.append(runner)
        return measured

    @property
    def best(self) -> float:
        """The smallest ratio of a correct candidate; 1 for the default, however its own trial came out."""
        return min((ratio_of(t) for t in self.trials if t["invalidity"] == "correct"), default=1.0)

    @property
    def winner(self) -> Candidate:
        """The candidate with the smallest ratio; the default before there is a trial."""
        right = [t for t in self.trials if t["invalidity"] == "correct"]
        families = {family.title: family for family in self.task.engines}
        found = min((t for t in right if t["engine"] in families), key=ratio_of, default=None)
        return self.task.default if found is None else Candidate(families[found["engine"]], found["configuration"])

    def leaders(self, count: int) -> list[Candidate]:
        """The fastest correct candidates, without the default and without those so slow that they ran only once."""
        families = {family.title: family for family in self.task.engines}
        whole = [t for t in self.trials if t["invalidity"] == "correct" and t.get("runs", RUNS) == RUNS]
        right = sorted(whole, key=ratio_of)
        found = [Candidate(families[t["engine"]], t["configuration"]) for t in right if t["engine"] in families]
        return [c for c in found if c.key != self.task.default.key][:count]

    def built(self, candidates: Sequence[Candidate]) -> list[Built]:
        """Those of ``candidates`` that can be built, in order."""
        found = {built.candidate.key: built for built in self._build(candidates, again=True)}
        return [found[c.key] for c in candidates if c.key in found]

    def _build(self, candidates: Sequence[Candidate], *, again: bool = False) -> Iterator[Built]:
        """Render and build. Failures are recorded. If the same source was measured before, its result is told instead.

        With ``again`` every candidate is built, and failures are ignored without a record, because they have a trial already.
        Candidates are yielded as they are built; if building would disturb the device, only after the last one is built.
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
                    continue  # from a batch that was given up
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
        """Measure one candidate on the device. It is recorded before it runs, in case it takes down the machine."""
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
        """Record that a candidate was not to blame, for example for Ctrl-C or a full disk."""
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
            "problem": dict(self.task.problem(candidate.family).numbers),
            "template": engine_hash(candidate.family),
            "source": source,
            "tuner": self.tools.sampler,
            "seed": self.tools.seed,
        }

    def pick(self, candidate: Candidate, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a pick record. ``facts`` say how the pick was found."""
        source, _, _ = self.render(candidate)
        return self._fields(candidate, source_hash(source.text, NAME)) | dict(facts)


def _transience(answer: Message) -> dict[str, bool]:
    """A mark on results that say nothing about the candidate; another run ignores them."""
    return {"transient": True} if any(answer.get(name) for name in ("transient", "lost", "dead")) else {}


def _outcome(answer: Message, build_s: float, took: float) -> dict[str, Any]:
    """An answer as fields of a trial: those of the T4 format, and everything else that is known."""
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
