"""Norms of rows fold into the products that read them, if numbers may be rounded and another product computes the rows."""

from dataclasses import replace

import numpy as np
import pytest

from bench import models
from gpucomp import compiler, ops, targets
from gpucomp.cli.compare import onnxruntime_session, relative_error
from gpucomp.errors import UsageError
from gpucomp.frontend.onnx import load
from gpucomp.ir import F32, F64, Graph, constant, constant_value, verify
from gpucomp.ir.types import F16
from gpucomp.kernel.interpreter import run_steps
from gpucomp.kernel.partition import partition
from gpucomp.kernel.passes import precision
from gpucomp.kernel.passes.precision import KernelStorage
from gpucomp.lowering import rewritten
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.norm_products import fold_norms
from gpucomp.rewrite.pipeline import run_pipeline
from gpucomp.rewrite.rounding import NoKernels, Rounding
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from testing.tolerance import assert_matches
from tests.builders import graph_of, ops_of, tensor, weights
from tests.onnx_builders import model, node, value

ROWS, DEEP, WIDE = 3, 5, 7  # of what is normalised, what makes it and what it makes
RNG = np.random.default_rng(11)
PRECISIONS = ("fp16", "bf16")
BITS = {"tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
CUDA = targets.resolve("cuda:sm_90a")
STORAGE = KernelStorage(CUDA)
FP16 = Rounding("fp16"), STORAGE


def few_bits(*shape):
    """Numbers that every format can represent, as well as the products of two of them."""
    return constant((RNG.integers(-7, 8, shape) / 4).astype(np.float32))


def normal(*shape, scale=1.0):
    return constant((scale * RNG.standard_normal(shape)).astype(np.float32))


def rows(*, width=WIDE, lead=(2, ROWS), dtype=F32):
    """The product of an input with weights, plus a residual."""
    x, residual = tensor("x", *lead, DEEP, dtype=dtype), tensor("r", *lead, width, dtype=dtype)
    return ops.Add(ops.MatMul(x, weights(DEEP, width, dtype=dtype), name="first"), residual, name="sum")


def rms_norm(x, **attrs):
    return ops.RMSNorm(x, **{"axis": x.type.rank - 1, "epsilon": 1e-3, "name": "norm", **attrs})


def affine(y, width=WIDE):
    return ops.Add(ops.Mul(y, few_bits(width)), few_bits(width))


def inputs_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    return {v.attrs["label"]: rng.standard_normal(v.shape).astype(v.type.dtype.numpy) for v in graph.inputs}


def checked(graph, level="fp16", *, terms=8 * WIDE):
    """``graph`` folded. It computes the same if its weights have no more bits than the precision."""
    after = fold_norms(graph, Rounding(level), STORAGE)
    verify(after)
    feeds = inputs_of(graph)
    for found, right in zip(interpret(after, feeds), interpret(graph, feeds), strict=True):
        assert_matches(found, right, terms=terms)
    return after


# it folds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["tf32", *PRECISIONS])
def test_what_reads_the_norm_reads_its_operand_and_a_number_a_row(level):
    after = checked(graph_of(ops.Relu(ops.MatMul(rms_norm(rows()), few_bits(WIDE, 11), name="second"))), level)

    assert ops_of(after) == ["MatMul", "Add", "InverseRMS", "MatMul", "Mul", "Relu"]


@pytest.mark.parametrize("level", ["tf32", *PRECISIONS])
def test_the_scale_and_the_shift_of_its_columns_go_into_weights_and_bias(level):
    after = checked(graph_of(ops.MatMul(affine(rms_norm(rows())), few_bits(WIDE, 11))), level)

    assert ops_of(after) == ["MatMul", "Add", "InverseRMS", "MatMul", "Mul", "Add"]


def test_several_products_share_the_statistics():
    scaled = affine(rms_norm(rows()))
    after = checked(graph_of(*(ops.Exp(ops.MatMul(scaled, few_bits(WIDE, n))) for n in (11, 2, 1))))

    found = ops_of(after)
    assert found.count("InverseRMS") == 1
    assert found.count("MatMul") == 4
    assert "RMSNorm" not in found


def test_rows_may_be_flattened_on_the_way():
    flat = ops.Reshape(rms_norm(rows()), shape=(2 * ROWS, WIDE))
    after = checked(graph_of(ops.MatMul(affine(flat), few_bits(WIDE, 11))))

    assert ops_of(after).count("Reshape") == 2
    assert "RMSNorm" not in ops_of(after)


def test_every_layer_folds():
    x = rows()
    for _ in range(3):
        x = ops.Add(ops.MatMul(ops.Tanh(ops.MatMul(rms_norm(x), few_bits(WIDE, 11))), normal(11, WIDE)), x)
    after = checked(graph_of(ops.Relu(x)), terms=200)

    assert ops_of(after).count("InverseRMS") == 3
    assert "RMSNorm" not in ops_of(after)


@pytest.mark.parametrize(
    ("lead", "width", "out"), [((1,), 2, 1), ((1, 1), 13, 1), ((17,), 300, 2), ((2, 1, 3), 257, 31)]
)
def test_awkward_sizes(lead, width, out):
    graph = graph_of(ops.MatMul(rms_norm(rows(lead=lead, width=width)), few_bits(width, out)))

    assert "RMSNorm" not in ops_of(checked(graph, terms=8 * width))


def test_the_product_of_a_convolution_s_pixels_folds_too():
    image = tensor("image", 1, 4, 3, 2)
    square = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "layout": "NHWC"}
    pixels = ops.Add(ops.Conv(image, weights(1, 1, 2, WIDE), **square), weights(WIDE))

    after = checked(graph_of(ops.MatMul(rms_norm(ops.Reshape(pixels, shape=(1, 12, WIDE))), few_bits(WIDE, 2))))

    assert "RMSNorm" not in ops_of(after)


# numbers -----------------------------------------------------------------------------------------------------


def is_rounded(used, exact, kept):
    """Whether ``used`` has ``kept`` bits of fraction and is next to ``exact``."""
    fraction, exponent = np.frexp(used.astype(np.float64))
    short = fraction * 2 ** (kept + 1) == np.round(fraction * 2 ** (kept + 1))
    return short.all() and (np.abs(used - exact) <= np.ldexp(0.5, exponent - kept - 1) * (1 + 1e-6)).all()


@pytest.mark.parametrize(("level", "kept"), [("tf32", 23), ("fp16", 10), ("bf16", 7)])
def test_the_weights_are_scaled_and_rounded_once(level, kept):
    """In tf32 they stay f32, because a product of few rows does not round them."""
    w, factor = normal(WIDE, 11), normal(WIDE)
    graph = graph_of(ops.MatMul(ops.Mul(rms_norm(rows()), factor), w))

    after = fold_norms(graph, Rounding(level), STORAGE)

    (product,) = [n for n in after.nodes() if n.op is ops.MatMul and n.types[0].shape[-1] == 11]
    (scale,) = [n for n in after.nodes() if n.op is ops.InverseRMS]
    exact = constant_value(factor).astype(np.float64)[:, None] * constant_value(w) / scale.attrs["times"]
    assert is_rounded(constant_value(product.inputs[1]), exact, kept)
    if level == "fp16":
        assert 2**13 <= np.abs(exact).max() < 2**14
    else:
        assert scale.attrs["times"] == 1


def test_statistics_stay_f32_where_values_between_kernels_are_narrow():
    flat = ops.Reshape(rms_norm(rows()), shape=(2 * ROWS, WIDE))
    after = fold_norms(graph_of(ops.Relu(ops.MatMul(flat, normal(WIDE, 11)))), *FP16)

    first, statistics, second = precision.apply(partition(after), after, "fp16")

    assert [str(p.dtype) for p in first.kernel.params][-1] == "f16"
    assert [str(p.dtype) for p in statistics.kernel.params] == ["f16", "f32"]
    assert [str(p.dtype) for p in second.kernel.params][:2] == ["f16", "f16"]


def errors(graph, level, feeds):
    """The errors relative to ``graph`` in f32: folded, and as it is."""
    right = interpret(graph, feeds)
    after = fold_norms(graph, Rounding(level), STORAGE)
    assert "RMSNorm" not in ops_of(after)
    found = [run_steps(g, precision.apply(partition(g), g, level), feeds) for g in (after, graph)]
    return [max(map(relative_error, one, right)) for one in found]


@pytest.mark.parametrize("level", PRECISIONS)
@pytest.mark.parametrize(("count", "width", "out"), [(37, 61, 67), (407, 64, 1), (37, 509, 11)])
def test_a_network_loses_no_accuracy(level, count, width, out):
    """Three pre-norm blocks, with scaled columns, and residual streams of several sizes and means.

    With 407 results the folded error is 0.9 times the plain one in the median of 60 seeds, and at most 1.15 times. With
    37 results, chance alone makes it up to 1.6 times.
    """
    x = ops.Add(rows(width=width, lead=(1, count)), constant(np.float32(3)))
    for _ in range(3):
        up, down = normal(width, 2 * width, scale=width**-0.5), normal(2 * width, width, scale=width**-0.5)
        x = ops.Add(x, ops.MatMul(ops.Tanh(ops.MatMul(ops.Mul(rms_norm(x), normal(width)), up)), down))
    graph = graph_of(ops.Sigmoid(ops.MatMul(affine(rms_norm(x), width), normal(width, out, scale=width**-0.5))))

    folded, plain = errors(graph, level, inputs_of(graph))

    assert folded <= min(4 * BITS[level], 1.5 * plain)


@pytest.mark.parametrize("level", PRECISIONS)
def test_rows_of_zeros_and_of_one_large_number(level):
    graph = graph_of(ops.MatMul(affine(rms_norm(rows())), normal(WIDE, 11)))
    feeds = {name: np.zeros_like(array) for name, array in inputs_of(graph).items()}
    feeds["r"][0, 0, 3] = 6e4

    folded, plain = errors(graph, level, feeds)

    assert folded <= max(4 * BITS[level], plain)


# kernels -----------------------------------------------------------------------------------------------------


def test_the_norm_s_kernel_becomes_one_of_statistics_and_the_rest_an_epilogue():
    graph = graph_of(ops.Relu(ops.Add(ops.MatMul(affine(rms_norm(rows())), few_bits(WIDE, 11)), few_bits(11))))
    after = fold_norms(graph, *FP16)

    assert [s.kernel.family for s in partition(graph)] == ["contraction", "norm", "contraction"]
    assert [s.kernel.family for s in partition(after)] == ["contraction", "reduce", "contraction"]
    assert [s.kernel.outputs for s in partition(after)] == [1, 1, 1]


SIZES = {"x": ["batch", "rows", DEEP], "r": ["batch", "rows", WIDE]}


def block():
    """A pre-norm block with open rows: a residual sum, its norm, two projections of it, one with an activation."""
    made = {"w": (DEEP, WIDE), "g": (WIDE,), "v1": (WIDE, 11), "c1": (11,), "v2": (WIDE, 2)}
    arrays = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in made.items()}
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Add", ["m", "r"], ["s"]),
        node("SimplifiedLayerNormalization", ["s", "g"], ["n"], name="the norm", epsilon=1e-3),
        node("MatMul", ["n", "v1"], ["p1"]),
        node("Add", ["p1", "c1"], ["b1"]),
        node("Relu", ["b1"], ["y1"]),
        node("MatMul", ["n", "v2"], ["p2"]),
        node("Sigmoid", ["p2"], ["y2"]),
    ]
    return model(nodes, [value(name, shape) for name, shape in SIZES.items()], ["y1", "y2"], arrays, opset=17)


def folded(target, level, lead):
    """The block compiled with its norm folded, its graph, its inputs, and onnxruntime's results."""
    proto, device = block(), replace(targets.resolve(target), folds_norms=True)
    lowered = compiler.lower(proto, device, shapes={name: (*lead, s[-1]) for name, s in SIZES.items()}, precision=level)
    executable = compiler.finish(lowered, device, level, lambda stage, done, total: None)
    rng = np.random.default_rng(lead)
    feeds = {name: rng.standard_normal((*lead, s[-1])).astype(np.float32) for name, s in SIZES.items()}
    session = onnxruntime_session(proto.SerializeToString())
    return executable, ops_of(lowered.graph), feeds, dict(zip(("y1", "y2"), session.run(None, feeds), strict=True))


@pytest.mark.parametrize("level", ["fp16", "bf16"])
@pytest.mark.parametrize("count", [1, 13, 0])
def test_compiled_it_gives_onnxruntime_s_answer_for_any_number_of_rows(level, count):
    executable, made, feeds, right = folded("cpu", level, (2, count))

    found = executable.run(feeds)

    assert ("InverseRMS" in made) == (count > 0)
    for name, wanted in right.items():
        assert found[name].shape == wanted.shape
        assert relative_error(found[name], wanted) <= 4 * BITS[level]


@pytest.mark.parametrize(("arch", "level"), [("sm_90a", "fp16"), ("sm_80", "tf32"), ("sm_80", "bf16")])
def test_the_epilogues_of_cuda_kernels_read_the_number_in_any_thread_order(arch, level):
    executable, made, feeds, right = folded(f"cuda:{arch}", level, (2, 19))
    on_cpu = ModelOnCpu(executable)

    forward, shuffled = (on_cpu.run(feeds, order=o, seed=5) for o in ("forward", "shuffled"))

    assert "InverseRMS" in made
    for name, wanted in right.items():
        assert relative_error(forward[name], wanted) <= 4 * BITS[level]
        np.testing.assert_array_equal(shuffled[name], forward[name])


# it does not fold --------------------------------------------------------------------------------------------


def product_of(x):
    return ops.MatMul(x, few_bits(x.shape[-1], 11))


def another_reads_the_norm():
    y = affine(rms_norm(rows()))
    return graph_of(ops.Add(ops.MatMul(y, few_bits(WIDE, WIDE)), y))


def another_reads_it_before_the_scale():
    norm = rms_norm(rows())
    return graph_of(product_of(affine(norm)), ops.Exp(norm))


def the_norm_is_an_output():
    norm = rms_norm(rows())
    return graph_of(product_of(norm), norm)


def its_operand_is_an_output():
    x = rows()
    return graph_of(product_of(rms_norm(x)), x)


def its_operand_is_an_input():
    return graph_of(product_of(rms_norm(tensor("x", ROWS, WIDE))))


def its_operand_is_gathered():
    table, places = weights(9, WIDE), tensor("r", ROWS, WIDE)
    made = ops.Gather(table, constant(np.array([1, 8, 3])), axis=0)
    return graph_of(product_of(rms_norm(ops.Add(made, places))))


def its_operand_is_of_another_kernel_since():
    x = rows()
    return graph_of(product_of(rms_norm(ops.Add(x, ops.Softmax(x, axis=1)))))


def its_operand_is_transposed():
    return graph_of(product_of(rms_norm(ops.Transpose(rows(), perm=(0, 2, 1)))))


def over_two_axes():
    return graph_of(product_of(rms_norm(rows(), axis=1)))


def weights_that_are_computed():
    return graph_of(ops.MatMul(rms_norm(rows()), tensor("w", WIDE, 11)))


def weights_of_each_matrix():
    return graph_of(ops.MatMul(rms_norm(rows()), few_bits(2, WIDE, 11)))


def on_the_right():
    return graph_of(ops.MatMul(few_bits(2, 11, ROWS), rms_norm(rows())))


def scaled_a_row():
    return graph_of(product_of(ops.Mul(rms_norm(rows()), few_bits(ROWS, 1))))


def shifted_by_more_rows():
    norm = rms_norm(rows(lead=(1, ROWS)))
    return graph_of(product_of(ops.Add(norm, few_bits(2, 1, WIDE))))


def divided_by_a_computed_number():
    return graph_of(product_of(ops.Div(rms_norm(rows()), tensor("by", WIDE))))


def columns_made_rows():
    return graph_of(ops.MatMul(ops.Reshape(rms_norm(rows()), shape=(2, WIDE, ROWS)), few_bits(ROWS, 11)))


def weights_past_the_format():
    return graph_of(ops.MatMul(rms_norm(rows()), constant(np.full((WIDE, 11), 1e5, np.float32))))


def weights_of_several_sizes():
    norm = rms_norm(rows())
    return graph_of(ops.Exp(product_of(norm)), ops.Exp(ops.MatMul(norm, constant(np.full((WIDE, 2), 1e5, np.float32)))))


def small_scales():
    return graph_of(ops.MatMul(ops.Mul(rms_norm(rows()), constant(np.full(WIDE, 1e-9, np.float32))), normal(WIDE, 11)))


def scales_that_are_next_to_nothing():
    tiny = constant(np.full(WIDE, 1e-38, np.float32))
    norm = ops.Mul(ops.Mul(rms_norm(rows()), tiny), tiny)
    return graph_of(*(ops.Exp(ops.MatMul(norm, normal(WIDE, n))) for n in (11, 2)))


def a_column_of_a_small_channel_alone():
    """The row of the column has other, larger weights, and the other rows have none in this column."""
    w = np.ones((WIDE, 11), np.float32)
    w[:, 4] = 0
    w[2, 4] = 1e-3
    factor = constant(np.array([1, 1, 1e-7, 1, 1, 1, 1], np.float32))
    norm = ops.Mul(rms_norm(rows()), factor)
    return graph_of(*(ops.Exp(ops.MatMul(norm, constant(scale * w))) for scale in (1, 3)))


def the_groups_of_a_convolution():
    square = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "layout": "NHWC", "group": 2}
    pixels = ops.Conv(tensor("image", 1, 4, 3, 6), weights(1, 1, 3, 8), **square)
    return graph_of(product_of(rms_norm(pixels)))


def infinite_weights():
    return graph_of(ops.MatMul(rms_norm(rows()), constant(np.full((WIDE, 11), np.inf, np.float32))))


def one_large_channel_of_a_small_scale():
    """Only the rows of its weights lose bits."""
    factor = constant(np.array([1, 1, 1e-11, 1, 1, 1, 1], np.float32))
    norm = ops.Mul(rms_norm(rows()), factor)
    return graph_of(*(ops.Exp(ops.MatMul(norm, normal(WIDE, n, scale=0.02))) for n in (11, 2)))


def a_norm_that_takes_a_mean_away():
    return graph_of(product_of(ops.LayerNorm(rows(), axis=2, epsilon=1e-3)))


def its_operand_is_computed_where_it_is_read():
    """A sum that cannot join the product's kernel, which other shapes read too."""
    made = ops.MatMul(tensor("x", 2, ROWS, DEEP), normal(DEEP, WIDE))
    flat = ops.Add(ops.Reshape(made, shape=(2 * ROWS, WIDE)), few_bits(2 * ROWS, WIDE))
    return graph_of(product_of(rms_norm(flat)), ops.Softmax(made, axis=1))


def large_weights_that_others_read():
    w = normal(WIDE, 40_000)
    return graph_of(ops.MatMul(rms_norm(rows()), w), ops.Exp(ops.MatMul(tensor("z", 1, WIDE), w)))


def of_f64():
    return graph_of(ops.MatMul(rms_norm(rows(dtype=F64)), weights(WIDE, 11, dtype=F64)))


def of_f16():
    return graph_of(ops.MatMul(rms_norm(rows(dtype=F16)), weights(WIDE, 11, dtype=F16)))


def no_columns():
    return graph_of(ops.MatMul(rms_norm(rows(width=0)), few_bits(0, 11)))


def no_columns_of_the_product():
    return graph_of(ops.MatMul(rms_norm(rows()), few_bits(WIDE, 0)))


def read_by_nobody():
    return graph_of(ops.Relu(rows()))


REFUSED = [
    another_reads_the_norm,
    another_reads_it_before_the_scale,
    the_norm_is_an_output,
    its_operand_is_an_output,
    its_operand_is_an_input,
    its_operand_is_gathered,
    its_operand_is_of_another_kernel_since,
    its_operand_is_transposed,
    over_two_axes,
    weights_that_are_computed,
    weights_of_each_matrix,
    on_the_right,
    scaled_a_row,
    shifted_by_more_rows,
    divided_by_a_computed_number,
    columns_made_rows,
    infinite_weights,
    a_column_of_a_small_channel_alone,
    the_groups_of_a_convolution,
    scales_that_are_next_to_nothing,
    one_large_channel_of_a_small_scale,
    a_norm_that_takes_a_mean_away,
    its_operand_is_computed_where_it_is_read,
    large_weights_that_others_read,
    of_f64,
    of_f16,
    no_columns,
    read_by_nobody,
]


def test_a_product_without_columns_folds_like_any_other():
    assert "InverseRMS" in ops_of(checked(no_columns_of_the_product()))


@pytest.mark.parametrize("graph", REFUSED)
def test_a_norm_stays_with(graph):
    before = graph()

    assert fold_norms(before, *FP16) is before


@pytest.mark.parametrize("graph", [weights_past_the_format, weights_of_several_sizes, small_scales])
@pytest.mark.parametrize("level", PRECISIONS)
def test_weights_are_brought_to_where_the_format_has_all_bits(graph, level):
    made = graph()
    feeds = inputs_of(made)
    after = fold_norms(made, Rounding(level), STORAGE)

    found, *_ = run_steps(after, precision.apply(partition(after), after, level), feeds)

    assert "InverseRMS" in ops_of(after)
    assert relative_error(found, interpret(made, feeds)[0]) <= 4 * BITS[level]


@pytest.mark.parametrize("level", ["bf16", "tf32"])
def test_what_f16_has_not_wider_formats_may_have(level):
    assert "InverseRMS" in ops_of(fold_norms(one_large_channel_of_a_small_scale(), Rounding(level), STORAGE))


def test_a_small_weight_among_others_does_not_matter():
    w = few_bits(WIDE, 11).attrs["value"].copy()
    w[1::2] = 1e-7

    assert "InverseRMS" in ops_of(fold_norms(graph_of(ops.MatMul(rms_norm(rows()), constant(w))), *FP16))


@pytest.mark.parametrize("level", ["fp32", "3xtf32", "mixed"])
def test_norms_stay_where_products_are_not_rounded_or_sums_are_kept(level):
    graph = graph_of(product_of(rms_norm(rows())))

    assert fold_norms(graph, Rounding(level), STORAGE) is graph


@pytest.mark.parametrize("pattern", ["Mul", "A?d", "InverseRMS", "*"])
def test_patterns_of_operators_meet_no_node_that_folding_has_made(pattern):
    graph = graph_of(product_of(rms_norm(rows())))

    assert fold_norms(graph, Rounding("fp16", (pattern,)), STORAGE) is graph


def test_a_pattern_that_matches_nothing_is_an_error_all_the_same():
    with pytest.raises(UsageError, match="no operator of the model matches"):
        compiler.compile(
            block(),
            target="cuda:sm_90a",
            precision="fp16",
            keep_fp32=["InverseRMS"],
            shapes={name: (2, 5, s[-1]) for name, s in SIZES.items()},
        )


def with_other_readers():
    """A norm before a product, and all kinds of other readers of its operand."""
    x = rows()
    scaled = ops.Mul(rms_norm(x), few_bits(WIDE), name="scale1")
    return graph_of(
        ops.Relu(ops.MatMul(scaled, few_bits(WIDE, 11), name="second"), name="after"),
        ops.ReduceMax(x, axes=(1,), name="beside"),
        ops.Softmax(ops.Exp(x, name="in front"), axis=2, name="behind exp"),
        ops.Softmax(ops.Slice(x, starts=(0, 1, 0), sizes=(2, 1, WIDE), steps=(1, 1, 1)), axis=2, name="of a slice"),
        ops.ReduceSum(ops.Transpose(x, perm=(0, 2, 1)), axes=(2,), name="of columns"),
        ops.Softmax(tensor("z", ROWS, WIDE), axis=1, name="elsewhere"),
    )


@pytest.mark.parametrize(
    "pattern",
    [
        "norm",
        "RMSNorm",
        "second",
        "MatMul",
        "scale*",
        "first",
        "sum",
        "after",
        "beside",
        "in front",
        "of a slice",
        "of columns",
    ],
)
def test_what_is_kept_in_f32_is_left_alone_and_what_shares_a_kernel_or_a_value_with_it(pattern):
    graph = with_other_readers()

    assert fold_norms(graph, Rounding("fp16", (pattern,)), STORAGE) is graph


@pytest.mark.parametrize("pattern", ["norm", "second", "MatMul", "scale*", "first", "sum", "after", "beside"])
def test_what_is_kept_in_f32_multiplies_weights_that_nothing_has_rounded(pattern):
    graph = with_other_readers()

    assert fold_norms(graph, Rounding("tf32", (pattern,)), STORAGE) is graph


@pytest.mark.parametrize("pattern", ["elsewhere", "behind exp", "Conv", "nor"])
def test_what_is_kept_elsewhere_does_not_matter(pattern):
    """A reader of another result of the operand's own kernel does not matter either."""
    graph = with_other_readers()

    assert "InverseRMS" in ops_of(fold_norms(graph, Rounding("fp16", (pattern,)), STORAGE))


def test_an_operand_that_is_in_f32_after_all_is_not_rounded_for_the_product():
    """Numbers past f16's range: a kernel of the operand stays f32 although it did not when the norm was folded."""
    graph = with_other_readers()
    after = fold_norms(graph, *FP16)
    feeds = {name: 1e5 * array if name == "r" else array for name, array in inputs_of(graph).items()}

    found = run_steps(after, precision.apply(partition(after), after, "fp16", ["beside"]), feeds)

    assert "InverseRMS" in ops_of(after)
    for one, right in zip(found, interpret(graph, feeds), strict=True):
        assert relative_error(one, right) <= 4 * BITS["fp16"]


def test_what_is_stored_is_asked_once_and_only_where_there_is_such_a_norm():
    asked = []

    class Counting(KernelStorage):
        def stored(self, graph, rounding):
            asked.append(graph)
            return super().stored(graph, rounding)

    graph, other = graph_of(product_of(rms_norm(rows()))), graph_of(product_of(rows()))

    assert fold_norms(other, Rounding("fp16"), Counting(CUDA)) is other
    assert not asked
    assert "InverseRMS" in ops_of(fold_norms(graph, Rounding("fp16"), Counting(CUDA)))
    assert asked == [graph]
    assert fold_norms(graph, Rounding("fp16"), NoKernels()) is graph, (
        "nothing is stored rounded where nothing is stored"
    )


def test_a_host_step_reads_f32_and_norms_of_what_it_reads_stay():
    x = rows()
    graph = graph_of(product_of(rms_norm(x)), ops.NumberToString(x))

    assert fold_norms(graph, *FP16) is graph


def test_what_only_the_norm_reads_is_left_alone_where_it_is_kept():
    """Its kernel stores f32."""
    graph = graph_of(product_of(rms_norm(rows())))

    assert fold_norms(graph, Rounding("fp16", ("first",)), STORAGE) is graph


# targets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["cuda:sm_90a", "opencl:mali", "cpu"])
@pytest.mark.parametrize("folds", [True, False])
def test_the_pipeline_folds_for_targets_that_want_it(target, folds):
    graph = graph_of(ops.Relu(product_of(affine(rms_norm(rows())))))
    device = replace(targets.resolve(target), folds_norms=folds)

    found = {level: ops_of(rewritten(graph, device, level)) for level in ("fp32", "fp16")}

    assert "RMSNorm" in found["fp32"]
    assert ("InverseRMS" in found["fp16"]) == folds
    assert ("RMSNorm" in found["fp16"]) != folds


def test_without_a_target_norms_stay():
    graph = graph_of(ops.Relu(product_of(rms_norm(rows()))))

    assert "RMSNorm" in ops_of(run_pipeline(graph, rounding=FP16[0], storage=STORAGE))


@pytest.mark.parametrize("name", ["gpt2", "vit_b16", "bert_base"])
def test_networks_with_means_keep_their_norms(name):
    proto = models.build(name, reduced=True)

    found = ops_of(rewritten(load(proto), CUDA, "fp16"))

    assert "LayerNorm" in found
    assert not {"RowStatistics", "InverseRMS"} & set(found)


def test_a_second_run_changes_nothing():
    once = rewritten(graph_of(ops.Relu(product_of(affine(rms_norm(rows()))))), CUDA, "fp16")

    assert "InverseRMS" in ops_of(once)
    assert rewritten(once, CUDA, "fp16") is once


def test_the_reciprocal_root_of_mean_squares_is_what_onnxruntime_has():
    x = np.random.default_rng(5).standard_normal((ROWS, 29)).astype(np.float32)
    nodes = [node("SimplifiedLayerNormalization", ["x", "g"], ["y", "root"], axis=-1, epsilon=1e-3)]
    proto = model(nodes, [value("x", x.shape)], ["root"], {"g": np.ones(29, np.float32)}, opset=17)
    (right,) = onnxruntime_session(proto.SerializeToString()).run(None, {"x": x})
    operand = tensor("x", *x.shape)

    (found,) = interpret(Graph((operand,), (ops.InverseRMS(operand, axis=1, epsilon=1e-3),)), {"x": x})

    assert_matches(found, right, terms=29)
