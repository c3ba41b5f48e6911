"""What a measured space teaches: which parameters matter, how, and what is around the winner. Nothing is measured here.

Everything is computed from the measurements themselves, whole spaces or what a search saw of them; no model guesses.
A search looks where it is fast, so of its measurements the means are those of what it chose to see.
"""

from __future__ import annotations

import difflib
import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpucomp.errors import UsageError, quote
from gpucomp.tuning.space import Candidates

NEAR = 1.1  # times the best: what counts as fast
FAST = 0.1  # share of the measurements that are the fast ones
TOP = 20


@dataclass(frozen=True)
class Importance:
    """Shares of the variance of log time that one parameter explains alone: of all, and of the fastest tenth."""

    name: str
    overall: float
    among_fast: float


@dataclass(frozen=True)
class Level:
    """The points with one value of one parameter: their number, times over the best of all, and how many are fast."""

    value: int
    count: int
    failed: int
    best: float
    median: float
    fast: float


@dataclass(frozen=True)
class Neighbour:
    """A point one parameter away from another: its time over that one's, None where it failed."""

    point: int
    name: str
    value: int
    instead_of: int
    ratio: float | None


def importance(candidates: Candidates, seconds: np.ndarray) -> list[Importance]:
    """Parameters that vary, the most important first. ``seconds`` [points]: NaN where unknown or failed.

    The share is epsilon squared (Kelley, 1935): eta squared without what chance alone would explain.
    """
    known = np.flatnonzero(np.isfinite(seconds))
    logs = np.log(seconds[known])
    fast = logs <= np.quantile(logs, FAST) if len(logs) else np.zeros(0, bool)
    found = [
        Importance(
            name,
            _explained(candidates.ordinals[known, j], logs),
            _explained(candidates.ordinals[known[fast], j], logs[fast]),
        )
        for j, name in enumerate(candidates.names)
        if len(candidates.levels[j]) > 1
    ]
    return sorted(found, key=lambda i: -i.overall)


def _explained(levels: np.ndarray, logs: np.ndarray) -> float:
    groups = [logs[levels == level] for level in np.unique(levels)]
    total = ((logs - logs.mean()) ** 2).sum() if len(logs) else 0.0
    inner = len(logs) - len(groups)
    if total == 0 or inner <= 0:
        return 0.0
    within = sum(((group - group.mean()) ** 2).sum() for group in groups)
    return float(max((total - within - (len(groups) - 1) * within / inner) / total, 0.0))


def dependence(candidates: Candidates, seconds: np.ndarray, name: str, failed: np.ndarray | None = None) -> list[Level]:
    """The values of a parameter, rising. ``failed`` bool [points]: measured without success."""
    if name not in candidates.names:
        raise UsageError(f"parameter {quote(name)}: one of {', '.join(candidates.names)} expected")
    column = candidates.values[:, candidates.names.index(name)]
    best = np.nanmin(seconds)
    levels = []
    for value in np.unique(column):
        here = column == value
        times = seconds[here & np.isfinite(seconds)] / best
        levels.append(
            Level(
                value=int(value),
                count=len(times),
                failed=int((here & failed).sum()) if failed is not None else 0,
                best=float(times.min()) if len(times) else math.nan,
                median=float(np.median(times)) if len(times) else math.nan,
                fast=float((times <= NEAR).mean()) if len(times) else 0.0,
            )
        )
    return levels


def neighbours(
    candidates: Candidates, seconds: np.ndarray, point: int, failed: np.ndarray | None = None
) -> list[Neighbour]:
    """The measured points one parameter away from ``point``, fastest first and failures last."""
    found = []
    for row in candidates.neighbours(point).tolist():
        j = int(np.flatnonzero(candidates.values[row] != candidates.values[point])[0])
        known, fails = bool(np.isfinite(seconds[row])), failed is not None and bool(failed[row])
        if known or fails:
            ratio = float(seconds[row] / seconds[point]) if known else None
            values = int(candidates.values[row, j]), int(candidates.values[point, j])
            found.append(Neighbour(row, candidates.names[j], *values, ratio))
    return sorted(found, key=lambda n: math.inf if n.ratio is None else n.ratio)


def source_difference(
    render: Callable[[Mapping[str, int]], str], before: Mapping[str, int], after: Mapping[str, int], *, context: int = 3
) -> str:
    """The unified diff of what ``render`` makes of two schedules; its header names the parameters that differ."""
    changed = [name for name in before if before[name] != after.get(name)]
    titles = [", ".join(f"{name}={s[name]}" for name in changed if name in s) or "the same" for s in (before, after)]
    old, new = (render(s).splitlines(keepends=True) for s in (before, after))
    return "".join(difflib.unified_diff(old, new, titles[0], titles[1], n=context))


def write_report(
    path: Path,
    title: str,
    candidates: Candidates,
    seconds: np.ndarray,
    *,
    failed: np.ndarray | None = None,
    differences: Mapping[str, str] | None = None,
) -> None:
    """One HTML file that needs nothing else: importance, dependence, the winner's neighbours, the fastest points.

    ``differences`` are texts by title, as ``source_difference`` makes them. Raises ``UsageError`` without plotly
    (``gpucomp[report]``), for a space without a success, and where the file cannot be written.
    """
    try:
        import plotly.graph_objects as go
        from plotly.offline import get_plotlyjs
        from plotly.subplots import make_subplots
    except ImportError:
        raise UsageError("a report needs plotly: pip install 'gpucomp[report]'", code="GPC2604") from None
    if not np.isfinite(seconds).any():
        raise UsageError(f"{title}: no measurement that succeeded, nothing to report")
    winner, best = int(np.nanargmin(seconds)), float(np.nanmin(seconds))
    shares = importance(candidates, seconds)
    bars = go.Figure(
        [
            go.Bar(y=[i.name for i in shares], x=[i.overall for i in shares], name="of all", orientation="h"),
            go.Bar(
                y=[i.name for i in shares],
                x=[i.among_fast for i in shares],
                name="of the fastest tenth",
                orientation="h",
            ),
        ],
        layout={
            "title": "Share of the variance of log time that a parameter explains alone",
            "yaxis_autorange": "reversed",
        },
    )
    columns = 3
    panels = make_subplots(
        rows=max(-(-len(shares) // columns), 1), cols=columns, subplot_titles=[i.name for i in shares] or None
    )
    for number, share in enumerate(shares):
        levels = dependence(candidates, seconds, share.name, failed)
        values = [str(level.value) for level in levels]
        for what, colour in (("best", "#1b6ac9"), ("median", "#999999")):
            line = go.Scatter(
                x=values, y=[getattr(level, what) for level in levels], name=what, mode="lines+markers",
                marker_color=colour, showlegend=number == 0,
            )  # fmt: skip
            panels.add_trace(line, row=number // columns + 1, col=number % columns + 1)
    panels.update_yaxes(type="log")
    panels.update_xaxes(type="category")
    panels.update_layout(title="Time over the best, by value", height=260 * max(-(-len(shares) // columns), 1) + 100)
    around = [
        (n.name, f"{n.instead_of} → {n.value}", "failed" if n.ratio is None else f"{n.ratio:.3f}")
        for n in neighbours(candidates, seconds, winner, failed)
    ]
    order = np.argsort(np.where(np.isfinite(seconds), seconds, np.inf), kind="stable")[:TOP].tolist()
    fastest = [(f"{seconds[p] / best:.3f}", *map(str, candidates.values[p])) for p in order if np.isfinite(seconds[p])]
    count = int(np.isfinite(seconds).sum())
    fails = "" if failed is None else f", {int(failed.sum())} failed"
    parts = [
        f"<h1>{html.escape(title)}</h1><p>{len(candidates)} legal points, {count} measured{fails}.</p>",
        _figure(bars),
        _figure(panels),
        "<h2>One parameter away from the winner</h2>",
        _table(("parameter", "change", "time over the winner's"), around),
        f"<h2>The fastest {len(fastest)}</h2>",
        _table(("time over best", *candidates.names), fastest),
        *(f"<h2>{html.escape(name)}</h2><pre>{html.escape(text)}</pre>" for name, text in (differences or {}).items()),
    ]
    style = (
        "body{font-family:sans-serif;margin:2em}td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}"
    )
    page = (
        f'<!DOCTYPE html><html><head><meta charset="utf-8"><title>{html.escape(title)}</title><style>{style}</style>'
        f"<script>{get_plotlyjs()}</script></head><body>{''.join(parts)}</body></html>\n"
    )
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {quote(path)}: {error.strerror}", code="GPC2005") from None


def _figure(figure: Any) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=False))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [("th", head), *(("td", row) for row in rows)]
    body = "".join(f"<tr>{''.join(f'<{tag}>{html.escape(c)}</{tag}>' for c in cells)}</tr>" for tag, cells in lines)
    return f"<table>{body}</table>"
