"""Matrix instructions in software: what AMX, vdpbf16ps and vpdpbusd do, as LLVM IR, for machines that have none.

Written after the operation sections of Intel's Software Developer's Manual: rows past a tile's shape are zero, bf16
products of even and of odd elements are added up apart, denormals are zero, and the sums of both go to the result.
``emulated`` replaces the instructions of a kernel's text by calls of these functions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpucomp.codegen.llvm.ir.builder import Code, Value
from gpucomp.codegen.llvm.ir.types import F32, I8, I64, PTR, Type
from gpucomp.kernel.source import KernelSource

TILE, ROW = 1024, 64
PREFIX = "@emulated."
STATE = np.zeros(8 * TILE + ROW, np.uint8)
INSTRUCTIONS = ("ldtilecfg", "tilerelease", "tilezero", "tileloadd64", "tilestored64", "tdpbf16ps")
BYTES = ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud")
DOTS = tuple(f"{name}.{bits}" for name in ("avx512bf16.dpbf16ps", "avx512.vpdpbusd") for bits in (128, 256, 512))


def emulated(source: KernelSource, *, first: bool) -> KernelSource:
    """``source`` with its instructions called; ``first`` of a module's brings the functions along."""
    text = source.text
    for name in (*INSTRUCTIONS, *BYTES, *DOTS):
        text = text.replace(f"@llvm.x86.{name}(", f"{PREFIX}{name}(")
    return replace(source, text=(text + _functions()) if first else text)


def _functions() -> str:
    texts = [_configure(), _release(), _zero(), _move("tileloadd64"), _move("tilestored64"), _bf16()]
    texts += [_bytes(name) for name in BYTES]
    texts += [_dot(name) for name in DOTS]
    return "\n".join(texts)


def _define(code: Code, arguments: str) -> str:
    return code.function(f"define internal void {PREFIX}{code.name}({arguments}) #1")


def _global(code: Code, name: str) -> Value:
    """Where the tiles, or their shapes, are: machine code that is loaded here has no memory of its own to write."""
    at = STATE.ctypes.data + (8 * TILE if name == "shapes" else 0)
    return Value(code, f"inttoptr (i64 {at} to ptr)", PTR)


def _tile(code: Code, number: Value) -> Value:
    return code.gep(_global(code, "tiles"), code.convert("zext", number, "i64") * TILE, "i8")


def _byte(code: Code, at: Value) -> Value:
    return code.convert("zext", code.load(at, I8), "i64")


def _rows(code: Code, number: Value) -> Value:
    return _byte(code, code.gep(_global(code, "shapes"), code.convert("zext", number, "i64") + 48, "i8"))


def _width(code: Code, number: Value) -> Value:
    """Bytes of a row."""
    return _byte(code, code.gep(_global(code, "shapes"), code.convert("zext", number, "i64") * 2 + 16, "i8"))


def _fill(code: Code, at: Value, count: int) -> None:
    with code.loop(0, count) as i:
        code.store(code.const(0, I8), code.gep(at, i, "i8"))


def _configure() -> str:
    code = Code("ldtilecfg")
    source = code.argument("from", PTR)
    with code.loop(0, ROW) as i:
        code.store(code.load(code.gep(source, i, "i8"), I8), code.gep(_global(code, "shapes"), i, "i8"))
    _fill(code, _global(code, "tiles"), 8 * TILE)
    return _define(code, "ptr %from")


def _release() -> str:
    code = Code("tilerelease")
    _fill(code, _global(code, "shapes"), ROW)
    return _define(code, "")


def _zero() -> str:
    code = Code("tilezero")
    _fill(code, _tile(code, code.argument("t", I8)), TILE)
    return _define(code, "i8 %t")


def _move(name: str) -> str:
    code = Code(name)
    number, memory, stride = code.argument("t", I8), code.argument("p", PTR), code.argument("stride", I64)
    tile, width = _tile(code, number), _width(code, number)
    loads = name == "tileloadd64"
    if loads:
        _fill(code, tile, TILE)
    with code.loop(0, _rows(code, number)) as row, code.loop(0, width) as at:
        outside = code.gep(memory, row * stride + at, "i8")
        inside = code.gep(tile, row * ROW + at, "i8")
        code.store(code.load(outside if loads else inside, I8), inside if loads else outside)
    return _define(code, "i8 %t, ptr %p, i64 %stride")


def _three(code: Code) -> tuple[Value, Value, Value, Value, Value, Value]:
    """The tiles of sums, rows and columns; how many rows, words of a row and columns there are."""
    c, a, b = (code.argument(name, I8) for name in ("c", "a", "b"))
    rows, words, columns = _rows(code, c), _width(code, a), _width(code, c)
    return (
        _tile(code, c), _tile(code, a), _tile(code, b),
        rows, words.integer_op("udiv", 4), columns.integer_op("udiv", 4),
    )  # fmt: skip


def _bf16() -> str:
    code = Code("tdpbf16ps")
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
    code = Code(name)
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
