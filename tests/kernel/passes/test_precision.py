"""16-bit storage and tensor-core arithmetic: what becomes narrow, what stays f32, and the error of the results."""

from __future__ import annotations

import numpy as np
import pytest

import gpucomp
from bench.models import build, inputs
from gpucomp import ops
from gpucomp.cli.compare import relative_error
from gpucomp.errors import UsageError
from gpucomp.ir import Graph, constant, input_value
from gpucomp.ir.types import BF16, F16, F64, I64, TensorType
from gpucomp.kernel.interpreter import expected, run_steps
from gpucomp.kernel.partition import partition
from gpucomp.kernel.passes import precision
from testing.kernels import conv, matmul, random_inputs, softmax
from tests.graphs import tensor, weight

RNG = np.random.default_rng(0)
HALF_ULP = {"fp16": 2.0**-11, "mixed": 2.0**-11, "bf16": 2.0**-8}


def two_layers(scale=1.0):
    """x @ w -> relu -> softmax -> @ v: three kernels, two values between them."""
    x = tensor("x", 5, 16)
    first = constant((RNG.standard_normal((16, 24)) * scale).astype(np.float32))
    hidden = ops.Softmax(ops.Relu(ops.MatMul(x, first)), axis=1)
    return Graph((x,), (ops.MatMul(hidden, weight(RNG, 24, 7)),))


def stored(steps):
    return [[p.dtype.name for p in s.kernel.params] for s in steps]


def test_strict_changes_nothing():
    graph = two_layers()
    steps = partition(graph)

    assert precision.apply(steps, graph, "fp32") == steps


def test_values_between_kernels_and_weights_become_narrow_and_the_model_s_own_do_not():
    graph = two_layers()

    assert stored(partition(graph)) == [["f32", "f32", "f32"], ["f32", "f32"], ["f32", "f32", "f32"]]
    assert stored(precision.apply(partition(graph), graph, "fp16")) == [
        ["f32", "f16", "f16"],
        ["f16", "f16"],
        ["f16", "f16", "f32"],
    ]


def test_mixed_keeps_what_something_else_than_a_contraction_reads():
    graph = two_layers()

    assert stored(precision.apply(partition(graph), graph, "mixed")) == [
        ["f32", "f16", "f32"],
        ["f32", "f16"],
        ["f16", "f16", "f32"],
    ]


def test_what_updates_add_up_in_stays_f32():
    """Each update would round the stored sum."""
    x, updates = tensor("x", 5, 16), tensor("updates", 3, 16)
    places = constant(np.array([[1], [4], [1]]))
    made = ops.ScatterND(ops.MatMul(x, weight(RNG, 16, 16)), places, updates, reduction="add")
    graph = Graph((x, updates), (ops.MatMul(made, weight(RNG, 16, 7)),))

    assert stored(precision.apply(partition(graph), graph, "fp16"))[1] == ["f16", "i64", "f32", "f32"]


@pytest.mark.parametrize("math", ["tf32", "3xtf32"])
def test_tensor_core_arithmetic_is_for_contractions_of_f32(math):
    graph = two_layers()

    steps = precision.apply(partition(graph), graph, math)

    assert [getattr(s.kernel.body, "math", None) for s in steps] == [math, None, math]
    assert all("f32" in name for step in stored(steps) for name in step)
    x = input_value("x", TensorType(F64, (4, 3)))
    double = Graph((x,), (ops.MatMul(x, constant(np.ones((3, 2)))),))
    (step,) = precision.apply(partition(double), double, math)
    assert step.kernel.body.math == "strict"


def test_the_math_is_part_of_what_a_kernel_is():
    graph = two_layers()
    strict, loose = partition(graph)[0], precision.apply(partition(graph), graph, "tf32")[0]

    assert strict.kernel.digest != loose.kernel.digest


def test_kept_nodes_neither_read_nor_write_narrow_values():
    graph = two_layers()

    steps = precision.apply(partition(graph), graph, "fp16", ["Soft*"])

    assert stored(steps) == [["f32", "f16", "f32"], ["f32", "f32"], ["f32", "f16", "f32"]]


def test_kept_contractions_keep_their_weights_and_their_arithmetic():
    graph = two_layers()

    assert stored(precision.apply(partition(graph), graph, "fp16", ["MatMul"]))[0] == ["f32", "f32", "f32"]
    assert precision.apply(partition(graph), graph, "tf32", ["MatMul"])[0].kernel.body.math == "strict"


def test_a_pattern_that_matches_nothing_is_an_error():
    graph = two_layers()

    with pytest.raises(UsageError, match="'Conv\\*': no node and no operator") as error:
        precision.apply(partition(graph), graph, "fp16", ["Conv*"])

    assert error.value.code == "GPC2015"


def test_a_weight_that_f16_cannot_hold_stays():
    graph = two_layers(scale=1e6)

    assert stored(precision.apply(partition(graph), graph, "fp16"))[0] == ["f32", "f32", "f16"]
    assert stored(precision.apply(partition(graph), graph, "bf16"))[0] == ["f32", "bf16", "bf16"]


def test_infinite_weights_are_no_reason_to_stay():
    x = tensor("x", 2, 2)
    graph = Graph((x,), (ops.MatMul(x, constant(np.array([[1, np.inf], [np.nan, 2]], np.float32))),))

    assert stored(precision.apply(partition(graph), graph, "fp16")) == [["f32", "f16", "f32"]]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize(
    "kernel", [matmul(5, 7, 11), conv((1, 6, 5, 3), 4, (3, 3), pad=1), softmax(4, 9)], ids=lambda k: k.label
)
def test_a_retyped_kernel_computes_in_f32(kernel, dtype):
    """Compared with the f32 kernel on rounded inputs, only the stores round again."""
    narrow = [TensorType(dtype, p.shape) for p in kernel.params]
    arrays = [a.astype(dtype.numpy) for a in random_inputs(kernel)]

    found = expected(precision.retyped(kernel, narrow, dtype), arrays)

    for actual, wide in zip(found, expected(kernel, [a.astype(np.float32) for a in arrays]), strict=True):
        assert actual.dtype == dtype.numpy
        np.testing.assert_array_equal(actual, wide.astype(dtype.numpy))


def test_operands_are_rounded_where_they_come_in_wide():
    graph = two_layers()

    first, _, last = precision.apply(partition(graph), graph, "fp16")

    assert "a = f32(f16(x0[" in first.kernel.text
    assert "a = f32(x0[" in last.kernel.text  # it is f16 in memory: nothing to round


@pytest.mark.parametrize("level", HALF_ULP)
@pytest.mark.parametrize("name", ["resnet18", "vit_tiny"])
def test_models_lose_no_more_than_the_format(name, level):
    made = build(name, reduced=True)
    feeds = inputs(made)
    exact = gpucomp.compile(made, target="cpu").run(feeds)

    executable = gpucomp.compile(made, target="cpu", precision=level)
    found = executable.run(feeds)

    assert executable.plan.precision == level
    for output, array in exact.items():
        assert found[output].dtype == array.dtype
        error = relative_error(found[output], array)
        assert HALF_ULP[level] / 50 < error < 8 * HALF_ULP[level]


@pytest.mark.parametrize(("name", "weights"), [("vit_tiny", 0.55), ("resnet18", 1.0)])
def test_weights_and_values_take_half_the_memory(name, weights):
    """Transformed Winograd filters are f32 in both. In a ResNet they are most of the weights."""
    made = build(name, reduced=True)
    wide, narrow = (gpucomp.compile(made, target="cpu", precision=p) for p in ("fp32", "fp16"))
    of_weights = [sum(b.nbytes for b in e.plan.buffers if b.kind == "weight") for e in (wide, narrow)]

    assert of_weights[1] <= weights * of_weights[0]
    assert narrow.plan.arena_bytes < 0.55 * wide.plan.arena_bytes


@pytest.mark.parametrize(("level", "target"), [("tf32", "cpu"), ("3xtf32", "cuda:sm_75"), ("fp8", "cpu")])
def test_a_precision_that_the_target_lacks_is_an_error(level, target):
    with pytest.raises(UsageError) as error:
        gpucomp.compile(build("vit_tiny", reduced=True), target=target, precision=level)

    assert error.value.code == "GPC2011"
    assert level in str(error.value)


# ---- what f16 cannot hold ----

LEAST = float(np.finfo(np.float32).min)  # exporters add this to masked scores, or replace the scores by it


def masked_attention(fused, *, boolean=False):
    """Attention with a mask as exporters write it: (1 - seen) * LEAST is added, or LEAST replaces scores."""
    q, k, v = (tensor(n, 2, 5, 8) for n in "qkv")
    seen = tensor("seen", 1, 5)
    least, one = constant(np.float32(LEAST)), constant(np.float32(1))
    mask = ops.Less(constant(np.float32(0)), seen) if boolean else ops.Mul(ops.Sub(one, seen), least)
    if fused:
        return Graph((q, k, v, seen), (ops.Attention(q, k, v, mask, masked=LEAST if boolean else 0.0),))
    scores = ops.MatMul(q, ops.Transpose(k, perm=(0, 2, 1)))
    scores = ops.Where(mask, scores, least) if boolean else ops.Add(scores, mask)
    return Graph((q, k, v, seen), (ops.MatMul(ops.Softmax(scores, axis=2), v),))


@pytest.mark.parametrize("level", HALF_ULP)
@pytest.mark.parametrize("boolean", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_a_row_whose_keys_are_all_hidden_is_the_values_mean_as_in_f32(level, boolean, fused):
    graph = masked_attention(fused, boolean=boolean)
    steps = partition(graph)
    feeds = {n: RNG.standard_normal((2, 5, 8)).astype(np.float32) for n in "qkv"}
    for seen in ([0, 0, 0, 0, 0], [1, 1, 0, 1, 0]):
        feeds["seen"] = np.float32([seen])

        exact, found = (run_steps(graph, precision.apply(steps, graph, how), feeds)[0] for how in ("fp32", level))

        assert relative_error(found, exact) < 8 * HALF_ULP[level]
        if not any(seen):
            mean = np.broadcast_to(feeds["v"].mean(axis=1, keepdims=True), exact.shape)
            assert relative_error(exact, mean) < 1e-6


def scored(fn, constant_value=LEAST):
    """The types in memory of softmax(fn(x @ w, constant)) @ v."""
    x = tensor("x", 5, 16)
    scores = fn(ops.MatMul(x, weight(RNG, 16, 24)), constant(np.float32(constant_value)))
    graph = Graph((x,), (ops.MatMul(ops.Softmax(scores, axis=1), weight(RNG, 24, 7)),))
    return stored(precision.apply(partition(graph), graph, "fp16"))


@pytest.mark.parametrize(("number", "held"), [(LEAST, "f32"), (-65520.0, "f32"), (-65504.0, "f16"), (-np.inf, "f16")])
def test_what_a_constant_takes_past_f16_stays_f32_until_it_is_bounded(number, held):
    assert scored(ops.Add, number) == [["f32", "f16", held], [held, "f16"], ["f16", "f16", "f32"]]


@pytest.mark.parametrize(
    ("fn", "held"),
    [
        (lambda x, c: ops.Max(x, c), "f16"),
        (lambda x, c: ops.Min(ops.Max(x, c), constant(np.float32(-LEAST))), "f16"),
        (lambda x, c: ops.Min(x, c), "f32"),
        (lambda x, c: ops.Max(x, ops.Neg(ops.Mul(x, c))), "f32"),
        (lambda x, c: ops.Min(x, ops.Abs(ops.Mul(x, c))), "f16"),
        (lambda x, c: ops.Sub(x, c), "f32"),
        (lambda x, c: ops.Max(ops.Sub(x, c), x), "f32"),
        (lambda x, c: ops.Min(ops.Sub(x, c), x), "f16"),
        (lambda x, c: ops.Div(x, c), "f16"),
        (lambda x, c: ops.Tanh(ops.Mul(x, c)), "f16"),
        (lambda x, c: ops.Where(ops.Less(x, c), x, ops.Relu(x)), "f16"),
    ],
)
def test_functions_take_a_constant_past_f16_or_do_not(fn, held):
    assert scored(fn)[0][-1] == held


def test_a_mask_that_is_a_constant_array_counts():
    x, w = tensor("x", 4, 8), weight(RNG, 8, 6)
    triangle = np.where(np.tri(4, 6, dtype=bool), 0, LEAST).astype(np.float32)

    def held(mask):
        graph = Graph((x,), (ops.Softmax(ops.Add(ops.MatMul(x, w), constant(mask)), axis=1),))
        return stored(precision.apply(partition(graph), graph, "fp16"))[0][-1]

    assert held(triangle) == "f32"
    assert held(triangle / 1e35) == "f16"


def answers(mask, entry, array, level):
    """The f32 and ``level`` results of two softmaxes over transposed scores plus ``mask``, computed from ``entry``."""
    x = tensor("x", 4, 8)
    scores = ops.Transpose(ops.Add(ops.MatMul(x, weight(RNG, 8, 6)), mask), perm=(1, 0))
    along, across = ops.Softmax(scores, axis=0), ops.Softmax(scores, axis=1)
    results = ops.MatMul(ops.Transpose(along, perm=(1, 0)), weight(RNG, 6, 3)), ops.MatMul(across, weight(RNG, 4, 3))
    graph = Graph((x, entry), results)
    feeds = {"x": RNG.standard_normal((4, 8)).astype(np.float32), "entry": array}
    steps = partition(graph)
    return [run_steps(graph, s, feeds) for s in (steps, precision.apply(steps, graph, level))]


@pytest.mark.parametrize("level", HALF_ULP)
def test_a_mask_that_updates_write_hides_rows_as_in_f32(level):
    places = input_value("entry", TensorType(I64, (4, 1)))
    nothing, least = (constant(np.full((4, 6), value, np.float32)) for value in (0, LEAST))

    exact, found = answers(ops.ScatterND(nothing, places, least), places, np.arange(4).reshape(4, 1), level)

    for a, b in zip(found, exact, strict=True):
        assert relative_error(a, b) < 8 * HALF_ULP[level]


@pytest.mark.parametrize("level", HALF_ULP)
def test_a_mask_that_is_added_up_hides_rows_as_in_f32(level):
    first = tensor("entry", 4, 6)
    hides = np.zeros((4, 6), np.float32)
    hides[0, 0] = 1

    exact, found = answers(ops.CumSum(ops.Mul(first, constant(np.float32(LEAST))), axis=1), first, hides, level)

    for a, b in zip(found, exact, strict=True):
        assert relative_error(a, b) < 8 * HALF_ULP[level]


@pytest.mark.parametrize(("large", "rounds"), [(1e5, False), (6e4, True)])
@pytest.mark.parametrize("level", ["fp16", "mixed"])
def test_a_product_with_a_weight_past_f16_is_one_of_f32(large, rounds, level):
    x, w = tensor("x", 4, 8), RNG.standard_normal((8, 6)).astype(np.float32)
    w[0, 0] = large
    graph = Graph((x,), (ops.MatMul(x, constant(w)),))
    feeds = {"x": RNG.standard_normal((4, 8)).astype(np.float32)}
    steps = partition(graph)

    exact, found = (run_steps(graph, s, feeds)[0] for s in (steps, precision.apply(steps, graph, level)))

    assert np.isfinite(found).all()
    assert (relative_error(found, exact) > 1e-6) == rounds
