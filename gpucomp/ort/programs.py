"""A model compiled for the shapes that its runs turn out to have: onnxruntime's programs declare none beforehand."""

from __future__ import annotations

import math
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, TypeProto

from gpucomp.compiling import compile
from gpucomp.errors import GpucompError, InputError, ModelError, UnsupportedError, again, quote
from gpucomp.ir.dim import ANY, MOST, NAME, Dim
from gpucomp.ir.dims import has_dims
from gpucomp.loading import load
from gpucomp.runtime.executable import Executable

KEPT = 16  # executables for other values, or for single shapes; the least recently used is dropped
SIZES = ("GPC2111", "GPC2112")  # a size outside the range of its dimension, and dimensions of one name that differ
OF_SHAPES = ("GPC31", "GPC4005", "GPC4006", "GPC4014")  # beginnings of codes: at other shapes the model may compile
MOST_CHOICE = 4  # elements of an input that chooses a branch
NotCompiled = (UnsupportedError, ModelError)  # what may compile for other shapes
Feed = Mapping[str, Any]
Key = tuple[Any, ...]


class Programs:
    """The executables of one model.

    Sizes that the file leaves open are dimensions whose size each run decides, of 1 to 8192 at first; a run beyond that makes
    the range wider. What has no program for any size is compiled for the shapes of each run. An input of few numbers that
    chooses the branch of an If becomes a constant, with a program for each value.

    ``how`` are arguments of ``gpucomp.compile``. ``fixed`` has sizes of dimensions by their names in the file.
    """

    def __init__(
        self,
        model: Path | bytes,
        proto: ModelProto,
        how: Mapping[str, Any],
        *,
        threads: int = 0,
        fixed: Mapping[str, int] | None = None,
    ) -> None:
        graph = proto.graph
        self._model, self._how, self._threads = _named(model, proto, _is_name), dict(how), threads
        self._unnamed = partial(_named, model, proto, lambda name: False)
        self._open, self._shapes, self._containers = _open_shapes(graph, fixed or {})
        self._most: dict[str, int] = {}
        self._constants = _deciding_branches(graph)
        self.reset()
        _all.add(self)
        self._kept: OrderedDict[Key, Executable | GpucompError] = OrderedDict()
        self._choices: set[Key] = set()  # values of the inputs that choose branches
        self._singles: dict[Key, Executable] = {}  # by values of the constants: those for any size
        self.first: Executable | None = None
        if self._constants or self._containers:
            return  # until a run gives their values, and the shapes of what is in them
        try:
            self.first = self._singles[()] = self._for_any_size({})
        except NotCompiled as error:
            if not (self._open and error.code.startswith(OF_SHAPES)):
                raise

    def reset(self) -> None:
        """Make a fresh lock, for a process that was forked: one may be held by a thread that the child does not have."""
        self._lock = threading.RLock()

    def run(self, feed: Feed, run: Callable[[Executable, Feed], Any]) -> Any:
        """``run`` with the executable for the shapes and values of ``feed``, and with the inputs that this one has.

        Raises gpucomp's errors.
        """
        values: Feed = {name: feed[name] for name in self._constants}
        exe = self._singles.get(_key(values) if values else ())
        if exe is not None:
            try:
                return run(exe, _without(feed, values))
            except InputError as error:
                if error.code not in SIZES or not self._open:
                    raise
        exe, values = self._executable(feed)
        return run(exe, _without(feed, values))

    def _executable(self, feed: Feed) -> tuple[Executable, Feed]:
        """The executable for ``feed``, and the inputs that are constants in it."""
        with self._lock:
            values = {name: feed[name] for name in self._constants}
            found = self._of(feed, values)
            self._choices.add(_key(values))
            if len(self._choices) > KEPT:  # too many to compile each: numpy computes what depends on them
                self._constants, self._choices = (), set()
            return found, values

    def _of(self, feed: Feed, values: Feed) -> Executable:
        if self._open and not self._containers:
            self._widen(feed)
            try:
                exe = self._for_any_size(values, feed)
            except NotCompiled:
                pass  # perhaps for these shapes
            else:
                self.first = self.first or exe
                if len(self._singles) >= KEPT:
                    self._singles.clear()
                self._singles[_key(values)] = exe
                if self._fits(feed):
                    return exe
        return self._for_shapes(feed, values)

    def _for_any_size(self, values: Feed, feed: Feed | None = None) -> Executable:
        """The executable for any size. If no sizes are found at which the model is one, those of ``feed`` are tried."""
        if ranks := [name for name, shape in self._open.items() if shape is None and name not in values]:
            raise UnsupportedError(f"input {quote(ranks[0])} has any number of dimensions", code="GPC4005")
        shapes = {
            name: tuple(Dim(n, 1, self._most.get(n, MOST)) if isinstance(n, str) else n for n in shape)
            for name, shape in self._open.items()
            if shape is not None and name not in values
        }
        key = ("any size", tuple(self._most.items()), _key(values))
        try:
            return self._made(key, shapes, values)
        except ModelError:
            if feed is None:
                raise
        usual = {name: np.shape(feed[name]) for name in shapes}
        return self._made((*key, "near"), shapes, values, shapes_from=[usual])

    def _for_shapes(self, feed: Feed, values: Feed) -> Executable:
        shapes = {name: np.shape(feed[name]) for name in self._shapes if name in feed and name not in values}
        shapes |= {name: _shapes_in(feed.get(name)) for name in self._containers}
        model = None if self._fits(feed, 0) else self._unnamed()
        return self._made(("shapes", tuple(shapes.items()), _key(values)), shapes, values, model)

    def _made(self, key: Key, shapes: Mapping[str, Any], values: Feed, model: Any = None, **further: Any) -> Executable:
        """The executable for ``key``, compiled now unless it was before. Raises again what compiling it raised."""
        found = self._kept.get(key)
        if found is None:
            how = self._how | further | ({} if has_dims(shapes) else {"specialise": "never"})
            try:
                found = compile(model or self._model, shapes=shapes or None, constants=dict(values) or None, **how)
                found.use_threads(self._threads)
            except NotCompiled as error:
                self._keep(key, again(error))
                raise
            self._keep(key, found)
        self._kept.move_to_end(key)
        if isinstance(found, GpucompError):
            raise again(found)
        return found

    def _keep(self, key: Key, found: Executable | GpucompError) -> None:
        self._kept[key] = found
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def _widen(self, feed: Feed) -> None:
        """Let the ranges of dimensions reach twice the sizes of ``feed`` that lie beyond them."""
        for name, shape in self._open.items():
            for dim, size in zip(shape or (), np.shape(feed.get(name, ())), strict=False):
                if isinstance(dim, str) and size > self._most.get(dim, MOST):
                    self._most[dim] = min(1 << int(size).bit_length() + 1, ANY)

    def _fits(self, feed: Feed, least: int = 1) -> bool:
        """Whether sizes are at least ``least``, and equal where their dimensions have one name."""
        sizes: dict[str, int] = {}
        for name, shape in self._open.items():
            for dim, size in zip(shape or (), np.shape(feed.get(name, ())), strict=False):
                if isinstance(dim, str) and not least <= sizes.setdefault(dim, size) == size:
                    return False
        return True


_all: WeakSet[Programs] = WeakSet()


def _after_fork() -> None:
    for programs in _all:
        programs.reset()


os.register_at_fork(after_in_child=_after_fork)


def of_file(path: str | Path, threads: int) -> Executable:
    """The executable of a ``.gpuc`` file. Raises ``ArtifactError``."""
    exe = load(path)
    exe.use_threads(threads)
    return exe


def _open_shapes(
    graph: GraphProto, fixed: Mapping[str, int]
) -> tuple[dict[str, tuple[Any, ...] | None], list[str], list[str]]:
    """The shapes of tensors with open sizes, which are names of dimensions; the names of all inputs that are tensors; and of
    those that are sequences or optionals.

    A shape is ``None`` if the file says nothing of it.

    An open size that has no name of its own gets one: exporters write ``?`` for different sizes.
    """
    constants = {tensor.name for tensor in graph.initializer}
    found: dict[str, tuple[Any, ...] | None] = {}
    tensors, containers = [], []
    for info in graph.input:
        if info.name in constants:
            continue
        if info.type.WhichOneof("value") != "tensor_type":
            containers.append(info.name)
            continue
        tensor = info.type.tensor_type
        tensors.append(info.name)
        shape: list[int | str] = []
        for axis, dim in enumerate(tensor.shape.dim):
            if dim.HasField("dim_value") and dim.dim_value >= 0:
                shape.append(dim.dim_value)
            elif dim.dim_param in fixed:
                shape.append(fixed[dim.dim_param])
            else:
                shape.append(dim.dim_param if _is_name(dim.dim_param) else f"{info.name}.{axis}")
        declared = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        if not tensor.HasField("shape"):
            found[info.name] = None
        elif shape != declared:
            found[info.name] = tuple(shape)
    return found, tensors, containers


def _is_name(text: str) -> bool:
    return re.fullmatch(NAME, text) is not None


def _named(model: Path | bytes, proto: ModelProto, keep: Callable[[str], bool]) -> Path | bytes:
    """The model without the names of dimensions that are not to be kept: exporters write ``-1`` for different sizes.

    A model whose weights lie in other files stays as it is.
    """
    values = (*proto.graph.input, *proto.graph.output, *proto.graph.value_info)
    named = [dim for info in values for dim in info.type.tensor_type.shape.dim if dim.dim_param]
    if all(keep(dim.dim_param) for dim in named) or any(t.external_data for t in proto.graph.initializer):
        return model
    changed = ModelProto()
    changed.CopyFrom(proto)
    for info in (*changed.graph.input, *changed.graph.output, *changed.graph.value_info):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param and not keep(dim.dim_param):
                dim.ClearField("dim_param")
    return bytes(changed.SerializeToString(deterministic=True))


def _key(values: Feed) -> Key:
    arrays = [(name, np.asarray(value)) for name, value in values.items()]
    return tuple((name, array.shape, array.dtype.str, array.tobytes()) for name, array in arrays)


def _shapes_in(value: Any) -> Any:
    """The shapes of what a sequence or an optional holds, as ``gpucomp.compile`` takes them; they are part of a key."""
    if isinstance(value, (list, tuple)):
        return tuple(_shapes_in(one) for one in value)
    return None if value is None else np.shape(value)


def _without(feed: Feed, values: Feed) -> Feed:
    return {name: value for name, value in feed.items() if name not in values} if values else feed


def _deciding_branches(graph: GraphProto) -> tuple[str, ...]:
    """The inputs of few integers or booleans that alone decide which branch of an If is taken.

    A program for one branch is compiled as a whole; where a run decides the branch, numpy computes it.
    """
    makers = {output: node for node in graph.node for output in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {info.name: info for info in graph.input if info.name not in constants}
    found: dict[str, None] = {}
    for branch in (node for node in graph.node if node.op_type == "If"):
        pending, seen = [branch.input[0]], set[str]()
        while pending:
            name = pending.pop()
            if name in makers and name not in seen:
                pending += makers[name].input
            seen.add(name)
        deciding = sorted(seen & inputs.keys())
        if deciding and all(_is_choice(inputs[name].type) for name in deciding):
            found |= dict.fromkeys(deciding)
    return tuple(found)


def _is_choice(type: TypeProto) -> bool:
    tensor = type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    few = tensor.HasField("shape") and 0 < math.prod(sizes) <= MOST_CHOICE
    return few and tensor.elem_type in (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
