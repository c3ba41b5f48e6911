"""Which reductions are fused with each other, which into the contraction that stores their rows, and which are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, shape_inference

import gpucomp
from gpucomp import compiler, lowering
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.device.limits import Limits
from gpucomp.frontend import onnx as frontend
from gpucomp.kernel import Contraction, Rowwise
from gpucomp.kernel.grouping import Policy
from gpucomp.kernel.interpreter import run_steps
from gpucomp.kernel.partition import partition
from gpucomp.kernel.passes.fuse_row_statistics import followed, join
from gpucomp.kernel.step import Step
from gpucomp.ops.interpreter import interpret
from gpucomp.refusal import Refusal
from gpucomp.rewrite.pipeline import run_pipeline
from gpucomp.schedule.expected import Expected
from gpucomp.targets import cpu, cuda, opencl, resolve
from gpucomp.targets.back_end import back_end
from testing.cuda_on_cpu.whole_models import ModelOnCpu
from testing.tolerance import assert_matches
from tests.builders import setting
from tests.onnx_builders import model, node, value

ROWS, DEPTH, COLUMNS = 19, 48, 72
GPU = Limits(threads=256, shared_bytes=49152, warp=32, registers=255, units=8)
F16, F32 = TensorProto.FLOAT16, TensorProto.FLOAT
AXES = {"last": np.array([-1]), "first": np.array([1]), "middle": np.array([2])}


def norm_of(name, epsilon="epsilon"):
    """The mean of each row and 1 / deviation."""
    return (
        node("ReduceMean", [name, "last"], ["mean"]),
        node("Sub", [name, "mean"], ["spread"]),
        node("Mul", ["spread", "spread"], ["squares"]),
        node("ReduceMean", ["squares", "last"], ["variance"]),
        node("Add", ["variance", epsilon], ["shifted"]),
        node("Sqrt", ["shifted"], ["deviation"]),
        node("Reciprocal", ["deviation"], ["rstd"]),
    )


NORM = norm_of("y")
WIDE = (node("Cast", ["y"], ["f"], to=F32), *norm_of("f", "wide_epsilon"))
LAYER_NORM = node("LayerNormalization", ["y", "g", "b"], ["n", "mean", "rstd"], axis=-1)


def network(
    *more, outputs=("y", "mean", "rstd"), dtype=F32, rows=ROWS, depth=DEPTH, columns=COLUMNS, head=None, more_weights=()
):
    """y = x w + b + r of rows x columns, followed by ``more`` (default: the mean of each row and 1 / deviation)."""
    rng = np.random.default_rng(5)
    kind = {F32: np.float32, F16: np.float16}[dtype]
    nodes = head or [
        node("MatMul", ["x", "w"], ["p"]),
        node("Add", ["p", "b"], ["q"]),
        node("Add", ["q", "r"], ["y"]),
    ]
    weights = {
        "w": (rng.standard_normal((depth, columns)) / 7).astype(kind),
        "b": rng.standard_normal(columns).astype(kind),
        "g": np.ones(columns, kind),
        "epsilon": np.array(1e-3, kind),
        "wide_epsilon": np.array(1e-3, np.float32),
        "c": (rng.standard_normal((columns, 24)) / 9).astype(kind),
        **AXES,
    }
    for name in more_weights:
        weights[name] = (rng.standard_normal((depth, columns)) / 7).astype(kind)
    inputs = [value("x", (1, rows, depth), dtype), value("r", (1, rows, columns), dtype)]
    return model([*nodes, *(more or NORM)], inputs, outputs, weights=weights)


def graph_of(onnx):
    return run_pipeline(frontend.load(onnx), target=cuda.manifest("sm_80"))


class Paying(Expected):
    """A model in which ``pays`` decides whether the first kernels are faster than the second ones."""

    def __init__(self, target, pays):
        super().__init__(target, back_end(target.language)[0])
        self.faster = pays


def joined(onnx, pays=lambda these, those: True):
    """The steps before and after the pass. Asserts that both give numpy's results."""
    graph = graph_of(onnx)
    steps = partition(graph, Policy())
    target = cuda.manifest("sm_80")
    found = join(steps, setting(graph, target, expected=Paying(target, pays)))
    rng = np.random.default_rng(6)
    inputs = {v.attrs["label"]: rng.standard_normal(v.shape).astype(v.type.dtype.numpy) for v in graph.inputs}
    for before, after, right in zip(
        run_steps(graph, steps, inputs), run_steps(graph, found, inputs), interpret(graph, inputs), strict=True
    ):
        assert_matches(after, before, terms=8)
        assert_matches(after, right, terms=DEPTH * COLUMNS)
    return steps, found


def tails(steps):
    return [s.kernel.body.tail for s in steps if isinstance(s.kernel.body, Contraction)]


def reduced(op, name="s", axes="last", of="y", **attributes):
    return node(op, [of, axes], [name], **attributes)


FOLLOWED = {  # models, launches before and after, statistics of a row
    "of ONNX's own norm": (network(LAYER_NORM), None, 1, 2),
    "of ONNX's own norm, f16 whose sums are of f32": (network(LAYER_NORM, dtype=F16), None, 1, 2),
    "mean and deviation": (network(), 3, 1, 2),
    "a mean alone": (network(*NORM, outputs=("y", "mean")), 2, 1, 1),
    "f16, whose sums are of f32": (network(*WIDE, dtype=F16), 3, 1, 2),
    "the largest": (network(reduced("ReduceMax"), outputs=("y", "s")), 2, 1, 1),
    "squares": (network(reduced("ReduceSumSquare", keepdims=0), outputs=("y", "s")), 2, 1, 1),
    "the mean of magnitudes": (network(reduced("ReduceL1"), outputs=("y", "s")), 2, 1, 1),
    "of exponentials": (network(node("Exp", ["y"], ["e"]), reduced("ReduceSum", of="e"), outputs=("y", "s")), 2, 1, 1),
    "in another shape": (
        network(
            node("Reshape", ["y", "to"], ["z"]),
            reduced("ReduceSum", of="z"),
            outputs=("y", "s"),
            head=[
                node("Constant", [], ["to"], value_ints=[ROWS, COLUMNS]),
                node("MatMul", ["x", "w"], ["p"]),
                node("Add", ["p", "r"], ["y"]),
            ],
        ),
        2,
        1,
        1,
    ),
    "one row": (network(rows=1), 3, 1, 2),
    "read on by a product": (
        network(*NORM, node("MatMul", ["y", "c"], ["o"]), node("Mul", ["o", "rstd"], ["z"]), outputs=("z", "mean")),
        5,
        3,
        2,
    ),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_statistics_follow_the_contraction_that_stores_their_rows(name):
    onnx, before, after, statistics = FOLLOWED[name]

    steps, found = joined(onnx)

    assert (before or len(steps), len(found)) == (len(steps), after)
    assert len(steps) > len(found)
    assert len(tails(found)[0].statistics) == statistics
    assert "statistics of its rows follow" in found[0].why


def test_nobody_stores_floats_for_the_sums_of_halves():
    steps, found = joined(network(*WIDE, dtype=F16))

    assert [t.dtype.name for t in steps[0].kernel.params[-2:]] == ["f16", "f32"]
    assert [t.dtype.name for t in found[0].kernel.params[-3:]] == ["f16", "f32", "f32"]
    assert [v.shape for v in found[0].outputs] == [(1, ROWS, COLUMNS), (1, ROWS, 1), (1, ROWS, 1)]


def test_floats_that_somebody_reads_are_stored():
    _, found = joined(network(*WIDE, dtype=F16, outputs=("y", "f", "mean", "rstd")))

    assert [t.dtype.name for t in found[0].kernel.params[found[0].kernel.inputs :]] == ["f16", "f32", "f32", "f32"]


BESIDE = {  # statistics that are not fused into the contraction: models, and the number of launches
    "over the rows": (network(reduced("ReduceSum", axes="first"), outputs=("y", "s")), 2),
    "of parts of a row": (
        network(node("Constant", [], ["to"], value_ints=[1, ROWS, 8, 9]), node("Reshape", ["y", "to"], ["z"]),
                node("ReduceSum", ["z", "last"], ["s"]), outputs=("y", "s")), 2),
    "of rows and columns": (network(node("ReduceSum", ["y"], ["s"]), outputs=("y", "s")), 2),
    "of sums of integers": (
        network(node("Cast", ["y"], ["i"], to=TensorProto.INT32), reduced("ReduceSum", of="i"), outputs=("y", "s")), 2),
    "of a choice": (
        network(node("Pad", ["y", "pads"], ["z"]), reduced("ReduceSum", of="z"), outputs=("y", "s"),
                head=[node("Constant", [], ["pads"], value_ints=[0, 0, 0, 0, 0, 3]), node("MatMul", ["x", "w"], ["y"])]), 2),
    "with what comes later": (
        network(node("MatMul", ["y", "c"], ["o"]), node("ReduceMax", ["o", "middle"], ["top"], keepdims=1),
                node("Sub", ["y", "top"], ["z"]), reduced("ReduceL2", of="z"), outputs=("y", "s"),
                head=[node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "r"], ["y"])]), 3),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_other_reductions_stand_where_they_stood(name):
    onnx, launches = BESIDE[name]

    _, found = joined(onnx)

    assert len(found) == launches
    assert tails(found)[0] is None


def test_rows_that_do_not_lie_in_memory_as_a_matrix_are_not_followed():
    onnx = network(*NORM, rows=COLUMNS, outputs=("y", "mean"))
    product, mean = partition(graph_of(onnx), Policy())
    (store,) = product.kernel.stores
    zero, row, column = store.index
    across = replace(product, kernel=replace(product.kernel, stores=(replace(store, index=(zero, column, row)),)))

    assert isinstance(followed(product, mean, ()), Step)
    assert followed(across, mean, ()) == Refusal("it does not store contiguous rows")


def test_a_part_of_a_concat_has_no_rows_of_its_own():
    """Two products store the parts, and neither knows when the other is done."""
    head = [
        node("MatMul", ["x", "w"], ["p"]),
        node("MatMul", ["x", "v"], ["q"]),
        node("Add", ["p", "b"], ["s"]),
        node("Add", ["q", "b"], ["t"]),
        node("Concat", ["s", "t"], ["y"], axis=1),
    ]
    onnx = network(reduced("ReduceSum", "z"), outputs=("y", "z"), head=head, more_weights=("v",))

    steps, found = joined(onnx)

    assert [len(s.nodes) for s in found] == [len(s.nodes) for s in steps]
    assert not any(tails(found))


def test_nothing_is_joined_that_does_not_pay():
    steps, found = joined(network(), pays=lambda these, those: False)

    assert found == steps


def test_reductions_are_one_kernel_where_that_pays_and_no_more():
    steps, found = joined(network(), pays=lambda these, those: isinstance(these[0].body, Rowwise))

    assert (len(steps), len(found)) == (3, 2)
    assert [len(s.outputs) for s in found] == [1, 2]
    assert len(found[1].kernel.body.statistics) == 2


def parts(of="y", **options):
    """A sum and a maximum of each row, which store the halves of one result."""
    joined = node("Concat", ["sum", "max"], ["z"], axis=1)
    return network(reduced("ReduceSum", "sum", of=of), reduced("ReduceMax", "max", of=of), joined, **options)


def test_reductions_may_store_parts_of_one_result():
    steps, found = joined(parts(outputs=("y", "z")), pays=lambda these, those: isinstance(these[0].body, Rowwise))

    assert (len(steps), len(found)) == (3, 2)
    assert [s.target for s in found[1].kernel.stores] == [found[1].kernel.inputs] * 2
    assert len(joined(parts(outputs=("y", "z")))[1]) == 1


def test_reductions_of_other_rows_are_apart():
    onnx = network(
        reduced("ReduceSum", "a", of="x"),
        reduced("ReduceSum", "s", of="r"),
        outputs=("y", "a", "s"),
        head=[node("MatMul", ["x", "w"], ["y"])],
    )

    steps, found = joined(onnx, pays=lambda these, those: isinstance(these[0].body, Rowwise))

    assert len(found) == len(steps) == 3


def test_the_reduction_of_what_two_products_make_follows_the_second():
    head = [node("MatMul", ["x", "w"], ["y"]), node("MatMul", ["x", "v"], ["u"]), node("Mul", ["u", "y"], ["z"])]
    onnx = network(reduced("ReduceSum", of="z"), outputs=("y", "z", "s"), head=head, more_weights=("v",))

    steps, found = joined(onnx)

    assert len(found) == len(steps) - 1
    assert [tail is not None for tail in tails(found)].count(True) == 1


# ---- on targets ----


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
def test_a_small_product_takes_its_statistics_in_on_a_gpu(arch):
    steps = lowering.kernels_of(graph_of(network(dtype=F16)), cuda.manifest(arch))

    assert [s.kernel.body.tail is not None for s in steps] == [True]


def test_rows_of_many_thousand_columns_are_reduced_apart():
    """One work-group would read all of them, which takes longer than a launch."""
    steps = lowering.kernels_of(graph_of(network(rows=512, columns=16384, depth=64)), cuda.manifest("sm_80"))

    assert tails(steps) == [None]


OTHERS = [cpu.host(), *map(opencl.manifest, ("mali", "pocl", "gfx90a", "generic"))]


@pytest.mark.parametrize("device", OTHERS, ids=lambda d: d.name)
def test_devices_that_gain_or_promise_nothing_keep_kernels_of_their_own(device):
    assert tails(lowering.kernels_of(graph_of(network()), device)) == [None]


def feeds(dtype=np.float32, rows=ROWS):
    rng = np.random.default_rng(8)
    return {
        "x": rng.standard_normal((1, rows, DEPTH)).astype(dtype),
        "r": rng.standard_normal((1, rows, COLUMNS)).astype(dtype),
    }


def by_onnxruntime(onnx, inputs):
    typed = shape_inference.infer_shapes(onnx).SerializeToString()
    return onnxruntime_session(typed).run(None, inputs)


@pytest.mark.parametrize("target", ["cpu", "opencl:pocl", "cuda:sm_80"])
@pytest.mark.parametrize("of", ["r", "y"])
def test_parts_of_one_result_are_onnxruntime_s(of, target):
    onnx = parts(of, outputs=("y", "z"))
    compiled = gpucomp.compile(onnx, target=target)

    found = (ModelOnCpu(compiled) if target.startswith("cuda") else compiled).run(feeds())

    for name, wanted in zip(("y", "z"), by_onnxruntime(onnx, feeds()), strict=True):
        assert_matches(found[name], wanted, terms=COLUMNS * DEPTH)


def test_a_model_on_pocl_gives_onnxruntime_s_answer_run_after_run(monkeypatch):
    """PoCL also runs a GPU's work-groups, whose work-items have barriers."""
    device = replace(resolve("opencl:pocl"), limits=GPU, row_tails=True)
    monkeypatch.setattr(compiler.targets, "resolve", lambda name: device)
    onnx, inputs = network(), feeds()

    executable = gpucomp.compile(onnx, target="opencl:pocl")

    assert len(executable.plan.launches) == 1
    for _ in range(3):
        found = executable.run(inputs)
    for name, right in zip(("y", "mean", "rstd"), by_onnxruntime(onnx, inputs), strict=True):
        assert_matches(found[name], right, terms=DEPTH * COLUMNS)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_model_of_f16_on_the_played_gpu_gives_the_references_answer(arch):
    onnx, inputs = network(dtype=F16), feeds(np.float16)

    executable = gpucomp.compile(onnx, target=f"cuda:{arch}")

    assert len(executable.plan.launches) == 1
    found = ModelOnCpu(executable).run(inputs)
    graph = graph_of(onnx)
    for name, right in zip(graph.output_names, interpret(graph, inputs), strict=True):
        assert_matches(found[name], right, terms=DEPTH * COLUMNS)


def test_a_result_that_statistics_read_back_lies_on_no_residual():
    """The residual may have been read through a cache that does not see what is stored there."""
    from gpucomp.planning import _replaceable

    kernel = joined(network())[1][0].kernel
    alone = replace(kernel, body=replace(kernel.body, tail=None))

    assert kernel.body.tail is not None
    assert not _replaceable(kernel)
    assert [target for target, _ in _replaceable(alone)] == [kernel.inputs]
