"""Charts as SVG for ``page``: lines with bands, points, bars, heat maps. Colours are those of ``page.css``, light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from itertools import cycle

from gpucomp.lazy_dataclass import dataclass
from gpucomp.report.page import COLOURS, shown

WIDTH, HEIGHT = 420, 280
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 8, 38
DASHES = ("", "7 3", "2 3", "9 3 2 3")  # tell lines apart without colours
MARKED = 24  # points of a line that are marked
LETTER = 6.6  # the usual width of one at 12 px


@dataclass(frozen=True)
class Series:
    """One line or cloud of points. ``low`` and ``high`` bound a band around it; ``notes`` are shown at its points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: int = 0
    points: bool = False
    steps: bool = False
    notes: Sequence[str] = ()

    @property
    def values(self) -> list[float]:
        return [v for v in (*self.y, *self.low, *self.high) if math.isfinite(v)]


@dataclass(frozen=True)
class Axis:
    """A scale with its title. ``names`` are the values of an axis of categories, which stand at 0, 1, ..."""

    title: str
    log: bool = False
    least: float | None = None
    most: float | None = None
    names: Sequence[str] = ()
    unit: str = ""


@dataclass(frozen=True)
class _Scale:
    """From values to pixels between ``start`` and ``end``, with the ticks."""

    least: float
    most: float
    start: float
    end: float
    log: bool
    ticks: Sequence[tuple[float, str]] = field(default=())

    def __call__(self, value: float) -> float:
        found = self._of(value), self._of(self.least), self._of(self.most)
        share = (found[0] - found[1]) / (found[2] - found[1])
        return round(self.start + (self.end - self.start) * min(max(share, 0.0), 1.0), 1)

    def _of(self, value: float) -> float:
        return math.log(value) if self.log else value


def lines(title: str, series: Sequence[Series], x: Axis, y: Axis) -> str:
    """A chart of lines or points. A legend names them if there are several."""
    across = _scale(x, [v for s in series for v in s.x if math.isfinite(v)], LEFT, WIDTH - RIGHT, 6)
    up = _scale(y, [v for s in series for v in s.values], HEIGHT - BOTTOM, TOP, 6)
    parts = [*_axes(x, y, across, up)]
    dashes = cycle(DASHES)
    key = [(s.name, s.colour, "points" if s.points else next(dashes)) for s in series]
    for one, (_, _, kind) in zip(series, key, strict=True):
        parts += _points(one, across, up) if one.points else _line(one, kind, across, up)
    return _figure(title, _legend(key) if len(series) > 1 else "", parts, HEIGHT)


def bars(title: str, names: Sequence[str], groups: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Horizontal bars of shares, 0 to 1: for each of ``names`` one bar of each group."""
    left = min(max(60.0, LETTER * min(max(map(len, names), default=0), 22) + 12), 160.0)
    thick, top, parts = 22 / max(len(groups), 1), float(TOP), []
    for row, name in enumerate(names):
        parts.append(_text(left - 8, top + 15, name, "end", "said", most=22))
        for number, (_, values) in enumerate(groups):
            length = (WIDTH - left - 44) * min(values[row], 1.0)
            y = top + number * thick
            parts.append(_box(left, y, max(length, 1), thick - 1, number))
            parts.append(_text(left + length + 5, y + thick / 2 + 4, f"{100 * values[row]:.0f} %", "start", "small"))
        top += 30
    key = [(name, number, "filled") for number, (name, _) in enumerate(groups)]
    return _figure(title, _legend(key) if len(groups) > 1 else "", parts, top)


def heat(title: str, across: Axis, up: Axis, cells: Sequence[Sequence[float | None]]) -> str:
    """A map of ``cells`` [up][across], numbers of at least 1: the closer to 1, the stronger the colour.

    ``None`` is unknown and stays empty; infinity is a cross.
    """
    wide = (WIDTH - LEFT - RIGHT) / max(len(across.names), 1)
    high = min(max(190 / max(len(up.names), 1), 16), 34)
    base, parts = TOP + high * len(up.names), []
    for row, values in enumerate(cells):
        y = base - high * (row + 1)
        parts.append(_text(LEFT - 6, y + high / 2 + 4, up.names[row], "end", most=6))
        for column, value in enumerate(values):
            x, known = LEFT + wide * column, value is not None and math.isfinite(value)
            strong = max(0.04, 0.5 / max(value, 1.0) ** 1.5) if value is not None and known else 0.0
            text = "" if value is None else f"{value:.3g}" if known else "×"
            note = f"{up.title} {up.names[row]}, {across.title} {across.names[column]}: {text or 'not measured'}"
            parts += [f"<g><title>{shown(note)}</title>", _box(x, y, wide - 1, high - 1, 0, strong)]
            if LETTER * len(text) < wide:
                parts.append(_text(x + wide / 2, y + high / 2 + 4, text, "middle", "said small"))
            parts.append("</g>")
    longest = max(map(len, across.names), default=1)
    for column in range(0, len(across.names), max(1, math.ceil(LETTER * (longest + 1) / max(wide, 1)))):
        parts.append(_text(LEFT + wide * (column + 0.5), base + 15, across.names[column], "middle", most=8))
    parts += _titles(across, up, base + 32, TOP + high * len(up.names) / 2)
    return _figure(title, "", parts, base + 38)


# the parts ---------------------------------------------------------------------------------------------------------


def _figure(title: str, legend: str, parts: Sequence[str], height: float) -> str:
    view = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{shown(title)}">'
    return f"<figure><figcaption>{shown(title)}</figcaption>{legend}{view}{''.join(parts)}</svg></figure>"


def _text(x: float, y: float, text: str, anchor: str, kind: str = "", most: int = 50) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{shown(text, most)}</text>'


def _box(x: float, y: float, wide: float, high: float, colour: int, strong: float = 1.0) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
    return f'<rect {place} fill="var(--c{colour % COLOURS})" fill-opacity="{strong:.2f}"/>'


def _legend(key: Sequence[tuple[str, int, str]]) -> str:
    """Signs and names. The third of each is ``filled``, ``points`` or the dashes of a line."""
    found = []
    for name, colour, kind in key:
        ink = f"var(--c{colour % COLOURS})"
        if kind == "filled":
            drawn = f'<rect width="24" height="10" rx="2" fill="{ink}"/>'
        elif kind == "points":
            drawn = f'<circle cx="12" cy="5" r="4" fill="{ink}"/>'
        else:
            drawn = f'<path d="M0 5H24" stroke="{ink}" stroke-width="2.5" stroke-dasharray="{kind}"/>'
        found.append(f'<span><svg width="24" height="10">{drawn}</svg>{shown(name, 40)}</span>')
    return f'<div class="legend">{"".join(found)}</div>'


def _axes(x: Axis, y: Axis, across: _Scale, up: _Scale) -> list[str]:
    bottom, parts = HEIGHT - BOTTOM, []
    for value, text in up.ticks:
        at = up(value)
        parts.append(f'<path class="grid" d="M{LEFT} {at}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 6, at + 4, text, "end"))
    for value, text in across.ticks:
        at = across(value)
        parts.append(f'<path class="grid" d="M{at} {bottom}v4"/>')
        parts.append(_text(at, bottom + 16, text, "middle", most=9))
    return [*parts, *_titles(x, y, HEIGHT - 4, (TOP + bottom) / 2)]


def _titles(x: Axis, y: Axis, bottom: float, middle: float) -> list[str]:
    turned = (
        f'<text transform="translate(11 {middle:.0f}) rotate(-90)" text-anchor="middle">{shown(y.title, 40)}</text>'
    )
    return [_text((LEFT + WIDTH - RIGHT) / 2, bottom, x.title, "middle"), turned]


def _line(one: Series, dashes: str, across: _Scale, up: _Scale) -> list[str]:
    ink, parts = f"var(--c{one.colour % COLOURS})", []
    known = [k for k, value in enumerate(one.y) if math.isfinite(value)]
    places = [(across(one.x[k]), up(one.y[k])) for k in known]
    if one.low and one.high:
        edge = [(across(one.x[k]), up(one.high[k])) for k in known]
        edge += [(across(one.x[k]), up(one.low[k])) for k in reversed(known)]
        around = " ".join(f"{a:g},{b:g}" for a, b in edge)
        parts.append(f'<polygon points="{around}" fill="{ink}" fill-opacity=".16"/>')
    path = "M{:g} {:g}".format(*places[0]) if places else ""
    path += "".join(f"H{a:g}V{b:g}" if one.steps else f"L{a:g} {b:g}" for a, b in places[1:])
    parts.append(f'<path class="line" d="{path}" stroke="{ink}" stroke-dasharray="{dashes}"/>')
    if len(places) <= MARKED:
        parts += [f'<circle cx="{a:g}" cy="{b:g}" r="3" fill="{ink}"/>' for a, b in places]
    return parts


def _points(one: Series, across: _Scale, up: _Scale) -> list[str]:
    ink, parts = f"var(--c{one.colour % COLOURS})", []
    for k, value in enumerate(one.y):
        if math.isfinite(value):
            note = f"<title>{shown(one.notes[k])}</title>" if one.notes else ""
            place = f'cx="{across(one.x[k]):g}" cy="{up(value):g}" r="3"'
            parts.append(f'<circle {place} fill="{ink}" fill-opacity=".65">{note}</circle>')
    return parts


# scales ------------------------------------------------------------------------------------------------------------


def _scale(axis: Axis, values: Sequence[float], start: float, end: float, most_ticks: int) -> _Scale:
    if axis.names:
        count = len(axis.names)
        every = max(1, math.ceil(count * LETTER * (max(map(len, axis.names)) + 1) / abs(end - start)))
        ticks = [(float(k), axis.names[k]) for k in range(0, count, every)]
        return _Scale(-0.5, count - 0.5, start, end, False, ticks)
    if axis.log:
        values = [v for v in values if v > 0]
    least = axis.least if axis.least is not None else min(values, default=1.0)
    most = axis.most if axis.most is not None else max(values, default=1.0)
    if most <= least:
        least, most = (least / 1.1, least * 1.1) if axis.log else (least - 0.5, least + 0.5)
    found = _log_ticks(least, most, most_ticks) if axis.log else _ticks(least, most, most_ticks)
    return _Scale(least, most, start, end, axis.log, [(v, f"{v:.6g}{axis.unit}") for v in found])


def _ticks(least: float, most: float, count: int) -> list[float]:
    """Round numbers, at most ``count`` and a few more."""
    raw = (most - least) / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.ceil(least / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(most / step + 1e-9) + 1)]


def _log_ticks(least: float, most: float, count: int) -> list[float]:
    low, high = math.floor(math.log10(least)), math.ceil(math.log10(most))
    fine = (tuple(1 + k / 10 for k in range(10)), (1, 1.2, 1.4, 1.6, 1.8)) if most < 2 * least else ()
    for digits in (*fine, (1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1,)):
        found = [d * 10.0**p for p in range(low, high + 1) for d in digits]
        found = [v for v in found if least * 0.9999 <= v <= most * 1.0001]
        if 2 <= len(found) <= count + 1:
            return found
    return found[:: max(1, -(-len(found) // count))] if len(found) > 1 else [least, most]
