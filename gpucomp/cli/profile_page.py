"""The page of ``bench --profile -o``: each kernel's time against its floor, as bars, with the run by families above."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gpucomp import files
from gpucomp.cli.profile import LEGEND, Profile, Row, number, percent, significant, summary, threads_said
from gpucomp.cli.profile import trace as timeline
from gpucomp.cli.show import counted
from gpucomp.report import page
from gpucomp.report.page import COLOURS, shown

MOST_SPREAD = 1.5  # how far beyond the median a disturbed run may stretch the scale
HEAD = ("#", "kernel", "time and floor", "ms", "of run", "floor ms", "x floor", "GFLOP/s", "GB/s", "limit")
OF_FLOORS = ("floor ms", "x floor", "limit")  # columns that need measured peaks
HEADING = "Each kernel against its floor", "Each kernel"  # with measured peaks, and without
BARS = "A bar is the median time of a launch. The thin line spans its fastest to its slowest run."
FLOORS = "The upright mark is the floor: the time at the machine's peak arithmetic or a copy's bandwidth, whichever is longer."
NO_FLOORS = "There are no floors, because peaks are measured on the CPU only."


def write(found: Profile, trace: Path | None, output: Path | None, model: str, about: Sequence[str]) -> None:
    """Write the trace and the page, where they are wanted. ``about`` are lines on what was measured, and how."""
    if trace is not None:
        files.write(trace, json.dumps(timeline(found.rows, found.runs, model, found.ceilings)) + "\n")
    if output is not None:
        files.write(output, text(found, model, about))


def text(found: Profile, model: str, about: Sequence[str]) -> str:
    """The page. ``about`` are lines on what was measured, and how."""
    families: dict[str, float] = {}
    for row in found.rows:
        families[row.family] = families.get(row.family, 0.0) + row.ms
    order = sorted(families, key=lambda name: -families[name])
    colours = {name: min(k, COLOURS - 1) for k, name in enumerate(order)}  # further families share the last one
    ends = [t for r in found.rows for t in (r.ms, r.floor_ms or 0.0, min(max(r.samples_ms), MOST_SPREAD * r.ms))]
    longest = max(ends, default=0.0) or 1.0
    without = found.ceilings is None
    buttons = [_button("number", "as launched", "true"), _button("ms", "slowest first")]
    if not without:
        buttons.append(_button("lost", "most above the floor first"))
    head = [name for name in HEAD if not (without and name in OF_FLOORS)]
    title = f"Profile of {page.line(model)}"
    body = [
        page.heading(title, 1),
        *map(page.paragraph, (*summary(found.rows, found.ceilings), *threads_said(found.runs, found.ceilings), *about)),
        page.heading("The run, by kind of kernel"),
        _strip(order, families, colours),
        page.heading(HEADING[without]),
        page.paragraph(f"{BARS} {NO_FLOORS if without else FLOORS}"),
        *([] if without else [page.paragraph("; ".join(LEGEND) + ".")]),
        f'<p class="sort">Order: {" ".join(buttons)}</p>',
        '<div class="scroll"><table class="kernels"><thead><tr>',
        "".join(f"<th>{shown('time' if without and name == 'time and floor' else name)}</th>" for name in head),
        "</tr></thead><tbody>",
        *(_row(row, colours[row.family], longest, head) for row in found.rows),
        "</tbody></table></div>",
    ]
    return page.page(title, body, sheets=("profile.css",), script="profile.js")


def _button(by: str, name: str, pressed: str = "false") -> str:
    return f'<button data-by="{by}" aria-pressed="{pressed}">{name}</button>'


def _strip(order: Sequence[str], families: dict[str, float], colours: dict[str, int]) -> str:
    """The whole run as one bar, with a part for each family, and its legend."""
    whole = sum(families.values()) or 1.0
    parts = "".join(
        f'<i style="width:{100 * families[name] / whole:.2f}%;background:var(--c{colours[name]})"></i>'
        for name in order
    )
    names = "".join(
        f'<span><svg width="24" height="10"><rect width="24" height="10" rx="2" fill="var(--c{colours[name]})"/></svg>'
        f"{shown(name)}: {families[name]:.3g} ms, {100 * families[name] / whole:.0f} %</span>"
        for name in order
    )
    return f'<div class="strip">{parts}</div><div class="legend">{names}</div>'


def _row(row: Row, colour: int, longest: float, head: Sequence[str]) -> str:
    low, high = min(row.samples_ms), max(row.samples_ms)
    left, wide = _share(low, longest), _share(high, longest) - _share(low, longest)
    floor = f'<b style="left:{_share(row.floor_ms, longest):.2f}%"></b>' if row.floor_ms is not None else ""
    drawn = (
        f'<div class="bar"><i style="width:{_share(row.ms, longest):.2f}%;background:var(--c{colour})"></i>'
        f'<u style="left:{left:.2f}%;width:{wide:.2f}%"></u>{floor}</div>'
    )
    lost = row.ms - (row.floor_ms or 0.0)
    cells = {
        "ms": significant(row.ms, 4),
        "of run": percent(row.share),
        "floor ms": "-" if row.floor_ms is None else significant(row.floor_ms),
        "x floor": "-" if not row.floor_ms else significant(row.ms / row.floor_ms, 2),
        "GFLOP/s": number(row.gflops),
        "GB/s": number(row.gbs),
        "limit": row.limit or "-",
    }
    shown_cells = "".join(f"<td>{shown(cells[name])}</td>" for name in head if name in cells)
    named = f"{shown(row.kernel, 60)}<small>{shown(counted(row.ops), 60) or '-'}</small>"
    return (
        f'<tr data-number="{row.number}" data-ms="{row.ms:.6f}" data-lost="{lost:.6f}"><td>{row.number}</td>'
        f'<td title="{shown(row.name)}">{named}</td><td>{drawn}</td>{shown_cells}</tr>'
    )


def _share(ms: float, longest: float) -> float:
    return 100 * min(ms / longest, 1.0)
