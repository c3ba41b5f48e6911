"""Counts an OpenCL kernel's global loads by width, from its text. For devices whose compilers are not available."""

from __future__ import annotations

import re
from collections import Counter

BYTES = {
    "char": 1,
    "uchar": 1,
    "short": 2,
    "ushort": 2,
    "half": 2,
    "int": 4,
    "uint": 4,
    "float": 4,
    "long": 8,
    "ulong": 8,
    "double": 8,
}
IMAGE_BYTES = {"read_imagef": 16, "read_imageh": 8}  # of one pixel with four channels
WIDE = 16
POINTER = re.compile(r"__global (?:const )?(\w+)\* (?:restrict )?(\w+)")
VECTOR = re.compile(r"\bvload(?:_half)?(\d*)\([^,()]*, (\w+)")


def loads(text: str) -> Counter[int]:
    """The number of loads from global memory in ``text``, by bytes of each load; a loop's body counts once."""
    size = {name: BYTES[kind] for kind, name in POINTER.findall(text) if kind in BYTES}
    found: Counter[int] = Counter()
    for width, name in VECTOR.findall(text):
        if name in size:
            found[int(width or 1) * size[name]] += 1
    for name in re.findall(r"\*(\w+)\b", text):
        if name in size:
            found[size[name]] += 1
    for start in re.finditer(r"\b(\w+)\[", text):
        if start[1] in size and not _is_written(text, start.end()):
            found[size[start[1]]] += 1
    for name, nbytes in IMAGE_BYTES.items():
        found[nbytes] += text.count(f"{name}(")
    return +found


def _is_written(text: str, at: int) -> bool:
    """Whether the element of the bracket that opened before ``at`` is assigned to."""
    depth = 1
    while depth:
        depth += {"[": 1, "]": -1}.get(text[at], 0)
        at += 1
    return re.match(r"\s*=(?!=)", text[at:]) is not None


def wide_share(found: Counter[int]) -> float:
    """The share of loads that move 16 bytes or more; 1 if there are no loads."""
    total = sum(found.values())
    return sum(n for nbytes, n in found.items() if nbytes >= WIDE) / total if total else 1.0
