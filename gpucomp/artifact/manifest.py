"""Converts a plan to JSON and back. Files are not trusted: every field is checked when a plan is read.

No field names a Python object. Only values that the compiler itself could put into a plan reach the runtime.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from gpucomp.artifact.open_plan import Place
from gpucomp.artifact.plan import (
    COUNTER,
    INPUT,
    NUMBERS,
    OUTPUT,
    TEMP,
    WEIGHT,
    Buffer,
    CompiledKernel,
    Launch,
    Plan,
    Repeat,
)
from gpucomp.artifact.tensor_map import ELEMENT_BYTES, TensorMap
from gpucomp.errors import ArtifactError, UnsupportedError, quote
from gpucomp.ir.run_numbers import MAGIC, SHIFT, SIZE
from gpucomp.ir.state import State
from gpucomp.ir.types import DTYPES, NAMED, STRING, DType, dtype_of

MAX_BYTES = 64 << 20  # size of the manifest
MAX_VALUES = 3_000_000  # values in the manifest, approximately: each takes some tens of bytes when it is parsed
MAX_DEPTH = 16  # nested lists of an attribute
MAX_SIZE = 1 << 48  # bytes of a buffer
MAX_WORK = 1 << 100  # operations, or bytes to move, of which only people read: more than any kernel has
MAX_RANK = 32
MAX_STRINGS = 1 << 24
MAX_NUMBERS = 10_000  # that a run gives a kernel
MAX_COUNT = (1 << 31) - 1  # steps of a loop
MAX_REPEATED_ARGUMENTS = 64  # of a launch in a loop: the native runner keeps them on its stack
KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
KINDS = ("cpu", "opencl", "cuda", "hip")
LANGUAGES = ("llvm", "opencl", "cuda", "hip")

Check = Callable[[Any, str], Any]
_places: ContextVar[int] = ContextVar("places", default=0)  # of formulas that a plan may refer to


def _refuse(where: str, what: str) -> NoReturn:
    raise ArtifactError(f"manifest.json: {where}: {what}", code="GPC7004")


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        _refuse(where, f"a string expected, found {quote(value)}")
    return value


def _key(value: Any, where: str) -> str:
    if not KEY.fullmatch(_text(value, where)):
        _refuse(where, f"{quote(value)} is not a name that gpucomp generates")
    return str(value)


def _one_of(*allowed: str) -> Check:
    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or value not in allowed:
            _refuse(where, f"one of {', '.join(allowed)} expected, found {quote(value)}")
        return value

    return check


def _integer(low: int, high: int) -> Check:
    def check(value: Any, where: str) -> int:
        if type(value) is not int or not low <= value <= high:
            _refuse(where, f"a whole number from {low} to {high} expected, found {quote(value)}")
        return value

    return check


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        _refuse(where, f"true or false expected, found {quote(value)}")
    return value


def _list(element: Check, *, length: int | None = None, most: int = 10_000_000) -> Check:
    def check(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > most or (length is not None and len(value) != length):
            count = f"{length} values" if length is not None else f"at most {most} values"
            _refuse(where, f"a list of {count} expected, found {quote(value)}")
        return tuple(element(item, f"{where}[{k}]") for k, item in enumerate(value))

    return check


def _table(key: Check, element: Check) -> Check:
    def check(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            _refuse(where, f"a table expected, found {quote(value)}")
        return {key(name, where): element(item, f"{where}.{name[:40]}") for name, item in value.items()}

    return check


def _record(fields: Mapping[str, Check], make: Callable[..., Any], later: Collection[str] = ()) -> Check:
    """A table of ``fields``. Those in ``later`` are missing in older files, and then have their default."""

    def check(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            _refuse(where, f"a table expected, found {quote(value)}")
        if missing := sorted(fields.keys() - value.keys() - set(later)):
            _refuse(where, f"field {missing[0]!r} is missing")
        if unknown := sorted(value.keys() - fields.keys()):
            _refuse(where, f"field {quote(unknown[0])} is unknown")
        return make(**{name: check(value[name], f"{where}.{name}") for name, check in fields.items() if name in value})

    return check


def _sized(check: Check) -> Check:
    """Also the place of a formula, ``{"place": 3}``, in a plan for any size."""

    def sized(value: Any, where: str) -> Any:
        match value:
            case {"place": place, **rest} if not rest and _places.get():
                return Place(_integer(0, _places.get() - 1)(place, where))
        return check(value, where)

    return sized


def _numbers(value: Any, where: str) -> tuple[Any, ...]:
    """What a run gives a kernel: numbers, or in a plan for any size pairs of a kind and a place."""
    if not _places.get():
        return tuple(_list(_integer(-(1 << 62), 1 << 62), most=MAX_NUMBERS)(value, where))
    pairs = _list(_list(lambda one, _: one, length=2), most=MAX_NUMBERS)(value, where)
    kind, place = _one_of(SIZE, MAGIC, SHIFT), _integer(0, _places.get() - 1)
    return tuple((kind(first, where), place(second, where)) for first, second in pairs)


def _attribute(value: Any, where: str, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        _refuse(where, "lists nested too deep")
    match value:
        case None | bool() | str() | float():
            return value
        case int() if abs(value) < 1 << 64:
            return value
        case list():
            return tuple(_attribute(item, where, depth + 1) for item in value)
        case {"float": ("inf" | "-inf" | "nan") as name, **rest} if not rest:
            return float(name)
        case {"dtype": str(name), **rest} if not rest and name in NAMED:
            return NAMED[name]
        case {"bytes": str(text), **rest} if not rest:
            return _base64(text, where)
        case {"array": list([str(name), list(shape), str(text)]), **rest} if not rest and name in DTYPES:
            sizes = _SHAPE(shape, where)
            data = _base64(text, where)
            if len(data) != math.prod(sizes) * DTYPES[name].nbytes:
                _refuse(where, f"{len(data)} bytes do not fill {name}{list(sizes)}")
            return np.frombuffer(data, np.uint8).view(DTYPES[name].numpy).reshape(sizes)
    return _refuse(where, f"{quote(value)} is not an attribute")


def _base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        _refuse(where, "bytes in base64 expected")


_SIZE = _integer(0, MAX_SIZE)
_WORK = _integer(0, MAX_WORK)
_SHAPE = _list(_SIZE, most=MAX_RANK)
_TEXTS = _list(_text)
_BUFFER = _record(
    {
        "kind": _one_of(INPUT, OUTPUT, WEIGHT, TEMP, COUNTER, NUMBERS),
        "name": _text,
        "dtype": _one_of(*NAMED),
        "shape": _list(_sized(_SIZE), most=MAX_RANK),
        "nbytes": _SIZE,
        "offset": _integer(-1, MAX_SIZE),
        "numbers": _list(_sized(_integer(-(1 << 62), 1 << 62)), most=MAX_NUMBERS),
    },
    Buffer,
    later=("numbers",),
)


def _names(value: Any, where: str) -> tuple[str, ...] | None:
    return None if value is None else _TEXTS(value, where)


_BOX = _list(_integer(0, 1 << 40), most=5)
_EXTENTS = _list(_sized(_integer(0, 1 << 40)), most=5)
_CORNER = _integer(-(1 << 16), 1 << 16)
_TENSOR_MAP = _record(
    {
        "parameter": _integer(0, 10_000),
        "dtype": _one_of(*ELEMENT_BYTES),
        "extents": _EXTENTS,
        "strides": _EXTENTS,
        "box": _BOX,
        "element_strides": _BOX,
        "swizzle": _integer(0, 128),
        "channels": _integer(0, 1 << 16),
        "pixels": _integer(0, 1 << 16),
        "lower": _list(_CORNER, most=5),
        "upper": _list(_sized(_CORNER), most=5),
        "offset": _sized(_SIZE),
    },
    TensorMap,
)
_GRID = _list(_sized(_integer(0, (1 << 31) - 1)), length=3)
_KERNEL = _record(
    {
        "name": _key,
        "language": _one_of(*LANGUAGES),
        "source": _key,
        "binary": _key,
        "groups": _GRID,
        "items": _list(_integer(1, 1 << 16), length=3),
        "shared": _integer(0, 1 << 24),
        "family": _text,
        "label": _text,
        "tier": _text,
        "schedule": _table(_key, _integer(-(1 << 62), 1 << 62)),
        "tensor_maps": _list(_TENSOR_MAP, most=16),
        "programmatic": _flag,
        "operations": _WORK,
        "traffic": _WORK,
        "arithmetic": _one_of("", *DTYPES),
        "numbers": _numbers,
    },
    CompiledKernel,
    later=("numbers",),
)
_POSITIONS = _list(_integer(0, 10_000_000))
_LAUNCH = _record(
    {
        "kernel": _integer(-1, 10_000_000),
        "args": _POSITIONS,
        "name": _text,
        "ops": _TEXTS,
        "nodes": _TEXTS,
        "why": _text,
        "inputs": _integer(0, 10_000_000),
        "host": _text,
        "attributes": _table(_text, _attribute),
    },
    Launch,
)
_REPEAT = _record(
    {
        "first": _integer(0, 10_000_000),
        "last": _integer(0, 10_000_000),
        "count": _sized(_integer(0, MAX_COUNT)),
        "advances": _list(_list(_sized(_integer(-MAX_SIZE, MAX_SIZE)), most=MAX_REPEATED_ARGUMENTS)),
        "before": _integer(0, MAX_COUNT),
        "after": _sized(_integer(0, MAX_COUNT)),
    },
    Repeat,
    later=("before", "after"),
)
_STATE = _record(
    {
        "input": _text,
        "output": _text,
        "axis": _integer(-1, MAX_RANK - 1),
        "dim": _text,
        "capacity": _SIZE,
        "rows": _sized(_SIZE),
        "why": _text,
    },
    State,
)
_PLAN = _record(
    {
        "target": _text,
        "kind": _one_of(*KINDS),
        "arch": _text,
        "buffers": _list(_BUFFER),
        "kernels": _list(_KERNEL),
        "launches": _list(_LAUNCH),
        "inputs": _POSITIONS,
        "outputs": _POSITIONS,
        "output_names": _TEXTS,
        "arena_bytes": _SIZE,
        "live_bytes": _SIZE,
        "model": _text,
        "features": _TEXTS,
        "precision": _text,
        "keep_fp32": _TEXTS,
        "input_containers": _table(_text, _names),
        "output_containers": _table(_text, _names),
        "repeats": _list(_REPEAT),
        "cache_bytes": _SIZE,
        "states": _list(_STATE),
    },
    Plan,
    later=("repeats", "cache_bytes", "states"),
)


def plan_of(data: object, *, places: int = 0) -> Plan:
    """The plan that parsed JSON describes. Raises ``ArtifactError`` naming the first field that is wrong.

    ``places`` is the number of formulas that it may refer to, see ``OpenPlan``.
    """
    token = _places.set(places)
    try:
        plan: Plan = _PLAN(data, "plan")
    finally:
        _places.reset(token)
    check_plan(without_places(plan) if places else plan)
    return plan


def without_places(plan: Plan) -> Plan:
    """``plan`` with empty buffers and loops where these have formulas, and without tensor maps: each size has its own."""

    def plain(n: Any) -> Any:
        return 0 if isinstance(n, Place) else n

    buffers = (replace(b, shape=tuple(map(plain, b.shape))) for b in plan.buffers)
    repeats = (
        replace(r, count=0, advances=tuple(tuple(map(plain, row)) for row in r.advances), before=0, after=0)
        for r in plan.repeats
    )
    kernels = (replace(k, tensor_maps=()) if k.tensor_maps else k for k in plan.kernels)
    return replace(plan, buffers=tuple(buffers), kernels=tuple(kernels), repeats=tuple(repeats))


# what ``open_model`` builds its checks from
refuse, integer, list_of, POSITIONS = _refuse, _integer, _list, _POSITIONS


def check_plan(plan: Plan) -> None:
    """Raise ``ArtifactError`` unless positions, sizes and kinds of the plan fit together."""
    for k, buffer in enumerate(plan.buffers):
        where = f"plan.buffers[{k}]"
        needed = math.prod(buffer.shape) * NAMED[buffer.dtype].nbytes
        if needed > buffer.nbytes or (buffer.kind != TEMP and needed != buffer.nbytes):
            _refuse(where, f"{buffer.dtype}{list(buffer.shape)} takes {needed} bytes, not {buffer.nbytes}")
        if buffer.kind == NUMBERS and not NAMED[buffer.dtype].is_integer:
            _refuse(where, f"whole numbers of type {buffer.dtype}")
        if (buffer.kind == NUMBERS) != bool(buffer.numbers) or len(buffer.numbers) not in (0, math.prod(buffer.shape)):
            _refuse(
                where, f"{len(buffer.numbers)} numbers in a buffer of kind {buffer.kind} and shape {list(buffer.shape)}"
            )
        if buffer.kind == TEMP and not 0 <= buffer.offset <= plan.arena_bytes - buffer.nbytes:
            _refuse(where, f"{buffer.nbytes} bytes at {buffer.offset} lie outside the arena of {plan.arena_bytes}")
    for k, launch in enumerate(plan.launches):
        where = f"plan.launches[{k}]"
        if any(a >= len(plan.buffers) for a in launch.args) or launch.inputs > len(launch.args):
            _refuse(where, f"its buffers {list(launch.args)} do not all exist")
        if (launch.kernel < 0) != bool(launch.host) or launch.kernel >= len(plan.kernels):
            _refuse(where, f"kernel {launch.kernel}, host operator {quote(launch.host)}: exactly one expected")
        if launch.kernel >= 0:
            _check_tensor_maps(plan, launch, where)
        elif any(plan.buffers[a].kind not in (TEMP, OUTPUT) for a in launch.args[launch.inputs :]):
            _refuse(where, f"host operator {quote(launch.host)} writes to a buffer that is not {TEMP} or {OUTPUT}")
    _check_repeats(plan)
    for what, positions in (("inputs", plan.inputs), ("outputs", plan.outputs)):
        if any(p >= len(plan.buffers) for p in positions):
            _refuse(f"plan.{what}", f"buffers {list(positions)} do not all exist")
    if any(plan.buffers[p].kind != INPUT for p in plan.inputs):
        _refuse("plan.inputs", f"buffers of kind {INPUT} expected")
    if {p for p in plan.outputs if plan.buffers[p].kind == INPUT} - set(plan.inputs):
        _refuse("plan.outputs", f"a buffer of kind {INPUT} is no input of the model")
    if len(plan.output_names) != len(plan.outputs):
        _refuse("plan.output_names", f"{len(plan.outputs)} names expected, found {len(plan.output_names)}")
    input_names = {plan.buffers[p].name for p in plan.inputs}
    for what, known, made_up in (
        ("input_containers", input_names, plan.input_containers),
        ("output_containers", set(plan.output_names), plan.output_containers),
    ):
        if any(name not in known for names in made_up.values() for name in names or ()):
            _refuse(f"plan.{what}", "a name does not exist")
    for buffer in plan.buffers:
        if buffer.dtype == STRING.name and math.prod(buffer.shape) > MAX_STRINGS:
            _refuse("plan.buffers", f"{math.prod(buffer.shape)} strings, at most {MAX_STRINGS} are possible")
    for what, names in (
        ("inputs", [plan.buffers[p].name for p in plan.inputs]),
        ("output_names", list(plan.output_names)),
        ("buffers", [b.name for b in plan.buffers if b.kind == WEIGHT]),
    ):
        if len(set(names)) != len(names):
            _refuse(f"plan.{what}", "a name occurs twice")
    _check_states(plan)


def _check_tensor_maps(plan: Plan, launch: Launch, where: str) -> None:
    """Raise ``ArtifactError`` unless every tensor map of the launch can be encoded and ends within its buffer."""
    for m in plan.kernels[launch.kernel].tensor_maps:
        if m.parameter >= len(launch.args):
            _refuse(where, f"a tensor map of parameter {m.parameter}, but there are {len(launch.args)} parameters")
        if fault := m.fault(plan.buffers[launch.args[m.parameter]].nbytes):
            _refuse(where, fault)


def _check_states(plan: Plan) -> None:
    """Raise ``ArtifactError`` unless every state is an input, which grows along one of its axes or is replaced by an output."""
    shapes = {plan.buffers[p].name: plan.buffers[p].shape for p in plan.inputs}
    for k, state in enumerate(plan.states):
        where = f"plan.states[{k}]"
        shape = shapes.get(state.input, ())
        if state.input not in shapes or (state.grows and shape[state.axis : state.axis + 1] != (state.capacity,)):
            _refuse(where, f"no input {quote(state.input)} that is {state.capacity} long at axis {state.axis}")
        if state.in_place == (state.output in plan.output_names):
            _refuse(where, f"output {quote(state.output)}, or a state in place, expected")
        if not state.in_place:
            before = next(plan.buffers[p] for p in plan.inputs if plan.buffers[p].name == state.input)
            now = plan.buffers[plan.outputs[plan.output_names.index(state.output)]]
            if before.dtype != now.dtype or len(before.shape) != len(now.shape):
                _refuse(where, f"an output like {quote(state.input)} expected")
        if state.grows != bool(state.dim) or (state.grows and not state.in_place):
            _refuse(where, "an axis and the dimension that grows along it expected")
    if len({state.input for state in plan.states}) < len(plan.states):
        _refuse("plan.states", "an input occurs twice")


def _check_repeats(plan: Plan) -> None:
    """Raise ``ArtifactError`` unless the loops are apart from each other and their arguments stay within their buffers."""
    end = 0
    for k, repeat in enumerate(plan.repeats):
        where = f"plan.repeats[{k}]"
        if not end <= repeat.first < repeat.last <= len(plan.launches):
            _refuse(where, f"launches {repeat.first} to {repeat.last} do not exist, or are in another loop")
        end = repeat.last
        launches, steps = plan.launches[repeat.first : repeat.last], repeat.before + repeat.count + repeat.after
        if [len(a) for a in repeat.advances] != [len(launch.args) for launch in launches]:
            _refuse(where, "one number expected for each argument of each launch")
        if any(launch.kernel < 0 for launch in launches):
            _refuse(where, "a host operator in a loop")
        for launch, advances in zip(launches, repeat.advances, strict=True):
            for position, advance in zip(launch.args, advances, strict=True):
                buffer = plan.buffers[position]
                if steps * abs(advance) > buffer.nbytes:
                    _refuse(where, f"{steps} times {advance} bytes of buffer {quote(buffer.name)} of {buffer.nbytes}")


def data_of(plan: Plan) -> dict[str, object]:
    """The plan as data for JSON, which ``plan_of`` reverses. Raises ``UnsupportedError`` for attributes of other types."""
    launches = [_fields(launch) for launch in plan.launches]
    for fields, launch in zip(launches, plan.launches, strict=True):
        fields["attributes"] = {n: _plain(v, f"{launch.host}.{n}") for n, v in launch.attributes.items()}
    loops = {"repeats": [_fields(r) for r in plan.repeats], "cache_bytes": plan.cache_bytes}
    states = {"states": [_fields(one) for one in plan.states]}
    return (
        {name: value for name, value in _fields(plan).items() if name not in loops | states}
        | (loops if plan.repeats else {})  # left out where there are none, as earlier versions did
        | (states if plan.states else {})
        | {
            "buffers": [_with_numbers(b) for b in plan.buffers],
            "kernels": [
                _with_numbers(k)
                | {"schedule": {n: int(v) for n, v in k.schedule.items()}}
                | {"tensor_maps": [_fields(m) for m in k.tensor_maps]}
                for k in plan.kernels
            ],
            "launches": launches,
            "input_containers": dict(plan.input_containers),
            "output_containers": dict(plan.output_containers),
        }
    )


def _with_numbers(value: Any) -> dict[str, object]:
    """The fields, without ``numbers`` where there are none: few have any, and earlier versions knew none."""
    return {name: field for name, field in _fields(value).items() if name != "numbers" or field}


def _fields(value: Any) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _plain(value: object, where: str) -> object:
    match value:
        case None | bool() | str():
            return value
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            number = float(value)
            return number if math.isfinite(number) else {"float": str(number)}
        case tuple() | list():
            return [_plain(item, where) for item in value]
        case bytes():
            return {"bytes": base64.b64encode(value).decode("ascii")}
        case DType():
            return {"dtype": value.name}
        case np.ndarray() if value.dtype != object and value.dtype.kind not in "SU":
            data = np.ascontiguousarray(value).tobytes()
            name = dtype_of(value.dtype).name
            return {"array": [name, list(value.shape), base64.b64encode(data).decode("ascii")]}
    raise UnsupportedError(f"{where}: an attribute of type {type(value).__name__} cannot be saved", code="GPC4101")


def dumps(data: Mapping[str, object]) -> bytes:
    """JSON with sorted keys: equal manifests give equal bytes."""
    return json.dumps(data, sort_keys=True, indent=1, allow_nan=False, default=_place).encode("ascii") + b"\n"


def _place(value: object) -> dict[str, int]:
    if isinstance(value, Place):
        return {"place": value.number}
    raise TypeError(f"no JSON for {type(value).__name__}")


def loads(data: bytes | memoryview) -> Any:
    """Parse strict JSON of limited size, without NaN and duplicate keys. Raises ``ArtifactError`` for anything else."""
    if len(data) > MAX_BYTES:
        raise ArtifactError(f"manifest.json has {len(data)} bytes, at most {MAX_BYTES} are allowed", code="GPC7006")
    text = bytes(data)
    if text.count(b",") + text.count(b"[") + text.count(b"{") > MAX_VALUES:
        raise ArtifactError(f"manifest.json has more than {MAX_VALUES} values", code="GPC7006")
    try:
        return json.loads(text.decode("ascii"), parse_constant=_no_constant, object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise ArtifactError("manifest.json is nested too deep", code="GPC7006") from None
    except ValueError as error:
        raise ArtifactError(f"manifest.json is not JSON: {quote(error)}", code="GPC7004") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key occurs twice")
    return table
