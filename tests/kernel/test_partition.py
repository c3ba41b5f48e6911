"""Partition: what is fused, what must not be, and that every graph gives the same results afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp import ops
from gpucomp.compiler import render
from gpucomp.ir import Graph, constant
from gpucomp.ir.graph import input_value
from gpucomp.ir.types import F32, I32, I64, U8, TensorType
from gpucomp.kernel.grouping import MAX_PARAMS, MAX_STORES, Policy
from gpucomp.kernel.interpreter import run_steps
from gpucomp.kernel.partition import partition
from gpucomp.lowering import kernels_of
from gpucomp.schedule.analytic import operations
from gpucomp.targets import resolve
from tests.graphs import interpret, random_graph, tensor, weight

CONV = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "layout": "NHWC"}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def check(graph, rng, policy=None):
    """The partition of ``graph``. Asserts that it gives the results of the operators' references."""
    steps = partition(graph, policy)
    inputs = {v.attrs["label"]: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    for actual, expected in zip(run_steps(graph, steps, inputs), interpret(graph, inputs), strict=True):
        assert actual.shape == expected.shape
        scale = np.abs(expected).max(initial=1e-30)
        assert np.abs(actual - expected).max(initial=0) <= 1e-5 * scale
    return steps


def swallowed(step):
    return [n.op.name for n in step.nodes]


def test_a_residual_block_is_one_kernel_a_convolution(rng):
    x = tensor("x", 1, 7, 5, 4)
    a = ops.Relu(ops.Add(ops.Conv(x, weight(rng, 3, 3, 4, 6), **CONV), weight(rng, 6)))
    b = ops.Add(ops.Conv(a, weight(rng, 3, 3, 6, 4), **CONV), weight(rng, 4))

    steps = check(Graph((x,), (ops.Relu(ops.Add(b, x)),)), rng)

    assert [swallowed(s) for s in steps] == [["Conv", "Add", "Relu"], ["Conv", "Add", "Add", "Relu"]]


@pytest.mark.parametrize("joined", [False, True])
def test_a_norm_of_groups_of_channels_computes_each_statistic_once(rng, joined):
    """Channels last, seen as groups: the row and the column of a group share an index, but no two groups share a number."""
    x = tensor("x", 1, 7, 5, 6)
    a = ops.Concat(ops.Neg(x), ops.Relu(x), axis=3) if joined else ops.Neg(x)
    channels = a.shape[3]
    rows = ops.Reshape(ops.Transpose(a, perm=(0, 3, 1, 2)), shape=(1, 3, channels // 3 * 35))
    back = ops.Reshape(ops.LayerNorm(rows, axis=2, epsilon=1e-5), shape=(1, channels, 7, 5))

    steps = check(Graph((x,), (ops.Transpose(back, perm=(0, 2, 3, 1)),)), rng)

    (norm,) = [step.kernel for step in steps if "LayerNorm" in swallowed(step)]
    assert norm.family == "norm"
    assert operations(norm) < 40 * channels * 35


@pytest.mark.parametrize("first", ["indices", "values"])
def test_a_producer_is_computed_at_an_index_that_is_loaded(rng, first):
    i, x = input_value("i", TensorType(I64, (3,))), tensor("x", 5, 7)
    picked = ops.Gather(ops.Add(ops.Neg(x), weight(rng, 7)), i, axis=0)
    graph = Graph((i, x) if first == "indices" else (x, i), (picked,))
    feed = {"i": np.array([4, 0, 2]), "x": rng.standard_normal((5, 7)).astype(np.float32)}

    steps = partition(graph)

    assert [swallowed(s) for s in steps] == [["Gather"]]
    np.testing.assert_array_equal(run_steps(graph, steps, feed)[0], interpret(graph, feed)[0])


def test_two_branches_meet_in_the_later_kernel(rng):
    x = tensor("x", 1, 5, 7, 3)
    left = ops.Conv(x, weight(rng, 3, 3, 3, 4), **CONV)
    right = ops.Conv(x, weight(rng, 3, 3, 3, 4), **CONV)

    steps = check(Graph((x,), (ops.Relu(ops.Add(left, right)),)), rng)

    assert [swallowed(s) for s in steps] == [["Conv"], ["Conv", "Add", "Relu"]]


def test_a_gate_that_waits_for_its_own_kernel_starts_another(rng):
    x = tensor("x", 5, 7)
    a = ops.MatMul(x, weight(rng, 7, 3))
    gate = ops.MatMul(ops.Relu(a), weight(rng, 3, 3))

    steps = check(Graph((x,), (ops.Mul(a, gate),)), rng)

    assert [swallowed(s) for s in steps] == [["MatMul", "Relu"], ["MatMul", "Mul"]]


def test_a_value_read_elsewhere_is_a_second_output(rng):
    x = tensor("x", 5, 7)
    a = ops.MatMul(x, weight(rng, 7, 3))
    r = ops.Relu(a)

    steps = check(Graph((x,), (a, ops.MatMul(r, weight(rng, 3, 2)))), rng)

    assert steps[0].kernel.outputs == 2
    assert len(steps) == 2


def test_reshape_and_transpose_are_store_maps(rng):
    x = tensor("x", 6, 10)
    heads = ops.Transpose(ops.Reshape(ops.MatMul(x, weight(rng, 10, 12)), shape=(6, 3, 4)), perm=(1, 2, 0))

    steps = check(Graph((x,), (heads,)), rng)

    assert [swallowed(s) for s in steps] == [["MatMul", "Reshape", "Transpose"]]


def test_a_transpose_that_is_not_the_only_reader_is_folded_into_loads(rng):
    x = tensor("x", 6, 10)
    a = ops.MatMul(x, weight(rng, 10, 12))
    t = ops.Transpose(a, perm=(1, 0))

    steps = check(Graph((x,), (ops.MatMul(a, t), ops.Relu(a))), rng)

    assert len(steps) == 2
    assert [n.op.name for n in steps[1].prologue] == ["Transpose"]


def test_concat_of_kernels_is_free(rng):
    x = tensor("x", 1, 5, 7, 3)
    parts = [ops.Relu(ops.Conv(x, weight(rng, 3, 3, 3, n), **CONV)) for n in (2, 5, 3)]
    joined = ops.Concat(*parts, axis=3)

    steps = check(Graph((x,), (ops.Conv(joined, weight(rng, 3, 3, 10, 2), **CONV),)), rng)

    assert [swallowed(s) for s in steps[:3]] == [["Conv", "Relu", "Concat"]] * 3
    assert len(steps) == 4


def test_concat_with_an_input_is_one_gathering_kernel(rng):
    x = tensor("x", 5, 7)
    a = ops.Relu(ops.MatMul(x, weight(rng, 7, 3)))

    steps = check(Graph((x,), (ops.Concat(x, a, axis=1),)), rng)

    assert [s.kernel.family for s in steps] == ["contraction", "loops"]


def test_concat_of_a_value_with_itself_gathers(rng):
    x = tensor("x", 5, 7)
    a = ops.Relu(ops.MatMul(x, weight(rng, 7, 3)))

    check(Graph((x,), (ops.Concat(a, a, axis=0),)), rng)


def test_elementwise_chains_are_one_kernel(rng):
    x, y = tensor("x", 3, 5, 7), tensor("y", 5, 1)

    steps = check(Graph((x, y), (ops.Relu(ops.Sub(ops.Mul(ops.Add(x, y), x), y)),)), rng)

    assert len(steps) == 1
    assert steps[0].kernel.family == "loops"


def test_a_plain_producer_is_folded_into_a_contraction_only_where_the_target_allows_it(rng):
    x, s = tensor("x", 5, 7), tensor("s", 7)
    graph = Graph((x, s), (ops.MatMul(ops.Mul(x, s), weight(rng, 7, 3)),))

    assert len(check(graph, rng, Policy(prologues=True))) == 1
    assert len(check(graph, rng, Policy(prologues=False))) == 2


@pytest.mark.parametrize(
    ("channels", "side", "taps", "gathers", "kernels"),
    [(12, 21, 3, False, 2), (12, 21, 3, True, 1), (3, 43, 3, False, 1), (12, 21, 1, False, 1), (12, 9, 3, False, 1)],
    ids=["stored", "on a GPU", "of few channels", "of one tap", "of few elements"],
)
def test_an_image_of_channels_first_is_stored_before_taps_read_it_on_a_processor(
    rng, channels, side, taps, gathers, kernels
):
    x = tensor("x", 1, channels, side, side)
    last = ops.Transpose(x, perm=(0, 2, 3, 1))
    graph = Graph((x,), (ops.Conv(last, weight(rng, taps, taps, channels, 5), **CONV | {"pads": 4 * (taps // 2,)}),))

    assert len(check(graph, rng, Policy(gathers=gathers))) == kernels


@pytest.mark.parametrize(
    ("back", "group", "kernels"),
    [((0, 3, 1, 2), 12, 1), ((0, 3, 2, 1), 12, 2), (None, 12, 2), ((0, 3, 1, 2), 6, 2)],
    ids=["depthwise", "turned otherwise", "left channels last", "of groups"],
)
def test_a_depthwise_convolution_between_images_of_channels_first_reads_them_as_they_are(rng, back, group, kernels):
    x = tensor("x", 1, 12, 21, 21)
    last = ops.Transpose(x, perm=(0, 2, 3, 1))
    attrs = CONV | {"pads": (1, 1, 1, 1), "group": group}
    result = ops.Relu(ops.Conv(last, weight(rng, 3, 3, 12 // group, 12), **attrs))
    graph = Graph((x,), (result if back is None else ops.Transpose(result, perm=back),))

    assert len(check(graph, rng, Policy(gathers=False))) == kernels
    assert len(check(graph, rng, Policy(gathers=True))) == 1


@pytest.mark.parametrize(
    ("mode", "taps", "gathers", "kernels"),
    [
        ("reflect", 3, False, 2),
        ("edge", 3, False, 2),
        ("reflect", 3, True, 1),
        ("constant", 3, False, 1),
        ("wrap", 1, False, 1),
    ],
)
def test_a_mirrored_image_is_stored_before_taps_read_it_on_a_processor(rng, mode, taps, gathers, kernels):
    x = tensor("x", 2, 7, 9, 3)
    padded = ops.Pad(x, pads=(0, 2, 1, 0, 0, 1, 3, 0), mode=mode)
    graph = Graph((x,), (ops.Conv(padded, weight(rng, taps, taps, 3, 5), **CONV | {"pads": (0, 0, 0, 0)}),))

    assert len(check(graph, rng, Policy(gathers=gathers))) == kernels


@pytest.mark.parametrize(
    ("rows", "width", "divides", "kernels"),
    [(300, 24, False, 2), (300, 24, True, 1), (16, 256, False, 1), (100, 24, False, 1)],
    ids=["stored", "on a GPU", "of few rows", "of few elements"],
)
def test_quotients_that_many_rows_read_are_stored_on_a_processor(rng, rows, width, divides, kernels):
    x, bias, scale = tensor("x", rows, width), tensor("bias", width), tensor("scale", 1)
    graph = Graph((x, bias, scale), (ops.Add(x, ops.Floor(ops.Div(bias, scale))),))

    assert len(check(graph, rng, Policy(divides=divides))) == kernels


def test_outputs_that_are_inputs_or_repeated_values(rng):
    x = tensor("x", 3, 2)
    a = ops.Relu(x)

    steps = check(Graph((x,), (x, a, a)), rng)

    assert len(steps) == 1


def test_a_reshaped_graph_output_is_stored_once(rng):
    x = tensor("x", 6, 10)
    graph = Graph((x,), (ops.Reshape(ops.Relu(ops.MatMul(x, weight(rng, 10, 4))), shape=(24,)),))

    steps = check(graph, rng)

    assert [swallowed(s) for s in steps] == [["MatMul", "Relu", "Reshape"]]


def test_zero_elements_are_partitioned_like_any_other(rng):
    x = tensor("x", 0, 7)

    steps = check(Graph((x,), (ops.Relu(ops.MatMul(x, weight(rng, 7, 3))),)), rng)

    assert len(steps) == 1


def test_an_inner_size_of_zero_gives_zeros(rng):
    a, b = tensor("a", 3, 0), tensor("b", 0, 2)

    check(Graph((a, b), (ops.MatMul(a, b),)), rng)


def test_no_kernel_takes_or_writes_more_than_its_share(rng):
    inputs = tuple(tensor(f"x{i}", 3, 5) for i in range(150))
    total = inputs[0]
    for x in inputs[1:]:
        total = ops.Add(total, x)

    steps = check(Graph(inputs, (total,)), rng)

    assert 1 < len(steps) < 20
    assert all(len(s.kernel.params) <= MAX_PARAMS + MAX_STORES for s in steps)


def test_a_chain_of_three_hundred_operations_is_cut(rng):
    value = x = tensor("x", 3, 5)
    for _ in range(300):
        value = ops.Relu(ops.Add(value, x))

    steps = check(Graph((x,), (value,)), rng)

    assert 1 <= len(steps) <= 12


def choices(links, *, crossed):
    """A chain of Where, each with its own condition at run time.

    Each selects between a value and its negative. If ``crossed``, there are two values, and each becomes one of both.
    """
    x = tensor("x", 7, 5)
    left, right = ([tensor(f"{side}{k}", 7) for k in range(links)] for side in "lr")
    zero = constant(np.float32(0))
    a = ops.ReduceSum(x, axes=(1,), keepdims=False)
    b = ops.Abs(a)
    for c, d in zip(left, right, strict=True):
        if crossed:
            a, b = ops.Where(ops.Less(c, zero), a, b), ops.Where(ops.Less(d, zero), b, a)
        else:
            a = ops.Where(ops.Less(c, zero), a, ops.Neg(a))
    return Graph((x, *left, *(right if crossed else ())), (ops.Sub(a, b),), ("y",))


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "opencl:generic", "cuda:sm_80"])
@pytest.mark.parametrize("crossed", [False, True])
def test_a_chain_of_choices_is_no_longer_written_out_than_it_is(crossed, target):
    device = resolve(target)

    def size(links):
        graph = choices(links, crossed=crossed)
        return sum(
            len(r.source.text) for r in render(kernels_of(graph, device), device, lambda *told: None)[1].values()
        )

    assert size(22) < 4 * size(11)


@pytest.mark.parametrize("crossed", [False, True])
def test_a_chain_of_choices_computes_what_it_says(rng, crossed):
    steps = check(choices(13, crossed=crossed), rng)

    assert (len(steps) > 1) is crossed  # only crossed choices double the text


def test_a_kernel_is_not_cut_because_another_one_chooses_too_much(rng):
    crossed = choices(13, crossed=True)
    x = tensor("z", 11)
    y = x
    for k in range(19):  # one choice each, which doubles nothing
        y = ops.Where(ops.Less(x, constant(np.float32(k))), y, constant(np.float32(-k)))
    graph = Graph((*crossed.inputs, x), (*crossed.outputs, y), ("y", "z"))

    alone, together = len(check(crossed, rng)), len(check(graph, rng))

    assert alone > 1
    assert together == alone + 1


def test_few_choices_stay_in_one_kernel(rng):
    assert len(check(choices(3, crossed=True), rng)) == 1


def test_every_kernel_says_why_it_ends(rng):
    x = tensor("x", 5, 7)
    a = ops.Relu(ops.MatMul(x, weight(rng, 7, 3)))

    steps = check(Graph((x,), (ops.MatMul(a, weight(rng, 3, 2)),)), rng)

    assert steps[0].why == "MatMul starts another kernel"
    assert steps[1].why == "graph output"


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("prologues", [True, False])
def test_random_graphs_compute_the_same_after_partition(seed, prologues):
    rng = np.random.default_rng(seed)

    check(random_graph(rng), rng, Policy(prologues))


def test_a_value_and_its_transpose_meet_in_a_kernel_of_their_own(rng):
    x = tensor("x", 5, 5)
    a = ops.MatMul(x, weight(rng, 5, 5))
    turned = ops.Transpose(ops.Tanh(a), perm=(1, 0))

    steps = check(Graph((x,), (ops.Add(turned, ops.Abs(a)),)), rng)

    assert [swallowed(s) for s in steps] == [["MatMul", "Tanh", "Transpose", "Abs"], ["Add"]]


def test_two_values_at_the_same_place_meet_in_the_kernel_that_moved_them(rng):
    x = tensor("x", 5, 5)
    a = ops.MatMul(x, weight(rng, 5, 5))
    tanh, size = (ops.Transpose(f(a), perm=(1, 0)) for f in (ops.Tanh, ops.Abs))

    steps = check(Graph((x,), (ops.Add(tanh, size),)), rng)

    assert len(steps) == 1


def test_an_index_that_is_loaded_is_not_taken_for_an_operand(rng):
    x = tensor("x", 3, 5, 7)
    indices = constant(np.array([4, 0, -3]))
    moved = ops.Gather(ops.Relu(ops.Transpose(x, perm=(0, 2, 1))), indices, axis=1)

    steps = check(Graph((x,), (ops.MatMul(moved, weight(rng, 5, 2)),)), rng)

    assert len(steps) == 1


def test_a_value_stored_after_all_is_there_for_the_kernels_that_counted_on_computing_it(rng):
    half = MAX_PARAMS // 2
    inputs = [tensor(f"x{k}", 3, 2) for k in range(2 * half)]
    flag = tensor("flag", 3, 2 * half)
    left, right = ops.Concat(*inputs[:half], axis=1), ops.Concat(*inputs[half:], axis=1)
    early = ops.Add(ops.MatMul(inputs[0], weight(rng, 2, 2 * half)), left)
    late = ops.Where(ops.Less(flag, constant(np.float32(0))), left, right)

    steps = check(Graph((*inputs, flag), (early, late)), rng)

    assert [swallowed(s) for s in steps] == [["Concat"], ["MatMul", "Add"], ["Where"]]


def test_a_chain_of_movements_is_cut_before_its_index_map_grows_long(rng):
    value = x = tensor("x", 4, 6)
    for _ in range(40):
        value = ops.Transpose(ops.Reshape(value, shape=(6, 4)), perm=(1, 0))

    steps = check(Graph((x,), (value,)), rng)

    assert 1 < len(steps) < 40
    assert max(len(s.kernel.text) for s in steps) < 20000


def test_a_kernel_of_shared_values_is_described_in_few_words(rng):
    value = x = tensor("x", 3, 5)
    for _ in range(60):
        value = ops.Mul(value, ops.Sigmoid(value))

    steps = check(Graph((x,), (value,)), rng)

    assert max(len(s.kernel.text) for s in steps) < 20000


def coded(x):
    """``x`` quantized to bytes."""
    return ops.Cast(ops.Clip(ops.Round(ops.Mul(x, constant(np.float32(9)))), low=0.0, high=255.0), to=U8)


def real(codes, scale=0.125):
    return ops.Mul(ops.Cast(codes, to=F32), constant(np.float32(scale)))


def stored(step):
    return [str(v.type.dtype) for v in step.outputs]


def test_a_residual_of_codes_is_read_as_codes(rng):
    x = tensor("x", 1, 7, 5, 4)
    codes = coded(ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV))
    product = ops.Conv(x, weight(rng, 1, 1, 4, 4), **{**CONV, "pads": (0, 0, 0, 0)})

    steps = check(Graph((x,), (ops.Add(real(codes), product),)), rng)

    assert [stored(s) for s in steps] == [["u8"], ["f32"]]
    assert [n.op.name for n in steps[1].prologue] == ["Mul", "Cast"]
    assert "f32(x" in steps[1].kernel.text


def test_several_may_read_the_codes(rng):
    x = tensor("x", 1, 7, 5, 4)
    wide = real(coded(ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV)))
    products = [ops.Conv(x, weight(rng, 1, 1, 4, 4), **{**CONV, "pads": (0, 0, 0, 0)}) for _ in range(2)]

    steps = check(Graph((x,), tuple(ops.Add(wide, p) for p in products)), rng)

    assert stored(steps[0]) == ["u8"]


def wide_for_a_sum(x, rng):
    wide = real(coded(ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV)))
    return ops.Add(wide, ops.Conv(wide, weight(rng, 3, 3, 4, 4), **CONV))


def wide_for_the_caller(x, rng):
    wide = real(coded(ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV)))
    return ops.Add(wide, ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV)), wide


def of_two_values(x, rng):
    sums = ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV)
    wide = ops.Mul(ops.Cast(coded(sums), to=F32), sums)
    return ops.Add(wide, ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV))


def as_wide_as_before(x, rng):
    wide = ops.Mul(ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV), constant(np.float32(3)))
    return ops.Add(wide, ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV))


def at_some_cost(x, rng):
    wide = ops.Exp(real(coded(ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV)), 0.001))
    return ops.Add(wide, ops.Conv(x, weight(rng, 3, 3, 4, 4), **CONV))


@pytest.mark.parametrize("made", [wide_for_a_sum, wide_for_the_caller, of_two_values, as_wide_as_before, at_some_cost])
def test_what_is_wide_for_other_reasons_is_stored_so(rng, made):
    x = tensor("x", 1, 7, 5, 4)
    result = made(x, rng)

    steps = check(Graph((x,), result if isinstance(result, tuple) else (result,)), rng)

    assert stored(steps[0]) == ["f32"]


def focus(x, axis=3):
    """Focus: the four phases of 2 x 2 pixels joined along the channels, as in the first layer of detectors."""
    n, h, w, c = x.shape
    phases = [
        ops.Slice(x, starts=(0, row, column, 0), steps=(1, 2, 2, 1), sizes=(n, h // 2, w // 2, c))
        for column in range(2)
        for row in range(2)
    ]
    return ops.Concat(*phases, axis=axis)


@pytest.mark.parametrize(
    ("size", "window", "stored"),
    [(46, (3, 3), True), (46, (1, 1), False), (10, (3, 3), False)],
    ids=["for each tap", "once each", "few elements"],
)
def test_parts_that_a_window_would_choose_between_again_are_stored(rng, size, window, stored):
    x = tensor("x", 1, size, size, 3)
    pad = window[0] // 2
    y = ops.Conv(focus(x), weight(rng, *window, 12, 5), **(CONV | {"pads": (pad,) * 4}))

    steps = check(Graph((x,), (y,)), rng)

    assert sorted(n.op.name for n in steps[0].prologue) == ["Concat"] * (not stored) + ["Slice"] * 4
    assert [swallowed(s) for s in steps] == ([["Concat"], ["Conv"]] if stored else [["Conv"]])


def test_a_window_over_one_part_looks_for_nothing(rng):
    x = tensor("x", 1, 46, 46, 3)
    y = ops.Conv(
        ops.Slice(x, starts=(0, 0, 0, 0), steps=(1, 2, 1, 1), sizes=(1, 23, 46, 3)), weight(rng, 3, 3, 3, 5), **CONV
    )

    assert [swallowed(s) for s in check(Graph((x,), (y,)), rng)] == [["Conv"]]


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({}, ""),
        ({"strides": (2, 2)}, " stride 2"),
        ({"strides": (2, 1)}, " stride 2,1"),
        ({"pads": (1, 1, 1, 1)}, " pad 1"),
        ({"pads": (0, 0, 1, 1)}, " pad 0,0,1,1"),
        ({"dilations": (3, 3)}, " dilation 3"),
        ({"group": 4}, " groups 4"),
    ],
)
def test_a_label_tells_convolutions_of_the_same_types_apart(changes, mark):
    attrs = CONV | {"pads": (0, 0, 0, 0)} | changes
    channels = 8 // attrs.get("group", 1)
    x = input_value("x", TensorType(F32, (1, 9, 9, 8)))
    w = input_value("w", TensorType(F32, (3, 3, channels, 8)))
    graph = Graph((x, w), (ops.Conv(x, w, **attrs),), ("y",), "g")

    (step,) = partition(graph, None)

    assert step.kernel.label == f"Conv f32[1,9,9,8] f32[3,3,{channels},8]{mark}"


def quantized_product(rng, m: int, k: int, n: int, *, left: bool = True):
    """Codes of floats times constant codes: on the left, or on the right."""
    x = tensor("x", m, k) if left else tensor("x", k, n)
    codes = ops.Cast(ops.Round(ops.Div(x, constant(np.float32(0.25)))), to=U8)
    other = constant(rng.integers(-9, 9, (k, n) if left else (m, k), dtype=np.int32))
    wide = ops.Cast(codes, to=I32)
    return Graph((x,), (ops.MatMul(wide, other) if left else ops.MatMul(other, wide),))


@pytest.mark.parametrize(
    ("graph", "kernels"),
    [
        ((129, 67, 1), 1),  # each code is read once, for a sum over its row
        ((129, 67, 2), 2),
    ],
)
def test_codes_that_one_column_reads_are_not_stored(rng, graph, kernels):
    assert len(check(quantized_product(rng, *graph), rng)) == kernels


def test_codes_that_many_rows_read_are_stored(rng):
    assert len(check(quantized_product(rng, 5, 4099, 1, left=False), rng)) == 2


def test_codes_that_each_of_several_columns_reads_are_stored(rng):
    x = tensor("x", 129, 67)
    codes = ops.Cast(ops.Cast(ops.Round(ops.Div(x, constant(np.float32(0.25)))), to=U8), to=I32)
    columns = constant(rng.integers(-9, 9, (5, 67, 1), dtype=np.int32))  # one of each of five products

    assert len(check(Graph((x,), (ops.MatMul(codes, columns),)), rng)) == 2
