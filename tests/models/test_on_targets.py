"""Whole models, compiled and run: the fifteen architectures in their small form on the CPU and through OpenCL."""

from __future__ import annotations

import pytest

import gpucomp
from bench.models import MODELS, build, inputs
from gpucomp.cli.compare import onnxruntime_session, relative_error
from tests.native import HERE

LIMIT = 1e-5  # ||actual - expected|| / ||expected||; the models are small, so rounding is all that is left


def check(name: str, target: str, *, batch: int = 1) -> gpucomp.Executable:
    model = build(name, reduced=True, batch=batch)
    feeds = inputs(model)
    session = onnxruntime_session(model.SerializeToString())
    expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))

    executable = gpucomp.compile(model, target=target)
    actual = executable.run(feeds)

    assert list(actual) == list(expected)
    for output, array in expected.items():
        assert actual[output].dtype == array.dtype
        assert relative_error(actual[output], array) <= LIMIT
    return executable


@pytest.mark.parametrize("name", MODELS)
def test_on_the_cpu(name):
    executable = check(name, "cpu")

    assert executable.plan.arena_bytes <= 1.1 * executable.plan.live_bytes


@pytest.mark.parametrize("name", ["resnet18", "bert_base", "shufflenet_v2"])
def test_on_the_cpu_with_a_batch(name):
    check(name, "cpu", batch=3)


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.arch)
@pytest.mark.parametrize("name", ["mobilenet_v2", "vit_tiny"])
def test_on_every_level_of_processors(name, target):
    check(name, target.name)


# PoCL takes most of a second a kernel; what these leave out has a sibling among them, and bench.suite runs all of them
THROUGH_OPENCL = [
    "resnet18",
    "mobilenet_v2",
    "squeezenet1_1",
    "densenet121",
    "shufflenet_v2",
    "efficientnet_b0",
    "unet_small",
    "bert_base",
    "vit_tiny",
    "gpt2",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", THROUGH_OPENCL)
def test_through_opencl(name):
    check(name, "opencl")


def test_runs_are_bit_identical():
    model = build("efficientnet_b0", reduced=True)
    feeds = inputs(model)
    executable = gpucomp.compile(model, target="cpu")

    first = {k: v.copy() for k, v in executable.run(feeds).items()}

    for _ in range(20):
        again = executable.run(feeds)
        assert all(again[k].tobytes() == first[k].tobytes() for k in first)
