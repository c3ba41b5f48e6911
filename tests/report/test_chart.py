"""Charts: what is drawn where, ticks that are round, and texts that stay texts."""

import math
import re

from gpucomp.report import chart
from gpucomp.report.chart import Axis, Series


def test_a_line_has_its_band_and_leaves_out_what_is_unknown():
    y = [0.2, math.nan, 0.8, 1.0]
    one = Series("a <b>", [1, 2, 3, 4], y, low=[0.1, 0, 0.7, 0.9], high=[0.3, 0, 0.9, 1.0])

    drawn = chart.lines("title", [one, one], Axis("x"), Axis("y", least=0, most=1))

    band = re.search(r'<polygon points="([^"]*)"', drawn)[1].split()
    path = re.search(r'<path class="line" d="([^"]*)"', drawn)[1]
    assert len(band) == 6
    assert path.count("L") == 2
    assert path.startswith(f"M{chart.LEFT} ")
    assert path.endswith(f" {chart.TOP}")  # 1.0 is at the top
    assert "a &lt;b&gt;" in drawn
    assert "<b>" not in drawn


def test_ticks_are_round_and_few():
    assert chart._ticks(0, 1, 6) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert chart._ticks(3, 17, 6) == [5, 7.5, 10, 12.5, 15]
    assert chart._log_ticks(1, 100, 6) == [1, 10, 100] or len(chart._log_ticks(1, 100, 6)) <= 7
    for most in (1.05, 1.6, 2.9, 8, 75, 4000, 1e9):
        ticks = chart._log_ticks(1, most, 6)
        assert 2 <= len(ticks) <= 7
        assert all(0.999 <= tick <= most * 1.001 for tick in ticks)
        assert ticks[-1] >= math.sqrt(most)  # the upper half is not empty


def test_a_chart_of_equal_values_or_of_none_can_be_drawn():
    for values in ([2.0, 2.0], [math.nan, math.nan]):
        for log in (True, False):
            assert "<svg" in chart.lines("t", [Series("a", [1, 2], values)], Axis("x"), Axis("y", log=log))


def test_a_map_is_strongest_at_the_best_and_says_what_failed():
    drawn = chart.heat("t", Axis("a", names=["1", "2"]), Axis("b", names=["x", "y"]), [[1.0, 2.0], [None, math.inf]])

    strengths = [float(s) for s in re.findall(r'fill-opacity="([\d.]+)"', drawn)]
    assert strengths[0] > strengths[1] > strengths[2] == strengths[3] == 0
    assert re.findall(r"<title>(.*?)</title>", drawn) == [
        "b x, a 1: 1",
        "b x, a 2: 2",
        "b y, a 1: not measured",
        "b y, a 2: ×",
    ]
