"""A graph of ATen operators, compiled, and called with torch's tensors."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import fx

from gpucomp.compiling import compile
from gpucomp.errors import InputError, UnsupportedError
from gpucomp.ir.dim import Dim
from gpucomp.runtime.executable import Executable
from gpucomp.torch.capture import Captured, Given, Taken, captured
from gpucomp.torch.reports import Part
from gpucomp.torch.settings import Settings
from gpucomp.torch.tensors import array_of, tensor_of
from gpucomp.torch.weights import Watch, with_weights

MOST_CHANGES = 2  # a weight that changed so often is an input of each run from then on


class Region:
    """Called with the arguments of its graph, in their order. Several threads may call it."""

    def __init__(
        self, module: fx.GraphModule, weights: Mapping[int, torch.Tensor], settings: Settings, part: Part
    ) -> None:
        """``weights`` are the arguments that are the same tensors in each call, by position.

        Raises ``UnsupportedError`` and the other errors of ``gpucomp.compile``.
        """
        self._module, self._settings, self._part = module, settings, part
        began = time.perf_counter()
        self._graph: Captured = captured(module)
        part.export_s, part.export_cached = time.perf_counter() - began, self._graph.found
        used = {one.position for one in self._graph.taken}
        # a tensor made in inference mode has no count of what is written into it
        self._weights = {n: t for n, t in weights.items() if n in used and not t.is_inference()}
        self._changes: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._device = _device(module)
        self._compile(self._weights)

    def _compile(self, weights: Mapping[int, torch.Tensor]) -> None:
        began = time.perf_counter()
        names = {one.position: one.name for one in self._graph.taken}
        constants = {**self._graph.constants, **{names[n]: tensor for n, tensor in weights.items()}}
        fed = [one for one in self._graph.taken if one.position not in weights]
        shapes = {one.name: one.shape for one in fed if one.shape is not None}
        any_size = any(isinstance(extent, Dim) for shape in shapes.values() for extent in shape)
        folder = TemporaryDirectory(prefix="gpucomp-torch-")
        model = with_weights(self._graph.model, constants, Path(folder.name))
        target = self._settings.target or self._device.type
        exe = compile(model, target=target, shapes=shapes, **self._settings.arguments(any_size))
        exe.open()
        # one object, so that a call in another thread has all of one model
        self._state = _State(exe, Watch(weights), fed, self._graph.given, self._device, folder)
        self._part.compiled(exe, time.perf_counter() - began, len(constants))

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Raises ``DeviceError`` and ``RunStoppedError`` as ``Executable.run``."""
        state = self._state
        if not state.watch.same(args):
            state = self._renewed(args)
        sizes = self._graph.sizes
        try:
            return state.run(args, sizes(*args) if sizes is not None else ())
        except InputError as error:  # sizes beyond what Dynamo said, or what the program is for
            self._part.note(f"a call ran in eager: {error.message}")
            found: tuple[Any, ...] = self._module(*args)
            return found

    def _renewed(self, args: Sequence[Any]) -> _State:
        """Compile again for other weights."""
        with self._lock:
            if changed := self._state.watch.changed(args):
                self._changes.update(changed)
                kept = [n for n in self._state.watch.positions if self._changes[n] < MOST_CHANGES]
                self._part.note(f"compiled again, because {len(changed)} weights changed")
                self._compile({n: args[n] for n in kept})
            return self._state


class _State:
    """An executable, with all that a call of it needs."""

    def __init__(
        self,
        exe: Executable,
        watch: Watch,
        fed: Sequence[Taken],
        given: Sequence[Given],
        device: torch.device,
        folder: TemporaryDirectory[str],
    ) -> None:
        self.exe, self.watch, self._folder, self._device = exe, watch, folder, device
        self._on_gpu = device.type == "cuda" and exe.target.startswith("cuda")
        self._tensors = [(one.name, one.position) for one in fed if one.shape is not None]
        self._numbers = [(one.name, one.position) for one in fed if one.shape is None]
        self._given = given

    def run(self, args: Sequence[Any], sizes: Sequence[Any]) -> tuple[Any, ...]:
        if self._on_gpu:
            feed: dict[str, Any] = {name: args[n].detach().contiguous() for name, n in self._tensors}
            how: dict[str, Any] = {"outputs": "device", "stream": torch.cuda.current_stream(self._device)}
        else:
            feed, how = {name: array_of(args[n]) for name, n in self._tensors}, {}
        for name, n in self._numbers:
            feed[name] = np.asarray(args[n], np.int64)
        found = self.exe.run(feed, **how)
        return tuple([self._result(one, found, args, sizes) for one in self._given])

    def _result(self, one: Given, found: Mapping[str, Any], args: Sequence[Any], sizes: Sequence[Any]) -> Any:
        if one.name:
            tensor = tensor_of(found[one.name], self._device)
            return tensor.permute(one.order) if one.order else tensor
        return args[one.argument] if one.argument >= 0 else sizes[one.size]


def _device(module: fx.GraphModule) -> torch.device:
    """Where the tensors are. Raises ``UnsupportedError`` (GPC4020) for several devices."""
    values = [node.meta.get("val") for node in module.graph.nodes]
    found = {value.device for value in values if isinstance(value, torch.Tensor) and (value.dim() or value.device.type != "cpu")}
    if len(found) > 1:
        raise UnsupportedError(f"tensors on several devices: {', '.join(sorted(map(str, found)))}", code="GPC4020")
    return found.pop() if found else torch.device("cpu")

