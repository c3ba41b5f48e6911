"""Axes that loops merge: what is told at once to stay apart is what a substitution would keep apart too."""

from __future__ import annotations

import pytest

from gpucomp.codegen.llvm.contraction.operands import operands_of
from gpucomp.codegen.llvm.loops import nest
from gpucomp.expr.core import call, load, select, substitute, var
from gpucomp.expr.simplify import simplify
from gpucomp.ir.types import F32
from gpucomp.kernel import Contraction
from testing import any_size_cases
from testing.kernels import conv, matmul, side_by_side

KERNELS = [
    *(kernel for kernel in any_size_cases.CASES.values() if isinstance(kernel.body, Contraction)),
    matmul(7, 9, 11, batch=(2, 3)),
    conv((2, 9, 7, 12), 20, (3, 3), pad=1),
    conv((1, 9, 8, 5), 6, (3, 2), stride=2),
    conv((1, 6, 6, 8), 4, (1, 1)),
    conv((1, 11, 10, 3), 8, (5, 5), pad=2, dilation=2, nchw=True),
    side_by_side((2, 5, 7), (24, 2), (16, 1), 10),
]
OUTER, INNER = var("o", 5), var("i", 7)


def merges(exprs, *, only_offsets=False):
    """What ``merge_axes`` decides without being told at once."""
    both = var("both", 35)
    split = {OUTER: call("floordiv", both, 7), INNER: call("mod", both, 7)}
    merged = [simplify(substitute(e, split)) for e in exprs]
    before, after = (nest.offsets(exprs), nest.offsets(merged)) if only_offsets else (exprs, merged)
    return nest._divisions(after) <= nest._divisions(before)


def test_contractions_have_the_axes_that_substitution_gives_them(monkeypatch):
    told: list[bool] = []
    real = nest._stay_apart

    def watched(*args, **options):
        told.append(real(*args, **options))
        return told[-1]

    monkeypatch.setattr(nest, "_stay_apart", watched)
    found = [operands_of.__wrapped__(kernel, shortest) for kernel in KERNELS for shortest in (1, 16)]
    monkeypatch.setattr(nest, "_stay_apart", lambda *args, **options: False)
    wanted = [operands_of.__wrapped__(kernel, shortest) for kernel in KERNELS for shortest in (1, 16)]

    assert sum(told) > 10
    assert told.count(False) > 3
    for one, other in zip(found, wanted, strict=True):
        assert [(v.name, v.extent) for v in (*one.ko, one.ki)] == [(v.name, v.extent) for v in (*other.ko, other.ki)]
        assert (one.a, one.b) == (other.a, other.b)


@pytest.mark.parametrize(
    ("exprs", "apart"),
    [
        ([load(0, (OUTER * 7 + INNER,), F32)], False),
        ([load(0, (OUTER * 21 + INNER * 3 + 2,), F32)], False),
        ([load(0, (OUTER * 8 + INNER,), F32)], True),
        ([load(0, (INNER,), F32)], True),
        ([load(0, (OUTER * 7 + INNER,), F32), load(1, (OUTER,), F32)], True),
        ([select(call("lt", INNER, 3), load(0, (OUTER * 7 + INNER,), F32), 0.0)], True),
        ([select(call("lt", OUTER * 7 + INNER, 30), load(0, (OUTER * 7 + INNER,), F32), 0.0)], False),
        ([load(0, (call("min", OUTER * 7 + INNER, 9),), F32)], False),
        ([load(0, (call("floordiv", OUTER * 7 + INNER, 2),), F32)], False),
        ([load(0, (call("mod", OUTER * 3 + INNER, 2) + INNER,), F32)], False),  # divided already: substitution decides
    ],
)
def test_axes_stay_apart_where_steps_do_not_follow_each_other(exprs, apart):
    assert nest._stay_apart(OUTER, INNER, exprs, only_offsets=False) == apart
    assert not (apart and merges(exprs))


def test_only_offsets_of_loads_count_where_guards_may_divide():
    guarded = [select(call("lt", INNER, 3), load(0, (OUTER * 7 + INNER,), F32), 0.0)]

    assert not nest._stay_apart(OUTER, INNER, guarded, only_offsets=True)
    assert merges(guarded, only_offsets=True)
    assert nest._stay_apart(OUTER, INNER, [load(0, (OUTER * 8 + INNER,), F32)], only_offsets=True)
