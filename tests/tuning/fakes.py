"""A device whose programs are numpy functions that may do wrong, and a worker pool in this process: searches without a device."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from types import SimpleNamespace

import numpy as np

from gpucomp.schedule.records import device_of
from gpucomp.targets import cpu
from gpucomp.tuning import messages
from gpucomp.tuning.setups import ARENA

TARGET = dataclasses.replace(cpu.named("cpu:x86-64-v3"), identity="a formula")


class Device:
    """Runs ``compute(arguments)`` for every launch, where arguments are arrays in the arena or weights.

    ``seconds(text)`` is what a launch of a source takes; ``machine`` may have a clock, noise and drops.
    """

    cache_bytes, noisy = 1 << 12, True

    def __init__(self, compute, seconds=lambda text: 1e-3, held=(), target=TARGET):
        self.target, self.compute, self.seconds, self.held = target, compute, seconds, list(held)
        self.launched = Counter()

    def facts(self):
        return device_of(self.target) | {"device": "a fake", "driver": "1", "compiler": "none"}

    def clocks(self):
        return {"held_by": ["power cap"] if self.held and self.held.pop(0) else []}

    def open(self, plan, sources, binaries, weights):
        return Program(self, plan, next(iter(sources.values())), weights)


class Program:
    def __init__(self, device, plan, text, weights):
        self.device, self.plan, self.text, self.weights = device, plan, text, weights
        self.runs = 0

    def run(self, inputs):
        arena = inputs[ARENA].copy()
        for launch in self.plan.launches:
            arguments = []
            for position in launch.args:
                b = self.plan.buffers[position]
                dtype = messages.DTYPES[b.dtype].numpy
                raw = arena[b.offset : b.offset + b.nbytes] if b.offset >= 0 else None
                arguments.append(self.weights[b.name] if raw is None else raw.view(dtype).reshape(b.shape))
            place = SimpleNamespace(arena=arena, offset=self.plan.buffers[launch.args[-1]].offset, run=self.runs)
            self.device.compute(self.text, arguments, place)
        self.runs += 1
        return {ARENA: arena}

    def time_launches(self, inputs, count, *, warm=True):
        self.device.launched[self.text] += 1
        return [self.device.seconds(self.text) * len(self.plan.launches) for _ in range(count)]


class Builders:
    """Builds at once: a source's binary is its text. ``refuse(text)`` says why one is not built."""

    def __init__(self, refuse=lambda text: ""):
        self.refuse, self.done, self.built = refuse, [], []

    def submit(self, job, arrays):
        text = job["source"]["text"]
        number = len(self.built)
        self.built.append(text)
        if why := self.refuse(text):
            self.done.append((number, ({"invalidity": "compile", "fault": why}, {})))
        else:
            binary = np.frombuffer(text.encode(), np.uint8)
            self.done.append((number, ({"seconds": 0.25}, {"binary": binary})))
        return number

    def gather(self, seconds):
        done, self.done = self.done, []
        return done[::-1]  # in any order

    def close(self):
        pass


class Runner:
    """The real worker's server in this process, behind real messages; ``die(text)`` says how a candidate ends it."""

    gone = ""

    def __init__(self, server, die=lambda text: ""):
        self.server, self.die = server, die
        self.trials = []

    def ask(self, job, arrays, *, limit=None):
        job, arrays = messages.unframed(messages.framed(job, arrays))
        if job["do"] == "trial":
            text = job["candidate"]["text"]
            self.trials.append(text)
            how = self.die(text)
            if how == "interrupt":
                raise KeyboardInterrupt
            if how:
                return {"invalidity": how, "fault": "it died"}, {}
        return getattr(self.server, job["do"])(job, arrays)

    def facts(self):
        return self.ask({"do": "facts"}, {})[0]

    waited = 0.0
    exclusive = contextlib.nullcontext

    def forget(self):
        self.ask({"do": "forget"}, {})

    def fresh(self):
        self.forget()

    def close(self):
        pass
