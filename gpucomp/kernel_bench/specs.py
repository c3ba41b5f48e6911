"""Specifications of kernels: ``conv:n=1,c=64,h=56,w=56,k=128,r=3,s=3,stride=2,pad=1,bias``.

A kind, then its parameters. Names are those of DeepBench and of cuDNN: a convolution has ``k`` filters of ``c`` x ``r`` x ``s``,
images are ``n`` x ``c`` x ``h`` x ``w``. A product is ``y[m, n] = a[m, k] b[k, n]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpucomp.errors import UsageError, quote, several
from gpucomp.lazy_dataclass import dataclass

MOST_DIGITS = 9  # of a parameter
MOST_ELEMENTS = 1 << 31  # of a tensor: 8 GB in f32
MOST_SPECS = 10_000  # of a file
MOST_CHARACTERS = 1_000  # of a line
LISTS = Path(__file__).parent / "lists"
FLOATS = ("f32", "f16", "bf16")
REDUCTIONS = ("sum", "mean", "max", "min", "prod")
ACTIVATIONS = ("none", "relu", "gelu", "silu", "sigmoid", "tanh")
BINARY = ("add", "mul", "sub", "div")
Value = int | str | bool | tuple[int, ...]
Reader = Callable[[str], Value | None]  # None for a text that is no such value


def _number(text: str) -> int | None:
    fits = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
    return int(text) if fits else None


def _count(text: str) -> int | None:
    return _number(text) or None


def _numbers(text: str) -> tuple[int, ...] | None:
    found = tuple(_number(part) for part in text.split("x"))
    return None if None in found else found  # type: ignore[return-value]


def _pair(text: str) -> tuple[int, ...] | None:
    """One number for both directions of an image, or ``2x1``: along the height, then along the width."""
    found = _numbers(text)
    return None if found is None or len(found) > 2 else found * (3 - len(found))


def _steps(text: str) -> tuple[int, ...] | None:
    found = _pair(text)
    return found if found is not None and min(found) >= 1 else None


def _pads(text: str) -> tuple[int, ...] | None:
    """As ``_pair``, or all of ``TOPxLEFTxBOTTOMxRIGHT``: these four."""
    found = _numbers(text)
    return found if found is not None and len(found) == 4 else (2 * _found if (_found := _pair(text)) else None)


def _extents(text: str) -> tuple[int, ...] | None:
    found = _numbers(text)
    return found if found is not None and min(found) >= 1 else None


def _flag(text: str) -> bool | None:
    return {"": True, "1": True, "0": False}.get(text)


def _one_of(*names: str) -> Reader:
    return lambda text: text if text in names else None


@dataclass(frozen=True)
class Parameter:
    """``expected`` is for people. Without a ``default`` the parameter has to be given."""

    read: Reader
    expected: str
    default: Value | None = None


def count(default: int | None = None) -> Parameter:
    return Parameter(_count, "a whole number of at least 1", default)


def choice(*names: str, given: bool = False) -> Parameter:
    """The first one is the default, unless the parameter has to be ``given``."""
    return Parameter(_one_of(*names), " or ".join(names), None if given else names[0])


FLAG = Parameter(_flag, "nothing, 0 or 1", False)
STEPS = Parameter(_steps, "a number, or HEIGHTxWIDTH", (1, 1))
PAD = Parameter(_pads, "a number, HEIGHTxWIDTH or TOPxLEFTxBOTTOMxRIGHT", (0, 0, 0, 0))
SHAPE = Parameter(_extents, "extents such as 8x128x64")
AXES = Parameter(_numbers, "axes such as 0x2")
DTYPE = choice(*FLOATS)
IMAGE = {"n": count(1), "c": count(), "h": count(), "w": count()}
WINDOW = {"r": count(), "s": count(), "stride": STEPS, "pad": PAD, "dilation": STEPS}
ROWS = {"rows": count(), "cols": count(), "dtype": DTYPE}
PRODUCT = {"m": count(), "n": count(), "k": count()}
LATER = Parameter(_count, "a whole number of at least 1", 0)  # as many as of another parameter
EPILOGUE = {"bias": FLAG, "act": choice(*ACTIVATIONS), "weights": choice("constant", "input")}
KINDS: Mapping[str, Mapping[str, Parameter]] = {
    "gemm": {**PRODUCT, "trans_a": FLAG, "trans_b": FLAG, **EPILOGUE, "dtype": choice(*FLOATS, "i8")},
    "batched_gemm": {"batch": count(), **PRODUCT, "trans_b": FLAG, "dtype": choice(*FLOATS, "i8")},
    "nbits_gemm": {**PRODUCT, "bits": choice("4", "2", "8"), "block": count(32), "dtype": choice("f32", "f16")},
    "conv": {**IMAGE, "k": count(), **WINDOW, "groups": count(1), **EPILOGUE, "dtype": choice(*FLOATS, "i8")},
    "depthwise": {**IMAGE, **WINDOW, "multiplier": count(1), **EPILOGUE, "dtype": choice(*FLOATS, "i8")},
    "attention": {
        "batch": count(1),
        "heads": count(),
        "kv_heads": LATER,
        "q": count(),
        "kv": LATER,
        "d": count(),
        "causal": FLAG,
        "dtype": DTYPE,
    },
    "softmax": ROWS,
    "layer_norm": ROWS,
    "rms_norm": ROWS,
    "group_norm": {**IMAGE, "groups": count(), "dtype": DTYPE},
    "batch_norm": {**IMAGE, "dtype": DTYPE},
    "max_pool": {**IMAGE, **WINDOW, "dtype": DTYPE},
    "avg_pool": {**IMAGE, **WINDOW, "dtype": DTYPE},
    "transpose": {"shape": SHAPE, "perm": AXES, "dtype": DTYPE},
    "reduce": {"op": choice(*REDUCTIONS, given=True), "shape": SHAPE, "axes": AXES, "dtype": DTYPE},
    "elementwise": {"op": choice(*BINARY, *ACTIVATIONS[1:], given=True), "shape": SHAPE, "dtype": DTYPE},
}


@dataclass(frozen=True)
class Spec:
    """A kernel to measure. ``values`` has all parameters of its kind."""

    kind: str
    values: Mapping[str, Value]

    def __getattr__(self, name: str) -> Any:
        if name == "values" or name not in self.values:
            raise AttributeError(name)
        return self.values[name]

    def __str__(self) -> str:
        """As ``spec_of`` reads it, without parameters that have their default."""
        known = KINDS[self.kind]
        told = [
            name if value is True else f"{name}={_said(value, known[name])}"
            for name, value in self.values.items()
            if value != known[name].default
        ]
        return f"{self.kind}:{','.join(told)}"


def _said(value: Value, of: Parameter) -> str:
    if not isinstance(value, tuple):
        return str(value)
    if of in (STEPS, PAD) and len(set(value)) == 1:
        value = value[:1]
    elif of is PAD and value[:2] == value[2:]:
        value = value[:2]
    return "x".join(map(str, value))


def spec_of(text: str) -> Spec:
    """The kernel that ``text`` specifies. Raises ``UsageError`` (GPC2055)."""
    kind, _, rest = text.strip().partition(":")
    known = KINDS.get(kind)
    if known is None or len(text) > MOST_CHARACTERS:
        raise _wrong(text, f"no kind {quote(kind)}: one of {', '.join(KINDS)} expected")
    values: dict[str, Value] = {}
    for part in filter(None, rest.split(",")):
        name, _, value = (one.strip() for one in part.partition("="))
        if name not in known:
            raise _wrong(text, f"{kind} has no parameter {quote(name)}: one of {', '.join(known)} expected")
        if name in values:
            raise _wrong(text, f"{quote(name)} is given twice")
        if (found := known[name].read(value)) is None:
            raise _wrong(text, f"{name} is {quote(value)}: {known[name].expected} expected")
        values[name] = found
    if missing := [name for name, one in known.items() if one.default is None and name not in values]:
        raise _wrong(text, f"{kind} needs {', '.join(missing)}")
    spec = Spec(kind, {name: values.get(name, one.default) for name, one in known.items()})  # type: ignore[misc]
    if fault := _fault(spec):
        raise _wrong(text, fault)
    return spec


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(f"kernel {quote(text)}: {why}", code="GPC2055")


def _fault(spec: Spec) -> str | None:
    """Why the parameters do not fit each other; ``None`` if they do."""
    match spec.kind:
        case "gemm" | "conv" | "depthwise" if spec.dtype == "i8" and spec.act != "none":
            return "products of bytes have no act"
        case "gemm" if spec.dtype == "i8" and (spec.bias or spec.trans_a or spec.trans_b):
            return "products of bytes have no bias, trans_a or trans_b"
        case "conv" if spec.c % spec.groups or spec.k % spec.groups:
            return f"{spec.groups} groups divide neither {spec.c} channels nor {spec.k} filters evenly"
        case "group_norm" if spec.c % spec.groups:
            return f"{spec.groups} groups do not divide {spec.c} channels"
        case "attention" if spec.kv_heads and spec.heads % spec.kv_heads:
            return f"{spec.kv_heads} kv_heads do not divide {spec.heads} heads"
        case "attention" if spec.causal and spec.kv not in (0, spec.q):
            return "causal attention has as many keys as queries: leave out kv"
        case "transpose" if sorted(spec.perm) != list(range(len(spec.shape))):
            return f"perm names each of {len(spec.shape)} axes once, as 0x2x1 does"
        case "reduce" if len(set(spec.axes)) < len(spec.axes) or max(spec.axes) >= len(spec.shape):
            return f"axes are different ones of 0 to {len(spec.shape) - 1}"
        case "avg_pool" if spec.dilation != (1, 1):
            return "avg_pool has no dilation"
        case "max_pool" | "avg_pool" if any(2 * p > w for p, w in zip(spec.pad, 2 * (spec.r, spec.s), strict=True)):
            return "pad is at most half a window"
        case "nbits_gemm" if spec.block < 16 or spec.block & (spec.block - 1):
            return "block is a power of two of at least 16"
    if {"h", "r"} <= spec.values.keys() and min(output_image(spec)) < 1:
        return f"a window of {spec.r} x {spec.s} does not fit an image of {spec.h} x {spec.w}"
    if max(elements(spec)) > MOST_ELEMENTS:
        return f"a tensor of more than {MOST_ELEMENTS} elements"
    return None


def output_image(spec: Spec) -> tuple[int, int]:
    """Height and width of what a convolution or a pooling gives."""
    pads = (spec.pad[0] + spec.pad[2], spec.pad[1] + spec.pad[3])
    sides = zip((spec.h, spec.w), (spec.r, spec.s), spec.stride, pads, spec.dilation, strict=True)
    height, width = ((n + pad - dilation * (w - 1) - 1) // step + 1 for n, w, step, pad, dilation in sides)
    return height, width


def result_shape(spec: Spec) -> tuple[int, ...]:
    match spec.kind:
        case "gemm" | "nbits_gemm":
            return spec.m, spec.n
        case "batched_gemm":
            return spec.batch, spec.m, spec.n
        case "conv" | "depthwise":
            return (spec.n, filters_of(spec)[0], *output_image(spec))
        case "max_pool" | "avg_pool":
            return (spec.n, spec.c, *output_image(spec))
        case "group_norm" | "batch_norm":
            return spec.n, spec.c, spec.h, spec.w
        case "attention":
            return spec.batch, spec.heads, spec.q, spec.d
        case "transpose":
            return tuple(spec.shape[axis] for axis in spec.perm)
        case "reduce":
            return tuple(n for axis, n in enumerate(spec.shape) if axis not in spec.axes)
        case "elementwise":
            return tuple(spec.shape)
    return spec.rows, spec.cols


def elements(spec: Spec) -> list[int]:
    """The elements of each tensor that the kernel reads, without small ones, and of its result, which is last."""
    written = math.prod(result_shape(spec))
    match spec.kind:
        case "gemm" | "batched_gemm":
            batch = spec.values.get("batch", 1)
            return [batch * spec.m * spec.k, batch * spec.k * spec.n, written]
        case "nbits_gemm":
            return [spec.m * spec.k, spec.n * math.prod(packed(spec)), written]
        case "conv" | "depthwise":
            filters, depth = filters_of(spec)
            return [spec.n * spec.c * spec.h * spec.w, filters * depth * spec.r * spec.s, written]
        case "attention":
            both = spec.batch * (spec.kv_heads or spec.heads) * (spec.kv or spec.q) * spec.d
            return [written, both, both, written]
        case "max_pool" | "avg_pool":
            return [spec.n * spec.c * spec.h * spec.w, written]
        case "reduce":
            return [math.prod(spec.shape), written]
        case "elementwise" if spec.op in BINARY:
            return 3 * [written]
    return 2 * [written]


def packed(spec: Spec) -> tuple[int, int]:
    """Blocks of a row of weights of few bits, and bytes of a block."""
    return -(-spec.k // spec.block), spec.block * int(spec.bits) // 8


def filters_of(spec: Spec) -> tuple[int, int]:
    """How many filters a convolution has, and how many channels each of them reads."""
    return (spec.k, spec.c // spec.groups) if spec.kind == "conv" else (spec.c * spec.multiplier, 1)


def operations(spec: Spec) -> int | None:
    """Operations on numbers, a multiply-add counted as two; ``None`` for kernels that memory limits."""
    products: int
    match spec.kind:
        case "gemm" | "batched_gemm" | "nbits_gemm":
            products = spec.values.get("batch", 1) * spec.m * spec.n * spec.k
        case "conv" | "depthwise":
            products = elements(spec)[-1] * filters_of(spec)[1] * spec.r * spec.s
        case "attention":
            seen = spec.q * (spec.q + 1) // 2 if spec.causal else spec.q * (spec.kv or spec.q)
            products = 2 * spec.batch * spec.heads * seen * spec.d
        case _:
            return None
    return 2 * products


def nbytes(spec: Spec) -> int:
    """Bytes that must move at least once: each tensor of ``elements``, read or written."""
    *read, written = elements(spec)
    size: int = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1}[spec.dtype]
    if spec.kind == "nbits_gemm":
        rows, weights = read
        scales: int = spec.n * packed(spec)[0]
        return size * (rows + written + scales) + weights
    return size * sum(read) + written * (4 if in_whole_numbers(spec) else size)


def in_whole_numbers(spec: Spec) -> bool:
    """Whether the result is of 32 bits, from bytes."""
    return spec.dtype == "i8" and spec.kind in ("gemm", "batched_gemm")


def shipped() -> list[str]:
    """The names of the lists that come with gpucomp."""
    return sorted(path.stem for path in LISTS.glob("*.txt"))


def specs_in(name: str | Path) -> list[Spec]:
    """The kernels in a file, one on each line, or in the list of this name; ``#`` begins a comment. Raises ``UsageError``."""
    path = LISTS / f"{name}.txt" if str(name) in shipped() else Path(name)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"cannot read kernels from {quote(str(name))}: {told}; a file, or one of {', '.join(shipped())} expected",
            code="GPC2056",
        ) from None
    texts: Sequence[str] = [text for line in lines if (text := line.partition("#")[0].strip())]
    if not 1 <= len(texts) <= MOST_SPECS:
        raise UsageError(
            f"{quote(str(name))} has {several(len(texts), 'kernel')}: 1 to {MOST_SPECS} expected", code="GPC2056"
        )
    return list(map(spec_of, texts))
