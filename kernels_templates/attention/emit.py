"""Text for the attention templates: the loaders of queries, keys and values, the score, the stores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import Argument, highest, plain
from gpucomp.codegen.c.emit import Emitter
from gpucomp.codegen.c.epilogue import epilogue, split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.codegen.c.text import over, remainder
from gpucomp.expr.core import Call, Const, Expr, Hole, Select, Var, call, cast, index, literal, select, var
from gpucomp.ir.types import F32
from gpucomp.kernel import Attention, Kernel
from gpucomp.kernel.forms.access import Rewriter, parts_within, regroup
from gpucomp.kernel.forms.lanes import LANE
from gpucomp.kernel.forms.operand import places

if TYPE_CHECKING:
    from gpucomp.kernels_templates.attention.simt.space import AttentionProblem


def emit_shared(
    kernel: Kernel[Attention],
    printer: CPrinter,
    batch: Var,
    p: AttentionProblem,
    *,
    tile_m: int,
    tile_n: int,
    splits: int,
    out_vector: int,
    in_log2: bool = False,
    scaled_once: bool = False,
) -> dict[str, Any]:
    """What the engines share: the score, the stores, memory for splits, types and numbers.

    With ``in_log2`` scores that ``times_log2_e`` can change are, and their powers are powers of two. With ``scaled_once``
    products that are only multiplied by a positive ``scale`` are multiplied in the exponent: exp2(scale * dot - shift).
    """
    scaled = times_log2_e(kernel.body.score, kernel.body.dot) if in_log2 else None
    split = _without_scale(scaled, kernel.body.dot) if scaled is not None and scaled_once else None
    if split is not None:
        scaled = split[0]
    dialect = printer.dialect
    found = epilogue(kernel, printer, batch, out_vector, "mean" if out_vector == 1 else f"means[{LANE}]")
    return {
        "scratch": split_scratch(printer, dialect.value_type(F32), splits),
        **_score(kernel, printer, batch, tile_n, p, kernel.body.score if scaled is None else scaled),
        "in_log2": scaled is not None,
        "scale": dialect.literal(split[1], F32) if split is not None else "",
        "row_lines": found.row_lines,
        "store": found.store,
        "stops_early": p.causal >= 0 and _may_be_below(p.causal + p.m, p.n + tile_m),
        "index": dialect.index_type(highest(p.m + tile_m, p.n + tile_n * splits, p.batch) + 1),
        "type": dialect.value_type(F32),
        "zero": dialect.literal(0, F32),
        "one": dialect.literal(1, F32),
        "lowest": dialect.literal(-math.inf, F32),
        "log2_e": dialect.literal(math.log2(math.e), F32),
        "exp2": dialect.function("exp2", F32),
    }


def _may_be_below(a: Any, b: Any) -> bool:
    """Whether ``a < b``, in some run if each decides one of them."""
    return bool(b > a) if isinstance(b, Argument) or not isinstance(a, Argument) else highest(b - a) > 0


def times_log2_e(score: Expr, dot: Expr) -> Expr | None:
    """dot * c, hidden or not  ->  dot * (c * log2(e)), hidden or not; ``None`` for other scores

    It saves a product of each score: exp(s - t) is then exp2(s' - t'). A mask that is added stays as it is: it may be the
    least number, which has no finite product with log2(e), and a row that it hides whole has equal weights.
    """
    match score:
        case Select(condition=condition, then=value, otherwise=Const(value=hidden) as otherwise) if hidden == -math.inf:
            inner = times_log2_e(value, dot)
            return None if inner is None else select(condition, inner, otherwise)
        case Call(fn="mul", args=(a, Const(value=scale))) if a is dot:
            return dot * literal(float(scale) * math.log2(math.e), F32)
        case Hole() if score is dot:
            return dot * literal(math.log2(math.e), F32)
    return None


def _without_scale(score: Expr, dot: Expr) -> tuple[Expr, float] | None:
    """dot * c, hidden or not  ->  dot, hidden or not, and c; ``None`` if c is not positive: maxima are of products then"""
    match score:
        case Select(condition=condition, then=value, otherwise=otherwise):
            inner = _without_scale(value, dot)
            return None if inner is None else (select(condition, inner[0], otherwise), inner[1])
        case Call(fn="mul", args=(a, Const(value=scale))) if a is dot and 0 < float(scale) < math.inf:
            return dot, float(scale)
    return None


def place(p: AttentionProblem, tiles_m: Any) -> dict[str, str]:
    """Text of the position of the work-group's rows: the number of its tile among those of a batch, and the batch."""
    return {
        "tile_of_rows": "0" if tiles_m == 1 else "tile" if p.batch == 1 else f"({remainder('tile', tiles_m)})",
        "my_batch": "0" if p.batch == 1 else over("tile", tiles_m),
    }


def _score(
    kernel: Kernel[Attention], printer: CPrinter, batch: Var, tile_n: int, p: AttentionProblem, score: Expr
) -> dict[str, Any]:
    """``score`` of the result is the text of the ``score`` of one ``dot``, after ``score_lines``.

    ``score_batch`` and ``score_row`` are statements that depend on the batch or the row alone. ``by_row`` and
    ``by_column`` say whether the score needs these. Columns past the end get the lowest score, so that they have no
    weight.
    """
    body = kernel.body
    row, col = var("row", plain(max(1, p.m))), var("col", plain(max(1, p.n)))
    rewrite = Rewriter(kernel.params, places(body.rows, row) | places(body.cols, col) | places(body.batch, batch))
    value = rewrite(cast(score, F32))
    if p.n % tile_n:
        past = var("past", plain(p.n + tile_n))  # it may exceed n, and the simplifier must not assume otherwise
        value = select(call("lt", past, index(plain(p.n))), value, literal(-math.inf, F32))
    else:
        past = col
    value = regroup(value, (frozenset({batch}), frozenset({row})))
    known: dict[Expr, str] = {batch: "batch"}
    batch_lines, names = Emitter(printer, known, prefix="sb").named(parts_within([value], frozenset({batch})))
    known |= names | {row: "row"}
    row_lines, names = Emitter(printer, known, prefix="sr").named(parts_within([value], frozenset({row, batch})))
    known |= names | {col: "col", past: "col", body.dot: "dot"}
    lines, (text,) = Emitter(printer, known, prefix="s").values([value])
    return {
        "score_batch": batch_lines,
        "score_row": row_lines,
        "score_lines": lines,
        "score": text,
        "by_row": int(row in value.free),
        "by_column": int(col in value.free or past in value.free),
    }
