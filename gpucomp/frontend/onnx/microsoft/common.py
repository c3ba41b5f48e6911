"""Helpers of the translators of com.microsoft: layouts, and checks of operands, because onnx has no schemas of this domain."""

from __future__ import annotations

from gpucomp.errors import UnsupportedError
from gpucomp.frontend.onnx.compose import move_axis, scalar
from gpucomp.ir import Value
from gpucomp.ir import types as t

MICROSOFT = "com.microsoft"


def to_channels_first(x: Value) -> Value:
    """[N, spatial..., C] to [N, C, spatial...]"""
    if len(x.shape) < 3:
        raise ValueError(f"[N, spatial..., C] expected, {x.type} given")
    return move_axis(x, len(x.shape) - 1, 1)


def to_channels_last(x: Value) -> Value:
    """[N, C, spatial...] to [N, spatial..., C]"""
    return move_axis(x, 1, len(x.shape) - 1)


def expect_types(allowed: tuple[t.DType, ...], *operands: Value | None) -> None:
    """Raises ``ValueError`` unless every operand that is present has one of these element types."""
    if other := next((x for x in operands if x is not None and x.type.dtype not in allowed), None):
        raise ValueError(f"{' or '.join(map(str, allowed))} expected, {other.type} given")


def expect_codes(*operands: Value | None) -> None:
    """Raises ``ValueError`` unless all operands that are present are i8, or all are u8."""
    expect_types((t.I8, t.U8), *operands)
    _expect_one_type(*operands)


def expect_floats(*operands: Value | None) -> None:
    """Raises ``ValueError`` unless all operands that are present have the same floating-point type."""
    expect_types((t.F16, t.BF16, t.F32, t.F64), *operands)
    _expect_one_type(*operands)


def _expect_one_type(*operands: Value | None) -> None:
    first, *others = [x for x in operands if x is not None]
    if other := next((x for x in others if x.type.dtype is not first.type.dtype), None):
        raise ValueError(f"one element type expected, {first.type} and {other.type} given")


def expect_none(**given: object) -> None:
    """Raises ``UnsupportedError`` for the first of these operands and attributes that is neither absent nor 0."""
    if name := next((name for name, value in given.items() if value), None):
        shown = given[name].type if isinstance(given[name], Value) else given[name]  # type: ignore[attr-defined]
        raise UnsupportedError(f"{name} {shown} is not supported")


def whole(value: Value, what: str) -> int:
    """A constant operand of one integer. Raises ``ValueError`` for other constants."""
    expect_types((t.I32, t.I64), value)
    return int(scalar(value, what))
