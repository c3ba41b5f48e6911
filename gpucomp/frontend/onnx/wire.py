"""The bytes of a model looked at before protobuf takes memory for them. Nothing is decoded here but lengths.

protobuf makes an object of some hundred bytes of two bytes in a file, so a small file may ask for gigabytes. What is
counted here is what becomes an object, messages and texts (https://protobuf.dev/programming-guides/encoding), and what lists
take: one that grows is copied to twice its size, and what it leaves behind, at most twice what it has, is not given back.
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
MAX_LISTS = (
    256_000_000  # bytes of lists while they are read, and 4/3 of the file's: it is there until protobuf has read it
)
A_NUMBER, A_SMALL_NUMBER = 32, 18  # bytes of an element, at most: 24 or 12 in a list, and 8 or up to 6 in arrays
AN_ENTRY, A_TEXT = 24, 96  # of an attribute's list of numbers, of which arrays are made one by one; of a text in a list
A_DOUBLE, A_FLOAT = 24, 12  # of an element with a tag of its own: protobuf knows the length of a packed list beforehand
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
TEXT, BYTES = "text", "bytes"


@cache
def _fields(message: Descriptor) -> dict[int, Any]:
    """By number, what a length-delimited field is: text, bytes, whole numbers, told by the bytes that one may take in memory,
    or the descriptor of a message; no others.
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
    """A number and all that follow it with the same tag: lists of numbers are not packed everywhere in ONNX."""
    value = {VARINT: rb"[\x80-\xff]{0,9}+[\x00-\x7f]", FIXED64: rb".{8}", FIXED32: rb".{4}"}[kind]
    return re.compile(rb"(?s:(?:" + re.escape(bytes([tag])) + value + rb")++)")


def _ends(data: bytes, start: int, stop: int) -> int:
    """How many bytes end a number: those below 128. Of a short list, which numpy is slow for, all bytes."""
    if stop - start <= 1000:
        return stop - start
    return int(np.count_nonzero(np.frombuffer(data, np.uint8, stop - start, start) < 128))


def check(data: bytes, what: str) -> None:
    """Raise ``ModelError`` for bytes that are no message or hold texts that are none, ``UnsupportedError`` for too many parts.

    What this lets pass may still be no model: that is for the parser to say.
    """
    broken = ModelError(f"{what} is no ONNX model, or is truncated", code="GPC3002")
    fields = _fields(onnx.ModelProto.DESCRIPTOR)
    around: list[tuple[dict[int, Any], int]] = []  # of the message that is read: its fields and where it ends
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
        found = fields.get(number)
        if found is None:
            at = stop
            continue
        if isinstance(found, int):
            listed += found * _ends(data, at, stop)
            at = stop
        elif found is TEXT or found is BYTES:
            texts += 1
            listed += A_TEXT
            if found is TEXT and length and not _is_text(data[at:stop]):
                raise ModelError(f"{what}: a name in it is no UTF-8 text", code="GPC3003")
            at = stop
        else:
            messages += 1
            around.append((fields, end))
            fields, end = _fields(found), stop


def _numbers(data: bytes, start: int, at: int, end: int, tag: int, field: Any) -> tuple[int, int]:
    """Where numbers end whose first tag is ``data[start:at]``, and the bytes that a list of them takes.

    What are none lead beyond ``end``.
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
    if kind == VARINT:  # each with its tag, which ends too
        return stop, _ends(data, start, stop) // 2 * (field if isinstance(field, int) else A_NUMBER)
    return stop, (stop - start) // 9 * A_DOUBLE if kind == FIXED64 else (stop - start) // 5 * A_FLOAT


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at ``at`` and where it ends; one that does not end leads beyond ``end``."""
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
