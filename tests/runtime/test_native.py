"""The table of launches as threads find it at the beginning of a run."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.artifact.elf import Image
from gpucomp.runtime.native import CLAIMED, DONE, Table
from gpucomp.runtime.runner import Runner
from gpucomp.targets import cpu


@pytest.mark.parametrize("native", [False, True])
def test_each_thread_owns_a_part_of_every_launch(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words that the runner claims tasks from, and those of threads that a run does not have: nothing is left there.

    numpy writes the same words for machine code of earlier versions.
    """
    if not native:
        monkeypatch.setattr(Image, "has", lambda self, name: False)
    begin = Runner(Image(cpu.build([], cpu.host())), loops=False).begin
    table = Table([(0, 1, 10), (0, 0, 3), (0, 2, 0)], 4)
    table._states[...] = 99

    begin(table, 0, 3, 7, 4)
    shared = table._states[:, :, CLAIMED].astype(object) - (7 << 32)
    assert not table._states[:, 0, DONE].any()
    table._states[:, :, DONE] = 98
    begin(table, 1, 3, 8, 3)
    others = table._states[1:, :, CLAIMED].astype(object) - (8 << 32)

    assert shared.tolist() == [[0, 2, 5, 7], [0, 0, 1, 2], [0, 0, 0, 0]]
    assert others.tolist() == [[0, 1, 2, 3], [0, 0, 0, 0]]
    assert table._states[:, :, DONE].tolist() == [[98] * 4, [0, 98, 98, 98], [0, 98, 98, 98]]
    assert (table._states[0, :, CLAIMED] >> np.uint64(32) == 7).all()
    untouched = np.delete(table._states, [CLAIMED, DONE], axis=2)
    assert (untouched == 99).all()
    begin(table, 1, 3, 8, 1)
    alone = table._states[1:, :, CLAIMED].astype(object) - (8 << 32)
    assert alone.tolist() == [[0, 3, 3, 3], [0, 0, 0, 0]]
    begin(table, 1, 1, 9, 1)
    assert not (table._states[:, :, CLAIMED] >> np.uint64(32) == 9).any()
