"""Requests and answers of the Open Inference Protocol, with the extension for binary tensors as Triton has it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from gpucomp.errors import ServingError, quote, several
from gpucomp.lazy_dataclass import dataclass
from gpucomp.serving import limits
from gpucomp.serving.datatypes import DATATYPES, Datatype, from_binary, from_json, refused, to_binary, to_json

# parameters of other extensions, which change what a request means
NOT_SERVED = {
    "sequence_id": "the sequence extension",
    "sequence_start": "the sequence extension",
    "sequence_end": "the sequence extension",
    "shared_memory_region": "shared memory",
    "classification": "the classification extension",
}


@dataclass(frozen=True)
class Tensor:
    """An input or output of a model as the protocol sees it. ``shape`` has -1 where each run decides the size."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "datatype": self.datatype.name, "shape": list(self.shape)}


@dataclass(frozen=True)
class Wanted:
    """A requested output."""

    tensor: Tensor
    binary: bool


@dataclass(frozen=True)
class Ask:
    """A request. ``timeout`` is in seconds; ``None`` if it names none."""

    id: str | None
    feed: Mapping[str, np.ndarray]
    wanted: tuple[Wanted, ...]
    timeout: float | None


def parsed(data: memoryview, what: str = "the request") -> dict[str, Any]:
    """A JSON object. Raises ``ServingError`` (GPC1201)."""
    try:
        found = json.loads(bytes(data), parse_constant=_no_constant, object_pairs_hook=_object)
    except RecursionError:
        raise refused(f"{what}: JSON that is nested too deeply") from None
    except ValueError as error:  # also of a text that is no UTF-8, and of a number with too many digits
        raise refused(f"{what}: JSON expected: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise refused(f"{what}: a JSON object expected")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON; send it as binary data")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a name twice")
    return found


def ask_of(body: memoryview, header: int | None, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Ask:
    """The request in a body, whose first ``header`` bytes are JSON, or all of it. Raises ``ServingError`` (GPC1201)."""
    size = len(body) if header is None else header
    if size > len(body):
        raise refused(f"the header is said to have {size} bytes, the body has {len(body)}")
    given = parsed(body[:size])
    parameters = _parameters(given, "the request")
    feed = _feed(given.get("inputs"), body[size:], {one.name: one for one in inputs})
    binary = parameters.get("binary_data_output", False)
    if not isinstance(binary, bool):
        raise refused("binary_data_output: true or false expected")
    wanted = _wanted(given.get("outputs"), {one.name: one for one in outputs}, binary)
    return Ask(_id(given), feed, wanted, _timeout(parameters))


def _id(given: Mapping[str, Any]) -> str | None:
    found = given.get("id")
    if found is not None and (not isinstance(found, str) or len(found) > limits.NAME):
        raise refused(f"id: a text of at most {limits.NAME} characters expected")
    return found


def _parameters(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    found = given.get("parameters")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise refused(f"{where}: an object as parameters expected")
    for name in NOT_SERVED.keys() & found.keys():
        raise refused(f"{where}: parameter {quote(name)}: {NOT_SERVED[name]} is not served")
    return found


def _timeout(parameters: Mapping[str, Any]) -> float | None:
    """Triton's ``timeout``, in microseconds; 0 is none."""
    found = parameters.get("timeout", 0)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 63:
        raise refused("timeout: a whole number of microseconds expected")
    return found / 1e6 if found else None


def _listed(given: object, what: str) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise refused(f"{what}: an array of objects expected")
    if len(given) > limits.TENSORS:
        raise refused(f"{what}: at most {limits.TENSORS} expected, found {len(given)}")
    return given


def _named(one: Mapping[str, Any], known: Mapping[str, Tensor], seen: set[str], what: str) -> Tensor:
    name = one.get("name")
    if not isinstance(name, str):
        raise refused(f"{what}: each needs a name")
    if name not in known:
        raise refused(f"{what}: there is no {quote(name)}; the model has {', '.join(map(quote, known)) or 'none'}")
    if name in seen:
        raise refused(f"{what}: {quote(name)} is given twice")
    seen.add(name)
    return known[name]


def _feed(given: object, binary: memoryview, known: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    feed: dict[str, np.ndarray] = {}
    seen: set[str] = set()
    for one in _listed([] if given is None and not known else given, "inputs"):
        tensor = _named(one, known, seen, "inputs")
        where = f"input {quote(tensor.name)}"
        shape = _shape(one, tensor, where)
        size = _parameters(one, where).get("binary_data_size")
        if size is None:
            feed[tensor.name] = from_json(one.get("data"), tensor.datatype, shape, where)
            continue
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(binary):
            raise refused(f"{where}: binary_data_size of 0 to {len(binary)} bytes expected, which are left of the body")
        if "data" in one:
            raise refused(f"{where}: data or binary_data_size expected, not both")
        feed[tensor.name] = from_binary(binary[:size], tensor.datatype, shape, where)
        binary = binary[size:]
    if len(binary):
        raise refused(f"{len(binary)} bytes are left in the body behind all inputs")
    if missing := [quote(name) for name in known if name not in feed]:
        raise refused(f"not all inputs are given, missing: {', '.join(missing)}")
    return feed


def _shape(one: Mapping[str, Any], tensor: Tensor, where: str) -> tuple[int, ...]:
    """The shape of an input, which the model takes as far as numbers say. Sizes of a name are compared by the model."""
    datatype, shape = one.get("datatype"), one.get("shape")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise refused(f"{where}: a datatype expected, one of {', '.join(DATATYPES)}; found {quote(datatype)}")
    if datatype != tensor.datatype.name:
        raise refused(f"{where}: datatype {tensor.datatype.name} expected, found {datatype}")
    if not isinstance(shape, list) or len(shape) > limits.RANK or not all(map(_is_extent, shape)):
        raise refused(f"{where}: a shape of at most {limits.RANK} whole numbers from 0 to {limits.EXTENT} expected")
    fits = len(shape) == len(tensor.shape)
    if not fits or any(wanted not in (-1, size) for wanted, size in zip(tensor.shape, shape, strict=True)):
        raise refused(f"{where}: shape {list(tensor.shape)} expected, found {shape}")
    if math.prod(max(size, 1) for size in shape) > limits.EXTENT:  # numpy's limit too, where one size is 0
        raise refused(f"{where}: at most {limits.EXTENT} elements expected, and as the product of all sizes but 0")
    return tuple(shape)


def _is_extent(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= limits.EXTENT


def _wanted(given: object, known: Mapping[str, Tensor], binary: bool) -> tuple[Wanted, ...]:
    """All outputs if none is asked for."""
    found: list[Wanted] = []
    seen: set[str] = set()
    for one in _listed(given or [], "outputs"):
        tensor = _named(one, known, seen, "outputs")
        own = _parameters(one, f"output {quote(tensor.name)}").get("binary_data", binary)
        if not isinstance(own, bool):
            raise refused(f"output {quote(tensor.name)}: true or false as binary_data expected")
        found.append(Wanted(tensor, own))
    return tuple(found) or tuple(Wanted(tensor, binary) for tensor in known.values())


def effort(ask: Ask, results: Mapping[str, np.ndarray]) -> int:
    """About how many bytes an answer converts or copies."""
    found = 0
    for one in ask.wanted:
        array = results[one.tensor.name]
        if array.dtype == object:
            found += array.size * limits.TEXT
            if found <= limits.INLINE:
                found += sum(map(len, array.reshape(-1).tolist()))
        elif not one.binary or not array.flags.c_contiguous:
            found += array.nbytes
    return found


def answer(
    ask: Ask, results: Mapping[str, np.ndarray], model: str, version: str
) -> tuple[bytes, list[memoryview | bytes]]:
    """The JSON of an answer, and its binary tensors behind it. Raises ``ServingError`` (GPC1208) for what JSON has not."""
    elements = sum(results[one.tensor.name].size for one in ask.wanted if not one.binary)
    if elements > limits.JSON_ELEMENTS:
        told = f"an answer has at most {several(limits.JSON_ELEMENTS, 'element')} in JSON, found {elements}"
        raise ServingError(f"{told}; ask for binary_data", code="GPC1208")
    outputs: list[str] = []
    buffers: list[memoryview | bytes] = []
    for one in ask.wanted:
        name, array = one.tensor.name, results[one.tensor.name]
        head: dict[str, Any] = {"name": name, "datatype": one.tensor.datatype.name, "shape": list(array.shape)}
        data = ""
        if one.binary:
            buffers.append(to_binary(array))
            head["parameters"] = {"binary_data_size": len(buffers[-1])}
        else:
            data = f',"data":{to_json(array, one.tensor.datatype, f"output {quote(name)}")}'
        outputs.append(f"{_compact(head)[:-1]}{data}}}")
    said: dict[str, Any] = {"model_name": model, "model_version": version}
    if ask.id is not None:
        said["id"] = ask.id
    return f'{_compact(said)[:-1]},"outputs":[{",".join(outputs)}]}}'.encode(), buffers


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def header_length(text: str | None) -> int | None:
    """The number in ``Inference-Header-Content-Length``. Raises ``ServingError`` (GPC1201)."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 12):
        raise refused(f"Inference-Header-Content-Length: bytes of the JSON expected, found {quote(text)}")
    return int(text)


def too_large(what: str, most: int) -> ServingError:
    return ServingError(f"{what}: at most {several(most, 'byte')} expected", code="GPC1204", status=413)
