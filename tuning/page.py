"""HTML pages that draw the results of ``analysis``. They are self-contained and load nothing; all texts are escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpucomp.errors import UsageError, quote
from gpucomp.extras import install
from gpucomp.tuning.analysis import dependence, importance, neighbours
from gpucomp.tuning.space import Candidates

TOP = 20
COLUMNS = 3
BLUE, GREY = "#1b6ac9", "#999999"
STYLE = (
    "body{font-family:sans-serif;margin:2em}td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}"
    "pre{background:#f6f6f6;padding:1em;overflow-x:auto}"
)


def plotly() -> Any:
    """plotly's figures. Raises ``UsageError`` if it is not installed."""
    try:
        import plotly.graph_objects
    except ImportError:
        raise UsageError(f"a report needs plotly: {install('report')}", code="GPC2604") from None
    return plotly.graph_objects


def write(path: Path, title: str, parts: Sequence[str]) -> None:
    """Write these parts as one HTML file. Raises ``UsageError`` without plotly, or if the file cannot be written."""
    plotly()
    from plotly.offline import get_plotlyjs

    page = (
        f'<!DOCTYPE html><html><head><meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
        f"<script>{get_plotlyjs()}</script></head><body><h1>{html.escape(title)}</h1>{''.join(parts)}</body></html>\n"
    )
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {quote(path)}: {error.strerror}", code="GPC2005") from None


def heading(text: str, level: int = 2) -> str:
    return f"<h{level}>{html.escape(text)}</h{level}>"


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def text(title: str, body: str) -> str:
    """A source or a diff, preformatted."""
    return f"{heading(title)}<pre>{html.escape(body)}</pre>"


def figure(found: Any) -> str:
    return str(found.to_html(full_html=False, include_plotlyjs=False))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [("th", head), *(("td", row) for row in rows)]
    body = "".join(f"<tr>{''.join(f'<{tag}>{html.escape(c)}</{tag}>' for c in cells)}</tr>" for tag, cells in lines)
    return f"<table>{body}</table>"


def space(candidates: Candidates, seconds: np.ndarray, failed: np.ndarray | None = None) -> list[str]:
    """The parts of a page about one space: importance, dependence, the winner's neighbours, the fastest points.

    ``seconds`` [points] is NaN where unknown or failed; at least one is a number.
    """
    winner, best = int(np.nanargmin(seconds)), float(np.nanmin(seconds))
    around = [
        (n.name, f"{n.instead_of} → {n.value}", "failed" if n.ratio is None else f"{n.ratio:.3f}")
        for n in neighbours(candidates, seconds, winner, failed)
    ]
    order = np.argsort(np.where(np.isfinite(seconds), seconds, np.inf), kind="stable")[:TOP].tolist()
    fastest = [(f"{seconds[p] / best:.3f}", *map(str, candidates.values[p])) for p in order if np.isfinite(seconds[p])]
    count = int(np.isfinite(seconds).sum())
    fails = "" if failed is None else f", {int(failed.sum())} failed"
    return [
        paragraph(f"{len(candidates)} legal points, {count} measured{fails}."),
        *_drawn(candidates, seconds, failed),
        heading("One parameter away from the winner"),
        table(("parameter", "change", "time over the winner's"), around),
        heading(f"The fastest {len(fastest)}"),
        table(("time over best", *candidates.names), fastest),
    ]


def _drawn(candidates: Candidates, seconds: np.ndarray, failed: np.ndarray | None) -> list[str]:
    go = plotly()
    from plotly.subplots import make_subplots

    shares = importance(candidates, seconds)
    if not shares:
        return [paragraph("No parameter varies.")]
    names = [i.name for i in shares]
    bars = go.Figure(
        [
            go.Bar(y=names, x=[i.overall for i in shares], name="of all", orientation="h"),
            go.Bar(y=names, x=[i.among_fast for i in shares], name="of the fastest tenth", orientation="h"),
        ],
        layout={
            "title": "Share of the variance of log time that a parameter explains alone",
            "yaxis_autorange": "reversed",
        },
    )
    rows = -(-len(shares) // COLUMNS)
    panels = make_subplots(rows=rows, cols=COLUMNS, subplot_titles=names)
    for number, share in enumerate(shares):
        levels = dependence(candidates, seconds, share.name, failed)
        values = [str(level.value) for level in levels]
        for what, colour in (("best", BLUE), ("median", GREY)):
            line = go.Scatter(
                x=values,
                y=[getattr(level, what) for level in levels],
                name=what,
                mode="lines+markers",
                marker_color=colour,
                showlegend=number == 0,
            )
            panels.add_trace(line, row=number // COLUMNS + 1, col=number % COLUMNS + 1)
    panels.update_yaxes(type="log")
    panels.update_xaxes(type="category")
    panels.update_layout(title="Time over the best, by value", height=260 * rows + 100)
    return [figure(bars), figure(panels)]


def write_report(
    path: Path,
    title: str,
    candidates: Candidates,
    seconds: np.ndarray,
    *,
    failed: np.ndarray | None = None,
    differences: Mapping[str, str] | None = None,
) -> None:
    """Write a page about one space. ``differences`` are texts by title, see ``analysis.source_difference``.

    Raises ``UsageError`` without plotly (``gpucomp[report]``), for a space without a successful measurement, or if the file
    cannot be written.
    """
    if not np.isfinite(seconds).any():
        raise UsageError(f"{title}: no measurement succeeded, so there is nothing to report")
    more = [text(name, body) for name, body in (differences or {}).items()]
    write(path, title, [*space(candidates, seconds, failed), *more])
