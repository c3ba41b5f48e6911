"""Attention on the CPU, with online softmax over blocks of keys: compared with numpy, and models with onnxruntime."""

from __future__ import annotations

import ctypes
import random
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import gpucomp
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.attention import decode_space as attention_few_space
from gpucomp.codegen.llvm.attention.decode_emit import sums_of
from gpucomp.codegen.llvm.attention.parts import parts_of
from gpucomp.codegen.llvm.attention.space import AttentionProblem, AttentionSchedule, derive, scratch_bytes
from gpucomp.codegen.llvm.core_space import STACK_BYTES
from gpucomp.codegen.llvm.engines import ATTENTION as FAMILY
from gpucomp.codegen.llvm.engines import DECODE, engines_of
from gpucomp.codegen.llvm.ir.builder import Code
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.device.target import Target
from gpucomp.errors import ScheduleError
from gpucomp.ir.types import BF16, F16
from gpucomp.kernel import Kernel
from gpucomp.kernel.forms.causal import NOT_CAUSAL
from gpucomp.kernel.interpreter import expected
from gpucomp.runtime.cpu import CpuProgram
from gpucomp.schedule.choose import choose
from gpucomp.schedule.space import Family, Schedule
from gpucomp.targets import cpu
from testing.kernels import attention, random_inputs
from testing.tolerance import assert_identical, assert_matches
from tests.native import HERE, Library, image_of, run_kernel
from tests.onnx_builders import model, node, value

CASES = {
    "awkward heads": attention(37, 53, 23, 19),
    "prime everything": attention(61, 131, 67, 41, heads=1),
    "wide heads": attention(19, 33, 256, 251),
    "narrow heads": attention(9, 40, 2, 1),
    "one row": attention(1, 50, 200, 64),
    "causal": attention(70, 70, 32, 31, causal=0),
    "causal behind a cache": attention(13, 61, 16, 24, causal=48),
    "causal rows of shared keys": attention(11, 29, 8, 12, group=3, causal=5),
    "one mask for all": attention(21, 47, 17, 13, mask="add"),
    "masks of rows": attention(5, 33, 12, 20, group=3, mask="bool"),
    "one matrix of heads, a residual": attention(29, 29, 24, 24, heads=3, merged=True, residual=True),
    "keys by columns": attention(18, 35, 10, 7, transposed=True),
    "bf16": attention(23, 39, 32, 24, dtype=BF16, mask="add"),
    "f16": attention(17, 26, 15, 9, dtype=F16, residual=True),
}
RNG = np.random.default_rng(5)
V2, V3, ARM = (cpu.named(f"cpu:{arch}") for arch in ("x86-64-v2", "x86-64-v3", "neoverse-n1"))
SERVER = cpu.named("cpu:icelake-server")


def problem_of(kernel: Kernel) -> AttentionProblem:
    return FAMILY.problem(kernel)


def schedules_of(kernel: Kernel, count: int, target: Target) -> list[Schedule]:
    """The default and ``count`` random legal schedules, some with several blocks of keys."""
    problem = FAMILY.problem(kernel)
    found: list[Schedule] = [dict(FAMILY.default(problem, target.limits).numbers)]
    chooser = random.Random(kernel.digest)
    while len(found) < count + 1:
        trial = {p.name: chooser.choice(p.choices) for p in FAMILY.params} | {"tile_n": chooser.choice((16, 32, 64))}
        small = trial["vectors"] * trial["keys"] <= 12  # LLVM takes long for large register blocks
        if small and not FAMILY.reasons(trial, problem, target.limits):
            found.append(trial)
    return found


def check(kernel: Kernel, schedules: list[Schedule], target: Target, family: Family = FAMILY) -> None:
    inputs = random_inputs(kernel)
    (want,) = expected(kernel, inputs)
    named = {f"k{i}": s for i, s in enumerate(schedules)}
    library = Library(dict.fromkeys(named, kernel), named, target, family)
    terms = FAMILY.problem(kernel).depth + FAMILY.problem(kernel).n
    for i, schedule in enumerate(schedules):
        try:
            assert_matches(library.run(f"k{i}", inputs)[0], want, terms=terms)
        except AssertionError as error:
            raise AssertionError(f"{schedule}: {error}") from error


@pytest.mark.parametrize("name", CASES)
def test_any_schedule_gives_the_oracles_means(name: str) -> None:
    check(CASES[name], schedules_of(CASES[name], 1, cpu.host()), cpu.host())


@pytest.mark.parametrize("target", [*HERE, ARM], ids=lambda t: t.arch)
@pytest.mark.parametrize("name", ["causal", "one mask for all", "bf16"])
def test_other_processors(name: str, target: Target) -> None:
    check(CASES[name], schedules_of(CASES[name], 0, target), target)


def test_both_products_are_fused_multiply_adds_on_64_bit_arm() -> None:
    kernel = CASES["causal"]
    source = emit(kernel, FAMILY.default(problem_of(kernel), ARM.limits).numbers, ARM, "k")

    text = cpu.assembly([source], ARM)

    assert len(re.findall(r"\tfmla\tv\d+\.4s, v\d+\.4s, v\d+\.s\[\d\]", text)) > 100


@pytest.mark.parametrize("most", [300, 6000])
def test_one_model_has_right_results_on_both_sides_of_where_keys_are_divided(most: int) -> None:
    """Its schedules for several ranges of keys are called with the same memory."""
    nodes = [
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v"], ["y"]),
    ]
    n = gpucomp.Dim("n", 1, most)
    shapes = {"q": [3, 1, 64], "k": [3, 64, "n"], "v": [3, "n", 64]}
    exe = gpucomp.compile(
        model(nodes, [value(name, shape) for name, shape in shapes.items()], ["y"]),
        target="cpu",
        shapes={"k": (3, 64, n), "v": (3, n, 64)},
    )

    for keys in (1, 255, 257, most // 2, most, 2):
        q, k, v = (RNG.standard_normal(shape, np.float32) for shape in ((3, 1, 64), (3, 64, keys), (3, keys, 64)))
        scores = q.astype(np.float64) @ k
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = weights @ v / weights.sum(-1, keepdims=True)
        np.testing.assert_allclose(exe.run({"q": q, "k": k, "v": v})["y"], wanted, atol=2e-5)


# NaN scores, and masked ones


def shown(rows: list[list[bool]]) -> list[np.ndarray]:
    """Inputs of ``masked``: one bool per head and key."""
    inputs = random_inputs(MASKED)
    inputs[3] = np.array(rows)
    return inputs


MASKED = attention(7, 45, 6, 5, mask="bool")
BLOCKS_OF_16 = {"lanes": 4, "vectors": 2, "keys": 4, "tile_n": 16}


@pytest.mark.parametrize("tile_n", [16, 64])
def test_a_row_with_every_key_hidden_is_nan_and_one_whose_first_are_hidden_is_not(tile_n: int) -> None:
    inputs = shown([[False] * 45, [j > 34 for j in range(45)]])

    (found,) = run_kernel(MASKED, inputs, {**BLOCKS_OF_16, "tile_n": tile_n})

    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()
    assert_matches(found, expected(MASKED, inputs)[0], terms=51)


def test_scores_all_as_low_as_a_float_goes_leave_the_values_mean() -> None:
    kernel = attention(9, 45, 6, 5, mask="add")
    inputs = random_inputs(kernel)
    inputs[3] = np.full((9, 45), np.finfo(np.float32).min)

    (found,) = run_kernel(kernel, inputs, BLOCKS_OF_16)

    assert_matches(found[:, 0], np.broadcast_to(inputs[2].mean(axis=1, keepdims=True), (2, 9, 5)), terms=45)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_spoil_their_own_rows_alone(bad: float) -> None:
    kernel = attention(11, 45, 6, 5)
    inputs = random_inputs(kernel)
    inputs[0][1, 0, 3, 2] = bad
    with np.errstate(invalid="ignore"):
        (want,) = expected(kernel, inputs)

    (found,) = run_kernel(kernel, inputs, BLOCKS_OF_16)

    assert np.isnan(want[1, 0, 3]).all()
    assert np.isnan(want).sum() == 5
    assert_matches(found, want, terms=51)


def test_a_maximum_that_grows_from_block_to_block_keeps_what_was_summed() -> None:
    kernel = attention(5, 64, 4, 3)
    inputs = random_inputs(kernel)
    inputs[0][...], inputs[1][...] = 1, np.linspace(-40, 40, 64, dtype=np.float32)[None, :, None]

    (found,) = run_kernel(kernel, inputs, BLOCKS_OF_16)

    assert_matches(found, expected(kernel, inputs)[0], terms=68)


@pytest.mark.parametrize(("group", "causal"), [(1, 0), (3, 2)])
def test_columns_that_no_row_of_a_tile_sees_are_not_read(group: int, causal: int) -> None:
    kernel = attention(45, 45, 6, 5, group=group, causal=causal)
    inputs = random_inputs(kernel)
    (want,) = expected(kernel, inputs)
    inputs[1][:, 16:], inputs[2][:, 16:] = np.nan, np.nan  # rows 0 to 7 are a tile of their own, whose keys end at 12

    (found,) = run_kernel(kernel, inputs, BLOCKS_OF_16)

    assert_matches(found[:, 0, :8], want[:, 0, :8], terms=51)
    assert np.isnan(found[:, 0, 20:]).all()


# how things are read


def test_what_lies_in_rows_of_floats_is_read_in_place() -> None:
    def copied(kernel: Kernel) -> tuple[int, int]:
        return problem_of(kernel).copied_k, problem_of(kernel).copied_v

    assert copied(CASES["awkward heads"]) == copied(CASES["keys by columns"]) == (0, 0)
    assert copied(CASES["one matrix of heads, a residual"]) == (0, 0)
    assert copied(CASES["bf16"]) == copied(CASES["f16"]) == (1, 1)


def test_a_mask_that_runs_along_columns_is_turned_and_no_other() -> None:
    turned = {name: len(parts_of(kernel).turned) for name, kernel in CASES.items()}

    assert {name for name, count in turned.items() if count} == {"one mask for all", "bf16"}
    for name in ("one mask for all", "masks of rows", "causal"):
        kernel = CASES[name]
        text = emit(kernel, FAMILY.default(problem_of(kernel), SERVER.limits).numbers, SERVER, "k").text
        assert "masked.gather" not in text, name


def test_causality_is_seen_along_the_last_axis_of_rows() -> None:
    found = {name: problem_of(kernel).causal for name, kernel in CASES.items()}

    assert {name: offset for name, offset in found.items() if offset != NOT_CAUSAL} == {
        "causal": 0, "causal behind a cache": 48, "causal rows of shared keys": 5,
    }  # fmt: skip


# the space


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"vectors": 4, "keys": 8}, "37 registers, the processor has 32"),
        ({"lanes": 16}, "16 lanes of 4 bytes, the processor has 32-byte vectors"),
    ],
)
def test_what_cannot_run_is_refused(change: dict[str, int], why: str) -> None:
    target = SERVER if "lanes" not in change else V3

    with pytest.raises(ScheduleError, match=why):
        emit(CASES["causal"], {**BLOCKS_OF_16, **change}, target, "k")


def test_scratch_stays_below_its_limit() -> None:
    kernel = attention(600, 600, 256, 256, dtype=BF16)
    problem = problem_of(kernel)
    large = AttentionSchedule(lanes=16, vectors=6, keys=4, tile_n=512)

    assert scratch_bytes(large, problem) > STACK_BYTES
    assert any("bytes of scratch" in reason for reason in FAMILY.reasons(large.numbers, problem, SERVER.limits))
    for target in (V2, V3, SERVER):
        assert not FAMILY.reasons(FAMILY.default(problem, target.limits).numbers, problem, target.limits)


@pytest.mark.parametrize(("rows", "vectors", "found"), [(197, 4, (1, 3, 4)), (128, 4, (0, 4, 2)), (5, 4, (0, 1, 1))])
def test_tiles_of_rows_differ_by_a_vector_at_most(rows: int, vectors: int, found: tuple[int, int, int]) -> None:
    sizes = derive(
        AttentionSchedule(lanes=16, vectors=vectors, keys=6, tile_n=64), problem_of(attention(rows, 50, 8, 8))
    )

    assert (sizes.wider, sizes.base, sizes.tiles) == found


# whole models


def long_attention(heads: int, tokens: int, head: int, *, causal: bool) -> bytes:
    """softmax(q k^T / sqrt(head)) v of a projection, as exporters write it, with a mask of -inf if ``causal``."""
    shape = (1, heads, tokens, head)
    weights = {"w": np.random.default_rng(3).standard_normal((head, head)).astype(np.float32) / head**0.5,
               "s": np.float32(head**-0.5)}  # fmt: skip
    nodes = [
        node("MatMul", ["x", "w"], ["q"]),
        node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "t"], ["products"]),
        node("Mul", ["products", "s"], ["scaled"]),
        node("Softmax", ["hidden" if causal else "scaled"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v"], ["y"]),
    ]
    if causal:
        seen = np.tri(tokens, dtype=np.bool_)
        weights |= {"triangle": np.where(seen, 0, -np.inf).astype(np.float32)[None, None]}
        nodes.insert(4, node("Add", ["scaled", "triangle"], ["hidden"]))
    return model(nodes, [value(n, shape) for n in "xkv"], [value("y", shape)], weights).SerializeToString()


def test_2048_tokens_leave_no_scores_in_memory() -> None:
    whole = gpucomp.compile(long_attention(1, 2048, 16, causal=False), target="cpu:icelake-server")

    assert [k.family for k in whole.kernels] == ["contraction", "attention"]
    assert whole.plan.arena_bytes == 2048 * 16 * 4  # the projection


@pytest.mark.parametrize("causal", [False, True])
def test_a_model_agrees_with_onnxruntime_and_threads_and_runs_agree_to_the_bit(causal: bool) -> None:
    data = long_attention(3, 211, 24, causal=causal)
    rng = np.random.default_rng(1)
    feeds = {name: rng.standard_normal((1, 3, 211, 24)).astype(np.float32) for name in "xkv"}
    (want,) = onnxruntime_session(data).run(None, feeds)
    compiled = gpucomp.compile(data, target="cpu")

    results = [
        CpuProgram(compiled.plan, {}, compiled.binaries, compiled.weights, threads=threads).run(feeds)["y"]
        for threads in (1, 2, 2, 5)
    ]

    assert "attention" in [k.family for k in compiled.kernels]
    for other in results[1:]:
        assert_identical(other, results[0])
    assert_matches(results[0], want, terms=235)


# few rows


FEW_CASES = {
    "one row": attention(1, 50, 200, 61),
    "an added mask": attention(5, 61, 23, 19, mask="add"),
    "rows that share keys": attention(2, 33, 12, 20, group=3, mask="bool", residual=True),
    "causal": attention(7, 29, 8, 9, causal=5),
    "causal behind a cache": attention(3, 67, 16, 24, causal=48),
    "bf16": attention(8, 130, 31, 17, dtype=BF16),
}


def few_schedules(kernel: Kernel, target: Target) -> list[Schedule]:
    problem = DECODE.problem(kernel)
    found: list[Schedule] = [dict(DECODE.default(problem, target.limits).numbers)]
    return [found[0], {**found[0], "tile_n": 16, "wide": 1}]


SPLIT_CASES = {
    "one row": (attention(1, 1100, 24, 21), 4),
    "hardly more keys than a task's least": (attention(2, 258, 9, 16), 2),
    "an added mask": (attention(3, 1300, 17, 19, heads=3, mask="add"), 8),  # 6 tasks
    "rows that share keys": (attention(2, 700, 12, 20, group=3, mask="bool", residual=True), 2),
    "causal": (attention(5, 813, 8, 9, causal=800), 4),
    "bf16": (attention(8, 530, 31, 17, dtype=BF16), 4),
}


@pytest.mark.parametrize("target", [*HERE, ARM], ids=lambda t: t.arch)
@pytest.mark.parametrize("name", SPLIT_CASES)
def test_keys_of_a_batch_are_divided_among_tasks(name: str, target: Target) -> None:
    kernel, splits = SPLIT_CASES[name]
    default = dict(DECODE.default(DECODE.problem(kernel), target.limits).numbers)

    check(kernel, [default | {"splits": splits}, default | {"splits": splits, "tile_n": 16, "wide": 1}], target, DECODE)


@pytest.mark.parametrize("first", [0, 300, 700])
def test_parts_of_hidden_keys_have_no_weight(first: int) -> None:
    """Where all keys of a part are hidden its maximum is -inf, and where all of a row are, its means are NaN."""
    kernel = attention(2, 1024, 6, 5, mask="bool")
    inputs = random_inputs(kernel)
    inputs[3] = np.array([[j >= first for j in range(1024)], [False] * 1024])
    schedule = dict(DECODE.default(DECODE.problem(kernel), SERVER.limits).numbers) | {"lanes": 4, "splits": 4}

    (found,) = Library({"k": kernel}, {"k": schedule}, cpu.named("cpu:x86-64-v2"), DECODE).run("k", inputs)

    assert np.isnan(found[1]).all()
    assert_matches(found[0], expected(kernel, inputs)[0][0], terms=1030)


def test_tasks_that_share_keys_run_at_the_same_time() -> None:
    kernel, threads = attention(2, 2500, 24, 21, heads=3), 4
    schedule = dict(DECODE.default(DECODE.problem(kernel), cpu.host().limits).numbers) | {"splits": 8, "tile_n": 32}
    source = emit(kernel, schedule, cpu.host(), "k", DECODE)
    inputs = random_inputs(kernel)
    outputs = [np.zeros((3, 1, 2, 21), np.float32) for _ in range(2)]
    image, tasks = image_of([source], cpu.host()), source.geometry.groups[0]
    workspace, counters = np.zeros(source.geometry.workspace_bytes, np.uint8), np.zeros(3, np.int64)

    def call(output: np.ndarray, first: int, last: int) -> None:
        pointers = [a.ctypes.data for a in (*inputs, output, workspace, counters)]
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64, ctypes.c_int64)
        prototype(image.address("k"))(*pointers, first, last)

    call(outputs[0], 0, tasks)
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(200):
            outputs[1][...] = -7
            starts = [tasks * k // threads for k in range(threads + 1)]
            list(pool.map(call, [outputs[1]] * threads, starts[:-1], starts[1:]))
            assert_identical(outputs[1], outputs[0])

    assert_matches(outputs[0].reshape(expected(kernel, inputs)[0].shape), expected(kernel, inputs)[0], terms=2524)
    assert "acq_rel" in source.text


def test_few_batches_behind_many_keys_are_divided_and_others_are_not() -> None:
    def splits(kernel: Kernel) -> int:
        return dict(DECODE.default(DECODE.problem(kernel), SERVER.limits).numbers)["splits"]

    assert splits(attention(3, 8000, 64, 64, heads=3)) >= 4
    assert splits(attention(3, 250, 64, 64, heads=3)) == 1
    assert splits(attention(1, 2000, 64, 64, heads=64)) == 1


@pytest.mark.parametrize("target", [*HERE, ARM], ids=lambda t: t.arch)
@pytest.mark.parametrize("name", FEW_CASES)
def test_few_rows_run_along_memory(name: str, target: Target) -> None:
    check(FEW_CASES[name], few_schedules(FEW_CASES[name], target), target, DECODE)


@pytest.mark.parametrize("target", HERE, ids=lambda t: t.arch)
def test_a_few_rows_with_every_key_hidden_are_nan_and_those_whose_first_are_hidden_are_not(target: Target) -> None:
    inputs = shown([[False] * 45, [j > 34 for j in range(45)]])
    default, *_ = few_schedules(MASKED, target)
    schedule = default | {"lanes": 4, "tile_n": 16}  # of several blocks

    (found,) = Library({"k": MASKED}, {"k": schedule}, target, DECODE).run("k", inputs)

    assert np.isnan(found[0]).all()
    assert_matches(found, expected(MASKED, inputs)[0], terms=51)


def test_which_engine_takes_how_many_rows() -> None:
    def engine(kernel: Kernel) -> str:
        return choose(kernel, engines_of(kernel, SERVER.features), SERVER.limits).family.engine

    assert [attention_few_space.accepts(attention(m, 50, 8, 8), frozenset()) for m in (8, 9)] == [
        "",
        "9 rows, more than 8",
    ]
    assert engine(attention(1, 777, 64, 64)) == engine(attention(1, 777, 64, 64, group=4)) == "decode"
    assert engine(attention(70, 777, 64, 64)) == ""


def test_products_of_lanes_are_added_up_in_place() -> None:
    code = Code("f")
    rows = [code.argument(f"v{k}", Type("float", 8)) for k in range(8)]

    text = str(sums_of(rows).text) + "\n".join(code._lines)

    assert text.count("fadd") == 7
    assert text.count("shufflevector") == 14


def test_what_few_rows_refuse() -> None:
    family, problem = DECODE, DECODE.problem(attention(8, 50, 64, 64))

    refused = list(family.reasons({"lanes": 16, "tile_n": 64, "wide": 4, "splits": 2}, problem, SERVER.limits))

    assert refused == [
        "37 registers, the processor has 32",
        "50 keys, of which 2 tasks have too few: more than 256 are expected",
    ]
    many = DECODE.problem(attention(1, 3000, 8, 8, heads=5000))
    assert list(family.reasons({"lanes": 16, "tile_n": 64, "wide": 1, "splits": 2}, many, SERVER.limits)) == [
        "5000 batches are too many to divide"
    ]
    assert not list(family.reasons({"lanes": 16, "tile_n": 64, "wide": 2, "splits": 1}, problem, SERVER.limits))
