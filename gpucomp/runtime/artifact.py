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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpucomp.artifact import container, manifest, open_model, weights
from gpucomp.artifact.container import Bytes
from gpucomp.artifact.open_model import OpenModel
from gpucomp.artifact.plan import WEIGHT, Plan
from gpucomp.errors import ArtifactError, quote
from gpucomp.ir.types import DTYPES, STRING, TensorType

FORMAT = "gpucomp"
Rebuild = Callable[[Plan, Mapping[str, str]], dict[str, bytes]]
SCHEMA = 4  # of a model for one set of sizes
OPEN_SCHEMA = 5  # of a model for any sizes
MANIFEST, WEIGHTS, STRINGS, DYNAMIC_MODEL = "manifest.json", "weights.safetensors", "strings.json", "rest.onnx"
SOURCES, BINARIES = "sources/", "binaries/"


@dataclass(frozen=True)
class Contents:
    """A compiled model. ``sources`` and ``binaries`` are by the names in the plan's kernels, weights by buffer name;
    ``dynamic_model`` is as in ``Executable``. ``open`` is a model for any sizes; ``plan`` is then its plan with formulas.
    """

    plan: Plan
    sources: Mapping[str, str] = field(default_factory=dict)
    binaries: Mapping[str, bytes] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    dynamic_model: bytes = b""
    open: OpenModel | None = None


def weight_types(plan: Plan) -> dict[str, TensorType]:
    """Name and type of every weight except strings, in the order of the plan."""
    return {
        b.name: TensorType(DTYPES[b.dtype], b.shape) for b in plan.buffers if b.kind == WEIGHT and b.dtype in DTYPES
    }


def _text_shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    return {b.name: b.shape for b in plan.buffers if b.kind == WEIGHT and b.dtype == STRING.name}


def save(path: str | Path, contents: Contents, *, durable: bool = True) -> None:
    """Write ``path``, completely or not at all. Equal contents give equal bytes. ``durable``: see ``container.write``."""
    plan = contents.plan
    manifest.check_plan(manifest.without_places(plan))
    if contents.open is not None:
        open_model.check(contents.open)
    types = weight_types(plan)
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
    if texts := {name: contents.weights[name].reshape(-1).tolist() for name in _text_shapes(plan)}:
        members[STRINGS] = [manifest.dumps(texts)]
    if contents.dynamic_model:
        members[DYNAMIC_MODEL] = [contents.dynamic_model]
    description = {
        "format": FORMAT,
        "schema": SCHEMA if contents.open is None else OPEN_SCHEMA,
        **({} if contents.open is None else {"open": open_model.data_of(contents.open)}),
        "plan": manifest.data_of(plan),
        "members": {name: _digest(pieces) for name, pieces in members.items()},
    }
    container.write(Path(path), {MANIFEST: [manifest.dumps(description)], **members}, durable=durable)


def load(path: str | Path, *, rebuild: Rebuild | None = None) -> Contents:
    """Read what ``save`` wrote; weights are views of the mapped file.

    Every byte is checked against its digest. ``rebuild``, if given, makes the binaries from the plan and the sources; those
    in the file are then ignored. Raises ``ArtifactError`` for a file that is damaged or foreign.
    """
    path = Path(path)
    members = container.read(path, sealed=MANIFEST)
    if MANIFEST not in members:
        raise ArtifactError(f"{quote(path)} is not a compiled model: it has no {MANIFEST}", code="GPC7001")
    description = manifest.loads(members.pop(MANIFEST))
    _check_schema(path, description)
    opened = None
    if description["schema"] == OPEN_SCHEMA:
        opened = open_model.model_of(description["open"], description["plan"])
    plan = opened.plan.plan if opened else manifest.plan_of(description["plan"])
    _check_members(path, description["members"], members)
    sources = {}
    for name, view in _under(SOURCES, members).items():
        try:
            sources[name] = str(view, "utf-8")
        except UnicodeDecodeError:
            raise ArtifactError(f"{quote(path)}: source {name!r} is not text", code="GPC7004") from None
    binaries = {name: bytes(view) for name, view in _under(BINARIES, members).items()}
    for kernel in plan.kernels:
        for what, key, there in (("source", kernel.source, sources), ("binary", kernel.binary, binaries)):
            if key not in there:
                raise ArtifactError(f"{quote(path)}: kernel {kernel.name!r}: no {what} {key!r}", code="GPC7004")
    if rebuild is not None:
        binaries = rebuild(plan, sources)
    arrays = weights.read(members[WEIGHTS], weight_types(plan)) | _texts(path, plan, members)
    return Contents(plan, sources, binaries, arrays, bytes(members.get(DYNAMIC_MODEL, b"")), opened)


def _texts(path: Path, plan: Plan, members: Mapping[str, memoryview]) -> dict[str, np.ndarray]:
    """The weights that are strings."""
    shapes = _text_shapes(plan)
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
    if description.keys() != fields or not isinstance(description["members"], dict):
        raise ArtifactError(f"{quote(path)}: {MANIFEST} has other fields than schema {schema}", code="GPC7004")


def _check_members(path: Path, expected: Mapping[str, object], members: Mapping[str, memoryview]) -> None:
    if unlike := sorted(expected.keys() ^ members.keys()):
        raise ArtifactError(f"{quote(path)}: member {quote(unlike[0])} is missing or not listed", code="GPC7003")
    if WEIGHTS not in members:
        raise ArtifactError(f"{quote(path)}: it has no {WEIGHTS}", code="GPC7004")
    for name, view in members.items():
        if not name.startswith((SOURCES, BINARIES)) and name not in (WEIGHTS, STRINGS, DYNAMIC_MODEL):
            raise ArtifactError(f"{quote(path)}: member {quote(name)} is unknown", code="GPC7004")
        if expected[name] != _digest([view]):
            raise ArtifactError(f"{quote(path)}: member {name!r} is damaged: its digest differs", code="GPC7003")
