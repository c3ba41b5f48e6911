"""Vectors with named lanes: ``v.s0``, ``v.s1`` ... For compilers that put private arrays into memory.

Loads and stores move whole vectors. Computations are whole-vector arithmetic or are written out for each lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from gpucomp.codegen.c.emit import Emitter, FlatStore
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Hole, Load, Var, hole, index, substitute
from gpucomp.expr.simplify import coefficient, simplify
from gpucomp.ir.types import BF16, F16, DType
from gpucomp.kernel.forms.access import vector_loads

ACCESS_BYTES = 16
HEX = "0123456789abcdef"


def component(name: str, lane: int, width: int) -> str:
    return name if width == 1 else f"{name}.s{HEX[lane]}"


def fetch(
    printer: CPrinter, dtype: DType, width: int, pointer: str, at: str, *, raw: bool = False, value: DType | None = None
) -> str:
    """The text that loads ``width`` elements as values (of ``value``'s type), or as they are stored (``raw``)."""
    value_type = printer.dialect.value_type(value or dtype)
    if width == 1:
        if raw:
            return f"{pointer}[{at}]"
        text = printer.load([name for name, _ in printer.params].index(pointer), at)
        return text if printer.dialect.value_type(dtype) == value_type else f"({value_type}){text}"
    stored = f"vload{width}(0, {pointer} + {at})"
    if raw:
        return stored
    if dtype is F16:
        return f"vload_half{width}(0, {pointer} + {at})"
    if dtype is BF16:
        return f"as_float{width}(convert_uint{width}({stored}) << 16)"
    same = printer.dialect.value_type(dtype) == value_type
    return stored if same else f"convert_{value_type}{width}({stored})"


def put(printer: CPrinter, target: int, offset: str, values: Sequence[str], longer: Collection[str] = ()) -> str:
    """The statement that stores a vector of ``values``. They may be the first lanes of vectors named in ``longer``."""
    name, dtype = printer.params[target]
    width = len(values)
    if dtype in printer.dialect.converted:
        vector = _vector(f"{printer.dialect.value_type(dtype)}{width}", values, longer)
        return f"vstore_half{width}_rte({vector}, 0, {name} + {offset});"
    narrow = [printer.narrowed(v, dtype) for v in values]
    return f"vstore{width}({_vector(f'{printer.dialect.storage_type(dtype)}{width}', narrow, longer)}, 0, {name} + {offset});"


def _vector(ctype: str, values: Sequence[str], longer: Collection[str]) -> str:
    """``values`` as one vector: the vector whose lanes they are, or a new one."""
    name, lanes = values[0].partition(".")[0], range(len(values))
    if name not in longer and list(values) == [component(name, k, len(values)) for k in lanes] and len(values) > 1:
        return name
    return f"({ctype})({', '.join(values)})"


def wide_loads(printer: CPrinter, stores: Sequence[FlatStore], lane: Var, width: int) -> list[Load]:
    """The loads in the stores' values that one access of ``width`` elements can replace.

    They are unguarded, and their type is one that OpenCL converts in vectors.
    """
    if width == 1:
        return []
    result = []
    for found in vector_loads([t.value for t in stores], lane, width):
        dtype = printer.params[found.load.source][1]
        same = printer.dialect.value_type(dtype) == printer.dialect.storage_type(dtype)
        if not found.guards and (same or dtype in (F16, BF16)) and width * dtype.nbytes <= ACCESS_BYTES:
            result.append(found.load)
    return result


def load_vectors(
    printer: CPrinter, known: Mapping[Expr, str], loads: Iterable[Load], lane: Var, width: int, prefix: str
) -> tuple[list[str], dict[Expr, str]]:
    """Statements that load vectors, and the text of each element by its load with the lane's number."""
    emitter = Emitter(printer, known, prefix=f"{prefix}o")
    lines: list[str] = []
    found: dict[Expr, str] = {}
    for number, vector in enumerate(loads):
        name, dtype = printer.params[vector.source]
        lines_at, (at,) = emitter.values([simplify(substitute(vector.index[0], {lane: index(0)}))])
        text = fetch(printer, dtype, width, name, at)
        held = f"{prefix}v{number}"
        lines += [*lines_at, f"const {printer.dialect.value_type(dtype)}{width} {held} = {text};"]
        for k in range(width):
            found[simplify(substitute(vector, {lane: index(k)}))] = component(held, k, width)
    return lines, found


def store_vectors(
    printer: CPrinter,
    stores: Sequence[FlatStore],
    lane: Var,
    width: int,
    known: Mapping[Expr, str],
    results: tuple[Hole, Sequence[str]],
    tag: str,
    loaded: Collection[Expr] = (),
    longer: Collection[str] = (),
) -> list[str]:
    """Statements that compute and write ``width`` neighbouring elements of ``stores``; all loads come first.

    results   the hole that the stores read, and its text in each lane
    loaded    elements in ``known`` that have been loaded already
    longer    names of vectors with more than ``width`` results
    tag       prefix of the declared names
    """
    acc, texts_of_results = results
    wanted = wide_loads(printer, stores, lane, width)
    loads = [n for n in wanted if simplify(substitute(n, {lane: index(0)})) not in loaded]
    lines, vectors = load_vectors(printer, known, loads, lane, width, tag)
    holes = [hole(f"sum{k}", acc.dtype) for k in range(width)]
    named: dict[Expr, str] = dict(zip(holes, texts_of_results, strict=True))
    emitter = Emitter(printer, {**known, **vectors, **named}, prefix=f"{tag}e")
    wide = [width > 1 and coefficient(t.offset, lane) == 1 for t in stores]
    exprs: list[Expr] = []
    for t, together in zip(stores, wide, strict=True):
        for k in range(width):
            at: dict[Expr, Expr] = {lane: index(k), acc: holes[k]}
            exprs.append(printer.written(t.target, simplify(substitute(t.value, at))))
            exprs += [] if together and k else [simplify(substitute(t.offset, at))]
    more, texts = emitter.values(exprs)
    lines += more
    for t, together in zip(stores, wide, strict=True):
        taken = width + 1 if together else 2 * width
        mine, texts = texts[:taken], texts[taken:]
        if together:
            lines.append(put(printer, t.target, mine[1], [mine[0], *mine[2:]], longer))
        else:
            lines += [printer.store(t.target, o, v) for v, o in zip(mine[::2], mine[1::2], strict=True)]
    return lines
