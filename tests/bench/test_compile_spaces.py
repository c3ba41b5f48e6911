"""The sweep of random schedules through NVRTC: which kernels it is given, and what is a fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import compile_spaces
from bench.compile_spaces import NAMES, Candidate, candidates, followed, row_of, sweep
from bench.nvrtc import Journal, Measured
from gpucomp.ir.types import BF16, F16, I8, I32
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.targets import cuda
from testing.kernels import conv, grouped_conv, into_part, matmul, separable, with_inverse_rms

SM_80 = cuda.manifest("sm_80")


def test_contractions_that_store_whole_rows_have_statistics_of_them_of_every_kind():
    plain = [matmul(13, 40, 30), matmul(7, 5, 16, batch=(2,), dtype=BF16), conv((1, 5, 4, 6), 24, (3, 3), dtype=F16)]

    found = followed(plain)

    assert len({kernel.digest for kernel in found}) == len(found) == 3 * len(plain)
    assert [len(kernel.body.tail.statistics) for kernel in found] == [2, 1, 1] * len(plain)


@pytest.mark.parametrize(
    "kernel",
    [
        conv((1, 5, 4, 6), 24, (3, 3), nchw=True),
        grouped_conv((1, 5, 4, 6), 2, 9, (3, 3)),
        into_part(matmul(13, 40, 30), 1, 4, 8),
        matmul(13, 40, 32, dtype=I8, acc=I32),
        separable((1, 8, 9, 6), 24, (3, 3)),
        with_inverse_rms(matmul(13, 40, 30)),
    ],
    ids=["columns apart", "groups", "a part", "integers", "separable", "statistics already"],
)
def test_what_stores_no_rows_of_floats_or_has_statistics_has_no_others(kernel):
    assert followed([kernel]) == []


def test_engines_that_may_be_followed_have_rows_of_their_own(monkeypatch, tmp_path):
    monkeypatch.setattr(compile_spaces, "kernels", lambda models, target: [matmul(29, 40, 64, dtype=F16)])
    journal = Journal(tmp_path / "j.jsonl")
    engines = ["contraction/gemv tail", "contraction/mma", "contraction/mma tail"]

    plain, tail = sweep(engines, ["sm_80"], 1, 0, 1, journal)

    assert (plain.engine, plain.kernels, tail.engine) == ("contraction/mma", 1, "contraction/mma tail")
    assert tail.kernels == 3 * (1 + len(compile_spaces.ROWS) // 2), "matrix units do not multiply f32 as it is"
    assert (plain.compiled, tail.compiled, plain.faults, tail.faults) == (1, 1, [], [])
    assert set(engines) < set(NAMES)


def test_the_same_candidates_are_drawn_again_and_others_for_a_row_of_tails():
    kernel = with_inverse_rms(matmul(29, 40, 64))

    plain, tail, again = (
        [c.label for c in candidates(name, [kernel], SM_80, 3, 0)]
        for name in ("contraction/simt", "contraction/simt tail", "contraction/simt tail")
    )

    assert plain != tail == again


def test_a_spill_is_a_fault_where_the_formula_has_registers_left():
    family, measured = FAMILIES["contraction/simt"], Measured(registers=255, spills=8)
    there = Candidate(family, "there", None, 100)
    beyond = replace(there, label="beyond", pressure=250)
    refused = replace(there, label="refused", error="no such thing")

    row = row_of("contraction/simt tail", "sm_80", 5, [(there, measured), (beyond, measured), (refused, None)])

    assert (row.compiled, row.registers, row.spilling, row.expected) == (2, 255, 2, 1)
    assert row.faults == [
        "contraction/simt tail sm_80 there: 8 bytes spilt, its formula says 100 registers",
        "contraction/simt tail sm_80 refused: no such thing",
    ]
