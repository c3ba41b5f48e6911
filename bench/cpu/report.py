"""Writes the rows of ``bench.cpu`` as markdown, JSON and a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from bench.cpu.compare import OURS, THEIRS, Row, ratio

GOAL = 1.2  # times as fast as the fastest of the others


def page(tables: str, methods: Sequence[dict[str, Any]]) -> str:
    """The tables, after a description of how the figures were measured."""
    lines = []
    for method in methods:
        machine = method["machine"]
        lines.append(
            f"- `python -m bench.cpu {method['command']}`: batch {method['batch']}, {method['rounds']} rounds of "
            f"{method['turn_ms']:g} ms an engine; {machine['processor']}, {machine['cpus']} cores{_instructions(method)}"
        )
    how = "Ratios are the engine's time over gpucomp's in the same round, with their quartiles: above 1, gpucomp is faster."
    return "\n".join(["# Engines side by side on the CPU", "", *lines, "", how, "", tables, ""])


def _instructions(method: dict[str, Any]) -> str:
    """What the processor has of the instructions that matter, widest vectors first."""
    found = set(method.get("instructions", ()))
    names = {"avx512f": "AVX-512", "avx2": "AVX2", "avx512vnni": "VNNI", "avxvnni": "AVX-VNNI", "amx-int8": "AMX"}
    said = [name for feature, name in names.items() if feature in found]
    return f" ({', '.join(said)})" if said else ""


def rows_of(data: dict[str, Any]) -> list[Row]:
    """The rows in data of ``as_json``."""
    names = [field.name for field in fields(Row)]
    return [Row(**{name: row[name] for name in names if name in row}) for row in data["rows"]]


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
    """Ratios, with a row for each model and a column for each engine; who leads where; all figures; failures."""
    return "\n".join([*_ratios(rows), "", *_leaders(rows), *_levels(rows), "", *_details(rows), *_failures(rows)])


def _leaders(rows: Sequence[Row]) -> list[str]:
    """Which engine is the fastest on which models, and by how much; where onnxruntime is faster than gpucomp."""
    ours = _ours(rows)
    ratios: dict[str, dict[str, float]] = {}  # model to the other engines' times over gpucomp's
    for row in rows:
        mine = ours.get((row.model, row.threads))
        if row.peer != OURS and mine is not None and (three := ratio(row, mine)):
            ratios.setdefault(f"{row.model} at {row.threads}", {})[row.peer] = three[1]
    best = {model: min(found.items(), key=lambda one: one[1]) for model, found in ratios.items()}
    enough = sum(value >= GOAL for _, value in best.values())
    leads = sum(value >= 1 for _, value in best.values())
    lines = [f"{OURS} is the fastest on {leads} of {len(best)} models, by {GOAL:g} times or more on {enough}."]
    for peer in sorted({peer for peer, value in best.values() if value < 1}):
        beaten = [f"{model} ({1 / value:.2f})" for model, (name, value) in best.items() if name == peer and value < 1]
        lines.append(f"{peer} is the fastest, by so many times, on: {', '.join(beaten)}.")
    behind = [f"{model} ({1 / found[THEIRS]:.2f})" for model, found in ratios.items() if found.get(THEIRS, 1) < 1]
    if behind:
        lines.append(f"{THEIRS} is faster than {OURS} on: {', '.join(behind)}.")
    return [f"- {line}" for line in lines] if best else []


def _levels(rows: Sequence[Row]) -> list[str]:
    """What each engine was restricted to, if any was."""
    levels = {row.peer: row.level for row in rows}
    if not any(levels.values()):
        return []
    free = [peer for peer, level in levels.items() if not level]
    lines = [f"{peer} was restricted: {level}." for peer, level in levels.items() if level]
    if free:
        lines.append(f"{', '.join(free)} used all instructions of the processor: there is no switch for them.")
    return ["", *(f"- {line}" for line in lines)]


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
