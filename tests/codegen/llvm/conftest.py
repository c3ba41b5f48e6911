"""Fixtures of the tests of kernels in LLVM IR."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import matrix_emulation


@pytest.fixture
def strict_tiles() -> Iterator[None]:
    """Fails where tile registers in software were used in a way that a processor refuses, or were left in use."""
    matrix_emulation.faults()
    yield
    assert not matrix_emulation.faults()
    assert not matrix_emulation.held()
