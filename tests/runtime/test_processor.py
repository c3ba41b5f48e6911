"""Machine code that the processor cannot run is refused before it is called."""

import pytest

from gpucomp.errors import DeviceError
from gpucomp.runtime import processor


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(processor, "flags", lambda: frozenset({"avx", "avx2", "fma", "sse4_1"}))


@pytest.mark.usefixtures("small")
def test_missing_features_are_named():
    with pytest.raises(DeviceError, match=r"compiled for rocketlake, .* has no avx512f, avx512vnni: compile it here"):
        processor.require(("avx512vnni", "avx2", "avx512f"), "rocketlake")


@pytest.mark.usefixtures("small")
def test_features_that_are_there_are_no_fault():
    processor.require(("avx2", "fma", "sse4.1"), "haswell")


def test_a_system_that_names_no_features_is_trusted(monkeypatch):
    monkeypatch.setattr(processor, "flags", frozenset)

    processor.require(("avx512f",), "rocketlake")


def test_the_host_target_can_run_here():
    from gpucomp import targets

    target = targets.resolve("cpu")

    processor.require(target.features, target.arch)
    assert target.features
