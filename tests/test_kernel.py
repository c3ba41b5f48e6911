"""``mapped`` reaches every expression of every kind of body."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpucomp.expr.core import Expr, Load, load, loads, transform
from gpucomp.kernel import mapped
from testing import kernels

KERNELS = {
    "loops": kernels.add_relu(3, 5),
    "contraction": kernels.matmul(3, 5, 7),
    "rowwise": kernels.softmax(3, 5),
    "window": kernels.max_pool((1, 5, 7, 3), 3, 2, 1),
    "attention": kernels.attention(5, 7, 3, 2, mask="add"),
    "scan": kernels.scan("sum", 3, 5),
    "scatter": kernels.scatter((5, 3), (4, 2), "add", axis=0),
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_element_expression_of_a_body_is_changed(name):
    kernel = KERNELS[name]
    seen: list[Expr] = []

    def note(expr: Expr) -> Expr:
        seen.append(expr)
        return expr

    same = mapped(kernel.body, note)

    body_alone = replace(kernel, stores=()).expressions()
    assert seen == body_alone
    assert replace(kernel, body=same).text == kernel.text


LOADED = {"contraction": 2, "rowwise": 1, "window": 1, "attention": 4, "scan": 1, "scatter": 3}


@pytest.mark.parametrize(("name", "loaded"), LOADED.items())
def test_what_the_change_returns_is_in_the_new_body(name, loaded):
    kernel = replace(KERNELS[name], stores=())

    changed = replace(kernel, body=mapped(kernel.body, _of_other_sources))

    sources = {ld.source for e in changed.expressions() for ld in loads(e)}
    assert sources == set(range(10, 10 + loaded))


def _of_other_sources(expr: Expr) -> Expr:
    return transform(expr, lambda n: load(n.source + 10, n.index, n.dtype) if isinstance(n, Load) else None)
