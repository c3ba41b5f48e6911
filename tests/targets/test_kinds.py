"""Every table by kind of target, or by language, has the same rows: a new kind of target is added to all of them."""

from __future__ import annotations

import pytest

from gpucomp import targets
from gpucomp.artifact import manifest
from gpucomp.kernel.source import SOURCE_SUFFIX
from gpucomp.runtime.executable import PROGRAMS
from gpucomp.tuning import devices


@pytest.mark.parametrize("table", [targets.BUILDERS, manifest.KINDS])
def test_every_table_has_every_kind_of_target(table):
    assert set(table) == set(targets.MODULES)


@pytest.mark.parametrize("table", [PROGRAMS, devices.KINDS])
def test_every_kind_that_runs_has_a_runtime_and_a_device_to_measure_on(table):
    assert set(table) == set(targets.MODULES) - targets.COMPILED_ONLY


def test_every_language_has_a_suffix():
    assert set(SOURCE_SUFFIX) == set(manifest.LANGUAGES)
