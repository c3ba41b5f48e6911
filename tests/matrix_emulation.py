"""Matrix instructions in software: what AMX, vdpbf16ps and vpdpbusd do, as LLVM IR, for machines that have none.

Written after the operation sections of Intel's Software Developer's Manual: rows past a tile's shape are zero, bf16
products of even and of odd elements are added up apart, denormals are zero, and the sums of both go to the result.
``emulated`` replaces the instructions of a kernel's text by calls of these functions.

Each thread has tiles of its own. What a processor refuses, with #GP or #UD, is noted: ``faults`` tells it, and ``held``
how many threads have left their tiles in use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.codegen.llvm.ir.types import F32, I8, I64, PTR, Type
from gpucomp.device import processor
from gpucomp.device.isa import TILES as TILE_FEATURES
from gpucomp.device.target import Target
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import cpu

TILE, ROW, TILES = 1024, 64, 8
SHAPES, NOTED = TILES * TILE, TILES * TILE + ROW  # where a thread's shapes are in its state, and a byte for each fault
OF_THREAD = NOTED + ROW
THREADS = 256  # states; threads whose numbers are so many apart share one
PREFIX = "@emulated."
STATE = np.zeros((THREADS, OF_THREAD), np.uint8)
FAULTS = (
    "#GP: ldtilecfg of bytes that are no configuration of palette 1",
    "#UD: a tile that is not configured",
    "#UD: a product of a tile with itself, or added to a factor",
    "#UD: a product of tiles whose shapes do not fit each other",
)
CONFIGURATION, UNCONFIGURED, SAME_TILE, UNEQUAL_SHAPES = FAULTS
INSTRUCTIONS = ("ldtilecfg", "tilerelease", "tilezero", "tileloadd64", "tilestored64", "tdpbf16ps")
BYTES = ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")
DOTS = tuple(f"{name}.{bits}" for name in ("avx512bf16.dpbf16ps", "avx512.vpdpbusd") for bits in (128, 256, 512))


def emulated(source: KernelSource, *, first: bool) -> KernelSource:
    """``source`` with its instructions called; ``first`` of a module's brings the functions along."""
    text = source.text
    for name in (*INSTRUCTIONS, *BYTES, *DOTS):
        text = text.replace(f"@llvm.x86.{name}(", f"{PREFIX}{name}(")
    return replace(source, text=(text + _functions()) if first else text)


@contextmanager
def with_tiles() -> Iterator[None]:
    """``cpu`` has tile registers, in software where this machine has none. Nothing compiled inside may run outside.

    It has dot products of bytes as well, as all processors with tiles: what they are better at is left to them.
    """
    if cpu.host().features >= TILE_FEATURES:
        yield
        return
    with _played(TILE_FEATURES | _dots()):
        yield


@contextmanager
def without_tiles() -> Iterator[None]:
    """``cpu`` has dot products of bytes, in software where this machine has none, and no tile registers."""
    with _played(_dots(), hidden=TILE_FEATURES):
        yield


def _dots() -> frozenset[str]:
    return frozenset() if cpu.host().features & {"avx512vnni", "avxvnni"} else frozenset({"avxvnni"})


@contextmanager
def _played(added: frozenset[str], hidden: frozenset[str] = frozenset()) -> Iterator[None]:
    host, missing, module_text = cpu.host(), processor.missing, cpu.module_text
    intrinsics = ["@llvm.x86.ldtilecfg("] if added >= TILE_FEATURES else []
    intrinsics += [f"@llvm.x86.{name}(" for name in DOTS] if added & _dots() else []

    def played(sources: Sequence[KernelSource], target: Target, *, runner: bool = True) -> str:
        changed, first = [], True
        for source in sources:
            if any(name in source.text for name in intrinsics):
                source, first = emulated(source, first=first), False
            changed.append(source)
        return module_text(changed, target, runner=runner)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(cpu, "_host", lambda: replace(host, features=host.features - hidden | added))
        patches.setattr(cpu, "module_text", played)
        patches.setattr(processor, "missing", lambda features: missing(f for f in features if f not in added))
        if added >= TILE_FEATURES:
            patches.setattr(processor, "tiles_refused", lambda: "")
        yield


def faults() -> list[str]:
    """What the instructions have been refused since the last call, in any thread."""
    noted = STATE[:, NOTED : NOTED + len(FAULTS)].any(axis=0)
    STATE[:, NOTED:] = 0
    return [fault for fault, there in zip(FAULTS, noted, strict=True) if there]


def held() -> int:
    """The number of threads whose tiles are configured: the system saves those with each switch."""
    return int(STATE[:, SHAPES].astype(bool).sum())


def _functions() -> str:
    texts = [_configure(), _release(), _zero(), _move("tileloadd64"), _move("tilestored64"), _bf16()]
    texts += [_bytes(name) for name in BYTES]
    texts += [_dot(name) for name in DOTS]
    return "\n".join(texts)


def _define(code: Code, arguments: str) -> str:
    return code.function(f"define internal void {PREFIX}{code.name}({arguments}) #1")


class Played(Code):
    """The function that stands for an instruction."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # the calling thread's memory: machine code that is loaded here has none of its own to write
        address = ctypes.cast(ctypes.CDLL(None).gettid, ctypes.c_void_p).value
        thread = self.let(f"call i32 inttoptr (i64 {address} to ptr)()", Type("i32"))
        number = self.convert("zext", thread, "i64").integer_op("urem", THREADS)
        self.state = self.gep(Value(self, f"inttoptr (i64 {STATE.ctypes.data} to ptr)", PTR), number * OF_THREAD, "i8")


def _number(code: Played, name: str) -> Value:
    """The number of a tile that is an argument."""
    return code.convert("zext", code.argument(name, I8), "i64")


def _tile(code: Played, number: Value) -> Value:
    return code.gep(code.state, number * TILE, "i8")


def _byte(code: Code, at: Value) -> Value:
    return code.convert("zext", code.load(at, I8), "i64")


def _rows(code: Played, number: Value) -> Value:
    return _byte(code, code.gep(code.gep(code.state, SHAPES, "i8"), number + 48, "i8"))


def _width(code: Played, number: Value) -> Value:
    """Bytes of a row."""
    return _byte(code, code.gep(code.gep(code.state, SHAPES, "i8"), number * 2 + 16, "i8"))


def _fault(code: Played, refused: Value, fault: str) -> None:
    with code.when(refused):
        code.store(code.const(1, I8), code.gep(code.state, NOTED + FAULTS.index(fault), "i8"))


def _usable(code: Played, number: Value) -> None:
    _fault(code, (_rows(code, number) * _width(code, number)).equals(0), UNCONFIGURED)


def _fill(code: Code, at: Value, count: int) -> None:
    with code.loop(0, count) as i:
        code.store(code.const(0, I8), code.gep(at, i, "i8"))


def _configure() -> str:
    code = Played("ldtilecfg")
    source = code.argument("from", PTR)

    def byte(at: Value | int) -> Value:
        return _byte(code, code.gep(source, at, "i8"))

    _fault(code, byte(0).differs(1) | byte(1).differs(0), CONFIGURATION)  # the palette, and the row to start from
    unused = (
        (2, 16),
        (16 + 2 * TILES, 48),
        (48 + TILES, ROW),
    )  # bytes that are reserved, or of tiles of other palettes
    for first, last in unused:
        with code.loop(first, last) as at:
            _fault(code, byte(at).differs(0), CONFIGURATION)
    with code.loop(0, TILES) as tile:
        rows, width, high = byte(tile + 48), byte(tile * 2 + 16), byte(tile * 2 + 17)
        refused = (rows > 16) | (width > ROW) | high.differs(0) | (rows.equals(0) ^ width.equals(0))
        _fault(code, refused, CONFIGURATION)
    with code.loop(0, ROW) as i:
        code.store(code.load(code.gep(source, i, "i8"), I8), code.gep(code.gep(code.state, SHAPES, "i8"), i, "i8"))
    _fill(code, code.state, TILES * TILE)
    return _define(code, "ptr %from")


def _release() -> str:
    code = Played("tilerelease")
    _fill(code, code.gep(code.state, SHAPES, "i8"), ROW)
    return _define(code, "")


def _zero() -> str:
    code = Played("tilezero")
    number = _number(code, "t")
    _usable(code, number)
    _fill(code, _tile(code, number), TILE)
    return _define(code, "i8 %t")


def _move(name: str) -> str:
    code = Played(name)
    number, memory, stride = _number(code, "t"), code.argument("p", PTR), code.argument("stride", I64)
    _usable(code, number)
    tile, width = _tile(code, number), _width(code, number)
    loads = name == "tileloadd64"
    if loads:
        _fill(code, tile, TILE)
    with code.loop(0, _rows(code, number)) as row, code.loop(0, width) as at:
        outside = code.gep(memory, row * stride + at, "i8")
        inside = code.gep(tile, row * ROW + at, "i8")
        code.store(code.load(outside if loads else inside, I8), inside if loads else outside)
    return _define(code, "i8 %t, ptr %p, i64 %stride")


def _three(code: Played) -> tuple[Value, Value, Value, Value, Value, Value]:
    """The tiles of sums, rows and columns; how many rows, words of a row and columns there are."""
    c, a, b = (_number(code, name) for name in ("c", "a", "b"))
    for number in (c, a, b):
        _usable(code, number)
    _fault(code, c.equals(a) | c.equals(b) | a.equals(b), SAME_TILE)
    rows, words, columns = _rows(code, c), _width(code, a).integer_op("udiv", 4), _width(code, c).integer_op("udiv", 4)
    unequal = rows.differs(_rows(code, a)) | words.differs(_rows(code, b)) | _width(code, c).differs(_width(code, b))
    in_words = (_width(code, a) | _width(code, c)).integer_op("urem", 4)
    _fault(code, unequal | in_words.differs(0), UNEQUAL_SHAPES)
    return _tile(code, c), _tile(code, a), _tile(code, b), rows, words, columns


def _bf16() -> str:
    code = Played("tdpbf16ps")
    c, a, b, rows, words, columns = _three(code)

    def flushed(value: Value) -> Value:
        return code.select(value.intrinsic("fabs") < 2.0**-126, code.const(0.0, F32), value)

    def number(tile: Value, row: Value, at: Value) -> Value:
        raw = code.load(code.gep(tile, row * ROW + at * 2, "i8"), Type("i16"))
        return flushed((code.convert("zext", raw, "i32") << 16).bitcast("float"))

    sums = code.slot(F32), code.slot(F32)
    with code.loop(0, rows) as m, code.loop(0, columns) as n:
        for half in sums:
            half.set(code.const(0.0, F32))
        with code.loop(0, words) as k:
            for position, half in enumerate(sums):
                product = number(a, m, k * 2 + position), number(b, k, n * 2 + position)
                half.set(product[0].intrinsic("fma", product[1], half.get()))
        place = code.gep(c, m * ROW + n * 4, "i8")
        code.store(flushed(code.load(place, F32) + (sums[0].get() + sums[1].get())), place)
    return _define(code, "i8 %c, i8 %a, i8 %b")


def _bytes(name: str) -> str:
    code = Played(name)
    c, a, b, rows, words, columns = _three(code)
    widen = ["zext" if sign == "u" else "sext" for sign in name[4:6]]
    total = code.slot(Type("i32"))
    with code.loop(0, rows) as m, code.loop(0, columns) as n:
        place = code.gep(c, m * ROW + n * 4, "i8")
        total.set(code.load(place, Type("i32")))
        with code.loop(0, words) as k:
            for position in range(4):
                left = code.load(code.gep(a, m * ROW + k * 4 + position, "i8"), I8)
                right = code.load(code.gep(b, k * ROW + n * 4 + position, "i8"), I8)
                factors = code.convert(widen[0], left, "i32"), code.convert(widen[1], right, "i32")
                total.set(total.get() + factors[0] * factors[1])
        code.store(total.get(), place)
    return _define(code, "i8 %c, i8 %a, i8 %b")


def _dot(name: str) -> str:
    """A function of vectors that gives one: written as a body with a result of its own."""
    lanes = int(name.rpartition(".")[2]) // 32
    code = Code(name)
    if "bf16" in name:
        total, pieces = Type("float", lanes), Type("bfloat", 2 * lanes)
        result = _bf16_dot(code, lanes)
    else:
        total, pieces = Type("i32", lanes), Type("i8", 4 * lanes)
        result = _byte_dot(code, lanes)
    arguments = f"{total} %c, {pieces} %a, {pieces} %b"
    text = code.function(f"define internal {total} {PREFIX}{name}({arguments}) alwaysinline")
    return text.replace("ret void", f"ret {total} {result.text}")


def _bf16_dot(code: Code, lanes: int) -> Value:
    words = [
        code.let(f"bitcast <{2 * lanes} x bfloat> %{name} to <{lanes} x i32>", Type("i32", lanes))
        for name in ("a", "b")
    ]
    result = code.argument("c", Type("float", lanes))
    for change in (lambda w: w & -65536, lambda w: w << 16):  # the odd element first
        left, right = (change(word).bitcast("float") for word in words)
        small = [code.select(x.intrinsic("fabs") < 2.0**-126, 0.0, x) for x in (left, right)]
        result = small[0].intrinsic("fma", small[1], result)
    return result


def _byte_dot(code: Code, lanes: int) -> Value:
    type = Type("i8", 4 * lanes)
    a = code.convert("zext", code.argument("a", type), "i32")
    b = code.convert("sext", code.argument("b", type), "i32")
    products = a * b
    result = code.argument("c", Type("i32", lanes))
    for position in range(4):
        result = result + code.shuffle(products, products, range(position, 4 * lanes, 4))
    return result
