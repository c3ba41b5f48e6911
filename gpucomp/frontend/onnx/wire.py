"""Checks the bytes of a model before protobuf allocates memory for them. Only lengths are decoded here.

Two bytes in a file can become a protobuf object of some hundred bytes, so a small file can need gigabytes. Two things
are counted here (https://protobuf.dev/programming-guides/encoding): messages and strings, which become objects, and the
memory of lists. A growing list is copied to twice its size, and the old memory, up to twice its contents, is not freed.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from gpucomp.errors import ModelError, UnsupportedError

MAX_MESSAGES = 1_000_000
MAX_TEXTS = 2_000_000
MAX_LISTS = 256_000_000  # bytes of lists during parsing, plus 4/3 of the file, which is in memory until it is parsed
# bytes per element. AN_ENTRY is for lists of attributes: only one at a time becomes an array. A_DOUBLE and A_FLOAT are for
# elements with tags of their own: for packed lists, protobuf knows the length beforehand
A_NUMBER, A_SMALL_NUMBER = 32, 18  # at most: 24 or 12 in a list, plus 8 or up to 6 in arrays
AN_ENTRY, A_TEXT = 24, 96
A_DOUBLE, A_FLOAT = 24, 12
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
TEXT, BYTES = "text", "bytes"


@cache
def _fields(message: Descriptor) -> dict[int, Any]:
    """The length-delimited fields of a message, by number: ``TEXT``, ``BYTES``, the descriptor of a message, or, for a packed
    list of integers, the most bytes that an element takes in memory. Other fields are left out.
    """
    kinds: dict[int, Any] = {FieldDescriptor.TYPE_STRING: TEXT, FieldDescriptor.TYPE_BYTES: BYTES}
    wide = AN_ENTRY if message is onnx.AttributeProto.DESCRIPTOR else A_NUMBER
    kinds |= {
        FieldDescriptor.TYPE_INT64: wide,
        FieldDescriptor.TYPE_UINT64: wide,
        FieldDescriptor.TYPE_INT32: A_SMALL_NUMBER,
    }
    return {f.number: f.message_type or kinds[f.type] for f in message.fields if f.message_type or f.type in kinds}


@cache
def _run(tag: int, kind: int) -> re.Pattern[bytes]:
    """Matches a number and all directly following numbers with the same tag: not all lists in ONNX are packed."""
    value = {VARINT: rb"[\x80-\xff]{0,9}+[\x00-\x7f]", FIXED64: rb".{8}", FIXED32: rb".{4}"}[kind]
    return re.compile(rb"(?s:(?:" + re.escape(bytes([tag])) + value + rb")++)")


def _ends(data: bytes, start: int, stop: int) -> int:
    """The number of bytes below 128, each of which ends a number. For short lists, where numpy is slow, all bytes count."""
    if stop - start <= 1000:
        return stop - start
    return int(np.count_nonzero(np.frombuffer(data, np.uint8, stop - start, start) < 128))


def check(data: bytes, what: str) -> None:
    """Raise ``ModelError`` for bytes that are not a message or contain invalid UTF-8, ``UnsupportedError`` for too many parts.

    Bytes that pass need not be a model: the parser checks that.
    """
    broken = ModelError(f"{what} is not an ONNX model, or is truncated", code="GPC3002")
    fields = _fields(onnx.ModelProto.DESCRIPTOR)
    around: list[tuple[dict[int, Any], int]] = []  # enclosing messages: fields and end of each
    at, end, messages, texts, listed = 0, len(data), 0, 0, 0
    most = MAX_LISTS + len(data) * 4 // 3
    while True:
        if messages > MAX_MESSAGES or texts > MAX_TEXTS or listed > most:
            raise UnsupportedError(
                f"{what} has more than {MAX_MESSAGES} parts, {MAX_TEXTS} texts or {most} bytes of lists, the most that are "
                "supported for its size",
                code="GPC4006",
            )
        while at >= end:
            if at > end:
                raise broken
            if not around:
                return
            fields, end = around.pop()
        start, tag = at, data[at]
        at += 1
        if tag > 127:
            tag, at = _varint(data, at - 1, end)
        kind, number = tag & 7, tag >> 3
        if kind != LENGTH:
            at, taken = _numbers(data, start, at, end, tag, fields.get(number))
            listed += taken
            continue
        if at >= end:
            raise broken
        length = data[at]
        at += 1
        if length > 127:
            length, at = _varint(data, at - 1, end)
        stop = at + length
        if stop > end or not number:
            raise broken
        field = fields.get(number)
        if field is None:
            at = stop
            continue
        if isinstance(field, int):
            listed += field * _ends(data, at, stop)
            at = stop
        elif field is TEXT or field is BYTES:
            texts += 1
            listed += A_TEXT
            if field is TEXT and length and not _is_text(data[at:stop]):
                raise ModelError(f"{what}: a name in it is not UTF-8 text", code="GPC3003")
            at = stop
        else:
            messages += 1
            around.append((fields, end))
            fields, end = _fields(field), stop


def _numbers(data: bytes, start: int, at: int, end: int, tag: int, field: Any) -> tuple[int, int]:
    """The position after a run of numbers whose first tag is ``data[start:at]``, and the bytes of a list of them.

    The position is beyond ``end`` if these are not numbers.
    """
    kind = tag & 7
    if kind not in (VARINT, FIXED64, FIXED32) or not tag >> 3:
        return end + 1, 0
    if tag > 127:
        return _varint(data, at, end)[1] if kind == VARINT else at + (8 if kind == FIXED64 else 4), 0
    run = _run(tag, kind).match(data, start, end)
    if run is None:
        return end + 1, 0
    stop = run.end()
    if kind == VARINT:  # each number has a tag, which also counts as an end
        return stop, _ends(data, start, stop) // 2 * (field if isinstance(field, int) else A_NUMBER)
    return stop, (stop - start) // 9 * A_DOUBLE if kind == FIXED64 else (stop - start) // 5 * A_FLOAT


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at ``at`` and the position after it, which is beyond ``end`` if the number does not end."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return 0, end + 1


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
