"""``model.gpuc``: a compiled model in one file. Reading it needs no compiler; nothing here runs it.

    manifest.json          format, schema, the plan, bytes and SHA-256 of every other member; for any sizes ``open_model``
    sources/NAME           the kernels' sources
    binaries/NAME          machine code for the target; for CUDA also PTX, which newer devices load
    weights.safetensors    mapped into memory; the CPU target may run with a copy (``large_pages``)
    strings.json           weights that are strings, if there are any: one list for each weight
    rest.onnx              the dynamic part of the model, if there is one: an ONNX model

The file is an ordinary zip (``container``) without any pickle. Binaries are native code: load only files that you trust,
or pass ``trusted=False``, which ignores the binaries and builds them again from the sources.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpucomp.artifact import container, manifest, weights
from gpucomp.artifact.checks import CHECKS
from gpucomp.artifact.container import Bytes
from gpucomp.artifact.plan import WEIGHT, Plan
from gpucomp.errors import ArtifactError, quote
from gpucomp.ir.types import DTYPES, STRING, TensorType
from gpucomp.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from gpucomp.artifact.open_model import OpenModel

FORMAT = "gpucomp"
Rebuild = Callable[[Plan, Mapping[str, str]], dict[str, bytes]]
SCHEMA = 4  # of a model for one set of sizes
OPEN_SCHEMA = 5  # of a model for any sizes
FIXED = "s"  # begins the names of what belongs to single sets of sizes: ``s0.k3.ll``
MOST_FIXED = 100
MANIFEST, WEIGHTS, STRINGS, DYNAMIC_MODEL = "manifest.json", "weights.safetensors", "strings.json", "rest.onnx"
SOURCES, BINARIES = "sources/", "binaries/"


@dataclass(frozen=True)
class Contents:
    """A compiled model. ``sources`` and ``binaries`` are by the names in the plan's kernels, weights by buffer name;
    ``dynamic_model`` is as in ``Executable``. ``open`` is a model for any sizes; ``plan`` is then its plan with formulas,
    and ``fixed`` are programs for single sets of its sizes.
    """

    plan: Plan
    sources: Mapping[str, str] = field(default_factory=dict)
    binaries: Mapping[str, bytes] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    dynamic_model: bytes = b""
    open: OpenModel | None = None
    fixed: tuple[tuple[Mapping[str, int], Contents], ...] = ()


def weight_types(*plans: Plan) -> dict[str, TensorType]:
    """Name and type of every weight except strings, in the order of the plans. Raises ``ArtifactError`` if two differ."""
    types: dict[str, TensorType] = {}
    for b in chain.from_iterable(plan.buffers for plan in plans):
        if b.kind == WEIGHT and b.dtype in DTYPES:
            type = TensorType(DTYPES[b.dtype], b.shape)
            if types.setdefault(b.name, type) != type:
                raise ArtifactError(f"weight {quote(b.name)} is {type} and {types[b.name]}", code="GPC7004")
    return types


def _text_shapes(*plans: Plan) -> dict[str, tuple[int, ...]]:
    buffers = chain.from_iterable(plan.buffers for plan in plans)
    return {b.name: b.shape for b in buffers if b.kind == WEIGHT and b.dtype == STRING.name}


def joined(contents: Contents) -> tuple[Contents, list[tuple[Mapping[str, int], Plan]]]:
    """All programs as one: files of the others have names of their own, and equal weights have one name.

    Returns the contents with everything in them, and the plans of the others by their sizes.
    """
    sources, binaries, arrays = dict(contents.sources), dict(contents.binaries), dict(contents.weights)
    names = {_content(array): name for name, array in arrays.items()} if contents.fixed else {}
    plans = []
    for number, (sizes, one) in enumerate(contents.fixed):
        prefix = f"{FIXED}{number}."
        sources |= {prefix + name: text for name, text in one.sources.items()}
        binaries |= {prefix + name: code for name, code in one.binaries.items()}
        given = {name: names.setdefault(_content(array), prefix + name) for name, array in one.weights.items()}
        arrays |= {given[name]: array for name, array in one.weights.items() if given[name] not in arrays}
        plans.append((sizes, _renamed(one.plan, partial(operator.add, prefix), given)))
    return replace(contents, sources=sources, binaries=binaries, weights=arrays, fixed=()), plans


def _apart(sizes: Mapping[str, int], number: int, plan: Plan, whole: Contents) -> tuple[Mapping[str, int], Contents]:
    """The inverse of ``joined`` for one program."""
    prefix = f"{FIXED}{number}."
    order = [b.name for b in plan.buffers if b.kind == WEIGHT]
    given = {name: f"w{k}" for k, name in enumerate(order)}
    mine = {kernel.source for kernel in plan.kernels}, {kernel.binary for kernel in plan.kernels}
    sources = {name.removeprefix(prefix): text for name, text in whole.sources.items() if name in mine[0]}
    mine[1].add(prefix + CHECKS)
    binaries = {name.removeprefix(prefix): code for name, code in whole.binaries.items() if name in mine[1]}
    renamed = _renamed(plan, lambda name: name.removeprefix(prefix), given)
    return sizes, Contents(renamed, sources, binaries, {given[name]: whole.weights[name] for name in order})


def _renamed(plan: Plan, name_of: Callable[[str], str], weights: Mapping[str, str]) -> Plan:
    buffers = (replace(b, name=weights[b.name]) if b.kind == WEIGHT else b for b in plan.buffers)
    kernels = (replace(k, source=name_of(k.source), binary=name_of(k.binary)) for k in plan.kernels)
    return replace(plan, buffers=tuple(buffers), kernels=tuple(kernels))


def _content(array: np.ndarray) -> object:
    """Equal for arrays of the same type, shape and bytes. An array of texts is only equal to itself."""
    if array.dtype.hasobject:
        return id(array)
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return array.dtype.str, array.shape, hashlib.sha256(raw.data).digest()


def save(path: str | Path, contents: Contents, *, durable: bool = True) -> None:
    """Write ``path``, completely or not at all. Equal contents give equal bytes. ``durable``: see ``container.write``."""
    plan = contents.plan
    manifest.check_plan(plan if contents.open is None else manifest.without_places(plan))
    fixed: list[tuple[Mapping[str, int], Plan]] = []
    description: dict[str, object] = {"format": FORMAT, "schema": SCHEMA, "plan": manifest.data_of(plan)}
    if contents.open is not None:
        from gpucomp.artifact import open_model  # models for one set of sizes do without

        open_model.check(contents.open)
        contents, fixed = joined(contents)
        description |= {"schema": OPEN_SCHEMA, "open": open_model.data_of(contents.open)}  # type: ignore[arg-type]
        if fixed:
            description["fixed"] = [{"sizes": sizes, "plan": manifest.data_of(one)} for sizes, one in fixed]
    types = weight_types(plan, *(one for _, one in fixed))
    for name, type in types.items():
        found = contents.weights[name]
        if found.shape != type.shape or found.dtype != type.dtype.numpy:
            raise ArtifactError(f"weight {quote(name)}: {type} expected, found {found.dtype}{list(found.shape)}")
    members: dict[str, Sequence[Bytes]] = {}
    for name in sorted(contents.sources):
        members[SOURCES + name] = [contents.sources[name].encode("utf-8")]
    for name in sorted(contents.binaries):
        members[BINARIES + name] = [contents.binaries[name]]
    members[WEIGHTS] = weights.pieces(contents.weights, types)
    if texts := {
        name: contents.weights[name].reshape(-1).tolist() for name in _text_shapes(plan, *(one for _, one in fixed))
    }:
        members[STRINGS] = [manifest.dumps(texts)]
    if contents.dynamic_model:
        members[DYNAMIC_MODEL] = [contents.dynamic_model]
    description["members"] = {name: _digest(pieces) for name, pieces in members.items()}
    container.write(Path(path), {MANIFEST: [manifest.dumps(description)], **members}, durable=durable)


def load(path: str | Path, *, rebuild: Rebuild | None = None, known: bool = False) -> Contents:
    """Read what ``save`` wrote; weights are views of the mapped file.

    Every byte is checked against its digest, unless it is ``known`` that they are what was written. ``rebuild``, if given,
    makes the binaries from the plan and the sources; those in the file are then ignored. Raises ``ArtifactError`` for a file
    that is damaged or foreign.
    """
    path = Path(path)
    members = container.read(path, sealed=MANIFEST)
    if MANIFEST not in members:
        raise ArtifactError(f"{quote(path)} is not a compiled model: it has no {MANIFEST}", code="GPC7001")
    description = manifest.loads(members.pop(MANIFEST))
    _check_schema(path, description)
    opened = None
    if description["schema"] == OPEN_SCHEMA:
        from gpucomp.artifact import open_model

        opened = open_model.model_of(description["open"], description["plan"])
    plan = opened.plan.plan if opened else manifest.plan_of(description["plan"])
    fixed = _fixed(path, description, opened) if opened else []
    plans = (plan, *(one for _, one in fixed))
    _check_members(path, description["members"], members, known)
    sources = {}
    for name, view in _under(SOURCES, members).items():
        try:
            sources[name] = str(view, "utf-8")
        except UnicodeDecodeError:
            raise ArtifactError(f"{quote(path)}: source {name!r} is not text", code="GPC7004") from None
    binaries = {name: bytes(view) for name, view in _under(BINARIES, members).items()}
    for kernel in chain.from_iterable(one.kernels for one in plans):
        for what, key, there in (("source", kernel.source, sources), ("binary", kernel.binary, binaries)):
            if key not in there:
                raise ArtifactError(f"{quote(path)}: kernel {kernel.name!r}: no {what} {key!r}", code="GPC7004")
    arrays = weights.read(members[WEIGHTS], weight_types(*plans)) | _texts(path, plans, members)
    dynamic_model = bytes(members.get(DYNAMIC_MODEL, b""))
    whole = Contents(plan, sources, binaries, arrays, dynamic_model, opened)
    whole = replace(whole, fixed=tuple(_apart(sizes, k, one, whole) for k, (sizes, one) in enumerate(fixed)))
    return whole if rebuild is None else _rebuilt(whole, rebuild)


def _rebuilt(contents: Contents, rebuild: Rebuild) -> Contents:
    fixed = tuple((sizes, _rebuilt(one, rebuild)) for sizes, one in contents.fixed)
    kept = {name: code for name, code in contents.binaries.items() if name == CHECKS}  # which are no code
    return replace(contents, binaries=rebuild(contents.plan, contents.sources) | kept, fixed=fixed)


def _fixed(path: Path, description: Mapping[str, Any], opened: OpenModel) -> list[tuple[dict[str, int], Plan]]:
    """The plans for single sets of sizes: each of the same model, for sizes that it takes."""
    given = description.get("fixed", [])
    if not isinstance(given, list) or len(given) > MOST_FIXED:
        raise ArtifactError(f"{quote(path)}: fixed: a list of at most {MOST_FIXED} plans expected", code="GPC7004")
    found: list[tuple[dict[str, int], Plan]] = []
    whole, dims = opened.plan.plan, opened.shapes.dims
    for number, one in enumerate(given):
        where = f"{quote(path)}: fixed[{number}]"
        if not isinstance(one, dict) or one.keys() != {"sizes", "plan"} or not isinstance(one["sizes"], dict):
            raise ArtifactError(f"{where}: sizes and a plan expected", code="GPC7004")
        sizes, plan = one["sizes"], manifest.plan_of(one["plan"])
        if sizes.keys() != dims.keys() or any(type(sizes[n]) is not int or sizes[n] not in dims[n] for n in dims):
            raise ArtifactError(f"{where}: no sizes of {', '.join(map(quote, dims))}", code="GPC7004")
        shapes = opened.shapes.at(sizes)
        ins = {plan.buffers[p].name: (plan.buffers[p].dtype, plan.buffers[p].shape) for p in plan.inputs}
        wanted = {
            whole.buffers[p].name: (whole.buffers[p].dtype, shapes.get(whole.buffers[p].name, whole.buffers[p].shape))
            for p in whole.inputs
        }
        if ins != wanted or _likeness(plan) != _likeness(whole) or any(sizes == other for other, _ in found):
            raise ArtifactError(f"{where}: a plan of another model, or of other sizes", code="GPC7004")
        found.append((sizes, plan))
    return found


def _likeness(plan: Plan) -> tuple[object, ...]:
    """What the plans of one model have in common, whatever their sizes are."""
    outputs = [(plan.buffers[p].dtype, len(plan.buffers[p].shape)) for p in plan.outputs]
    states = [(s.input, s.output, s.axis, s.dim) for s in plan.states]
    made_up = plan.input_containers, plan.output_containers
    return plan.target, plan.kind, plan.arch, plan.output_names, outputs, states, made_up


def _texts(path: Path, plans: Sequence[Plan], members: Mapping[str, memoryview]) -> dict[str, np.ndarray]:
    """The weights that are strings."""
    shapes = _text_shapes(*plans)
    found = manifest.loads(members[STRINGS]) if STRINGS in members else {}
    if not isinstance(found, dict) or found.keys() != shapes.keys():
        raise ArtifactError(f"{quote(path)}: {STRINGS} does not hold the strings that the plan lists", code="GPC7004")
    arrays = {}
    for name, shape in shapes.items():
        texts = found[name]
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ArtifactError(f"{quote(path)}: {STRINGS}: {quote(name)} is not a list of strings", code="GPC7004")
        if len(texts) != math.prod(shape):
            raise ArtifactError(f"{quote(path)}: {STRINGS}: {len(texts)} strings for {list(shape)}", code="GPC7004")
        arrays[name] = np.empty(len(texts), object)
        arrays[name][:] = texts
        arrays[name] = arrays[name].reshape(shape)
    return arrays


def _under(prefix: str, members: Mapping[str, memoryview]) -> dict[str, memoryview]:
    return {name.removeprefix(prefix): view for name, view in members.items() if name.startswith(prefix)}


def _digest(pieces: Sequence[Bytes]) -> dict[str, object]:
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece)
    return {"bytes": sum(memoryview(p).nbytes for p in pieces), "sha256": sha.hexdigest()}


def _check_schema(path: Path, description: object) -> None:
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ArtifactError(f"{quote(path)}: {MANIFEST} does not describe a compiled model", code="GPC7004")
    schema = description.get("schema")
    if schema not in (SCHEMA, OPEN_SCHEMA) or type(schema) is not int:
        raise ArtifactError(
            f"{quote(path)} has schema {quote(schema)}, this gpucomp reads {SCHEMA} and {OPEN_SCHEMA}: compile again",
            code="GPC7002",
        )
    fields = {"format", "schema", "plan", "members"} | ({"open"} if schema == OPEN_SCHEMA else set())
    more = {"fixed"} & description.keys() if schema == OPEN_SCHEMA else set()
    if description.keys() != fields | more or not isinstance(description["members"], dict):
        raise ArtifactError(f"{quote(path)}: {MANIFEST} has other fields than schema {schema}", code="GPC7004")


def _check_members(path: Path, expected: Mapping[str, object], members: Mapping[str, memoryview], known: bool) -> None:
    if unlike := sorted(expected.keys() ^ members.keys()):
        raise ArtifactError(f"{quote(path)}: member {quote(unlike[0])} is missing or not listed", code="GPC7003")
    if WEIGHTS not in members:
        raise ArtifactError(f"{quote(path)}: it has no {WEIGHTS}", code="GPC7004")
    for name, view in members.items():
        if not name.startswith((SOURCES, BINARIES)) and name not in (WEIGHTS, STRINGS, DYNAMIC_MODEL):
            raise ArtifactError(f"{quote(path)}: member {quote(name)} is unknown", code="GPC7004")
        if not known and expected[name] != _digest([view]):
            raise ArtifactError(f"{quote(path)}: member {name!r} is damaged: its digest differs", code="GPC7003")
