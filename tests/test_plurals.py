"""Counts in messages and tables: one thing has no s."""

import pytest

from gpucomp.errors import several


@pytest.mark.parametrize(("count", "text"), [(0, "0 kernels"), (1, "1 kernel"), (2, "2 kernels"), (21, "21 kernels")])
def test_one_thing_has_no_s(count, text):
    assert several(count, "kernel") == text
