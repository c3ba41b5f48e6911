"""Writes the rows of ``bench.cpu`` as markdown, JSON and a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from bench.cpu.compare import OURS, Row, ratio


def page(tables: str, methods: Sequence[dict[str, Any]]) -> str:
    """The tables, after a description of how the figures were measured."""
    lines = []
    for method in methods:
        machine = method["machine"]
        lines.append(
            f"- `python -m bench.cpu {method['command']}`: batch {method['batch']}, {method['rounds']} rounds of "
            f"{method['turn_ms']:g} ms an engine; {machine['processor']}, {machine['cpus']} cores"
        )
    how = "Ratios are the engine's time over gpucomp's in the same round, with their quartiles: above 1, gpucomp is faster."
    return "\n".join(["# Engines side by side on the CPU", "", *lines, "", how, "", tables, ""])


def rows_of(data: dict[str, Any]) -> list[Row]:
    """The rows in data of ``as_json``."""
    names = [field.name for field in fields(Row)]
    return [Row(**{name: row[name] for name in names}) for row in data["rows"]]


def as_json(rows: Sequence[Row], methods: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All samples; each row also has its ratio to gpucomp (first quartile, median, third quartile)."""
    ours = _ours(rows)
    return {
        "methods": list(methods),
        "rows": [
            {
                **asdict(row),
                "median_ms": row.median_ms,
                "noise": row.noise,
                "cpu_ms": row.cpu_ms,
                "busy": row.busy,
                "ratio": ratio(row, ours[row.model, row.threads]) if (row.model, row.threads) in ours else None,
            }
            for row in rows
        ],
    }


def _ours(rows: Sequence[Row]) -> dict[tuple[str, int], Row]:
    return {(row.model, row.threads): row for row in rows if row.peer == OURS}


def markdown(rows: Sequence[Row]) -> str:
    """Ratios, with a row for each model and a column for each engine; then all figures; then failures."""
    return "\n".join([*_ratios(rows), "", *_details(rows), *_failures(rows)])


def _ratios(rows: Sequence[Row]) -> list[str]:
    ours = _ours(rows)
    peers = [p for p in dict.fromkeys(row.peer for row in rows) if p != OURS]
    lines = [
        f"| model | threads | {OURS} ms | fastest peer over {OURS} | " + " | ".join(peers) + " |",
        "|---" * (4 + len(peers)) + "|",
    ]
    by_key = {(row.model, row.threads, row.peer): row for row in rows}
    columns: dict[str, list[float]] = {name: [] for name in ("fastest", *peers)}
    for (model, threads), mine in ours.items():
        if mine.median_ms is None:
            lines.append(f"| {model} | {threads} | failed |" + " |" * (1 + len(peers)))
            continue
        cells = []
        found: dict[str, float] = {}
        for peer in peers:
            row = by_key.get((model, threads, peer))
            three = ratio(row, mine) if row is not None else None
            if three is None:
                cells.append("failed" if row is not None else "-")
                continue
            found[peer] = three[1]
            columns[peer].append(three[1])
            cells.append(f"{three[1]:.2f} ({three[0]:.2f} to {three[2]:.2f})")
        best = min(found, key=lambda peer: found[peer]) if found else None
        if best is not None:
            columns["fastest"].append(found[best])
        lines.append(
            f"| {model} | {threads} | {mine.median_ms:.2f} | "
            f"{f'{found[best]:.2f} ({best})' if best is not None else '-'} | " + " | ".join(cells) + " |"
        )
    means = [_mean(columns[name]) for name in ("fastest", *peers)]
    lines.append("| geometric mean | | | " + " | ".join(means) + " |")
    return lines


def _mean(values: Sequence[float]) -> str:
    return f"{math.exp(sum(map(math.log, values)) / len(values)):.2f}" if values else "-"


def _details(rows: Sequence[Row]) -> list[str]:
    header = (
        "model",
        "threads",
        "engine",
        "version",
        "median ms",
        "noise %",
        "CPU ms",
        "CPU s a s",
        "rel. L2 error",
        "convert s",
        "load s",
        "resident MB",
        "peak MB",
    )
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for row in rows:
        if row.median_ms is None:
            continue
        assert row.noise is not None
        assert row.busy is not None
        memory = [f"{mb:.0f}" if mb is not None else "-" for mb in (row.resident_mb, row.peak_mb)]
        figures = [f"{row.median_ms:.3f}", f"{100 * row.noise:.1f}", f"{row.cpu_ms:.3f}", f"{row.busy:.2f}"]
        cells = [row.model, str(row.threads), row.peer, row.version, *figures, f"{row.error:.1e}"]
        cells += [f"{row.convert_s:.1f}", f"{row.load_s:.2f}", *memory]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _failures(rows: Sequence[Row]) -> list[str]:
    failed = [row for row in rows if row.failure]
    if not failed:
        return []
    lines = ["", "| model | threads | engine | why there is no figure |", "|---|---|---|---|"]
    return lines + [f"| {r.model} | {r.threads} | {r.peer} | {r.failure.replace('|', '/')} |" for r in failed]


def plot(rows: Sequence[Row], to: Path) -> None:
    """Ratios as bars with their quartiles, grouped by model, in one HTML page made by plotly. Needs plotly."""
    import plotly.graph_objects as go

    ours = _ours(rows)
    figure = go.Figure()
    for peer in [p for p in dict.fromkeys(row.peer for row in rows) if p != OURS]:
        found = [
            (r, three)
            for r in rows
            if r.peer == peer and (mine := ours.get((r.model, r.threads))) and (three := ratio(r, mine))
        ]
        figure.add_bar(
            name=peer,
            x=[f"{r.model}, {r.threads}" for r, _ in found],
            y=[three[1] for _, three in found],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [t[2] - t[1] for _, t in found],
                "arrayminus": [t[1] - t[0] for _, t in found],
            },
        )
    figure.add_hline(y=1.0)
    figure.update_layout(
        title=f"Time over {OURS}'s: above 1, {OURS} is faster", xaxis_title="model, threads", yaxis_title="ratio"
    )
    figure.write_html(to, include_plotlyjs="cdn")
