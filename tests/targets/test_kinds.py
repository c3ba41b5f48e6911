"""Every table by kind of target, or by language, has the same rows: a new kind of target is added to all of them."""

from __future__ import annotations

import pytest

from gpucomp import targets
from gpucomp.artifact import manifest
from gpucomp.kernel.source import SOURCE_SUFFIX
from gpucomp.runtime.executable import PROGRAMS
from gpucomp.tuning import devices


@pytest.mark.parametrize("table", [targets.BUILDERS, manifest.KINDS, PROGRAMS, devices.KINDS])
def test_every_table_has_every_kind_of_target(table):
    assert set(table) == set(targets.MODULES)


def test_every_language_has_a_suffix():
    assert set(SOURCE_SUFFIX) == set(manifest.LANGUAGES)
