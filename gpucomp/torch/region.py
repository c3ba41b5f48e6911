"""A graph of ATen operators, compiled, and called with torch's tensors."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import fx

from gpucomp.compiling import compile
from gpucomp.errors import GpucompError, InputError, ModelError, UnsupportedError, internal_error, several
from gpucomp.frontend.foreign.torch_exporter import BEYOND_IT
from gpucomp.ir.dims import has_dims
from gpucomp.runtime.executable import Executable
from gpucomp.torch.capture import Given, Taken, captured
from gpucomp.torch.reports import Part
from gpucomp.torch.settings import Settings
from gpucomp.torch.tensors import array_of, tensor_of
from gpucomp.torch.weights import Watch, can_be_watched, with_weights

MOST_CHANGES = 2  # a weight that changed so often is an input of each run from then on


class Region:
    """Called with the arguments of its graph, in their order. Several threads may call it."""

    def __init__(
        self, module: fx.GraphModule, weights: Mapping[int, torch.Tensor], settings: Settings, part: Part
    ) -> None:
        """``weights`` are the arguments that are the same tensors in each call, by position.

        Raises ``UnsupportedError`` and the other errors of ``gpucomp.compile``.
        """
        self._eager, self._settings, self._part = module.forward, settings, part
        began = time.perf_counter()
        self._graph = captured(module)
        part.export_s, part.export_cached = time.perf_counter() - began, self._graph.found
        used = {one.position for one in self._graph.taken}
        watched = {n: t for n, t in weights.items() if n in used and can_be_watched(t)}
        self._changes: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._device = _device(module)
        self._state: _State | None = None  # where all results are views of arguments
        if self._graph.given:
            self._state = self._compiled(watched)
        self._given_up = False

    def _compiled(self, weights: Mapping[int, torch.Tensor]) -> _State:
        began = time.perf_counter()
        names = {one.position: one.name for one in self._graph.taken}
        constants = {**self._graph.constants, **{names[n]: tensor for n, tensor in weights.items()}}
        fed = [one for one in self._graph.taken if one.position not in weights]
        shapes = {one.name: one.shape for one in fed if one.shape is not None}
        target = self._settings.target or self._device.type
        if self._device.type == "cuda" and (not target.startswith("cuda") or self._device.index):
            raise UnsupportedError(f"tensors on {self._device}, and the target is {target}", code="GPC4021")
        if self._device.type == "cuda" and any(one.dtype is torch.bfloat16 for one in self._graph.given):
            raise UnsupportedError("results in bf16 on a GPU, where cupy has no arrays of that type", code="GPC4021")
        watch = Watch(weights)  # before they are read: another thread may write into them meanwhile
        model, folder = with_weights(self._graph.model, constants)
        try:
            exe = compile(model, target=target, shapes=shapes, **self._settings.arguments(has_dims(shapes)))
        except BEYOND_IT as error:  # a bug of the compiler leaves the graph to eager too, and is told
            raise internal_error(error) from error
        _require_results(exe, self._graph.given)
        exe.open()
        self._part.compiled(exe, time.perf_counter() - began, len(constants))
        return _State(exe, watch, fed, self._graph.given, self._device, folder)

    def __call__(self, *args: Any) -> Any:
        """Raises ``DeviceError`` and ``RunStoppedError`` as ``Executable.run``, and with ``strict`` what ``compile`` raises."""
        if self._given_up:
            return self._eager(*args)
        state = self._state  # one object, so that a call in another thread has all of one model
        if state is not None and not state.watch.same(args):
            try:
                state = self._renewed(args)
            except GpucompError as error:
                if self._settings.strict:
                    raise
                self._part.note(f"it runs in eager from now on, as it could not be compiled again: {error.message}")
                self._given_up = True
                return self._eager(*args)
        try:
            found = [*args] if state is None else state.run(args)
        except (InputError, ModelError, UnsupportedError) as error:  # sizes that it cannot be compiled for
            self._part.note(f"a call ran in eager: {error.message}")
            return self._eager(*args)
        graph = self._graph
        if graph.after is not None:
            found += graph.after(*found)
        results = [found[number] for number in graph.results]
        return results[0] if graph.alone else results

    def _renewed(self, args: Sequence[Any]) -> _State:
        """Compile again for other weights."""
        with self._lock:
            state = self._state
            assert state is not None
            if changed := state.watch.changed(args):  # and no other thread was first
                self._changes.update(changed)
                kept = {
                    n: args[n]
                    for n in state.watch.positions
                    if self._changes[n] < MOST_CHANGES and can_be_watched(args[n])
                }
                self._part.note(f"compiled again, because of {several(len(changed), 'weight')} that changed")
                state = self._state = self._compiled(kept)
            return state


class _State:
    """An executable, with all that a call of it needs."""

    def __init__(
        self,
        exe: Executable,
        watch: Watch,
        fed: Sequence[Taken],
        given: Sequence[Given],
        device: torch.device,
        folder: TemporaryDirectory[str] | None,
    ) -> None:
        self.exe, self.watch, self._folder, self._device = exe, watch, folder, device
        self._on_gpu = device.type == "cuda" and exe.target.startswith("cuda")
        self._tensors = [(one.name, one.position) for one in fed if one.shape is not None]
        self._numbers = [(one.name, one.position) for one in fed if one.shape is None]
        self._given = given

    def run(self, args: Sequence[Any]) -> list[Any]:
        """The arguments, and behind them the outputs as tensors."""
        if self._on_gpu:
            feed: dict[str, Any] = {name: args[n].detach().contiguous() for name, n in self._tensors}
            how: dict[str, Any] = {"outputs": "device", "stream": torch.cuda.current_stream(self._device)}
        else:
            feed, how = {name: array_of(args[n]) for name, n in self._tensors}, {}
        for name, n in self._numbers:
            feed[name] = np.asarray(args[n], np.int64)
        found = self.exe.run(feed, **how)
        tensors = [tensor_of(found[one.name], self._device) for one in self._given]
        return [*args, *(t.permute(one.order) if one.order else t for t, one in zip(tensors, self._given, strict=True))]


def _require_results(exe: Executable, given: Sequence[Given]) -> None:
    """Raise ``UnsupportedError`` (GPC4021) unless the results have the types and shapes that torch says."""
    specs = {spec.name: spec for spec in exe.outputs}
    for one in given:
        spec = specs[one.name]
        wanted = array_of(torch.empty(0, dtype=one.dtype)).dtype
        known = [(a, b) for a, b in zip(spec.shape, one.shape, strict=False) if isinstance(a, int) and b is not None]
        if spec.type.dtype.numpy != wanted or len(spec.shape) != len(one.shape) or any(a != b for a, b in known):
            raise UnsupportedError(
                f"torch's exporter: {one.name!r} becomes {spec.type}, where torch has {wanted} of shape {list(one.shape)}",
                code="GPC4021",
            )


def _device(module: fx.GraphModule) -> torch.device:
    """Where the tensors are. Raises ``UnsupportedError`` (GPC4021) for several devices."""
    values = [node.meta.get("val") for node in module.graph.nodes]
    found = {
        value.device
        for value in values
        if isinstance(value, torch.Tensor) and (value.dim() or value.device.type != "cpu")
    }
    if len(found) > 1:
        raise UnsupportedError(f"tensors on several devices: {', '.join(sorted(map(str, found)))}", code="GPC4021")
    return found.pop() if found else torch.device("cpu")
