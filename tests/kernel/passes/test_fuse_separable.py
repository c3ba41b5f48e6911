"""Which depthwise and pointwise convolutions are fused: what the kernel computes, and when it is chosen."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from bench.models import build
from gpucomp import lowering, targets
from gpucomp.frontend import onnx as frontend
from gpucomp.ir.types import F16
from gpucomp.kernel import Contraction, Kernel, Separable
from gpucomp.kernel.grouping import Policy
from gpucomp.kernel.interpreter import run_steps
from gpucomp.kernel.partition import partition
from gpucomp.kernel.passes import fuse_separable as separable
from gpucomp.kernel.passes.fuse_separable import fused_kernel, pairs
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.refusal import Refusal
from gpucomp.rewrite.pipeline import run_pipeline
from gpucomp.schedule import expected
from gpucomp.schedule.expected import Expected
from gpucomp.schedule.model import Terms
from gpucomp.schedule.rank import Ranked
from gpucomp.schedule.uncertainty import CLEAR
from gpucomp.targets import cuda, opencl
from testing.kernels import matmul
from testing.tolerance import assert_matches
from tests.builders import setting
from tests.onnx_builders import model, node, value

TARGET = cuda.manifest("sm_90a")


def network(
    *,
    channels=12,
    columns=20,
    image=(9, 11),
    window=3,
    strides=(1, 1),
    dilations=(1, 1),
    pointwise=1,
    step=1,
    residual=False,
    inner=False,
    outputs=("y",),
    more=(),
):
    """A convolution, a depthwise one with relu, and a pointwise one. ``more`` nodes may read the value between: d."""
    rng = np.random.default_rng(5)
    pad = [(window - 1) * dilations[0] // 2, (window - 1) * dilations[1] // 2] * 2
    nodes = [
        node("Conv", ["x", "w0"], ["i"]),
        node("Conv", ["i", "w1", "b1"], ["c"], group=channels, pads=pad, strides=strides, dilations=dilations),
        *([node("Add", ["c", "i"], ["s"])] if inner else []),
        node("Relu", ["s" if inner else "c"], ["d"]),
        node("Conv", ["d", "w2", "b2"], ["p"], strides=[step, step], pads=[pointwise // 2] * 4),
        node("Add", ["p", "i"], ["y"]) if residual else node("Relu", ["p"], ["y"]),
        *more,
    ]
    weights = {
        "w0": rng.standard_normal((channels, 5, 1, 1), np.float32),
        "w1": rng.standard_normal((channels, 1, window, window), np.float32),
        "b1": rng.standard_normal(channels, np.float32),
        "w2": rng.standard_normal((columns, channels, pointwise, pointwise), np.float32),
        "b2": rng.standard_normal(columns, np.float32),
    }
    return model(nodes, [value("x", (1, 5, *image))], outputs, weights=weights)


def graph_of(onnx):
    return run_pipeline(frontend.load(onnx), target=TARGET)


def steps_of(graph):
    return partition(graph, Policy())


FUSED = {
    "plain": {},
    "stride 2": {"strides": (2, 2), "image": (13, 10)},
    "dilated": {"dilations": (2, 1), "image": (12, 9)},
    "5 x 5 with a residual of its own image": {"window": 5, "columns": 12, "residual": True},
    "one row": {"image": (1, 17)},
}


@pytest.mark.parametrize("name", FUSED)
def test_the_one_kernel_computes_what_the_two_did(name):
    graph = graph_of(network(**FUSED[name]))
    steps = steps_of(graph)
    x = np.random.default_rng(3).standard_normal(graph.inputs[0].shape).astype(np.float32)

    together = separable.fuse(steps, setting(graph, TARGET, expected=Always()))

    assert len(together) == len(steps) - 1
    (fused,) = [s for s in together if isinstance(s.kernel.body, Separable)]
    assert {str(n.op) for n in fused.nodes} >= {"Conv", "Relu"}
    assert fused.kernel.family == "separable"
    for actual, right in zip(run_steps(graph, together, {"x": x}), run_steps(graph, steps, {"x": x}), strict=True):
        assert_matches(actual, right, terms=12 * 25)


APART = {
    "another kernel reads the depthwise result": {"outputs": ("y", "z"), "more": (node("ReduceMax", ["d"], ["z"]),)},
    "the depthwise result is an output": {"outputs": ("y", "d")},
    "the pointwise convolution has a step": {"step": 2},
    "the second convolution has a window": {"pointwise": 3},
}


@pytest.mark.parametrize("name", APART)
def test_others_stay_apart(name):
    graph = graph_of(network(**APART[name]))
    steps = steps_of(graph)

    assert list(pairs(steps, graph.outputs)) == []
    assert separable.fuse(steps, setting(graph, TARGET, expected=Always())) == steps


def a_pair():
    graph = graph_of(network())
    (pair,) = pairs(steps_of(graph), graph.outputs)
    return pair


def test_what_is_stored_has_to_be_what_is_read():
    pair = a_pair()
    place = pair.second.inputs.index(pair.first.outputs[0])
    params = list(pair.first.kernel.params)
    params[-1] = replace(params[-1], dtype=F16)
    narrow = replace(pair.first, kernel=replace(pair.first.kernel, params=tuple(params)))

    assert isinstance(fused_kernel(pair.first, pair.second, place), type(pair.both))
    assert fused_kernel(narrow, pair.second, place) == Refusal("the stored value is read with another type or shape")


def test_only_a_pointwise_convolution_takes_the_place():
    pair = a_pair()
    place = pair.second.inputs.index(pair.first.outputs[0])

    assert "not a depthwise convolution" in fused_kernel(pair.second, pair.second, place).reason
    assert "not a pointwise convolution" in fused_kernel(pair.first, pair.first, 0).reason
    assert type(pair.second.kernel.body) is Contraction
    again = replace(pair.second, kernel=pair.both.kernel, inputs=pair.both.inputs)
    assert "not a pointwise convolution" in fused_kernel(pair.first, again, 0).reason, "one that is fused already"


def test_a_kernel_says_what_it_computes_and_keeps_its_constants():
    pair = a_pair()
    kernel = pair.both.kernel

    assert kernel.inputs == len(pair.both.inputs) == pair.first.kernel.inputs + pair.second.kernel.inputs - 1
    assert len(kernel.constants) == kernel.inputs - 1, "all but the image"
    assert "sum[" in kernel.text
    assert kernel.text.startswith("kernel separable(")
    assert pair.first.outputs[0] not in pair.both.inputs


def predicting(us):
    """What the model says of any kernel: ``us`` of arithmetic by lanes, without a launch."""
    terms = Terms(**dict.fromkeys((f.name for f in fields(Terms)), 0.0) | {"math_us": us, "loop_us": us})
    return Ranked(FAMILIES["contraction/simt"], {}, terms, 32)


CLEARLY = 5.0 * CLEAR["lanes"]


@pytest.mark.parametrize(
    ("together", "apart", "faster"),
    [
        (5.0, [3.0, CLEARLY - 2.9], True),
        (5.0, [3.0, CLEARLY - 3.1], False),
        (None, [3.0, 9.0], False),
        (5.0, [3.0, None], False),
    ],
)
def test_one_kernel_is_taken_where_the_model_expects_clearly_less_of_it(monkeypatch, together, apart, faster):
    one, *others = (matmul(n, n, n) for n in (3, 5, 7))
    known = dict(zip((k.digest for k in (one, *others)), (together, *apart), strict=True))
    found = {digest: None if us is None else predicting(us) for digest, us in known.items()}
    monkeypatch.setattr(expected, "prediction", lambda kernel, *of: found[kernel.digest])

    assert Expected(TARGET, engines_of).faster([one], others) is faster


class Always(Expected):
    """A model by which fewer launches are faster."""

    def __init__(self):
        super().__init__(TARGET, engines_of)

    def faster(self, these, those):
        return len(these) < len(those)


def families(target, precision="fp32", **changes):
    graph = graph_of(network(**({"channels": 32, "columns": 48, "image": (28, 28)} | changes)))
    return [step.kernel.family for step in lowering.kernels_of(graph, target, precision)]


TAKEN = [(cuda.manifest(arch), precision) for arch in ("sm_75", "sm_80", "sm_90a") for precision in ("fp32", "fp16")]


@pytest.mark.parametrize(
    ("target", "precision"), [*TAKEN, (opencl.manifest("generic"), "fp32")], ids=lambda x: getattr(x, "name", x)
)
def test_a_model_s_pair_is_one_kernel_on_gpus_like_nvidia_s(target, precision):
    assert families(target, precision) == ["contraction", "separable"]


@pytest.mark.parametrize(
    ("target", "changes"),
    [
        (opencl.manifest("mali"), {}),
        (opencl.manifest("amd"), {}),
        (opencl.manifest("pocl"), {}),
        (targets.resolve("cpu"), {}),
        (TARGET, {"window": 9}),  # more taps than the engines take
        (TARGET, {"inner": True, "image": (29, 29)}),  # pixels that a tile's epilogue would read past the image
        (TARGET, {"channels": 35}),  # odd: channels cannot be read in pairs
        # not even the smallest part of the channels fits
        (TARGET.with_limits(shared_bytes=8192), {"channels": 8192, "image": (7, 7)}),
    ],
    ids=lambda x: getattr(x, "name", str(x)),
)
def test_a_pair_stays_apart_where_no_engine_takes_it(target, changes):
    assert families(target, **changes) == ["contraction", "loops", "contraction"]


@pytest.mark.parametrize(("name", "count"), [("mobilenet_v1", 4), ("mobilenet_v2", 5), ("efficientnet_b0", 0)])
def test_every_pair_of_a_mobile_model_is_one_kernel(name, count):
    """EfficientNet's squeeze-and-excitation reads every depthwise result twice."""
    graph = graph_of(build(name, reduced=True))

    assert len(list(pairs(steps_of(graph), graph.outputs))) == count
    steps = lowering.kernels_of(graph, cuda.manifest("sm_80"))
    assert sum(isinstance(s.kernel.body, Separable) for s in steps) == count


def test_two_kernels_stay_where_the_model_expects_less_of_them(monkeypatch):
    def slow(kernel: Kernel, *others):
        return predicting(9.0 if isinstance(kernel.body, Separable) else 4.0)

    monkeypatch.setattr(expected, "prediction", slow)

    assert families(TARGET) == ["contraction", "loops", "contraction"]
