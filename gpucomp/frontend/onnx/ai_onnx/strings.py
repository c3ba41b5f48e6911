"""Translators of operators on strings. If the shape of a result depends on strings, they must be known at compile time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gpucomp import ops
from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import checked_size, static
from gpucomp.frontend.onnx.translate import translates
from gpucomp.ir import DType, Value, constant, dtype_of, spend
from gpucomp.ir.types import F32, I64, STRING
from gpucomp.ops.regex import Pattern, without_accents

ML = "ai.onnx.ml"
STATE_EFFORT = 10  # cost of building a state of a pattern's automaton, in units of ``functions.EFFORT``
LETTERS_A_UNIT = 16  # characters of text that are processed per unit of effort
PART_BYTES = 64  # approximate size of a part of a string
EXPANSION = 18  # characters that one character can decompose into (Unicode Standard Annex 15, U+FDFA)
_WORD = re.compile(r"\S+")


def _texts(words: Sequence[str], shape: tuple[int, ...]) -> Value:
    array = np.empty(len(words), object)
    array[:] = words
    return constant(array.reshape(shape))


@translates("StringConcat", since=20)
def string_concat(a: Value, b: Value) -> Value:
    return ops.StringConcat(a, b)


@translates("RegexFullMatch", since=20)
def regex_full_match(x: Value, *, pattern: str | None = None) -> Value:
    if pattern is None:
        raise ValueError("a pattern expected")
    spend(STATE_EFFORT * len(Pattern(pattern).tests))
    return ops.RegexFullMatch(x, pattern=pattern)


@translates("StringSplit", since=20)
def string_split(x: Value, *, delimiter: str | None = None, maxsplit: int | None = None) -> tuple[Value, Value]:
    """The parts of every string, padded with empty strings, and their number. The default delimiter is white space."""
    array = static(x, "operand")
    limit = -1 if maxsplit is None else maxsplit
    spend(sum(map(len, array.reshape(-1))) // LETTERS_A_UNIT)
    checked_size(sum(_most_parts(text, delimiter or None, limit) for text in array.reshape(-1)), PART_BYTES)
    parts = [text.split(delimiter or None, limit) for text in array.reshape(-1)]
    most = max(map(len, parts), default=0)
    checked_size(most * len(parts), 8)
    padded = [word for words in parts for word in (*words, *[""] * (most - len(words)))]
    counts = np.array([len(words) for words in parts], np.int64).reshape(array.shape)
    return _texts(padded, (*array.shape, most)), constant(counts)


def _most_parts(text: str, delimiter: str | None, limit: int) -> int:
    """The number of parts of ``text.split(delimiter, limit)``, computed without splitting."""
    parts = sum(1 for _ in _WORD.finditer(text)) if delimiter is None else text.count(delimiter) + 1
    return parts if limit < 0 else min(parts, limit + 1)


@translates("StringNormalizer", since=10)
def string_normalizer(
    x: Value,
    *,
    case_change_action: str,
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: tuple[str, ...] = (),
) -> Value:
    """Removes stop words and changes the case of the rest. If no word is left, the result is one empty string.

    Case conversion is Unicode's and ignores the locale. Without ``is_case_sensitive``, comparisons are in lower case.
    """
    array = static(x, "operand")
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[0] != 1):
        raise ValueError(f"[C] or [1, C] expected, {x.type} given")
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    change = changes.get(case_change_action)
    if change is None:
        raise ValueError(f"case_change_action NONE, LOWER or UPPER expected, got {case_change_action!r}")
    letters = [len(text) if text.isascii() else EXPANSION * len(text) for text in array.reshape(-1)]
    spend(sum(letters) // LETTERS_A_UNIT)
    checked_size(sum(letters), 8)
    same: Callable[[str], str] = str if is_case_sensitive else str.lower
    unwanted = {same(word) for word in stopwords}
    kept = [change(without_accents(word)) for word in array.reshape(-1) if same(word) not in unwanted] or [""]
    return _texts(kept, (1, len(kept)) if array.ndim == 2 else (len(kept),))


@translates("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    x: Value,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: tuple[int, ...],
    ngram_indexes: tuple[int, ...],
    pool_int64s: tuple[int, ...] | None = None,
    pool_strings: tuple[str, ...] | None = None,
    weights: tuple[float, ...] | None = None,
) -> Value:
    """The pool holds all n-grams of one element, then all of two, and so on. ``ngram_counts`` has the start of each length."""
    if (pool_int64s is None) == (pool_strings is None):
        raise ValueError("exactly one of pool_int64s and pool_strings expected")
    pool: tuple[Any, ...] = pool_strings if pool_int64s is None else pool_int64s  # type: ignore[assignment]
    if isinstance(pool[0] if pool else 0, str) != (x.type.dtype is STRING):
        raise ValueError(f"a pool of {x.type.dtype} expected")
    bounds = [*ngram_counts, len(pool)]
    if sorted(bounds) != bounds or bounds[0] != 0:
        raise ValueError(f"ngram_counts {list(ngram_counts)} do not divide a pool of {len(pool)}")
    grams = []
    for length, (start, end) in enumerate(pairwise(bounds), start=1):
        if (end - start) % length:
            raise ValueError(f"{end - start} elements do not form n-grams of {length}")
        grams += [tuple(pool[k : k + length]) for k in range(start, end, length)]
    checked_size(max(ngram_indexes, default=0) + 1, 4)
    return ops.TfIdfVectorizer(
        x,
        grams=tuple(grams),
        places=tuple(ngram_indexes),
        weights=(1.0,) * len(grams) if weights is None else tuple(weights),
        mode=mode,
        lengths=(min_gram_length, max_gram_length),
        skips=max_skip_count,
    )


@translates("LabelEncoder", since=1, domain=ML)
def label_encoder_1(
    x: Value, *, classes_strings: tuple[str, ...] = (), default_int64: int = -1, default_string: str = "_Unused"
) -> Value:
    """The index of a string in a list, or the string at an index."""
    places = tuple(range(len(classes_strings)))
    if x.type.dtype is STRING:
        return ops.LabelEncoder(x, keys=classes_strings, values=places, default=default_int64, to=I64)
    return ops.LabelEncoder(x, keys=places, values=classes_strings, default=default_string, to=STRING)


@translates("LabelEncoder", since=2, domain=ML)
def label_encoder(
    x: Value,
    *,
    keys_strings: tuple[str, ...] | None = None,
    keys_int64s: tuple[int, ...] | None = None,
    keys_floats: tuple[float, ...] | None = None,
    keys_tensor: np.ndarray | None = None,
    values_strings: tuple[str, ...] | None = None,
    values_int64s: tuple[int, ...] | None = None,
    values_floats: tuple[float, ...] | None = None,
    values_tensor: np.ndarray | None = None,
    default_string: str = "_Unused",
    default_int64: int = -1,
    default_float: float = -0.0,
    default_tensor: np.ndarray | None = None,
) -> Value:
    """A table from keys to values, each given as numbers, as strings or as a tensor."""
    keys = _one("keys", keys_strings, keys_int64s, keys_floats, keys_tensor)
    default: Any
    if values_tensor is not None:
        to = dtype_of(values_tensor.dtype)
        usual = {"s": default_string, "f": default_float}.get(to.kind, default_int64)
        default = usual if default_tensor is None else default_tensor.reshape(-1)[0]
    else:
        given = ((values_strings, STRING, default_string), (values_int64s, I64, default_int64))
        to, default = next(((d, v) for values, d, v in given if values is not None), (F32, default_float))
    values = _one("values", values_strings, values_int64s, values_floats, values_tensor)
    plain = default.item() if isinstance(default, np.generic) else default
    return ops.LabelEncoder(x, keys=keys, values=values, default=plain, to=to)


def _one(what: str, *given: tuple[Any, ...] | np.ndarray | None) -> tuple[Any, ...]:
    values = [g for g in given if g is not None]
    if len(values) != 1:
        raise ValueError(f"exactly one attribute with {what} expected, {len(values)} given")
    return tuple(values[0].reshape(-1).tolist()) if isinstance(values[0], np.ndarray) else tuple(values[0])


def text_cast(x: Value, to: DType) -> Value:
    """A Cast from or to strings."""
    if x.type.dtype is to:
        return x
    if to is STRING:
        return ops.NumberToString(x)
    if to.storage_only:
        raise UnsupportedError(f"strings are not read as {to}", code="GPC4003")
    return ops.StringToNumber(x, to=to)
