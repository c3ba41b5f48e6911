"""Objects that only a linker of others takes: what is not of a processor that gpucomp runs code on. Nothing is loaded here."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from gpucomp.artifact.elf import undefined_symbols
from gpucomp.errors import KernelBuildError

ELF32 = b"\x7fELF\x01\x01"
WASM = b"\0asm\x01\0\0\0"
_HEADER = struct.Struct("<16sHHIIIIIHHHHHH")
_SECTION = struct.Struct("<IIIIIIIIII")
_SYMBOL = struct.Struct("<IIIBBH")
_SYMTAB, _IMPORTS, _FUNCTION = 2, 2, 0
_ROUND = re.compile(r"call (i32|<\d+ x i32>) @llvm\.lrint\.([\w.]+)\((float|<\d+ x float>) ")
# Numbers of at most 2**22: added to 1.5 * 2**23, their bits are the whole number, rounded to the nearest even one.
_ROUNDED = """define internal {whole} @gpucomp.lrint.{name}({real} %x) alwaysinline {{
  %moved = fadd {real} %x, {number}
  %bits = bitcast {real} %moved to {whole}
  %found = sub {whole} %bits, {start}
  ret {whole} %found
}}"""

_WHOLE = re.compile(r"call (float|double|<\d+ x (?:float|double)>) @llvm\.(rint|floor|ceil)\.([\w.]+)\(\1 ")
# As in IEEE 754: numbers of at least 2**23 (2**52 for double) are whole, and the sum with that rounds smaller ones.
_RINT = """define internal {type} @gpucomp.rint.{name}({type} %x) alwaysinline {{
  %size = call {type} @llvm.fabs.{name}({type} %x)
  %moved = fadd {type} %size, {large}
  %near = fsub {type} %moved, {large}
  %small = fcmp olt {type} %size, {large}
  %whole = select {bits} %small, {type} %near, {type} %size
  %found = call {type} @llvm.copysign.{name}({type} %whole, {type} %x)
  ret {type} %found
}}"""
_FLOOR = """define internal {type} @gpucomp.{kind}.{name}({type} %x) alwaysinline {{
  %near = call {type} @gpucomp.rint.{name}({type} %x)
  %beyond = fcmp {compare} {type} %near, %x
  %next = {change} {type} %near, {one}
  %whole = select {bits} %beyond, {type} %next, {type} %near
  %found = call {type} @llvm.copysign.{name}({type} %whole, {type} %x)
  ret {type} %found
}}"""


def needed(binary: bytes) -> list[str]:
    """The symbols that an object needs from elsewhere, in order. Those of the compiler's own library, which all linkers have for
    processors of 32 bits, are left out: the names of these begin with ``__``.
    """
    if binary.startswith(ELF32):
        names = _in_elf(binary)
    elif binary.startswith(WASM):
        names = _in_wasm(binary)
    else:
        return undefined_symbols(binary)
    return sorted(name for name in set(names) if not name.startswith("__"))


def _in_elf(data: bytes) -> Iterator[str]:
    fields = _HEADER.unpack_from(data)
    sections = [_SECTION.unpack_from(data, fields[6] + k * _SECTION.size) for k in range(fields[12])]
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], _SYMBOL.size):
            name, _, _, _, _, where = _SYMBOL.unpack_from(data, at)
            if name and not where:
                yield data[names + name : data.index(b"\0", names + name)].decode()


def _in_wasm(data: bytes) -> Iterator[str]:
    """The functions that it imports."""
    at = len(WASM)
    while at < len(data):
        kind = data[at]
        size, at = _number(data, at + 1)
        if kind == _IMPORTS:
            yield from _imports(data, at)
        at += size


def _imports(data: bytes, at: int) -> Iterator[str]:
    count, at = _number(data, at)
    for _ in range(count):
        _, at = _name(data, at)
        name, at = _name(data, at)
        kind, at = data[at], at + 1
        if kind == _FUNCTION:
            yield name
            _, at = _number(data, at)
        elif kind == 1:  # a table: its type, then its limits
            at = _limits(data, at + 1)
        elif kind == 2:
            at = _limits(data, at)
        elif kind == 3:  # a global: its type, and whether it changes
            at += 2
        else:
            raise KernelBuildError(f"LLVM made an object with an import of kind {kind}", code="GPC5102")


def _limits(data: bytes, at: int) -> int:
    bounded = data[at] & 1
    _, at = _number(data, at + 1)
    return _number(data, at)[1] if bounded else at


def _name(data: bytes, at: int) -> tuple[str, int]:
    size, at = _number(data, at)
    return data[at : at + size].decode(), at + size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number in LEB128, and what is behind it."""
    found = shift = 0
    while True:
        found |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return found, at


def without_calls(text: str, *, rounds: bool) -> str:
    """The module of ``text`` with arithmetic in place of what calls the C library on processors without such instructions:
    rounding to integers, and unless the processor ``rounds`` floats to whole ones, that too. The results are the same bits.

    Emitters make integers only of numbers between the limits of 22 bits.
    """
    integers = {match.groups() for match in _ROUND.finditer(text)}
    text = _ROUND.sub(r"call \1 @gpucomp.lrint.\2(\3 ", text)
    parts = [_to_integer(*one) for one in sorted(integers)]
    if not rounds:
        wholes = {match.groups() for match in _WHOLE.finditer(text)}
        text = _WHOLE.sub(r"call \1 @gpucomp.\2.\3(\1 ", text)
        rints = {(type, "rint", name) for type, _, name in wholes}
        parts += [_to_whole(*one) for one in sorted(wholes | rints)]
    return "\n".join([text, *parts])


def _to_integer(whole: str, name: str, real: str) -> str:
    number, start = "0x4168000000000000", str(0x4B400000)
    if real.startswith("<"):
        number, start = f"splat (float {number})", f"splat (i32 {start})"
    return _ROUNDED.format(whole=whole, name=name, real=real, number=number, start=start)


def _to_whole(type: str, kind: str, name: str) -> str:
    """The function ``kind``: rint, floor or ceil."""
    scalar = "double" if "double" in type else "float"
    bits = type.replace(scalar, "i1")
    large, one = "0x4330000000000000" if scalar == "double" else "0x4160000000000000", "0x3FF0000000000000"
    if type.startswith("<"):
        large, one = (f"splat ({scalar} {number})" for number in (large, one))
    template = _RINT if kind == "rint" else _FLOOR
    compare, change = ("ogt", "fsub") if kind == "floor" else ("olt", "fadd")
    return template.format(
        type=type, bits=bits, kind=kind, name=name, large=large, one=one, compare=compare, change=change
    )
