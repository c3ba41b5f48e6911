"""The layout in layers: no box on another, edges lead down and around boxes, and order avoids crossings."""

import numpy as np
import pytest

from gpucomp.report.layered import FAR, layout

BOX = (100.0, 40.0)


def overlaps(a, b, sizes, places):
    (x, y), (u, v) = places[a], places[b]
    return x < u + sizes[b][0] and u < x + sizes[a][0] and y < v + sizes[b][1] and v < y + sizes[a][1]


@pytest.mark.parametrize("seed", range(4))
def test_boxes_are_apart_and_edges_lead_down_from_box_to_box(seed):
    rng = np.random.default_rng(seed)
    sizes = [(100.0, float(rng.integers(20, 90))) for _ in range(40)]
    edges = sorted({(int(rng.integers(max(0, b - 6), b)), b) for b in range(1, 40) for _ in range(2)})

    found = layout(sizes, edges)

    assert not any(overlaps(a, b, sizes, found.places) for b in range(40) for a in range(b))
    assert all(0 <= x <= found.width - 100 and y >= 0 for x, y in found.places)
    for (a, b), points in zip(edges, found.routes, strict=True):
        (x, y), (u, v) = found.places[a], found.places[b]
        assert points[0] == pytest.approx((x + 50, y + sizes[a][1]))
        assert points[-1] == pytest.approx((u + 50, v))
        assert [p[1] for p in points] == sorted(p[1] for p in points)


def test_an_edge_over_a_box_goes_around_it():
    found = layout([BOX] * 3, [(0, 1), (1, 2), (0, 2)])

    around = found.routes[2]
    (left, top) = found.places[1]
    beside = [x for x, y in around if top <= y <= top + 40]
    assert len(around) == 4
    assert len(beside) == 2
    assert all(x < left or x > left + 100 for x in beside)


def test_the_order_avoids_crossings():
    found = layout([BOX] * 4, [(0, 3), (1, 2)])  # side by side in the order of the boxes, these cross

    x = [place[0] for place in found.places]
    assert (x[0] < x[1]) == (x[3] < x[2])


def test_a_chain_is_straight_and_what_reads_nothing_stands_above_its_reader():
    found = layout([BOX] * 5, [(0, 1), (1, 2), (2, 4), (3, 4)])

    assert len({x for x, _ in found.places[:3]}) == 1
    assert found.places[3][1] == found.places[2][1]


def test_edges_over_many_layers_are_not_drawn():
    count = FAR + 3
    found = layout([BOX] * count, [*((k, k + 1) for k in range(count - 1)), (0, count - 1), (1, count - 2)])

    assert found.routes[-2] == []
    assert len(found.routes[-1]) == 2 * FAR
    assert layout([], []).places == []
