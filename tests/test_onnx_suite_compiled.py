"""ONNX's node tests on compiled code: what the interpreter passes, native CPU code passes, and OpenCL a spread of it."""

from pathlib import Path

import pytest

from gpucomp.backend import Backend
from tests.onnx_cases import cases, listed, passing, verdict


class OpenclBackend(Backend):
    @classmethod
    def prepare(cls, model, device="OPENCL", **kwargs):
        return super().prepare(model, device, **kwargs)


SPREAD = listed(Path(__file__).parent / "onnx_spread_opencl.txt")


@pytest.mark.parametrize("name", sorted(passing()))
def test_native_code_passes_what_the_interpreter_passes(name):
    assert not verdict(cases()[name], Backend)


@pytest.mark.parametrize("name", SPREAD)
def test_an_opencl_device_passes_a_case_of_every_family(name):
    assert not verdict(cases()[name], OpenclBackend)


def test_the_spread_names_only_passing_cases_once():
    assert set(SPREAD) <= passing()
    assert len(set(SPREAD)) == len(SPREAD) >= 60
