"""Blocks of statements for the `amd` contraction template: loads of 16 bytes into local memory, matrix instructions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.dialect import Dialect
from gpucomp.codegen.c.emit import Emitter, flat_stores
from gpucomp.codegen.c.epilogue import split_scratch
from gpucomp.codegen.c.helpers import FP16
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import each, guarded, loop, over, plus, stage, times
from gpucomp.expr.core import Cast, Const, Expr, Load, Select, Var, both, call, index, literal, select, substitute, var
from gpucomp.expr.simplify import coefficient, simplify
from gpucomp.ir.types import BF16, F16, F32, I8, I32, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.forms.access import Rewriter, equal_in_lanes, parts_within, regroup, split
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.plain_loads import padded

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.amd.space import AmdProblem, AmdSchedule, AmdSizes


@dataclass(frozen=True)
class Instruction:
    """A matrix instruction as a wave issues it, with the lane maps of AMD's matrix instruction calculator.

    builtin   of the compiler
    size      rows, and columns, of its result
    sums      of its result that each lane holds
    row       of the result in which a lane's sum ``r`` stands; the column is ``lane % size``
    parts     of a lane's 16-byte chunk (of its ``chunks`` chunks) that go into one instruction each; ``@`` is the chunk
    call      the call: of ``a``, ``b`` and the sums ``c``
    chunks    of a row that each lane holds for one step
    beside    whether lanes hold chunks side by side, the first ``size`` lanes the first one; otherwise all lanes hold the same
    """

    builtin: str
    size: int
    sums: int
    row: str
    parts: tuple[str, ...] = ("@",)
    call: str = "{builtin}({a}, {b}, {c}, 0, 0, 0)"
    chunks: int = 1
    beside: bool = True

    def calls(self, a: str, b: str, c: str) -> list[str]:
        """The sums ``c`` with the products of two chunks added, an instruction after the other."""
        return [
            self.call.format(builtin=self.builtin, a=part.replace("@", a), b=part.replace("@", b), c=c)
            for part in self.parts
        ]


ROW_32 = "r / 4 * 8 + lane / 32 * 4 + r % 4"
ROW_16 = "lane / 16 * 4 + r"
HALVES, FOUR = ("@.lo", "@.hi"), ("@.s0", "@.s1", "@.s2", "@.s3")
PAIRS = ("@.s01", "@.s23", "@.s45", "@.s67")
EIGHTS = ("as_long(@.lo)", "as_long(@.hi)")  # bytes
BFLOATS = ("as_bfloat8(@)",)  # clang's own type of bf16, which older instructions do not take
# OpenCL C has no name for eight of these; HIP's prelude has
BFLOAT8 = (
    "typedef __bf16 bfloat8 __attribute__((ext_vector_type(8)));\n#define as_bfloat8(x) __builtin_astype((x), bfloat8)"
)
ROW_OF_WMMA, ROW_OF_GFX12 = "r * 2 + lane / 16", "lane / 16 * 8 + r"


def _mfma(name: str, size: int, parts: tuple[str, ...] = ("@",)) -> Instruction:
    row = ROW_32 if size == 32 else ROW_16
    return Instruction(f"__builtin_amdgcn_mfma_{name}", size, size * size // 64, row, parts)


def _wmma(name: str, parts: tuple[str, ...] = ("@",)) -> Instruction:
    """Of waves of 32. On RDNA4 each half of a wave holds half of a row's depth (RDNA4 ISA, 7.12.2), on RDNA3 both hold all."""
    call = "{builtin}(true, {a}, true, {b}, {c}, false)" if "iu8" in name else "{builtin}({a}, {b}, {c})"
    beside = name.endswith("_gfx12")
    row = ROW_OF_GFX12 if beside else ROW_OF_WMMA
    return Instruction(f"__builtin_amdgcn_wmma_{name}", 16, 8, row, parts, call, 1 if beside else 2, beside)


# by element, lanes of a wave and size: the instruction of each feature. Of a device's features the first counts
INSTRUCTIONS: Mapping[tuple[DType, int, int], Mapping[str, Instruction]] = {
    (F16, 64, 32): {"mfma_wide": _mfma("f32_32x32x16_f16", 32), "mfma": _mfma("f32_32x32x8f16", 32, HALVES)},
    (F16, 64, 16): {"mfma_wide": _mfma("f32_16x16x32_f16", 16), "mfma": _mfma("f32_16x16x16f16", 16, HALVES)},
    (BF16, 64, 32): {
        "mfma_wide": _mfma("f32_32x32x16_bf16", 32, BFLOATS),
        "mfma_1k": _mfma("f32_32x32x8bf16_1k", 32, HALVES),
        "mfma": _mfma("f32_32x32x4bf16", 32, PAIRS),
    },
    (BF16, 64, 16): {
        "mfma_wide": _mfma("f32_16x16x32_bf16", 16, BFLOATS),
        "mfma_1k": _mfma("f32_16x16x16bf16_1k", 16, HALVES),
        "mfma": _mfma("f32_16x16x8bf16", 16, PAIRS),
    },
    (F32, 64, 32): {"mfma": _mfma("f32_32x32x2f32", 32, FOUR)},
    (F32, 64, 16): {"mfma": _mfma("f32_16x16x4f32", 16, FOUR)},
    (I8, 64, 32): {
        "mfma_wide": _mfma("i32_32x32x32_i8", 32),
        "mfma_deep": _mfma("i32_32x32x16_i8", 32, EIGHTS),
        "mfma": _mfma("i32_32x32x8i8", 32, FOUR),
    },
    (I8, 64, 16): {
        "mfma_wide": _mfma("i32_16x16x64_i8", 16),
        "mfma_deep": _mfma("i32_16x16x32_i8", 16, EIGHTS),
        "mfma": _mfma("i32_16x16x16i8", 16, FOUR),
    },
    (F16, 32, 16): {"wmma_gfx12": _wmma("f32_16x16x16_f16_w32_gfx12"), "wmma": _wmma("f32_16x16x16_f16_w32")},
    (BF16, 32, 16): {"wmma_gfx12": _wmma("f32_16x16x16_bf16_w32_gfx12"), "wmma": _wmma("f32_16x16x16_bf16_w32")},
    (I8, 32, 16): {
        "wmma_gfx12": _wmma("i32_16x16x16_iu8_w32_gfx12", HALVES),
        "wmma": _wmma("i32_16x16x16_iu8_w32", HALVES),
    },
}


@dataclass(frozen=True)
class Element:
    """What an operand is made of.

    dtype    its type
    ctype    the C type that it is loaded as
    chunk    the type, and lanes, of a chunk: what instructions take
    sums     the type of the sums
    made     the text of an element of C type ``type`` from that of its ``value``; ``bits`` are a float's bits
    """

    dtype: DType
    ctype: str
    chunk: tuple[str, int]
    sums: DType
    made: str = "({type})({value})"


ELEMENTS = {
    F16: Element(F16, "half", ("half", 8), F32),
    BF16: Element(BF16, "ushort", ("short", 8), F32, "({type})({bits}({value}) >> 16)"),  # it is rounded already
    F32: Element(F32, "float", ("float", 4), F32, "{value}"),
    I8: Element(I8, "char", ("int", 4), I32),
}


def has_instruction(element: DType, features: Collection[str]) -> bool:
    """Whether a device with ``features`` multiplies matrices of ``element``."""
    return any(features & found.keys() for (of, _, _), found in INSTRUCTIONS.items() if of is element)


def instruction_of(element: DType, wave: int, block: int, features: Collection[str]) -> Instruction:
    """The matrix instruction of a device with ``features``. With waves of another length than its instructions have, this is one
    of another device, which the compiler refuses."""
    found = INSTRUCTIONS[element, wave, block]
    return next((found[name] for name in found if name in features), next(iter(found.values())))


def bare(value: Expr) -> Expr:
    """An operand of 16-bit floats or bytes without the cast to the sums' type, under a guard too."""
    if isinstance(value, Select) and isinstance(value.otherwise, Const):
        then, other = bare(value.then), value.otherwise.value
        if other == 0 or (then.dtype is I8 and -128 <= other <= 127):
            return select(value.condition, then, literal(other, then.dtype))
    narrow = isinstance(value, Cast) and (value.value.dtype, value.dtype) in ((F16, F32), (BF16, F32), (I8, I32))
    return value.value if isinstance(value, Cast) and narrow else value


def element_type(body: Contraction) -> DType | None:
    """What both operands are multiplied as, where a matrix instruction takes it and adds it up in the sums' type.

    Beside an operand of f32 the other becomes f32 too.
    """
    types = {bare(body.a).dtype, bare(body.b).dtype}
    found = F32 if F32 in types and body.acc.dtype is F32 else types.pop() if len(types) == 1 else None
    return found if found in ELEMENTS and ELEMENTS[found].sums is body.acc.dtype else None


def operand_of(value: Expr, dtype: DType) -> Expr:
    """``value`` as instructions for ``dtype`` take it."""
    found = bare(value)
    return found if found.dtype is dtype else value


def emit_amd(
    kernel: Kernel[Contraction], printer: CPrinter, s: AmdSchedule, p: AmdProblem, derived: AmdSizes
) -> Mapping[str, Any]:
    """See ``kernels_templates/contraction/amd/kernel.j2`` for what each hook is."""
    body = kernel.body
    dtype = element_type(body)
    assert dtype is not None
    element, sum_type = ELEMENTS[dtype], printer.dialect.value_type(body.acc.dtype)
    of_a, of_b = operand_of(body.a, dtype), operand_of(body.b, dtype)
    tiles = (
        _Tile("a", of_a, body.m, p.m, derived.tile_m, "first_row", derived.a_loads, of_b),
        _Tile("b", of_b, body.n, p.n, derived.tile_n, "first_column", derived.b_loads, of_a),
    )
    a, b = (_loader(kernel, printer, tile, p, derived) for tile in tiles)
    row, col = var("row", max(1, p.m)), var("col", max(1, p.n))
    batch = var("batch", max(1, p.batch))
    rewriter = Rewriter(kernel.params, places(body.m, row) | places(body.n, col) | places(body.batch, batch))
    known: dict[Expr, str] = {row: "row", col: "col", batch: "batch", body.acc: "sum"}
    store = Emitter(printer, known).store(flat_stores(kernel.stores, rewriter))
    instruction = instruction_of(dtype, s.wave, s.block, printer.features)
    _declare(printer, dtype, instruction)
    kind, dialect = element.chunk, printer.dialect
    chunk_type = dialect.vector_type(*kind)
    fragment = (kind[0], kind[1] * instruction.chunks)
    return {
        "rows": [*a.before, *b.before],
        **_place(s, derived),
        **_moved(s, derived, chunk_type, a, b),
        **_products(s, derived, instruction, fragment, sum_type, dialect),
        "stores": _stores(store, s, p, instruction, sum_type),
        "instruction": instruction,
        "chunk_type": chunk_type,
        "fragment_type": dialect.vector_type(*fragment),
        "sum_type": sum_type,
        "sums_type": dialect.vector_type(sum_type, instruction.sums),
        "zero": printer.dialect.literal(0, body.acc.dtype),
        "scratch": split_scratch(printer, sum_type, s.splits),
        "index": printer.dialect.index_type(max(p.m + derived.tile_m, p.n + derived.tile_n, p.k + derived.tile_k)),
    }


def _declare(printer: CPrinter, dtype: DType, instruction: Instruction) -> None:
    """What OpenCL C is told before it takes the operands' types."""
    if not printer.dialect.extensions:
        return
    halves = dtype is F16 or any(stored is F16 for _, stored in printer.params)  # also vectors that are read to be computed with
    if halves and not any(text.startswith(FP16) for text in printer.helpers.values()):
        printer.helpers = {"half": FP16} | printer.helpers
    if instruction.parts == BFLOATS:
        printer.helpers = {"bfloat8": BFLOAT8} | printer.helpers


def _place(s: AmdSchedule, derived: AmdSizes) -> dict[str, list[str]]:
    """Where a work-item's wave is in the tile of its work-group, and the tile in the result."""
    along = over("tile", derived.tiles_n)
    row = f"{along} % {derived.tiles_m} * {derived.tile_m}" if derived.tiles_m > 1 else "0"
    column = f"tile % {derived.tiles_n} * {derived.tile_n}" if derived.tiles_n > 1 else "0"
    waves = [
        f"const int wave_row = id / {s.wave * s.waves_n} * {s.block * s.blocks_m};",
        f"const int wave_column = id / {s.wave} % {s.waves_n} * {s.block * s.blocks_n};",
    ]
    return {
        "my_wave": waves if s.waves_m * s.waves_n > 1 else ["const int wave_row = 0, wave_column = 0;"],
        "tile_place": [
            f"const int first_column = {column};",
            f"const int first_row = {row};",
            f"const int batch = {over('tile', derived.tiles_n * derived.tiles_m)};",
        ],
    }


def _moved(s: AmdSchedule, d: AmdSizes, chunk_type: str, a: Loader, b: Loader) -> dict[str, Any]:
    """How the chunks of both tiles go from memory to registers, and from there to local memory.

    load_first, first_kept    of the first tile
    each_tile                 the loop over tiles, or a block where there is one
    load_next, keep_next      of the tile after the one that is computed with; one buffer is ``kept`` at the loop's beginning
    """

    def load(first: str) -> list[str]:
        return [line for o in (a, b) for line in (f"const int {o.name}_chunk = {plus(first, 'my_chunk')};", *o.lines)]

    def into(buffer: str) -> list[str]:
        step = d.threads // d.chunks
        return [
            f"tile_{name}{buffer}[{plus('my_slot', i * step)}][my_chunk] = {name}_next{i};"
            for name, loads in (("a", d.a_loads), ("b", d.b_loads))
            for i in range(loads)
        ]

    split, two = s.splits > 1, s.stages == 2
    begin, end = ("begin", "end") if split else ("0", str(d.tiles_k * d.chunks))
    several = (d.tiles_per_split if split else d.tiles_k) > 1
    each = f"for (int chunk0 = {plus(begin, d.chunks)}; chunk0 <= {end}; chunk0 += {d.chunks}) {{"
    more = f"chunk0 < {end}"
    kept = into("[now]" if two else "")
    return {
        "registers": [f"{chunk_type} {o.registers};" for o in (a, b)],
        "buffers": [2] if two else [],
        "load_first": load(begin),
        "first_kept": [*into("[0]"), "int now = 0;"] if two else [],
        "each_tile": each if several else "{",
        "kept": kept,
        "load_next": stage("load the next tile into registers", guarded(more, load("chunk0"))) if several else [],
        "keep_next": stage("move the next one to local memory", ["now ^= 1;", *guarded(more, kept)])
        if several and two
        else [],
    }


@dataclass(frozen=True, slots=True)
class Run:
    """Four neighbouring sums of a lane."""

    at: str  # where they are in what a work-group leaves
    sums: list[str]


def _indices(s: AmdSchedule) -> tuple[str, str]:
    """The numbers of a wave's instructions along rows and columns; where there is one it is 0."""
    return ("i" if s.blocks_m > 1 else "0"), ("j" if s.blocks_n > 1 else "0")


def _row(s: AmdSchedule) -> str:
    return plus("wave_row", f"i * {s.block}" if s.blocks_m > 1 else 0)


def _products(
    s: AmdSchedule,
    derived: AmdSizes,
    instruction: Instruction,
    fragment_kind: tuple[str, int],
    sum_type: str,
    dialect: Dialect,
) -> dict[str, Any]:
    """Fragments of both operands, their products, and what a work-group leaves of its sums for another."""
    i, j = _indices(s)
    column = plus("wave_column", f"j * {s.block}" if s.blocks_n > 1 else 0)
    first = times("step", derived.groups) if s.steps > 1 else "0"
    chunks = [plus(first, f"lane / {s.block}")] if instruction.beside else [first, plus(first, 1)][: instruction.chunks]

    def fragment(name: str, line: str) -> str:
        parts = [
            f"tile_{name}{'[now]' if s.stages == 2 else ''}[{line} + lane % {s.block}][{chunk}]" for chunk in chunks
        ]
        return parts[0] if len(parts) == 1 else dialect.concatenated(*fragment_kind, parts)

    def run(number: int) -> Run:
        block = plus(times(i, s.blocks_n), j)
        at = plus(times(plus(times(block, instruction.sums // 4), number), derived.threads), "id")
        return Run(times(at, 4), [f"acc[{i}][{j}][{4 * number + r}]" for r in range(4)])

    def take(r: Run) -> list[str]:
        found = dialect.vector_load(sum_type, 4, f"partial + part * {derived.tile_m * derived.tile_n} + {r.at}")
        left = f"const {dialect.vector_type(sum_type, 4)} left = {found};"
        return ["{", left, *(f"{total} += left[{k}];" for k, total in enumerate(r.sums)), "}"]

    def leave(r: Run, group: str) -> str:
        return dialect.vector_store(sum_type, r.sums, f"partial + {group} * {derived.tile_m * derived.tile_n} + {r.at}")

    acc = f"acc[{i}][{j}]"
    runs = [run(number) for number in range(instruction.sums // 4)]
    return {
        "i": i,
        "j": j,
        "read": [
            *each("i", s.blocks_m, f"a_part[{i}] = {fragment('a', _row(s))};"),
            *each("j", s.blocks_n, f"b_part[{j}] = {fragment('b', column)};"),
        ],
        "products": [f"{acc} = {text};" for text in instruction.calls(f"a_part[{i}]", f"b_part[{j}]", acc)],
        "runs": runs,
        "leave": leave,
        "take_runs": [line for r in runs for line in take(r)],
    }


def _stores(store: list[str], s: AmdSchedule, p: AmdProblem, instruction: Instruction, sum_type: str) -> list[str]:
    """The epilogue of each of a lane's sums that is in the result."""
    i, j = _indices(s)
    column = plus("col0", f"j * {s.block}" if s.blocks_n > 1 else 0)
    of_sum = [f"const {sum_type} sum = acc[{i}][{j}][r];", *store]
    of_column = [f"const int col = {column};", *guarded(f"row < {p.m} && col < {p.n}", of_sum)]
    row = f"const int row = {plus('first_row', _row(s))} + {instruction.row};"
    return loop("i", s.blocks_m, loop("r", instruction.sums, [row, *loop("j", s.blocks_n, of_column)]))


@dataclass(frozen=True, slots=True)
class _Tile:
    """One operand and its part of a work-group's tile."""

    name: str
    value: Expr
    axes: tuple[Var, ...]  # that are not summed
    extent: int  # of these axes
    side: int  # rows or columns of the tile
    first: str  # the first of them
    loads: int  # chunks that a work-item loads
    other: Expr  # the other operand


@dataclass(frozen=True, slots=True)
class Loader:
    """What the template reads to load one operand's chunks of a tile: a work-item's share, each with a name."""

    name: str
    before: list[str]  # in front of the loop over tiles: row numbers, and what depends on them alone
    lines: list[str]  # these fill ``a_next0``, ``a_next1`` ... with the chunk number ``a_chunk`` of each row
    registers: str  # their names


def _loader(kernel: Kernel[Contraction], printer: CPrinter, tile: _Tile, p: AmdProblem, derived: AmdSizes) -> Loader:
    """How work-items load ``tile``."""
    body, name, width = kernel.body, tile.name, derived.vector
    batch = var("batch", max(1, p.batch))
    span, lane = var("span", max(1, tile.extent)), var(LANE, width)
    chunk = var("chunk", max(1, derived.tiles_k * derived.chunks))
    flat = var("flat_depth", max(1, derived.tiles_k * derived.chunks * width))
    depth: Expr = chunk * width + lane
    at = places(tile.axes, span) | {v: substitute(e, {flat: depth}) for v, e in places(body.k, flat).items()}
    rewriter = Rewriter(kernel.params, at | places(body.batch, batch))
    outer, inner = frozenset({span, batch}), frozenset({chunk})
    whole = derived.tiles_k * derived.chunks * width == p.k
    wide = _wide(rewriter, tile.value, lane, chunk, whole=whole, depth=p.k, width=width)
    if wide is not None and wide[3] and not whole and isinstance(tile.other, Select):
        wide = None  # past the depth neither is zero
    if wide is not None:
        exprs = [split(wide[1], (outer, inner)), *([regroup(wide[2], (outer, inner))] if wide[2] is not None else [])]
    else:
        element = rewriter(tile.value)
        if not whole:
            element = select(call("lt", depth, index(p.k)), element, literal(0, element.dtype))
        element = equal_in_lanes(element, lane, width)
        exprs = [regroup(element, (outer, inner))]
    known: dict[Expr, str] = {batch: "batch"}
    lines, shared = Emitter(printer, known | {chunk: f"{name}_chunk"}, prefix=f"{name}c").named(
        [] if wide is None else parts_within(exprs, inner)
    )
    before: list[str] = []
    for i in range(tile.loads):
        number = f"{tile.first} + my_slot" + (f" + {i * derived.threads // derived.chunks}" if i else "")
        clamped = f"min({number}, {tile.extent - 1})" if tile.extent % tile.side else number
        before.append(f"const int {name}_span{i} = {clamped};")
        mine = known | {span: f"{name}_span{i}"}
        more, names = Emitter(printer, mine, prefix=f"{name}{i}s").named(parts_within(exprs, outer))
        before += more
        emitter = Emitter(printer, mine | names | shared | {chunk: f"{name}_chunk"}, prefix=f"{name}{i}e")
        lines += _chunk(printer, emitter, f"{name}_next{i}", wide, exprs, lane, width, tile.value.dtype)
    return Loader(name, before, lines, ", ".join(f"{name}_next{i}" for i in range(tile.loads)))


def _wide(
    rewriter: Rewriter, value: Expr, lane: Var, chunk: Var, *, whole: bool, depth: int, width: int
) -> tuple[int, Expr, Expr | None, int] | None:
    """(parameter, offset, condition, element where that fails) of an operand whose chunks are one access each; else
    ``None``. Past the depth that is what an element is, which does not matter where the other operand is zero there."""
    found = padded(value, ELEMENTS[value.dtype].sums)
    if found is None or depth % width:
        return None
    guard, ld, pad = found
    if ld.dtype is not value.dtype:
        return None  # it is converted on the way
    placed = rewriter(ld)
    conditions = [] if guard is None else [rewriter(guard)]
    if not whole:
        conditions.append(call("lt", chunk, index(depth // width)))
    conditions = [c for c in conditions if not (isinstance(c, Const) and c.value)]
    if not isinstance(placed, Load) or coefficient(placed.index[0], lane) != 1:
        return None
    if any(lane in c.free for c in conditions):
        return None
    offset = simplify(substitute(placed.index[0], {lane: index(0)}))
    return ld.source, offset, both(conditions) if conditions else None, pad


def _chunk(
    printer: CPrinter,
    emitter: Emitter,
    target: str,
    wide: tuple[int, Expr, Expr | None, int] | None,
    exprs: Sequence[Expr],
    lane: Var,
    width: int,
    dtype: DType,
) -> list[str]:
    """Statements that put one chunk of ``dtype`` into ``target``."""
    chunk, dialect = ELEMENTS[dtype], printer.dialect
    if wide is not None:
        name, _ = printer.params[wide[0]]
        lines, texts = emitter.values(exprs)
        loaded = dialect.vector_load(chunk.ctype, width, f"{name} + {texts[0]}")
        loaded = _as_chunk(dialect, chunk, loaded)
        # only bytes are padded with anything but 0
        pad = dialect.splat(*chunk.chunk, str(int.from_bytes([wide[3] & 255] * 4, "little", signed=True)))
        text = f"{texts[1]} ? {loaded} : {pad}" if len(texts) > 1 else loaded
        return [*lines, f"{target} = {text};"]
    (element,) = exprs
    before, elements = emitter.each_lane(element, lane, width, {e.dtype: e.ctype for e in ELEMENTS.values()})
    lines, texts = emitter.values(elements)
    kind, bits = dialect.lane_type(chunk.ctype), dialect.float_bits
    texts = [chunk.made.format(type=kind, bits=bits, value=text) for text in texts]
    made = dialect.vector(chunk.ctype, texts)
    return [*before, *lines, f"{target} = {_as_chunk(dialect, chunk, made)};"]


def _as_chunk(dialect: Dialect, chunk: Element, loaded: str) -> str:
    """Loaded elements as instructions take them: bytes by fours, and bf16 as signed integers."""
    return loaded if chunk.ctype == chunk.chunk[0] else dialect.reinterpreted(*chunk.chunk, loaded)
