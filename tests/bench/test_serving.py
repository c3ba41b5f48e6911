"""``bench.serving``: rates of engines side by side, and what it reports."""

from __future__ import annotations

import time

import numpy as np

import gpucomp
from bench import serving
from tests.onnx_builders import model, node, value


def test_requests_side_by_side_are_counted_together():
    alone = serving.rate([lambda: time.sleep(0.01)], 0.2)
    both = serving.rate([lambda: time.sleep(0.01)] * 3, 0.2)

    assert 20 < alone < 101
    assert both > 1.5 * alone


def test_what_a_run_costs_around_its_kernels_and_a_context_takes_is_measured():
    exe = gpucomp.compile(model([node("Relu", ["x"], ["y"])], [value("x", [64, 64])]), target="cpu")
    inputs = {"x": np.ones((64, 64), np.float32)}

    assert -1e-3 < serving.around(exe, inputs, 20) < 1e-2
    assert serving.memory(exe, inputs) < 1 << 22


def test_the_best_way_of_each_engine_is_compared():
    rates = {"gpucomp": {"one": 50.0, "side by side": 80.0}, "onnxruntime": {"one": 40.0, "side by side": 20.0}}
    row = {
        "model": "m",
        "around": 2e-5,
        "memory": 1 << 20,
        "weights": 1 << 21,
        "rates": rates,
        "apart": {"onnxruntime": 2e-6},
    }

    told = serving.text(row)

    assert "onnxruntime     40.0/s (one)  2.00x, 2e-06 apart" in told
    assert "around  20.0 us" in told
    assert "memory   1.00 of weights   2.00" in told


def test_an_answer_that_differs_is_told_in_whichever_way_it_is_given():
    ours = {"one": [lambda: {"y": np.array([3.0, 4.0])}], "side by side": []}
    theirs = {"one": [lambda: [np.array([3.0, 4.0])]], "side by side": [lambda: {0: np.array([3.0, 4.5])}]}

    assert serving.differs(ours, ours) == 0
    assert serving.differs(theirs, ours) > 0.05


def test_a_stress_checks_every_result():
    ended = serving.stress(400)

    assert ended.keys() <= {"right", "stopped"}
    assert sum(ended.values()) == 400
    assert ended["right"] > 50
