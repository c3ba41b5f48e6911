"""Draws spaces and searches for pages: the shape of a measured space, and how close samplers come to its best point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gpucomp import files
from gpucomp.errors import several
from gpucomp.report import chart, page
from gpucomp.report.chart import Axis, Series
from gpucomp.tuning.analysis import FAST, NEAR, Importance, dependence, importance, neighbours
from gpucomp.tuning.recorded import Recorded
from gpucomp.tuning.replay import Result, certainty
from gpucomp.tuning.space import Candidates

FEW = 30  # points of a search: shares of variance from fewer say little, and those of their fastest tenth nothing
TOP = 20  # of the fastest points
MOST_BANDS = 3  # intervals in one chart: more of them become one area
MOST_DRAWN = 12  # parameters with a chart of their own, and spaces with a section
QUANTILES = 200  # points of the curve of sorted times
WIDEST = 24  # values of a parameter that a map can show
BLUE, ORANGE, GREY = 0, 1, 7
Labels = Mapping[str, Sequence[str]]


def replayed(path: Path, spaces: Sequence[Recorded], results: Sequence[Result], notes: Sequence[str] = ()) -> None:
    """Write a page about searches of recorded spaces: a curve for each sampler, and the shape of each space.

    ``notes`` are what has to be known of the figures.
    """
    seeds, trials = results[0].seeds, results[0].trials
    banded = len(results) <= MOST_BANDS * len(spaces)
    place = "the band around it is" if banded else "in parentheses in the table is"
    about = (
        f"Searches of {trials} trials, {seeds} for each sampler and space, on recorded measurements. A line is the mean "
        f"over the searches; {place} {certainty(seeds)}."
    )
    budgets = list(results[0].fraction_of_optimum)
    rows = [
        (r.file, r.sampler, str(r.points), *(_with_interval(r, b) for b in budgets), f"{r.sampler_ms:.1f}")
        for r in results
    ]
    head = ("space", "sampler", "points", *(f"after {b}" for b in budgets), "ms per trial")
    body = [
        "<h1>Searches on recorded spaces</h1>",
        page.paragraph(about),
        *(page.paragraph(f"Note: {note}.") for note in notes),
        page.heading("How close a search comes to the best point"),
        _charts([curves(space.name, own) for space, own in _by_space(spaces, results)]),
        page.paragraph("Share of the optimum: the best time in the space over the time of the point that was found."),
        page.table(head, rows),
    ]
    for one in spaces[:MOST_DRAWN]:
        body += [page.heading(f"The space of {one.name}"), page.paragraph(f"Measured on {one.device}.")]
        body += space(one.candidates, one.seconds, np.isnan(one.seconds), one.labels)
    if len(spaces) > MOST_DRAWN:
        body.append(page.paragraph(f"{len(spaces) - MOST_DRAWN} more spaces are not drawn."))
    files.write(path, page.page("Searches on recorded spaces", body))


def _by_space(spaces: Sequence[Recorded], results: Sequence[Result]) -> list[tuple[Recorded, list[Result]]]:
    each = len(results) // len(spaces)
    return [(one, list(results[k * each : (k + 1) * each])) for k, one in enumerate(spaces)]


def _with_interval(result: Result, budget: str) -> str:
    low, high = result.interval[budget]
    return f"{result.fraction_of_optimum[budget]:.3f} ({low:.3f} to {high:.3f})"


def curves(title: str, results: Sequence[Result]) -> str:
    """The chart of searches of one space, with a line for each sampler, and its interval if there are few."""
    banded = len(results) <= MOST_BANDS
    series = [
        Series(
            r.sampler,
            range(1, r.trials + 1),
            r.curve,
            r.curve_low if banded else (),
            r.curve_high if banded else (),
            colour=k,
        )
        for k, r in enumerate(results)
    ]
    return chart.lines(title, series, Axis("trials", log=True), Axis("share of the optimum", most=1.0))


def _charts(found: Sequence[str]) -> str:
    return f'<div class="charts">{"".join(found)}</div>'


def space(
    candidates: Candidates,
    seconds: np.ndarray,
    failed: np.ndarray | None = None,
    labels: Labels | None = None,
    *,
    sampled: bool = False,
) -> list[str]:
    """The parts of a page about one space: its shape, what matters, the winner's neighbours, the fastest points.

    ``seconds`` [points] is NaN where unknown or failed; at least one is a number. ``labels`` name values of parameters.
    The points are a whole space, or with ``sampled`` those that a search tried.
    """
    named = labels or {}
    winner, best = int(np.nanargmin(seconds)), float(np.nanmin(seconds))
    around = [
        (
            n.name,
            f"{_label(named, n.name, n.instead_of)} → {_label(named, n.name, n.value)}",
            "failed" if n.ratio is None else f"{n.ratio:.3f}",
        )
        for n in neighbours(candidates, seconds, winner, failed)
    ]
    order = np.argsort(np.where(np.isfinite(seconds), seconds, np.inf), kind="stable")[:TOP].tolist()
    fastest = [(f"{seconds[p] / best:.3f}", *_labels(named, candidates, p)) for p in order if np.isfinite(seconds[p])]
    count, near = int(np.isfinite(seconds).sum()), int((seconds <= NEAR * best).sum())
    fails = "" if failed is None else f", {int(failed.sum())} failed"
    close = f"{near} of them take{'s' if near == 1 else ''} at most {NEAR:g} times the best time."
    if count < FEW and not sampled:
        close += f" They are fewer than {FEW}: no share of the variance is drawn."
    return [
        page.paragraph(
            f"{several(len(candidates), 'point')} {'that the search tried' if sampled else 'in the file'}, {count} measured"
            f"{fails}. {close}"
        ),
        *_drawn(candidates, seconds, failed, named, sampled=sampled),
        page.heading("One parameter away from the winner", 3),
        page.table(("parameter", "change", "time over the winner's"), around)
        if around
        else page.paragraph("No point was tried that differs from the winner in one parameter only."),
        page.heading(f"The fastest {len(fastest)}", 3),
        page.table(("time over best", *candidates.names), fastest),
    ]


def _label(labels: Labels, name: str, value: int) -> str:
    return labels[name][value] if name in labels else str(value)


def _labels(labels: Labels, candidates: Candidates, point: int) -> list[str]:
    values = candidates.values[point].tolist()
    return [_label(labels, name, value) for name, value in zip(candidates.names, values, strict=True)]


def _drawn(
    candidates: Candidates, seconds: np.ndarray, failed: np.ndarray | None, labels: Labels, *, sampled: bool
) -> list[str]:
    shares = importance(candidates, seconds)
    if not shares:
        return [page.paragraph("No parameter varies.")]
    count = int(np.isfinite(seconds).sum())
    groups = [("of all points", [i.overall for i in shares])]
    if not sampled or count * FAST >= FEW:
        groups.append(("of the fastest tenth", [i.among_fast for i in shares]))
    title = "Share of the variance of log time that a parameter explains alone"
    found = [_sorted_times(seconds)]
    if count >= FEW:
        found.append(chart.bars(title, [i.name for i in shares], groups))
    if len(shares) > 1:
        wide = [one for one in shares if len(np.unique(candidates.values[:, candidates.names.index(one.name)])) > 2]
        found += _map(candidates, seconds, failed, labels, (wide if len(wide) > 1 else shares)[:2])
    panels = [_levels(candidates, seconds, failed, labels, share.name, sampled) for share in shares[:MOST_DRAWN]]
    title = "Time over the best, by the value of a parameter"
    return [
        _charts(found),
        page.heading(f"{title}, with the number of its points" if sampled else title, 3),
        _charts(panels),
    ]


def _sorted_times(seconds: np.ndarray) -> str:
    """The times of all points, from the fastest to the slowest: how rare fast ones are."""
    ratios = np.sort(seconds[np.isfinite(seconds)]) / np.nanmin(seconds)
    shares = np.linspace(0, 100, min(QUANTILES, len(ratios)))
    times = np.quantile(ratios, shares / 100)
    one = Series("points", shares.tolist(), times.tolist())
    axes = Axis("share of the points", least=0, most=100, unit=" %"), Axis("time over the best", log=True, least=1.0)
    return chart.lines("All points, the fastest first", [one], *axes)


def _map(
    candidates: Candidates,
    seconds: np.ndarray,
    failed: np.ndarray | None,
    labels: Labels,
    pair: Sequence[Importance],
) -> list[str]:
    """The best time for each pair of values of two parameters; nothing if they have too many values."""
    columns = [candidates.values[:, candidates.names.index(one.name)] for one in pair]
    values = [np.unique(column).tolist() for column in columns]
    if max(map(len, values)) > WIDEST:
        return []
    best = float(np.nanmin(seconds))

    def cell(a: int, b: int) -> float | None:
        here = (columns[0] == a) & (columns[1] == b)
        times = seconds[here & np.isfinite(seconds)]
        if len(times):
            return float(times.min()) / best
        return float("inf") if failed is not None and (here & failed).any() else None

    across, up = (
        Axis(one.name, names=[_label(labels, one.name, v) for v in own]) for one, own in zip(pair, values, strict=True)
    )
    cells = [[cell(a, b) for a in values[0]] for b in values[1]]
    every = [one for row in cells for one in row]
    signs = "; × failed" * (float("inf") in every) + "; empty: not measured" * (None in every)
    return [chart.heat(f"Best time over the best of all{signs}", across, up, cells)]


def _levels(
    candidates: Candidates, seconds: np.ndarray, failed: np.ndarray | None, labels: Labels, name: str, sampled: bool
) -> str:
    levels = dependence(candidates, seconds, name, failed)
    places = list(range(len(levels)))
    series = [
        Series("best", places, [level.best for level in levels], colour=BLUE),
        Series("median", places, [level.median for level in levels], colour=GREY),
    ]
    names = [_label(labels, name, level.value) for level in levels]
    if sampled:
        names = [f"{value} ({level.count})" for value, level in zip(names, levels, strict=True)]
    return chart.lines(name, series, Axis("", names=names), Axis("time over the best", log=True, least=1.0))
