"""What tests of several files here share."""

from __future__ import annotations

import pytest

from tests.cuda_on_cpu.cute import ABSENT, Cute, include_folders


@pytest.fixture(scope="session")
def cute(tmp_path_factory: pytest.TempPathFactory) -> Cute:
    """CuTe, compiled once; its tests are skipped where the headers are not installed."""
    if not (include := include_folders()):
        pytest.skip(ABSENT)
    return Cute(include, tmp_path_factory.mktemp("cute"))
