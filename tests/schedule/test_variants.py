"""Several schedules for one kernel of any size: which are kept, where each is used, and what may take another's place."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import gpucomp
from gpucomp import compiler, targets
from gpucomp.errors import KernelBuildError
from gpucomp.ir.size import size_of
from gpucomp.ir.types import F16
from gpucomp.kernel import grouping
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.schedule import variants
from gpucomp.schedule.choose import choose
from gpucomp.schedule.engine_hash import engine_hash
from gpucomp.schedule.records import Pick, Picks, device_of
from gpucomp.tuning.tuner import tasks_in
from testing.kernels import matmul
from tests.onnx_builders import model, node, value

K, N = 384, 1536
WEIGHTS = np.random.default_rng(5).standard_normal((K, N)).astype(np.float32)


@pytest.fixture
def product(tmp_path):
    constant = numpy_helper.from_array(WEIGHTS, "w")
    path = tmp_path / "product.onnx"
    onnx.save(model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["m", K])], [value("y", None)], [constant]), path)
    return path


def compiled(path, target, smallest=1):
    return gpucomp.compile(path, target=target, shapes={"x": (gpucomp.Dim("m", smallest, 8192), K)})


def choices(exe):
    return exe.contents().open.plan.choices


def test_a_gpu_changes_the_schedule_where_its_model_says_so(product):
    exe = compiled(product, "cuda:sm_90")
    [found] = choices(exe)
    plan = exe.contents().plan

    assert found.starts[0] == 0
    assert 4 < found.starts[1] < 3327
    few, *_, many = (plan.kernels[k].schedule for k in found.kernels)
    assert few["tile_m"] * few["reg_m"] < many["tile_m"] * many["reg_m"] * many["reg_n"]
    assert few != many
    assert all(1 <= ratio < 2 for _, ratio in found.regrets)


def test_a_source_with_arguments_of_its_own_is_not_exchanged(product, monkeypatch):
    monkeypatch.setattr(variants, "SMALL_REGRET", 1.0)
    exe = compiled(product, "cuda:sm_80")  # here parts of a result are added up in a workspace
    plan = exe.contents().plan

    assert plan.kernels[0].schedule["splits"] > 1
    assert choices(exe) == ()


def test_one_schedule_that_is_near_the_best_everywhere_is_enough(product):
    assert choices(compiled(product, "cpu", 8000)) == ()


def test_no_variant_has_more_sums_than_registers(tmp_path):
    """At 8 x 128 rows 12 x 2 is best, but packed for three vectors of columns it would be 12 x 3."""
    constant = numpy_helper.from_array(WEIGHTS.reshape(N, K), "w")
    path = tmp_path / "product.onnx"
    onnx.save(
        model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["n", "m", N])], [value("y", None)], [constant]), path
    )
    shapes = {"x": (gpucomp.Dim("n", 1, 8), gpucomp.Dim("m", 1, 128), N)}
    exe = gpucomp.compile(path, target="cpu:x86-64-v4", shapes=shapes)

    schedules = [kernel.schedule for kernel in exe.contents().plan.kernels]
    assert len(schedules) > 1
    assert all(s["mr"] * s["nv"] + s["nv"] + 1 <= 32 for s in schedules)


def test_a_record_of_an_example_is_the_best_there(product):
    """The model prefers larger tiles by far; what was measured for these sizes decides."""
    target, picks = targets.resolve("cpu"), []
    few, many = (tasks_in(product, target, shapes={"x": (m, K)})[1][0] for m in (60, 900))
    slow = {**few.default.schedule, "tile_m": 8}
    for task, schedule in ((few, few.default.schedule), (many, slow)):
        family, problem = task.default.family, task.problem(task.default.family).numbers
        picks.append(Pick(task.label, problem, device_of(target), family.title, schedule, engine_hash(family), "", 0.5))
    shapes, usual = {"x": (gpucomp.Dim("m", 1, 8192), K)}, [{"m": 60}, {"m": 60}, {"m": 900}]
    exe = gpucomp.compile(product, target="cpu", shapes=shapes, records=Picks.of(picks), shapes_from=usual)
    [found] = choices(exe)
    plan = exe.contents().plan

    last = plan.kernels[found.kernels[-1]]
    assert last.schedule == slow
    assert last.tier.startswith("nearest")
    assert found.regrets[-1] == ((900,), 1.0)
    assert exe.at(m=900).plan.kernels[found.kernel].name == last.name


def test_examples_of_as_many_points_use_one_schedule(tmp_path):
    """A long and a high image have as many pixels as a square one; a file with two starts at one number cannot be read."""
    weights = numpy_helper.from_array(WEIGHTS.reshape(-1)[: 8 * 3 * 9].reshape(8, 3, 3, 3).copy(), "w")
    conv = model([node("Conv", ["x", "w"], ["y"])], [value("x", ["n", 3, "h", "w"])], [value("y", None)], [weights])
    usual = [{"n": 1, "h": 64, "w": 64}, {"n": 1, "h": 4, "w": 1024}, {"n": 1, "h": 1024, "w": 4}]
    exe = gpucomp.compile(conv, target="cpu", shapes={"x": ("n", 3, "h", "w")}, shapes_from=usual)
    exe.save(tmp_path / "m.gpuc")

    loaded = gpucomp.load(tmp_path / "m.gpuc")
    assert loaded.program.example == exe.program.example
    for found in choices(exe):
        assert list(found.starts) == sorted(set(found.starts))


def test_an_example_uses_its_own_schedule_and_the_regret_says_what_is_used(product, monkeypatch):
    monkeypatch.setattr(variants, "SMALL_REGRET", 1.0)
    exe = gpucomp.compile(
        product, target="cpu", shapes={"x": ("m", K)}, shapes_from=[{"m": 1}, {"m": 1}, {"m": 40}, {"m": 900}]
    )
    [found] = choices(exe)

    assert found.starts[0] == 0
    for start, at in zip(found.starts[1:], sorted(sizes[0] for sizes, _ in found.regrets)[1:], strict=False):
        assert start <= at


def test_results_are_right_on_both_sides_of_a_change(product, monkeypatch):
    monkeypatch.setattr(variants, "SMALL_REGRET", 1.0)
    exe = compiled(product, "cpu")
    [found] = choices(exe)
    x = np.random.default_rng(7).standard_normal((found.starts[1] + 3, K)).astype(np.float32)

    assert len(found.kernels) > 1
    for m in (1, 5, found.starts[1] - 1, found.starts[1], len(x)):
        y = exe.run({"x": x[:m]})["y"]
        np.testing.assert_allclose(y, x[:m].astype(np.float64) @ WEIGHTS, rtol=1e-4, atol=1e-3)


def test_a_device_that_refuses_a_variant_runs_the_first_schedule(product, monkeypatch):
    attempt = targets.attempt

    def fussy(plan, sources, *rest):
        binaries, refused = attempt(plan, sources, *rest)
        return binaries, {sources[-1].name: KernelBuildError("too many registers")} if len(sources) > 1 else refused

    monkeypatch.setattr(targets, "attempt", fussy)
    exe = compiled(product, "cuda:sm_90")

    assert choices(exe) == ()
    assert len(exe.contents().plan.kernels) == 1


def test_opencl_is_right_on_both_sides_of_a_change(product, monkeypatch):
    monkeypatch.setattr(variants, "SMALL_REGRET", 1.0)
    exe = compiled(product, "opencl:generic")
    [found] = choices(exe)
    x = np.random.default_rng(7).standard_normal((found.starts[1] + 3, K)).astype(np.float32)

    for m in (1, found.starts[1], found.starts[1] - 1, len(x)):
        np.testing.assert_allclose(exe.run({"x": x[:m]})["y"], x[:m].astype(np.float64) @ WEIGHTS, rtol=1e-4, atol=1e-3)


def test_every_plan_has_all_kernels(product):
    exe = compiled(product, "cuda:sm_90")
    [found] = choices(exe)
    plans = [exe.program.open_plan.at({"m": m}).plan for m in (1, found.starts[1])]

    few, many = ([kernel.name for kernel in plan.kernels] for plan in plans)
    assert few[found.kernel] != many[found.kernel]
    assert sorted(few) == sorted(many)


def half_product(most):
    """The engines of an f16 product of up to ``most`` rows, and the largest predicted ratio to the fastest."""
    w = numpy_helper.from_array(np.zeros((512, 1024), np.float16), "w")
    proto = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", ["m", 512], onnx.TensorProto.FLOAT16)],
        [value("y", None, onnx.TensorProto.FLOAT16)],
        [w],
    )
    exe = gpucomp.compile(proto, target="cuda:sm_90a", shapes={"x": (gpucomp.Dim("m", 1, most), 512)})
    engines = {kernel.family for kernel in exe.contents().plan.kernels}
    return engines, max((ratio for one in choices(exe) for _, ratio in one.regrets), default=1.0)


def test_the_engine_is_the_one_that_loses_least_where_it_loses_most(monkeypatch):
    """In the middle of the range mma is chosen, but wgmma is far ahead at its end, and variants are of one engine."""
    assert half_product(16) == ({"contraction/mma"}, 1.0)
    engines, regret = half_product(4096)
    assert engines == {"contraction/wgmma"}
    assert regret < 1.2

    monkeypatch.setattr(compiler, "engine_for_all", lambda kernel, first, *_: first)
    assert half_product(4096)[0] == {"contraction/mma"}


def test_what_a_record_says_of_the_engine_stays():
    target = targets.resolve("cuda:sm_90a")
    kernel = matmul(size_of(gpucomp.Dim("m", 1, 4096), 64), 1024, 512, dtype=F16, b_transposed=True)
    first = choose(kernel, (FAMILIES["contraction/mma"],), target.limits, target.device)
    examples = [{"m": m} for m in (64, 3, 1783)]

    def engine(first):
        return variants.engine_for_all(
            kernel,
            first,
            lambda: choose(kernel, engines_of(kernel, target.features), target.limits, target.device),
            lambda family: choose(kernel, (family,), target.limits, target.device),
            examples,
            target,
        ).family.engine

    pick = Pick("", {}, {"name": "H200"}, "contraction/mma", first.schedule, "", "", 0.9)
    assert engine(first) == "wgmma"
    assert engine(replace(first, pick=pick)) == "mma"


def framed(samples):
    """Frames of a signal, mirrored at its end, times filters."""
    filters = np.random.default_rng(6).standard_normal((258, 1, 256)).astype(np.float32)
    nodes = [node("Pad", ["x", "pads"], ["p"], mode="reflect"), node("Conv", ["p", "w"], ["y"], strides=[128])]
    weights = {"w": filters, "pads": np.array([0, 0, 0, 0, 0, 64])}
    made = model(nodes, [value("x", [3, 1, "samples"])], ["y"], weights, opset=17)
    return gpucomp.compile(made, target="cpu", shapes={"x": (3, 1, samples)})


def test_rows_that_only_some_sizes_read_in_place_are_copied_at_all(monkeypatch):
    monkeypatch.setattr(grouping, "mirrored", lambda value: False)  # else the mirrored signal is stored before
    alone, open_one = framed(703), framed(gpucomp.Dim("samples", 192, 703))
    (of_frames,) = [kernel for kernel in alone.plan.kernels if kernel.family == "contraction"]
    of_any = [kernel for kernel in open_one.contents().plan.kernels if kernel.family == "contraction"]

    assert of_frames.schedule["pack_a"] == 0  # the frames end before the border
    assert {kernel.schedule["pack_a"] for kernel in of_any} == {1}
    x = np.random.default_rng(7).standard_normal((3, 1, 703)).astype(np.float32)
    np.testing.assert_allclose(open_one.run({"x": x})["y"], alone.run({"x": x})["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("ratios", "start"),
    [
        ({}, 5),  # the middle in factors
        ({3: (1.3, 1.0), 4: (1.0, 1.0), 6: (1.2, 1.0)}, 3),
        ({3: (1.0, 1.3), 4: (1.0, 1.2), 6: (1.0, 1.1)}, 8),
        ({3: (1.0, 1.2), 4: (1.1, 1.0), 6: (1.4, 1.0)}, 4),
        ({3: (1.0, 1.0), 4: (1.0, 1.0), 6: (1.0, 1.0)}, 5),
    ],
)
def test_the_next_schedule_is_used_from_where_the_largest_ratio_is_least(ratios, start):
    assert variants._start(2, 8, ratios) == start


def test_three_rows_are_no_two_and_one(monkeypatch):
    """Blocks of eight rows have one of three for the rest; blocks of two read all columns a second time."""
    weights = {"w": WEIGHTS.reshape(-1)[: 256 * 768].reshape(256, 768)}
    made = model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["m", 256])], [value("y", None)], weights)

    def block_of_three():
        exe = gpucomp.compile(made, target="cpu:x86-64-v4", shapes={"x": (gpucomp.Dim("m", 1, 8), 256)})
        [found] = choices(exe)
        which = [k for start, k in zip(found.starts, found.kernels, strict=True) if start <= 3][-1]
        return exe.contents().plan.kernels[which].schedule["mr"]

    assert block_of_three() >= 3
    monkeypatch.setattr(variants, "FEW_POINTS", 0)
    assert block_of_three() == 2
