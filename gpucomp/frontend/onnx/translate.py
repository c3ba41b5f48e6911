"""The registry of translators. Every node is checked against its operator's ONNX schema before it is translated.

There are no translators in this file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.defs import OpSchema, SchemaError

from gpucomp.errors import ModelError, ShapeError, UnsupportedError, internal_error, quote
from gpucomp.frontend.onnx import tensors
from gpucomp.frontend.onnx.external import ExternalFiles
from gpucomp.ir import Value
from gpucomp.ir import types as t
from gpucomp.lazy_dataclass import dataclass

OLDEST_OPSET = 1
NEVER = 1 << 31  # an opset that will never exist
DEFAULT_DOMAIN = ""
Translator = Callable[..., Any]
T = TypeVar("T", bound=Translator)
# annotations of keywords for long lists: translators get protobuf's list, and ``tensors.as_array`` avoids an object per entry
IntList = Sequence[int]
FloatList = Sequence[float]

_TRANSLATORS: dict[tuple[str, str], list[Registered]] = {}


@dataclass(frozen=True)
class Registered:
    """A translator for the opsets ``since <= opset < until``, and whether it takes a ``site``."""

    since: int
    until: int
    function: Translator
    takes_site: bool


@dataclass(frozen=True)
class Categorical:
    """A list of at most 256 different strings: the k-th is ``categories[codes[k]]``. An annotation, like ``IntList``."""

    categories: tuple[str, ...]
    codes: NDArray[np.uint8]


@dataclass(frozen=True)
class Site:
    """The node that is being translated. Used in messages, and for facts that are neither in inputs nor attributes."""

    op_type: str
    domain: str
    opset: int
    name: str  # name of the node or, if it has none, of its first output; after the path of the enclosing functions
    outputs: tuple[str, ...]  # "" for an unused optional output
    scope: Any = field(repr=False, default=None)
    importer: Any = field(repr=False, default=None)

    def __str__(self) -> str:
        op = self.op_type if not self.domain else f"{self.domain}.{self.op_type}"
        op = op if op.replace(".", "").isalnum() and len(op) < 60 else quote(op)
        return f"{op} (opset {self.opset}) at node {quote(self.name)}"

    def wants(self, output: int) -> bool:
        """Whether the optional result ``output`` is used."""
        return output < len(self.outputs) and bool(self.outputs[output])


def translates(
    op_type: str, since: int = OLDEST_OPSET, domain: str = DEFAULT_DOMAIN, until: int = NEVER
) -> Callable[[T], T]:
    """Decorator: registers the translator of ``op_type`` from opset ``since`` on, up to the next newer registration.

    A registration with ``until`` ends before that opset. Of two with the same ``since``, it has precedence.

    A translator gets the inputs as positional ``Value``s (``None`` for an absent optional input) and the attributes as
    keywords, with the schema's defaults filled in. Lists are tuples, or protobuf's own lists if the keyword is
    annotated so. A ``site`` parameter gets the ``Site``. The translator returns the results, with ``None`` for results
    that it does not compute. It raises ``ValueError`` for violations of the standard and ``UnsupportedError`` for
    features that gpucomp does not have. A generator can yield bodies to be translated.
    """

    def register(function: T) -> T:
        versions = _TRANSLATORS.setdefault((domain, op_type), [])
        if any((v.since, v.until) == (since, until) for v in versions):
            name = f"{domain}.{op_type}" if domain else op_type
            raise ValueError(f"operator {name!r} since {since} is translated twice")
        versions.append(Registered(since, until, function, "site" in inspect.signature(function).parameters))
        versions.sort(key=lambda v: (v.since, -v.until))
        return function

    return register


def find_translator(domain: str, op_type: str, opset: int) -> tuple[Translator, bool] | None:
    """The newest translator for ``opset`` and whether it takes a ``site``."""
    fitting = [v for v in _TRANSLATORS.get((domain, op_type), []) if v.since <= opset < v.until]
    return (fitting[-1].function, fitting[-1].takes_site) if fitting else None


def is_translated_at(domain: str, op_type: str, since: int) -> bool:
    """Whether there is a translator for exactly the version ``since``.

    ONNX may have deprecated that version: exporters wrote GroupNormalization of opset 18 before ONNX deprecated it.
    """
    return any(v.since == since for v in _TRANSLATORS.get((domain, op_type), []))


def find_schema(domain: str, op_type: str, opset: int) -> Any:  # an OpSchema, whose stubs are incomplete, or None
    return _newest_schema(domain, op_type, opset) if onnx.defs.has(op_type, domain) else None


@cache  # called for existing operators only: names that models invent would fill the cache
def _newest_schema(domain: str, op_type: str, opset: int) -> Any:
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except SchemaError:
        return None


@dataclass(frozen=True)
class Formal:
    """One formal input of a schema."""

    type_var: str
    types: frozenset[str]
    optional: bool
    variadic: bool
    homogeneous: bool


@dataclass(frozen=True)
class Signature:
    """The contents of a schema, read once."""

    inputs: tuple[Formal, ...]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    attribute_types: Mapping[str, int]
    defaults: Mapping[str, Any]
    required: tuple[str, ...]
    since: int
    deprecated: bool


def signature_of(domain: str, op_type: str, opset: int) -> Signature | None:
    """The contents of the newest schema up to ``opset``; ``None`` if there is none."""
    return None if find_schema(domain, op_type, opset) is None else _known_signature(domain, op_type, opset)


@cache
def _known_signature(domain: str, op_type: str, opset: int) -> Signature:
    schema = find_schema(domain, op_type, opset)
    option = OpSchema.FormalParameterOption
    inputs = tuple(
        Formal(
            i.type_str, frozenset(i.types), i.option == option.Optional, i.option == option.Variadic, i.is_homogeneous
        )
        for i in schema.inputs
    )
    attributes = schema.attributes
    defaults = {
        name: attribute_value(a.default_value, ExternalFiles(None), name)
        for name, a in attributes.items()
        if a.default_value is not None and a.default_value.name
    }
    return Signature(
        inputs,
        schema.min_input,
        schema.max_input,
        schema.min_output,
        schema.max_output,
        {name: int(a.type.value) for name, a in attributes.items()},
        defaults,
        tuple(name for name, a in attributes.items() if a.required),
        schema.since_version,
        schema.deprecated,
    )


# --- attributes

A = onnx.AttributeProto
_FIELD = {A.FLOAT: "f", A.INT: "i", A.STRING: "s", A.TENSOR: "t", A.GRAPH: "g", A.SPARSE_TENSOR: "sparse_tensor"} | {
    A.FLOATS: "floats",
    A.INTS: "ints",
    A.STRINGS: "strings",
    A.TENSORS: "tensors",
    A.GRAPHS: "graphs",
    A.TYPE_PROTO: "tp",
    A.TYPE_PROTOS: "type_protos",
    A.SPARSE_TENSORS: "sparse_tensors",
}

_LISTS: dict[int, Any] = {A.INTS: IntList, A.FLOATS: FloatList, A.STRINGS: Categorical}

Attributes = Sequence[tuple[str, onnx.AttributeProto]]  # with names, as a caller's attribute has another name


@cache
def _lists_taken(translator: Translator) -> tuple[Mapping[str, tuple[Any, ...]], tuple[Any, ...]]:
    """The kinds of lists that the translator's keywords, and ``**``, are annotated with.

    The key of the cache is only the translator: names from models would fill the cache.
    """
    parameters = _annotated(translator).parameters.values()
    taken = {
        p.name: tuple(k for k in _LISTS.values() if k in (p.annotation, *get_args(p.annotation))) for p in parameters
    }
    return taken, next((taken[p.name] for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD), ())


def _takes_list(translator: Translator, name: str, type: int) -> bool:
    """Whether keyword ``name``, or ``**``, is annotated with the list for this attribute type and not with a tuple."""
    taken, others = _lists_taken(translator)
    return type in _LISTS and _LISTS[type] in taken.get(name, others)


def becomes_objects(domain: str, op_type: str, attribute: onnx.AttributeProto) -> bool:
    """Whether a translator of ``op_type``, in any opset, gets the attribute's list as a tuple, with an object per entry."""
    versions = _TRANSLATORS.get((domain, op_type), [])
    return not versions or not all(_takes_list(v.function, attribute.name, attribute.type) for v in versions)


def attribute_value(
    attribute: onnx.AttributeProto, files: ExternalFiles, where: str, label: str = "", *, as_it_is: bool = False
) -> Any:
    """An attribute as a number, str, numpy array, ``GraphProto`` or tuple of these.

    ``label`` is its name in messages. With ``as_it_is``, a list is protobuf's own list, or a ``Categorical``.
    """
    what = f"{where}: attribute {quote(label or attribute.name)}"
    name = _FIELD.get(attribute.type)
    if name is None:
        raise ModelError(f"{what} has no type", code="GPC3014")
    filled = {f.name for f, _ in attribute.ListFields()} & set(_FIELD.values())
    if filled - {name}:
        raise ModelError(
            f"{what}: its type is {A.AttributeType.Name(attribute.type)}, its value is in {min(filled - {name})}",
            code="GPC3014",
        )
    value = getattr(attribute, name)
    match attribute.type:
        case A.STRING:
            return _text(value, what)
        case A.TENSOR:
            return tensors.to_array(value, files, what)
        case A.SPARSE_TENSOR:
            return tensors.sparse_to_array(value, files, what)
        case A.FLOATS | A.INTS if as_it_is:
            return value
        case A.STRINGS if as_it_is:
            return _categorical(value, what)
        case A.STRINGS:
            return tuple(_text(v, what) for v in value)
        case A.FLOATS | A.INTS | A.GRAPHS | A.TYPE_PROTOS:
            return tuple(value)
        case A.TENSORS | A.SPARSE_TENSORS:
            raise UnsupportedError(f"{what}: lists of tensors are not supported")
    return value


def _text(value: bytes, what: str) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"{what} is not UTF-8 text", code="GPC3014") from None


class _Codes(dict[bytes, int]):
    """Numbers strings from 0 on, in the order in which they are looked up."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __missing__(self, text: bytes) -> int:
        if len(self) > np.iinfo(np.uint8).max:
            raise ModelError(f"{self.what}: more than {len(self)} different texts", code="GPC3014")
        return self.setdefault(text, len(self))


def _categorical(texts: Sequence[bytes], what: str) -> Categorical:
    known = _Codes(what)
    codes = np.fromiter(map(known.__getitem__, texts), np.uint8, len(texts))
    return Categorical(tuple(_text(text, what) for text in known), codes)


def checked_attributes(
    attributes: Attributes, signature: Signature, translator: Translator | None, files: ExternalFiles, site: Site
) -> dict[str, Any]:
    """The attributes as keywords for ``translator``, checked against the schema, with its defaults filled in."""
    result = dict(signature.defaults)
    seen: set[str] = set()
    for name, attribute in attributes:
        if name not in signature.attribute_types:
            known = ", ".join(sorted(signature.attribute_types)) or "none"
            raise ModelError(f"{site}: unknown attribute {quote(name)}; known are: {known}", code="GPC3014")
        if name in seen:
            raise ModelError(f"{site}: attribute {quote(name)} is given twice", code="GPC3014")
        seen.add(name)
        expected = signature.attribute_types[name]
        if attribute.type != expected:
            actual = (
                A.AttributeType.Name(attribute.type) if attribute.type in A.AttributeType.values() else attribute.type
            )
            raise ModelError(
                f"{site}: attribute {quote(name)} of type {A.AttributeType.Name(expected)} expected, {actual} found",
                code="GPC3014",
            )
        as_it_is = translator is not None and _takes_list(translator, name, expected)
        result[name] = attribute_value(attribute, files, str(site), name, as_it_is=as_it_is)
    result.pop("consumed_inputs", None)  # in opsets before 6: inputs that the node may overwrite
    for name in (*signature.required, *(_needed(translator) if translator is not None else ())):
        if name not in result:
            raise ModelError(f"{site}: attribute {name!r} is required", code="GPC3014")
    return result


def unchecked_attributes(
    attributes: Attributes,
    translator: Translator,
    operands: Sequence[Value | None],
    files: ExternalFiles,
    site: Site,
) -> dict[str, Any]:
    """The attributes of an operator without a schema, checked against the signature of its translator."""
    result: dict[str, Any] = {}
    for name, attribute in attributes:
        if name in result:
            raise ModelError(f"{site}: attribute {quote(name)} is given twice", code="GPC3014")
        result[name] = attribute_value(attribute, files, str(site), name)
    known = _annotated(translator)
    keywords = {name: p for name, p in known.parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    own = {"site": site} if keywords.pop("site", None) is not None else {}
    for name, value in result.items():
        if name not in keywords:
            raise ModelError(f"{site}: unknown attribute {quote(name)}", code="GPC3014")
        if not _is_annotated(value, keywords[name].annotation):
            raise ModelError(f"{site}: attribute {quote(name)} is of a wrong type", code="GPC3014")
    missing = [name for name, p in keywords.items() if p.default is p.empty and name not in result]
    if missing:
        names = ", ".join(quote(name) for name in missing)
        raise ModelError(f"{site}: the operator needs attributes that are not given: {names}", code="GPC3013")
    try:
        known.bind(*operands, **result, **own)
    except TypeError:
        raise ModelError(f"{site}: the operator does not take {len(operands)} inputs", code="GPC3013") from None
    positional = [p for p in known.parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    for number, operand in enumerate(operands):
        if isinstance(operand, positional[min(number, len(positional) - 1)].annotation):
            continue
        if operand is None:
            raise ModelError(f"{site}: input {number} is required", code="GPC3013")
        raise ModelError(f"{site}: input {number} must not be of type {operand.type}", code="GPC3015")
    return result


@cache
def _needed(translator: Translator) -> tuple[str, ...]:
    """The attributes without a default. Schemas of ai.onnx.ml call some optional that an operator means nothing without."""
    parameters = _annotated(translator).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p.name != "site")


@cache
def _annotated(translator: Translator) -> inspect.Signature:
    """The translator's signature, with annotations evaluated in its own file."""
    return inspect.signature(translator, eval_str=True)


def _is_annotated(value: Any, kind: Any) -> bool:
    """Whether an attribute's value matches the annotation of a parameter: a type, a tuple of one type, or a union."""
    if isinstance(kind, UnionType):
        return any(_is_annotated(value, member) for member in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(isinstance(v, get_args(kind)[0]) for v in value)
    return isinstance(value, kind)


# --- operands

ONNX_NAMES = {
    t.F64: "double",
    t.F32: "float",
    t.F16: "float16",
    t.BF16: "bfloat16",
    t.I64: "int64",
    t.I32: "int32",
    t.I16: "int16",
    t.I8: "int8",
    t.U64: "uint64",
    t.U32: "uint32",
    t.U16: "uint16",
    t.U8: "uint8",
    t.BOOL: "bool",
    t.F8E4M3: "float8e4m3fn",
    t.F8E4M3FNUZ: "float8e4m3fnuz",
    t.F8E5M2: "float8e5m2",
    t.F8E5M2FNUZ: "float8e5m2fnuz",
    t.I4: "int4",
    t.U4: "uint4",
    t.I2: "int2",
    t.U2: "uint2",
    t.F4E2M1: "float4e2m1",
    t.F8E8M0: "float8e8m0",
    t.STRING: "string",
}


def type_name(type: t.TensorType | t.SequenceType | t.OptionalType | t.MapsType) -> str:
    """The type as schemas write it, such as ``seq(tensor(float))``."""
    tensor = f"tensor({ONNX_NAMES[type.dtype]})"
    if isinstance(type, t.MapsType):
        return f"seq(map({ONNX_NAMES[type.keys]},{tensor}))"
    if isinstance(type, t.TensorType):
        return tensor
    inner = f"seq({tensor})" if isinstance(type, t.SequenceType) or type.sequence else tensor
    return inner if isinstance(type, t.SequenceType) else f"optional({inner})"


def check_arity(  # `inputs` must not end with absent ones
    inputs: Sequence[str], outputs: Sequence[str], signature: Signature, site: Site
) -> None:
    given = len(inputs)
    if not signature.min_inputs <= given <= signature.max_inputs:
        expected = _range(signature.min_inputs, signature.max_inputs)
        raise ModelError(f"{site}: {expected} inputs expected, {given} given", code="GPC3013")
    if not signature.min_outputs <= len(outputs) <= signature.max_outputs:
        expected = _range(signature.min_outputs, signature.max_outputs)
        raise ModelError(f"{site}: {expected} outputs expected, {len(outputs)} given", code="GPC3013")
    for position, name in enumerate(inputs):
        formal = signature.inputs[min(position, len(signature.inputs) - 1)]
        if not name and not formal.optional:
            raise ModelError(f"{site}: input {position} is required", code="GPC3013")


def _range(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"at least {low}" if high > 1 << 20 else f"{low} to {high}"


def check_operand_types(operands: Sequence[Value | None], signature: Signature, site: Site) -> None:
    """Raise ``ModelError`` unless every operand's type is allowed, and operands of one type variable agree."""
    bound: dict[str, str] = {}
    for position, value in enumerate(operands):
        if value is None:
            continue
        formal = signature.inputs[min(position, len(signature.inputs) - 1)]
        name = type_name(value.type)
        shown = value.type.dtype if isinstance(value.type, t.TensorType) else value.type
        if name not in formal.types:
            raise ModelError(f"{site}: input {position} must not be of type {shown}", code="GPC3015")
        if formal.variadic and not formal.homogeneous:
            continue
        first = bound.setdefault(formal.type_var, str(shown))
        if first != str(shown) and formal.type_var not in formal.types:
            raise ModelError(
                f"{site}: input {position} is {shown}, but another input of the same type variable is {first}",
                code="GPC3015",
            )


# What a model's own fault never raises: translators and type rules refuse it with an error of gpucomp's, or a ValueError or
# ArithmeticError, as numpy does for operands that do not fit.
BUGS = (AssertionError, AttributeError, LookupError, NameError, TypeError)


class located:
    """Context manager that turns exceptions of translators and type rules into the user's error, which names the node."""

    def __init__(self, site: Site, operands: Sequence[Value | None]) -> None:
        self.site = site
        self.operands = operands

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: Any) -> None:
        types = ", ".join("none" if v is None else str(v.type) for v in self.operands[:8])
        if isinstance(error, ModelError) and self.site.op_type not in error.message[:80]:
            raise type(error)(f"{self.site}: {error.message}", code=error.code) from error
        if isinstance(error, ShapeError):
            raise ShapeError(f"{self.site}: {error.message}", code=error.code) from error
        if isinstance(error, BUGS) or type(error) is RuntimeError:
            raise internal_error(error, f"{self.site} on ({types})") from error
        if isinstance(error, (ValueError, ArithmeticError)):
            raise ShapeError(f"{self.site} on ({types}): {error}", code="GPC3101") from error
