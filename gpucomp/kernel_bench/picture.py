"""The figures of a kernel benchmark as one SVG: the roofline with every kernel, and each engine's time over gpucomp's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpucomp.kernel_bench.rounds import Measured
from gpucomp.kernel_bench.specs import nbytes, operations
from gpucomp.report import chart, page
from gpucomp.report.chart import Axis, Series

INNER = re.compile(r"<svg viewBox=\"0 0 (\d+) (\d+)\"[^>]*>(.*)</svg></figure>", re.DOTALL)
GAP, LINE = 16, 20  # pixels
LETTERS = 7  # of a chart, before it is drawn twice as large


def svg(found: Sequence[Measured], about: str) -> str:
    """``about`` is a line on what was measured, and where."""
    names = list(dict.fromkeys(row.engine for one in found for row in one.rows))
    parts = [_text(GAP, LINE, about, 14)]
    y = 2 * LINE
    for number, name in enumerate(names):
        x = GAP + 130 * number
        parts.append(f'<circle cx="{x + 4}" cy="{y - 4}" r="4" fill="var(--c{number % page.COLOURS})"/>')
        parts.append(_text(x + 14, y, name))
    parts.append(
        _text(GAP, y + LINE, "The line: this machine's peak of f32 multiply-adds, and the bandwidth of a copy of 64 MB")
    )
    y += LINE + GAP
    for title, drawn in (
        ("Roofline", _roofline(found, names)),
        ("Time over gpucomp's, above 1 it is slower", _ratios(found, names)),
    ):
        match = INNER.search(drawn)
        if match is None:
            continue
        width, height = int(match[1]), int(match[2])
        parts.append(_text(GAP, y + 12, title, 13))
        parts.append(
            f'<svg x="0" y="{y + LINE}" width="{2 * width}" height="{2 * height}" viewBox="0 0 {width} {height}">{match[3]}</svg>'
        )
        y += LINE + 2 * height + GAP
    style = "\n".join(line for line in (page.HERE / "page.css").read_text(encoding="utf-8").splitlines() if _kept(line))
    style += f"\nsvg svg text {{ font-size: {LETTERS}px; }}"
    size = f'viewBox="0 0 {2 * chart.WIDTH} {y}" width="{2 * chart.WIDTH}" height="{y}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="var(--paper)"/>{"".join(parts)}</svg>\n'
    )


def _kept(line: str) -> bool:
    """Whether a line of the pages' style sheet is one of colours, or of charts."""
    return line.startswith((":root", "@media", "  ", "}", "svg text", ".grid", ".line")) and "font:" not in line


def _text(x: float, y: float, text: str, size: int = 12) -> str:
    return f'<text class="said" x="{x}" y="{y}" style="font-size:{size}px">{page.shown(text, 200)}</text>'


def _roofline(found: Sequence[Measured], names: Sequence[str]) -> str:
    """Operations a second over operations for each byte that must move; kernels without operations are not in it."""
    known = [one for one in found if operations(one.spec)]
    if not known:
        return ""
    intensity = {id(one): (operations(one.spec) or 0) / nbytes(one.spec) for one in known}
    series = []
    ceilings = next((one.ceilings for one in known if one.ceilings is not None), None)
    if ceilings is not None:
        low, high = min(intensity.values()) / 1.5, max(intensity.values()) * 1.5
        widest = ceilings.copies[-1][1]
        knee = ceilings.flops / widest
        xs = [low, *([knee] if low < knee < high else []), high]
        ys = [min(ceilings.flops, x * widest) / 1e9 for x in xs]
        series.append(Series("peak of f32, copy of 64 MB", xs, ys, colour=page.COLOURS - 1))
    for number, name in enumerate(names):
        rows = [(one, row) for one in known for row in one.rows if row.engine == name and row.median_s]
        series.append(
            Series(
                name,
                [intensity[id(one)] for one, _ in rows],
                [(operations(one.spec) or 0) / (row.median_s or 1.0) / 1e9 for one, row in rows],
                colour=number,
                points=True,
                notes=[f"{one.spec}: {1e6 * (row.median_s or 0):.4g} us" for one, row in rows],
            )
        )
    return chart.lines("Roofline", series, Axis("operations per byte", log=True), Axis("GFLOP/s", log=True))


def _ratios(found: Sequence[Measured], names: Sequence[str]) -> str:
    series = []
    for number, name in enumerate(names[1:], start=1):
        pairs = [
            (place, one, ratio)
            for place, one in enumerate(found, start=1)
            for row in one.rows
            if row.engine == name and (ratio := one.ratio(row)) is not None
        ]
        series.append(
            Series(
                name,
                [place for place, _, _ in pairs],
                [ratio[1] for _, _, ratio in pairs],
                colour=number,
                points=True,
                notes=[f"{one.spec}: {ratio[1]:.2f} ({ratio[0]:.2f} to {ratio[2]:.2f})" for _, one, ratio in pairs],
            )
        )
    if not any(one.y for one in series):
        return ""
    series.append(Series("1", [0.5, len(found) + 0.5], [1.0, 1.0], colour=0))
    return chart.lines("Ratios", series, Axis("kernel", least=0.5, most=len(found) + 0.5), Axis("ratio", log=True))
