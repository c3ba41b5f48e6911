"""A process that builds, or that has the device and measures: ``python -m gpucomp.tuning.worker ROLE TARGET``.

It answers messages one by one until its input ends, and it dies with the process that started it. It knows no models and no
searches: it is sent plain data. A job that fails is answered with the error; a job that kills the process has no answer.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from gpucomp import targets
from gpucomp.device.target import Target
from gpucomp.errors import DeviceLostError, GpucompError
from gpucomp.lazy_dataclass import dataclass
from gpucomp.tuning import devices, measure, messages
from gpucomp.tuning.checks import RUNS, VERSION, error_of, run_checked
from gpucomp.tuning.messages import Arrays, Message
from gpucomp.tuning.setups import Setup, arrange

PARENT_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
BUILDERS_NICE = 10
WARM_RUNS = 3
FAR = 4.0  # factor on the hopeless limit: a single launch this slow needs no further timing
LAUNCHES = 3  # single launches that must all be that slow
ONCE = 1.5  # factor on the hopeless limit: a candidate whose first run and a launch are this slow is not run again
LONG_S = 10e-3  # of a launch: its overhead is then negligible
SURE_S = 50e-3  # total time of single launches after which another one adds no information
MODEL_SAMPLE_S = 5e-3  # least time of a sample of a whole model
Answer = tuple[Message, Arrays]
Far = tuple[list[float], list[float]]  # seconds of single launches, and of the anchor beside them


@dataclass
class Checked:
    """The result of checking a candidate.

    launch  runs another single launch and returns its seconds
    error   the largest error of its results
    fault   what is wrong with it, or ""
    far     times of its launches and the anchor's, if it is so slow that it was run only once
    """

    launch: Callable[[], float]
    error: float = 0.0
    fault: str = ""
    far: Far | None = None
    runs: int = 1


class Builder:
    """Compiles sources to machine code."""

    def __init__(self, target: Target) -> None:
        self._target = target
        os.nice(BUILDERS_NICE)

    def build(self, job: Message, arrays: Arrays) -> Answer:
        source = messages.source_of(job["source"])
        begin = time.perf_counter()
        binary = build(source, self._target)
        seconds = time.perf_counter() - begin
        return {"seconds": seconds}, {"binary": np.frombuffer(binary, np.uint8)}


def build(source: Any, target: Target) -> bytes:
    """Build without the cache: each of thousands of candidates is built once, and a hanging compiler must be noticed."""
    compiler = importlib.import_module(targets.BUILDERS[target.kind])
    binary: bytes = compiler.build([source] if target.kind == "cpu" else source, target)
    return binary


class Runner:
    """Measures on the device. Arrays are kept until ``forget``, and the anchor's program stays open."""

    def __init__(self, target: Target, device: devices.Device | None = None) -> None:
        self._device = device or devices.open_device(target)
        self._arrays: dict[str, np.ndarray] = {}
        self._anchor: tuple[str, Any, Setup] | None = None

    def facts(self, job: Message, arrays: Arrays) -> Answer:
        device = self._device
        facts = {"facts": device.facts(), "clocks": device.clocks()}
        return {**facts, "cache_bytes": device.cache_bytes, "noisy": device.noisy}, {}

    def forget(self, job: Message, arrays: Arrays) -> Answer:
        self._arrays.clear()
        self._anchor = None
        return {}, {}

    def trial(self, job: Message, arrays: Arrays) -> Answer:
        """Check a candidate, then time it beside the anchor. ``invalidity`` says why there is no time."""
        self._arrays.update(arrays)
        begin, rules = time.perf_counter(), measure.Rules(**job["rules"])
        found = self._check(job["candidate"], job, rules.hopeless * job["best"])
        error, fault, far = found.error, found.fault, found.far
        checked = time.perf_counter() - begin
        answer: Message = {"error": error if np.isfinite(error) else None, "check": VERSION, "validation_s": checked}
        if found.runs < RUNS:
            answer["runs"] = found.runs
        if fault:
            return {**answer, "invalidity": "correctness", "fault": fault}, {}
        if far is None and job["anchor"] is not None:
            far = self._far(job, found.launch, FAR * rules.hopeless * job["best"])
        if far is not None:
            samples, anchors = far  # too slow for samples of several launches
            answer |= {"samples": samples, "anchors": anchors, "throttled": 0, "ended": "hopeless"}
            ratio = min(samples) / min(anchors)
            return {**answer, "invalidity": "correct", "ratio": ratio, "clocks": self._device.clocks()}, {}
        program, made = self._opened(job["candidate"], job)
        anchor = self._anchored(job, program, made)
        timed = measure.measure(
            self._sampler(program, made),
            self._sampler(*anchor),
            best=job["best"],
            rules=rules,
            held_back=self._held_back,
        )
        answer |= {"samples": timed.samples, "anchors": timed.anchors, "throttled": timed.throttled}
        answer |= {"ended": timed.ended, "clocks": self._device.clocks()}
        if not timed.samples:
            fault = "the device keeps its clocks low"
            return {**answer, "invalidity": "runtime", "fault": fault, "transient": True}, {}
        return {**answer, "invalidity": "correct", "ratio": timed.ratio, "noise": timed.noise}, {}

    def compare(self, job: Message, arrays: Arrays) -> Answer:
        """Time candidates in turn, the first of which is the anchor; the rows are ratios. Each is checked on new data first."""
        self._arrays.update(arrays)
        runs, faults = [], []
        for candidate in job["candidates"]:
            faults.append(self._check(candidate, job).fault)
            runs.append(self._sampler(*self._opened(candidate, job)))
        if any(faults):
            return {"rows": [], "faults": faults}, {}
        rows = measure.in_turn(runs, job["rounds"], job["seconds"], held_back=self._held_back)
        return {"rows": rows, "faults": faults, "clocks": self._device.clocks()}, {}

    def models(self, job: Message, arrays: Arrays) -> Answer:
        """Time whole models from files in turn, the first of which is the anchor: rows of ratios, and the anchor's seconds."""
        from gpucomp.loading import load

        runs: list[Callable[[], float]] = []
        anchors: list[float] = []
        repeats = 0
        for path in job["paths"]:
            exe = load(path)
            inputs = {spec.name: arrays[spec.name] for spec in exe.inputs}

            begin = time.perf_counter()
            for _ in range(WARM_RUNS):
                exe.run(inputs)
            repeats = repeats or max(1, round(MODEL_SAMPLE_S * WARM_RUNS / (time.perf_counter() - begin)))

            def run(exe: Any = exe, inputs: Arrays = inputs, first: bool = not runs, repeats: int = repeats) -> float:
                begin = time.perf_counter()
                for _ in range(repeats):
                    exe.run(inputs)
                seconds = (time.perf_counter() - begin) / repeats
                if first:
                    anchors.append(seconds)
                return seconds

            runs.append(run)
        rows = measure.in_turn(runs, job["rounds"], job["seconds"], held_back=self._held_back)
        return {"rows": rows, "anchors": anchors, "clocks": self._device.clocks()}, {}

    def profile(self, job: Message, arrays: Arrays) -> Answer:
        """Seconds of each launch of a model: the medians of ``runs`` runs."""
        from gpucomp.loading import load

        exe = load(job["path"])
        inputs = {spec.name: arrays[spec.name] for spec in exe.inputs}
        found = [[seconds for _, seconds in exe.profile(inputs)] for _ in range(job["runs"])]
        begin = time.perf_counter()
        exe.run(inputs)
        return {"seconds": np.median(found, axis=0).tolist(), "latency": time.perf_counter() - begin}, {}

    def _held_back(self) -> bool:
        return bool(self._device.clocks().get("held_by"))

    def _opened(self, candidate: Message, job: Message, *, once: bool = False) -> tuple[Any, Setup]:
        """A candidate's program, with as many launches as a sample has, or with one."""
        subject = messages.subject_of(candidate, self._arrays)
        turns = {} if once else {name: job[name] for name in ("sets", "weight_sets", "launches")}
        made = arrange(subject, self._device.target, **turns)
        binary = self._arrays[candidate["binary"]].tobytes()
        binaries = {subject.compiled.binary: binary}
        return self._device.open(made.plan, made.sources, binaries, made.weights), made

    def _far(
        self, job: Message, launch: Callable[[], float], limit: float, *, least: float = 0.0, sure: float = math.inf
    ) -> Far | None:
        """Times of single launches and of the anchor beside them, if the launches take over ``limit`` times the anchor's.

        The first launch may be slow by accident, and the anchor may be slower now than before. So only the fastest of
        ``LAUNCHES`` launches counts, or of fewer if they take ``sure`` seconds, compared with the anchor's time now. None if
        they are faster, or if the first launch takes less than ``least`` seconds.
        """
        samples: list[float] = [launch()]
        anchors: list[float] = []
        if samples[0] <= max(least, limit * job["anchor_s"]):
            return None
        anchor = self._sampler(*self._anchored(job, None, None))
        while min(samples) > limit * min(anchors, default=0.0):
            anchors.append(anchor())
            if len(anchors) == LAUNCHES or sum(samples) >= sure:
                return (samples, anchors) if min(samples) > limit * min(anchors) else None
            samples.append(launch())
        return None

    def _check(self, candidate: Message, job: Message, hopeless: float = math.inf) -> Checked:
        """Check a single launch of a candidate, ``RUNS`` times; only once if the first run is wrong.

        It is also run only once if that run and a launch after it take far more than ``hopeless`` times the anchor: it is
        then correct as far as one run shows, but slow, and it cannot be chosen.
        """
        program, made = self._opened(candidate, job, once=True)

        def launch(*, warm: bool) -> float:
            return float(program.time_launches(made.inputs, 1, warm=warm)[0])

        found = Checked(lambda: launch(warm=True))

        def go_on(outputs: Sequence[np.ndarray], seconds: float) -> bool:
            for output, name in zip(outputs, job["expected"], strict=True):
                error, wrong = error_of(output, self._arrays[name], job["terms"], job["math"])
                found.error, found.fault = max(found.error, error), found.fault or wrong
            limit = ONCE * hopeless
            may_stop = not found.fault and hopeless < math.inf and job["anchor"] is not None
            if may_stop and seconds > max(LONG_S, limit * job["anchor_s"]):
                found.far = self._far(job, lambda: launch(warm=False), limit, least=LONG_S, sure=SURE_S)
            found.runs = 1 if found.fault or found.far is not None else RUNS
            return found.runs > 1

        _, fault = run_checked(program, made, RUNS, go_on)
        found.fault = found.fault or fault
        return found

    def _anchored(self, job: Message, program: Any, made: Setup | None) -> tuple[Any, Any]:
        """The default's program; the candidate's own if it is the default."""
        wanted = job["anchor"]
        if wanted is None:
            return program, made
        name = wanted["binary"]
        if self._anchor is None or self._anchor[0] != name:
            self._anchor = (name, *self._opened(wanted, job))
        return self._anchor[1:]

    @staticmethod
    def _sampler(program: Any, made: Setup) -> Callable[[], float]:
        count = len(made.plan.launches)
        return lambda: program.time_launches(made.inputs, 1)[0] / count


ROLES: Mapping[str, type[Builder] | type[Runner]] = {"build": Builder, "run": Runner}
JOBS = {"build": ("build",), "run": ("facts", "forget", "trial", "compare", "models", "profile")}
INVALIDITY = {"build": "compile", "run": "runtime"}


def answered(role: str, server: Any, job: Message, arrays: Arrays) -> Answer:
    """Run a job; errors that are meant for users are returned as data."""
    if job["do"] not in JOBS[role]:
        return {"error": f"no such job: {job['do']!r}", "code": "GPC1000"}, {}
    try:
        answer: Answer = getattr(server, job["do"])(job, arrays)
        return answer
    except DeviceLostError as error:
        return {"invalidity": INVALIDITY[role], "fault": error.message[:500], "code": error.code, "lost": True}, {}
    except GpucompError as error:
        return {"invalidity": INVALIDITY[role], "fault": error.message[:500], "code": error.code}, {}
    except MemoryError as error:
        return {"invalidity": INVALIDITY[role], "fault": f"out of memory: {error}"[:500], "lost": True}, {}


def serve(role: str, target: str, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer the messages of ``source`` until it ends."""

    def read(count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = source.read(count)
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    server: Any = None
    while True:
        try:
            job, arrays = messages.unpacked(read)
        except EOFError:
            return
        try:
            server = server or ROLES[role](targets.resolve(target))
            answer, results = answered(role, server, job, arrays)
        except GpucompError as error:
            answer, results = {"invalidity": "runtime", "fault": error.message, "code": error.code, "dead": True}, {}
        for part in messages.packed(answer, results):
            sink.write(part)
        sink.flush()


def main(role: str, target: str, parent: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator ends its processes
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != int(parent):
        return  # the parent died before the signal was requested
    faulthandler.enable()
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the output of libraries must not mix with answers
    serve(role, target, sys.stdin.buffer, sink)


if __name__ == "__main__":
    main(*sys.argv[1:])
