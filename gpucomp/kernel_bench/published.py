"""What others have published of a kernel: measured times of the same problem, in files that ``formats`` reads.

A problem is the same if its sizes and its data type are. Bias and activation are left out: published kernels have neither.
Layouts of operands do not count, because libraries are measured with the one that suits them.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gpucomp.device.target import Target
from gpucomp.errors import UsageError, quote
from gpucomp.kernel_bench.formats import FORMATS, Measured, Table, format_of, load
from gpucomp.kernel_bench.operations import Attend, Conv, Gemm
from gpucomp.kernel_bench.specs import BINARY, Spec, spec_of
from gpucomp.lazy_dataclass import dataclass
from gpucomp.targets.by_name import target_of

SUFFIXES = (".csv", ".csv.gz")
ROWS = ("softmax", "layer_norm", "rms_norm")
SINGLE = ("relu", "tanh", "gelu")  # operators of one tensor that files have
Key = tuple[object, ...]  # equal for the same problem


@dataclass(frozen=True)
class Figure:
    """The fastest time of a kernel that ``file`` has of a device, which it names, among ``rows`` measurements.

    ``target`` is the device's, with its figures.
    """

    spec: Spec
    device: str
    target: Target
    us: float
    rows: int
    file: str


def tables(places: Iterable[Path]) -> list[Table]:
    """The files of published measurements in ``places``, which are files or folders. Raises ``UsageError`` (GPC2058)."""
    found = []
    for place in places:
        paths = sorted(p for p in place.iterdir() if p.name.endswith(SUFFIXES)) if place.is_dir() else [place]
        known = [table for path in paths if format_of(table := _load(path)) is not None]
        if not known:
            columns = "; ".join(" ".join(sorted(one.columns)) for one in FORMATS)
            raise _unreadable(place, f"no file with the columns of a known format, which are: {columns}")
        found += known
    return found


def _load(path: Path) -> Table:
    try:
        return load(path)
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _unreadable(path, told) from None


def _unreadable(place: Path, why: str) -> UsageError:
    return UsageError(f"cannot read published figures from {quote(place)}: {why}", code="GPC2058")


def figures(specs: Sequence[Spec], files: Sequence[Table], target: Target | None = None) -> list[Figure]:
    """What is published of ``specs``, in their order; of devices that run the kernels of ``target`` only, if one is given.

    Devices of which nothing is known are left out, and times that are mostly a launch or its rounding.
    """
    wanted: dict[Key, list[int]] = {}  # the places of its kernels in ``specs``
    for number, spec in enumerate(specs):
        if (key := asked(spec)) is not None:
            wanted.setdefault(key, []).append(number)
    times: dict[tuple[int, str, str], list[float]] = {}
    for table in files:
        for row in _rows(table):
            for number in wanted.get(given(row) or (), ()) if row.us > 0 and row.stated else ():
                times.setdefault((number, row.device, table.name), []).append(row.us)
    interface = target.kind if target is not None else ""
    found = []
    for (number, device, file), us in sorted(times.items()):
        known = target_of(device, interface)
        if known is not None and (target is None or known.name == target.name):
            found.append(Figure(specs[number], device, known, min(us), len(us), file))
    return found


def _rows(table: Table) -> Iterator[Measured]:
    form = format_of(table)
    read = form and (form.read or form.space)
    if read:
        try:
            yield from read(table)
        except (KeyError, ValueError) as error:
            raise _unreadable(Path(table.name), f"a row has no number where one is expected: {error}") from None


def asked(spec: Spec) -> Key | None:
    """What is to be looked up for a kernel; ``None`` if no file has its like."""
    match spec.kind:
        case "gemm" | "batched_gemm":
            return "gemm", spec.values.get("batch", 1), spec.m, spec.n, spec.k, spec.dtype
        case "conv" if spec.groups == 1 and spec.pad[:2] == spec.pad[2:]:
            image = spec.n, spec.c, spec.h, spec.w, spec.k, spec.r, spec.s
            return "conv", *image, spec.pad[:2], spec.stride, spec.dilation, spec.dtype
        case "attention" if not spec.causal and spec.kv in (0, spec.q) and spec.kv_heads in (0, spec.heads):
            return "attention", spec.batch, spec.q, spec.heads, spec.d, spec.dtype
        case "softmax" | "layer_norm" | "rms_norm":
            return spec.kind, spec.rows, spec.cols, spec.dtype
        case "elementwise" if spec.op in (*BINARY, *SINGLE):
            return spec.op, math.prod(spec.shape), spec.dtype
    return None


def given(row: Measured) -> Key | None:
    """The same for a measurement; ``None`` if no kind of kernel here is like it."""
    one = row.spec
    if isinstance(one, Gemm):
        return "gemm", one.batch, one.m, one.n, one.k, one.dtype
    if isinstance(one, Conv):
        return "conv", one.n, one.c, one.h, one.w, one.k, one.r, one.s, one.pad, one.stride, one.dilation, one.dtype
    if isinstance(one, Attend):
        return "attention", one.batch, one.tokens, one.heads, one.depth, one.dtype
    if one.operator in ROWS:
        return one.operator, one.rows, one.columns, one.dtype
    operator = row.operator.lower() if one.operator == "add" else one.operator  # ``add`` is any of two tensors
    return (operator, one.rows * one.columns, one.dtype) if operator in (*BINARY, *SINGLE) else None


def nearest(spec: Spec, files: Sequence[Table], target: Target | None = None) -> str | None:
    """The published kernel of the same kind and data type whose sizes differ least from those of ``spec``; ``None`` for none.

    Sizes differ by the logarithms of their ratios.
    """
    key, best, least = asked(spec), None, math.inf
    if key is None:
        return None
    interface = target.kind if target is not None else ""
    rows = {(other, row.device) for table in files for row in _rows(table) if row.us > 0 and (other := given(row))}
    devices = {device: target_of(device, interface) for _, device in rows}
    for other, device in sorted(rows, key=str):
        known = devices[device]
        right = known is not None and (target is None or known.name == target.name)
        if right and (far := _distance(key, other)) < least:
            best, least = other, far
    return None if best is None else _told(best)


def _distance(one: Key, other: Key) -> float:
    if (one[0], one[-1], len(one)) != (other[0], other[-1], len(other)):
        return math.inf
    pairs = zip(_numbers(one), _numbers(other), strict=True)
    return math.hypot(*(math.log((1 + a) / (1 + b)) for a, b in pairs))


def _numbers(key: Key) -> list[int]:
    return [number for part in key[1:-1] for number in (part if isinstance(part, tuple) else (int(str(part)),))]


def _told(key: Key) -> str:
    """The specification of a kernel."""
    names: dict[object, tuple[str, ...]] = {
        "gemm": ("batch", "m", "n", "k"),
        "conv": ("n", "c", "h", "w", "k", "r", "s", "pad", "stride", "dilation"),
        "attention": ("batch", "q", "heads", "d"),
        **dict.fromkeys(ROWS, ("rows", "cols")),
    }
    kind, *sizes, dtype = key
    texts = ("x".join(map(str, size)) if isinstance(size, tuple) else size for size in sizes)
    parts = [f"{name}={text}" for name, text in zip(names.get(kind, ("shape",)), texts, strict=True)]
    if kind == "gemm":
        kind, parts = ("gemm", parts[1:]) if sizes[0] == 1 else ("batched_gemm", parts)
    elif kind not in names:
        kind, parts = "elementwise", [f"op={kind}", *parts]
    return str(spec_of(f"{kind}:{','.join(parts)},dtype={dtype}"))


def source(table: Table) -> str:
    """Where a file says that it is from: its comment's first part."""
    told = re.split(r";", table.comment.removeprefix("source:").strip(), maxsplit=1)[0]
    return told or "its comment does not say from where"
