"""Operators on strings, and table lookups. There are no kernels for them: numpy runs them on the host.

Only string operators whose result shapes follow from the operands' shapes are here. The frontend evaluates the others
when their strings are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gpucomp.ir.types import BOOL, F32, I64, STRING, DType, TensorType
from gpucomp.ops.regex import Pattern
from gpucomp.ops.registry import broadcast, op

MAX_TEXT = 1 << 26  # characters of one result: a hostile model could double a text at every node


def _expect_strings(*types: TensorType) -> None:
    if other := next((t for t in types if t.dtype is not STRING), None):
        raise ValueError(f"strings expected, got {other.dtype}")


def each(function: Callable[..., Any], dtype: DType, *arrays: np.ndarray) -> np.ndarray:
    """Apply ``function`` to every tuple of elements of ``arrays``, which broadcast."""
    arrays = tuple(np.broadcast_arrays(*arrays))
    result = np.empty(arrays[0].size, dtype.numpy)
    for k, values in enumerate(zip(*(a.reshape(-1) for a in arrays), strict=True)):
        result[k] = function(*values)
    return result.reshape(arrays[0].shape)


@op("StringConcat")
def StringConcat(a: TensorType, b: TensorType) -> TensorType:
    """Concatenate strings element by element; the operands broadcast."""
    _expect_strings(a, b)
    return TensorType(STRING, broadcast(a.shape, b.shape))


@StringConcat.define("reference")
def _string_concat_reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    shape = broadcast(a.shape, b.shape)
    length = sum(sum(map(len, x.reshape(-1))) * (int(np.prod(shape)) // max(x.size, 1)) for x in (a, b))
    if length > MAX_TEXT:
        raise MemoryError(f"a result of {length} characters, at most {MAX_TEXT} are supported")
    return each(lambda x, y: x + y, STRING, a, b)


@op("StringEqual")
def StringEqual(a: TensorType, b: TensorType) -> TensorType:
    """Compare strings element by element; the operands broadcast."""
    _expect_strings(a, b)
    return TensorType(BOOL, broadcast(a.shape, b.shape))


@StringEqual.define("reference")
def _string_equal_reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return each(lambda x, y: x == y, BOOL, a, b)


@op("RegexFullMatch")
def RegexFullMatch(x: TensorType, *, pattern: str) -> TensorType:
    """Whether the whole element matches ``pattern``, in RE2's syntax."""
    _expect_strings(x)
    Pattern(pattern)
    return x.with_dtype(BOOL)


@RegexFullMatch.define("reference")
def _regex_full_match_reference(x: np.ndarray, *, pattern: str) -> np.ndarray:
    return each(Pattern(pattern).matches, BOOL, x)


@op("NumberToString")
def NumberToString(x: TensorType) -> TensorType:
    """Numbers as the shortest decimal that reads back the same; integers and bools as they are."""
    if x.dtype is STRING:
        raise ValueError("numbers expected, got strings")
    return x.with_dtype(STRING)


@NumberToString.define("reference")
def _number_to_string_reference(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iub" or "int" in x.dtype.name:
        return each(lambda value: str(int(value)), STRING, x)
    return each(_decimal, STRING, x if x.dtype.kind == "f" else x.astype(np.float32))


def _decimal(value: np.floating) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "INF" if value > 0 else "-INF"
    plain = not value or 1e-5 < abs(float(value)) < 1e16
    return np.format_float_positional(value, unique=True, trim="0") if plain else str(value)


@op("StringToNumber")
def StringToNumber(x: TensorType, *, to: DType) -> TensorType:
    """Parse decimal and scientific notation, ``INF`` and ``NaN`` in any case. Raises ``ValueError`` for other strings."""
    _expect_strings(x)
    if to is STRING:
        raise ValueError("a result of numbers expected, got string")
    return x.with_dtype(to)


@StringToNumber.define("reference")
def _string_to_number_reference(x: np.ndarray, *, to: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        if to.is_integer and to.bits == 64:
            return each(
                lambda text: to.numpy.type(int(text) if text.strip().lstrip("+-").isdigit() else int(float(text))),
                to,
                x,
            )
        numbers = np.array([float(text) for text in x.reshape(-1)], np.float64).reshape(x.shape)
        return (numbers != 0) if to is BOOL else numbers.astype(to.numpy)


@op("LabelEncoder")
def LabelEncoder(
    x: TensorType, *, keys: tuple[Any, ...], values: tuple[Any, ...], default: Any, to: DType
) -> TensorType:
    """``values[k]`` for elements equal to ``keys[k]``, else ``default``. The last of equal keys wins; NaN equals NaN."""
    if len(keys) != len(values):
        raise ValueError(f"as many values as keys expected, got {len(keys)} keys and {len(values)} values")
    if any(isinstance(key, str) != (x.dtype is STRING) for key in keys):
        raise ValueError(f"keys of the element type {x.dtype} expected")
    if any(isinstance(value, str) != (to is STRING) for value in (*values, default)):
        raise ValueError(f"values of the element type {to} expected")
    return x.with_dtype(to)


@LabelEncoder.define("reference")
def _label_encoder_reference(
    x: np.ndarray, *, keys: tuple[Any, ...], values: tuple[Any, ...], default: Any, to: DType
) -> np.ndarray:
    table = {_key(key): value for key, value in zip(keys, values, strict=True)}
    return each(lambda element: table.get(_key(element), default), to, x)


def _key(element: Any) -> Any:
    if isinstance(element, str):
        return element
    return "NaN" if element != element else element.item() if hasattr(element, "item") else element


@op("CategoryIndex")
def CategoryIndex(x: TensorType, *, categories: tuple[int | str, ...]) -> TensorType:
    """The index in ``categories`` of each element, i64; the last of equal ones. Raises ``ValueError`` if there is none."""
    if not categories or any(isinstance(c, str) != (x.dtype is STRING) for c in categories):
        raise ValueError(f"categories of the element type {x.dtype} expected")
    return x.with_dtype(I64)


@CategoryIndex.define("reference")
def _category_index_reference(x: np.ndarray, *, categories: tuple[int | str, ...]) -> np.ndarray:
    places = {category: k for k, category in enumerate(categories)}

    def place(element: Any) -> int:
        if element not in places:
            raise ValueError(f"{str(element)[:40]!r} is not one of the {len(categories)} categories")
        return places[element]

    return each(place, I64, x)


@op("TfIdfVectorizer")
def TfIdfVectorizer(
    x: TensorType,
    *,
    grams: tuple[tuple[Any, ...], ...],
    places: tuple[int, ...],
    weights: tuple[float, ...],
    mode: str,
    lengths: tuple[int, int],
    skips: int,
) -> TensorType:
    """How often each of the n-grams ``grams`` occurs in a row, with up to ``skips`` elements between its elements.

    Results are at ``places``. ``lengths`` are the shortest and the longest n-grams that count. ``mode`` TF gives the
    count, IDF the weight of the n-gram if it occurs, and TFIDF the product.
    """
    if x.rank not in (1, 2):
        raise ValueError(f"an operand of rank 1 or 2 expected, got {x}")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"mode TF, IDF or TFIDF expected, got {mode!r}")
    if not len(grams) == len(places) == len(weights) or not places or min(places) < 0:
        raise ValueError(
            f"as many n-grams as indices and weights expected, at least one, and no index below 0; got {len(grams)}, "
            f"{len(places)} and {len(weights)}"
        )
    if not 1 <= lengths[0] <= lengths[1] or skips < 0:
        raise ValueError(
            f"1 <= min_gram_length <= max_gram_length and max_skip_count >= 0 expected, got {lengths[0]}, "
            f"{lengths[1]} and {skips}"
        )
    return TensorType(F32, (*x.shape[:-1], max(places) + 1))


@TfIdfVectorizer.define("reference")
def _tf_idf_reference(
    x: np.ndarray,
    *,
    grams: tuple[tuple[Any, ...], ...],
    places: tuple[int, ...],
    weights: tuple[float, ...],
    mode: str,
    lengths: tuple[int, int],
    skips: int,
) -> np.ndarray:
    numbers = {gram: k for k, gram in enumerate(grams)}
    rows = x.reshape(-1, x.shape[-1])
    result = np.zeros((len(rows), max(places) + 1), np.float32)
    for row, elements in zip(result, rows.tolist(), strict=True):
        for length in sorted({len(gram) for gram in grams if lengths[0] <= len(gram) <= lengths[1]}):
            for gram in _grams_in(elements, length, skips):
                if gram in numbers:
                    row[places[numbers[gram]]] += 1
    scale = np.ones(result.shape[1], np.float32)
    scale[list(places)] = weights
    counts = result if mode != "IDF" else (result > 0).astype(np.float32)
    return (counts if mode == "TF" else counts * scale).reshape(*x.shape[:-1], result.shape[1])


def _grams_in(elements: Sequence[Any], length: int, skips: int) -> Iterator[tuple[Any, ...]]:
    """All ``length`` elements at equal distances, with up to ``skips`` between neighbours."""
    reach = (len(elements) - 1) // (length - 1) if length > 1 else 1  # single elements have no gaps
    for stride in range(1, min(skips + 1, reach) + 1):
        for start in range(len(elements) - (length - 1) * stride):
            yield tuple(elements[start : start + length * stride : stride])
