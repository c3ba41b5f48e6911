"""Lays out a directed acyclic graph in layers (Sugiyama, Tagawa and Toda, 1981): boxes of any size, edges from top to bottom.

A box stands one layer below the lowest box that it reads. Edges over several layers pass through places of their own, so that
they do not cross boxes; the edges from one box share these. Order within a layer: barycentres, swept down and up. Positions:
each box as close to its neighbours as the order allows, which is an isotonic regression of every layer.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise

from gpucomp.lazy_dataclass import dataclass

GAP, BETWEEN = 26.0, 46.0  # pixels between boxes of a layer, and between layers
FAR = 24  # edges over more layers are not drawn: hundreds of parallel lines say nothing
SWEEPS = 8
LANE = 10.0  # width of a place that an edge passes through
STRAIGHT = 8.0  # how much more an edge between two such places counts
Point = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Where the boxes are (upper left corners), and the points of each edge; no points for an edge that is not drawn."""

    places: Sequence[Point]
    routes: Sequence[Sequence[Point]]
    width: float
    height: float


@dataclass(eq=False)
class _Item:
    """A box, or a place that edges pass through."""

    wide: float
    high: float
    layer: int
    box: bool = True
    above: list[_Item] = field(default_factory=list)
    below: list[_Item] = field(default_factory=list)
    place: int = 0  # in its layer
    x: float = 0.0  # the middle
    y: float = 0.0


def layout(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """``sizes`` are widths and heights. Every edge leads to a later box."""
    ranks = _ranks(len(sizes), edges)
    items = [_Item(wide, high, rank) for (wide, high), rank in zip(sizes, ranks, strict=True)]
    layers: list[list[_Item]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for item in items:
        layers[item.layer].append(item)
    chains = _connected(items, edges, layers)
    _order(layers)
    _across(layers)
    _down(layers)
    left = min((i.x - i.wide / 2 for layer in layers for i in layer), default=0.0)
    right = max((i.x + i.wide / 2 for layer in layers for i in layer), default=0.0)
    low = max((i.y + i.high for layer in layers for i in layer), default=0.0)
    for layer in layers:
        for item in layer:
            item.x -= left
    return Layout(
        [(item.x - item.wide / 2, item.y) for item in items],
        [_route(items[a], items[b], chains.get(a, [])) for a, b in edges],
        right - left,
        low,
    )


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box: one below the lowest that it reads. What reads nothing comes down to its first reader."""
    ranks, readers = [0] * count, [count] * count
    reads: list[list[int]] = [[] for _ in range(count)]
    for a, b in edges:
        reads[b].append(a)
    for b in range(count):
        ranks[b] = max((ranks[a] + 1 for a in reads[b]), default=0)
    for a, b in edges:
        readers[a] = min(readers[a], ranks[b])
    return [rank if reads[k] or readers[k] == count else max(readers[k] - 1, 0) for k, rank in enumerate(ranks)]


def _connected(
    items: Sequence[_Item], edges: Sequence[tuple[int, int]], layers: Sequence[list[_Item]]
) -> dict[int, list[_Item]]:
    """Connect neighbours, through places in the layers between. The result has the places of each box's edges."""
    chains: dict[int, list[_Item]] = {}
    for a, b in sorted(set(edges)):
        start, end = items[a], items[b]
        if end.layer - start.layer > FAR:
            continue
        chain = chains.setdefault(a, [])
        while start.layer + len(chain) + 1 < end.layer:
            place = _Item(LANE, 0.0, start.layer + len(chain) + 1, box=False)
            _join(chain[-1] if chain else start, place)
            layers[place.layer].append(place)
            chain.append(place)
        span = end.layer - start.layer
        _join(chain[span - 2] if span > 1 else start, end)
    return chains


def _join(above: _Item, below: _Item) -> None:
    above.below.append(below)
    below.above.append(above)


def _order(layers: Sequence[list[_Item]]) -> None:
    """Sort each layer by the mean place of its neighbours, down and up in turn; keep the order with the fewest crossings."""
    _number(layers)
    best, kept = _crossings(layers), [list(layer) for layer in layers]
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in layers[1:] if down else reversed(layers[:-1]):
            layer.sort(key=lambda item: _mean([n.place for n in (item.above if down else item.below)], item.place))
            _number([layer])
        if (now := _crossings(layers)) < best:
            best, kept = now, [list(layer) for layer in layers]
    for layer, order in zip(layers, kept, strict=True):
        layer[:] = order


def _number(layers: Sequence[list[_Item]]) -> None:
    for layer in layers:
        for place, item in enumerate(layer):
            item.place = place


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(layers: Sequence[list[_Item]]) -> int:
    """How many pairs of edges between neighbouring layers cross."""
    count = 0
    for layer in layers:
        ends: list[int] = []
        for item in layer:
            for end in sorted(below.place for below in item.below):
                count += len(ends) - bisect_right(ends, end)
                insort(ends, end)
    return count


def _across(layers: Sequence[list[_Item]]) -> None:
    """Set the middles: first side by side, then by neighbours above, below, and both."""
    for layer in layers:
        _settle(layer, [0.0] * len(layer), [1.0] * len(layer))
    for sides in (("above",), ("below",)) * (SWEEPS // 2) + (("above", "below"),):
        for layer in reversed(layers) if sides == ("below",) else layers:
            wanted, weights = [], []
            for item in layer:
                near = [n for side in sides for n in getattr(item, side)]
                pulls = [1.0 if item.box or n.box else STRAIGHT for n in near]
                weights.append(sum(pulls) or 0.01)
                total = sum(n.x * pull for n, pull in zip(near, pulls, strict=True))
                wanted.append(total / sum(pulls) if near else item.x)
            _settle(layer, wanted, weights)


def _settle(layer: Sequence[_Item], wanted: Sequence[float], weights: Sequence[float]) -> None:
    """The middles closest to ``wanted`` (least squares) that keep order and gaps: pool adjacent violators (Barlow, 1972)."""
    starts, at = [0.0], 0.0
    for one, other in pairwise(layer):
        at += (one.wide + other.wide) / 2 + GAP
        starts.append(at)
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for want, weight, start in zip(wanted, weights, starts, strict=False):
        mean, members = want - start, 1
        while pools and pools[-1][0] > mean:
            before, heavy, more = pools.pop()
            mean = (mean * weight + before * heavy) / (weight + heavy)
            weight, members = weight + heavy, members + more
        pools.append((mean, weight, members))
    means = [mean for mean, _, members in pools for _ in range(members)]
    for item, mean, start in zip(layer, means, starts, strict=False):
        item.x = mean + start


def _down(layers: Sequence[list[_Item]]) -> None:
    y = 0.0
    for layer in layers:
        high = max(item.high for item in layer)
        for item in layer:
            item.y = y
            if not item.box:
                item.high = high
        y += high + BETWEEN


def _route(start: _Item, end: _Item, chain: Sequence[_Item]) -> list[Point]:
    """From the lower edge of a box to the upper edge of another; two points for each place between."""
    if end.layer - start.layer > FAR:
        return []
    points = [(start.x, start.y + start.high)]
    for place in chain[: end.layer - start.layer - 1]:
        points += [(place.x, place.y), (place.x, place.y + place.high)]
    return [*points, (end.x, end.y)]
