"""Every kind of body implements the interface: axes, expressions and text."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import pytest

from gpucomp import ops
from gpucomp.expr.core import Expr, Load, Var, hole, load, loads, transform, var
from gpucomp.ir.types import F32, TensorType
from gpucomp.kernel import (
    HANDED,
    Body,
    Contraction,
    FusedLayer,
    FusedLayers,
    HostStep,
    Kernel,
    KernelStep,
    Loops,
    Scan,
    Separable,
    Store,
    canonical,
    is_step_of,
    kernel_of,
    rename,
)
from gpucomp.kernel.body import Described
from gpucomp.kernel.passes import split_winograd
from gpucomp.schedule.analytic import operations, traffic
from testing import kernels
from tests.builders import tensor


def relu(*shape: int) -> Kernel:
    kernel = kernels.add_relu(*shape)
    return replace(kernel, params=kernel.params[:3], outputs=1, stores=kernel.stores[:1])


def fused() -> Kernel:
    """max(max(x + bias, 0) + bias, 0) as two layers; the image between them is handed on."""
    layer = relu(1, 3, 5, 2)
    layers = (FusedLayer(layer, (0, 1, HANDED), {}), FusedLayer(layer, (HANDED, 1, 2), {}))
    return Kernel("fused_layers", layer.params, 1, FusedLayers(layers), ())


CONV = replace(kernels.conv((1, 9, 9, 8), 8, (3, 3), pad=1), constants=frozenset({1}))
KERNELS = {
    "loops": kernels.add_relu(3, 5),
    "contraction": kernels.matmul(3, 5, 7),
    "contraction with a tail": kernels.with_row_statistics(kernels.matmul(3, 5, 7)),
    "separable": kernels.separable((1, 5, 7, 3), 4, (3, 3), pad=1),
    "rowwise": kernels.softmax(3, 5),
    "rows alone": kernels.reduction("sum", 3, 5),
    "window": kernels.max_pool((1, 5, 7, 3), 3, 2, 1),
    "attention": kernels.attention(5, 7, 3, 2, mask="add"),
    "scan": kernels.scan("sum", 3, 5),
    "scatter": kernels.scatter((5, 3), (4, 2), "add", axis=0),
    "tile_transform": split_winograd.kernels(CONV, 2)[0],
    "fused_layers": fused(),
}
OWN = [name for name in KERNELS if name != "fused_layers"]  # fused layers have no expressions of their own


def test_every_kind_of_body_is_tested():
    assert {type(kernel.body) for kernel in KERNELS.values()} == {*get_args(Body), Separable}


@pytest.mark.parametrize("name", OWN)
def test_every_element_expression_of_a_body_is_changed(name):
    kernel = KERNELS[name]
    seen: list[Expr] = []

    def note(expr: Expr) -> Expr:
        seen.append(expr)
        return expr

    same = kernel.body.mapped(note)

    assert seen == kernel.body.expressions()
    assert replace(kernel, body=same).text == kernel.text


LOADED = {"contraction": 2, "rowwise": 1, "window": 1, "attention": 4, "scan": 1, "scatter": 3, "tile_transform": 1}


@pytest.mark.parametrize(("name", "loaded"), LOADED.items())
def test_what_the_change_returns_is_in_the_new_body(name, loaded):
    body = KERNELS[name].body

    changed = body.mapped(_of_other_sources)

    sources = {ld.source for e in changed.expressions() for ld in loads(e)}
    assert sources == set(range(10, 10 + loaded))


def _of_other_sources(expr: Expr) -> Expr:
    return transform(expr, lambda n: load(n.source + 10, n.index, n.dtype) if isinstance(n, Load) else None)


@pytest.mark.parametrize("name", OWN)
def test_axes_are_all_that_the_expressions_depend_on(name):
    kernel = KERNELS[name]

    axes = [axis for group in kernel.body.axes().values() for axis in group]

    assert len(set(axes)) == len(axes)
    assert {*kernel.body.domain} <= {*axes}
    assert {v for e in kernel.expressions() for v in e.free if isinstance(v, Var)} <= {*axes}


@pytest.mark.parametrize("name", OWN)
def test_a_kernel_of_other_axes_has_the_same_canonical_text(name):
    kernel = KERNELS[name]
    new = {axis: var(f"other{axis.name}", axis.extent) for group in kernel.body.axes().values() for axis in group}

    def renamed(expr: Expr) -> Expr:
        return rename(expr, new)

    body = kernel.body.with_axes({role: tuple(new[a] for a in group) for role, group in kernel.body.axes().items()})
    other = replace(kernel, body=body.mapped(renamed), stores=tuple(s.mapped(renamed) for s in kernel.stores))

    assert "other" in other.text
    assert canonical(other).text == canonical(kernel).text
    assert "other" not in canonical(other).text
    names = [axis.name for group in canonical(other).body.axes().values() for axis in group]
    assert len(set(names)) == len(names)


def test_a_scan_says_its_one_axis_as_the_others_do():
    kernel = KERNELS["scan"]
    assert isinstance(kernel.body, Scan)

    longer = kernel.body.with_axes({"rows": kernel.body.rows, "axis": (var("j0", 99),)})

    assert longer.axis.extent == 99


@dataclass(frozen=True, eq=False)
class Doubled(Described):
    """``acc[cells] = 2 * value[cells]``: a kind of body that the compiler does not know."""

    AXES: ClassVar = {"cells": "i"}

    cells: tuple[Var, ...]
    value: Expr
    acc: Expr

    @property
    def domain(self):
        return self.cells

    def expressions(self):
        return [self.value]

    def mapped(self, change):
        return replace(self, value=change(self.value))

    def reduced(self):
        return ()

    def operations(self, count):
        return math.prod(v.extent for v in self.cells) * (count(self.value) + 1)

    def text_lines(self, stores):
        return [f"  cells {len(self.cells)}", *stores]


def test_a_new_kind_of_body_is_printed_renamed_and_counted_where_it_says_how():
    x, acc, type = var("x", 6), hole("acc", F32), TensorType(F32, (6,))
    body: Any = Doubled((x,), load(0, (x,), F32), acc)  # of a kind that ``Body`` does not list
    kernel = Kernel("doubled", (type, type), 1, body, (Store(1, (x,), acc),))

    found = canonical(kernel)

    assert [v.name for v in found.body.domain] == ["i0"]
    assert found.text.splitlines() == ["kernel doubled(f32[6], f32[6]) -> 1", "  cells 1", "  x1[i0] = acc"]
    assert [str(e) for e in found.expressions()] == [
        str(e) for e in (load(0, found.body.domain, F32), found.body.domain[0], acc)
    ]
    assert operations(found) == 6
    assert traffic(found) == 48


def test_a_body_of_another_kind_than_asked_for_is_an_error():
    kernel = kernels.add_relu(3, 5)

    assert kernel_of(kernel, Loops) is kernel
    assert kernel_of(KERNELS["separable"], Contraction) is KERNELS["separable"]
    with pytest.raises(TypeError, match="kernel elementwise: Contraction expected, Loops found"):
        kernel_of(kernel, Contraction)


def test_a_step_is_of_the_kind_of_its_kernels_body():
    step = KernelStep("k0", KERNELS["separable"], (), (), ())

    assert is_step_of(step, Separable)
    assert is_step_of(step, Contraction)
    assert not is_step_of(step, Loops)
    assert not is_step_of(HostStep("k1", ops.Relu(tensor("x", 3)).node), Loops)
