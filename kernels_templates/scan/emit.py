"""Text for the scan family's template: an access's values, the ways in which two values are joined, its stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpucomp.codegen.c.arguments import highest, plain
from gpucomp.codegen.c.emit import Emitter, flat_stores, lane_loop
from gpucomp.codegen.c.epilogue import split_scratch
from gpucomp.codegen.c.printer import CPrinter
from gpucomp.expr.core import Expr, Var, identity_of, var
from gpucomp.kernel import Kernel, Scan
from gpucomp.kernel.forms.access import Rewriter, parts_within
from gpucomp.kernel.forms.lanes import LANE, lanes_of
from gpucomp.kernel.forms.operand import places
from gpucomp.kernel.forms.rows import SHUFFLED
from gpucomp.kernels_templates.rowwise.emit import can_shuffle

if TYPE_CHECKING:
    from gpucomp.kernels_templates.scan.space import ScanProblem, ScanSchedule, ScanSizes


def emit_scan(
    kernel: Kernel[Scan], printer: CPrinter, s: ScanSchedule, p: ScanProblem, derived: ScanSizes
) -> Mapping[str, Any]:
    """What ``kernels_templates/scan/kernel.j2`` reads; each hook is described there."""
    body = kernel.body
    dtype = body.acc.dtype
    row, col, lane = var("row", plain(max(1, p.rows))), var("col", plain(derived.row_accesses)), var(LANE, s.vector)
    at = places(body.rows, row)
    at[body.axis] = lanes_of(body.axis, col, lane, s.vector)[body.axis]
    rewriter = Rewriter(kernel.params, at)
    value, stores = rewriter(body.value), flat_stores(kernel.stores, rewriter)

    parts = [value, *(e for t in stores for e in (t.offset, t.value))]
    row_body, known = Emitter(printer, {row: "row"}, prefix="r").named(parts_within(parts, frozenset({row})))
    known = {row: "row", col: "col", **known}
    if s.vector > 1:
        known[lane] = LANE
    # in a reverse scan, the first element of an access is its last one in memory
    element = f"access * {s.vector} + {f'{s.vector - 1} - {LANE}' if p.reverse else LANE}" if s.vector > 1 else "access"
    held = f"kept[{element}]"

    def joined(a: str, b: str) -> str:
        return printer.combine(body.op, dtype, a, b)

    type = printer.dialect.value_type(dtype)
    can = can_shuffle(printer, p, derived)
    in_warp = derived.lanes_in_warp if can else 1
    return {
        "scratch": split_scratch(printer, type, derived.tiles if s.look_back else 1),
        "index": printer.dialect.index_type(
            highest(p.rows + s.rows_per_group, derived.tiles * derived.tile * s.vector, p.rows * p.cols)
        ),
        "type": type,
        "identity": printer.dialect.literal(identity_of(body.op, dtype), dtype),
        "row_body": row_body,
        "load": _load(Emitter(printer, known), value, lane, s.vector, held),
        "store": Emitter(printer, known | {body.acc: held}, prefix="o").store(stores, lane, s.vector),
        "in_warp": in_warp,
        "warps": s.lanes // in_warp,
        "warp": SHUFFLED,
        "kept": joined("kept[element - 1]", "kept[element]"),
        "other_first": joined("other", "total"),
        "prefix_other": joined("prefix", "other"),
        "prefix_before": joined("prefix", "before"),
        "carry_other": joined("carry", "other"),
        "carry_before": joined("carry", "before"),
        "carry_total": joined("carry", "total"),
        "carry_prefix": joined("carry", "prefix"),
        "onto_prefix": joined("prefix", "kept[element]"),
        "onto_previous": joined("prefix", "kept[element - 1]"),
    }


def _load(emitter: Emitter, value: Expr, lane: Var, width: int, held: str) -> list[str]:
    if width == 1:
        lines, (text,) = emitter.values([value])
        return [*lines, f"{held} = {text};"]
    head, lines, (text,) = emitter.lanes([value], lane, width)
    return [*head, *lane_loop([*lines, f"{held} = {text};"], width)]
