"""Attention on AMD's matrix cores, in HIP: numpy's results in every thread order, on each kind of instruction."""

from __future__ import annotations

import numpy as np
import pytest

from gpucomp.ir.types import BF16, F16, F32, F64
from gpucomp.kernel.interpreter import expected
from gpucomp.kernels_templates.attention.amd.space import registers, shared_bytes
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import amdgcn, hip, opencl
from testing.cases.attention_amd import CASES_MFMA, RACES, cases_of, on, tile
from testing.cuda_on_cpu.harness import CudaOnCpuError, RaceError, compile_many, hip_compiler
from testing.kernels import attention, random_inputs
from testing.launches import in_any_order, launched
from testing.template_cases import default
from testing.tolerance import assert_matches

AMD = FAMILIES["attention/amd"]
TARGETS = {arch: hip.manifest(arch) for arch in ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")}
# MFMA; bf16 in pairs; other sums; twice the depth; WMMA whose lanes hold all of a row, and half of one
FEW = {
    "gfx908": ("bf16", "bf16, two blocks"),
    "gfx942": ("causal", "bf16, two blocks", "f32"),
    "gfx950": ("vit", "small instructions", "bf16", "bf16, two blocks", "causal, split", "head of 200", "f32"),
}
OF = {
    arch: {name: case for name, case in cases_of(target.features).items() if name in FEW.get(arch, (name,))}
    for arch, target in TARGETS.items()
}

pytestmark = pytest.mark.skipif(
    hip_compiler() is None, reason="needs clang 18 or newer: apt-get install clang-19 lld-19"
)


def assert_right(kernel, outputs, inputs):
    for actual, right in zip(outputs, expected(kernel, inputs), strict=True):
        assert_matches(actual, right, terms=kernel.body.cols[0].extent)


@pytest.fixture(scope="module")
def built():
    """Source and program by instruction set and case; an instruction set is compiled when it is first asked for."""
    known = {}

    def of(arch):
        if arch not in known:
            sources = [render(k, s, TARGETS[arch], f"k{i}", AMD) for i, (_, k, s) in enumerate(OF[arch].values())]
            programs = compile_many([(s.text, s.name) for s in sources], arch=arch)
            known[arch] = dict(zip(OF[arch], zip(sources, programs, strict=True), strict=True))
        return known[arch]

    return of


@pytest.mark.parametrize(("arch", "name"), [(arch, name) for arch in TARGETS for name in OF[arch]])
def test_it_gives_numpy_s_answer_in_any_thread_order(arch, name, built):
    proof, kernel, schedule = OF[arch][name]
    problem = AMD.problem(kernel)
    sizes = {**problem.numbers, **AMD.derive(AMD.schedule(schedule), problem).numbers}
    assert {k: sizes[k] for k in proof} == proof
    inputs = random_inputs(kernel)

    assert_right(kernel, in_any_order(kernel, *built(arch)[name], inputs), inputs)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
def test_a_row_whose_scores_are_all_infinitely_low_is_nan_and_no_other_is(arch, built):
    kernel = OF[arch]["bf16"][1]
    inputs = random_inputs(kernel)
    inputs[3][4], inputs[3][5, :32], inputs[3][6, 32:] = -np.inf, -np.inf, -np.inf

    found = launched(kernel, *built(arch)["bf16"], inputs)

    assert_right(kernel, found, inputs)
    assert np.isnan(found[0].astype(np.float32)).any()


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
def test_a_row_that_the_least_numbers_hide_has_equal_weights(arch, built):
    kernel = OF[arch]["bf16"][1]
    inputs = random_inputs(kernel)
    inputs[3][5] = -3e38

    found = launched(kernel, *built(arch)["bf16"], inputs)

    assert_right(kernel, found, inputs)
    assert np.isfinite(found[0].astype(np.float32)[..., 5, :]).all()


MFMA, WIDE, WMMA = "gfx90a", "gfx950", "gfx1100"
BARRIER = "__syncthreads();"
MISTAKES = {  # instruction set, case, text, replacement
    "values keep an old maximum's scale": (MFMA, "vit", "acc[b][f] *= factor;", ";"),
    "totals keep an old maximum's scale": (MFMA, "vit", "total[b] *= factor;", ""),
    "the maximum of half a wave": (MFMA, "vit", "gc_wave_xor<32>(highest)", "highest"),
    "the maximum of a quarter": (MFMA, "small instructions", "gc_wave_xor<16>(highest)", "highest"),
    "the total of half a wave": (MFMA, "vit", "total[b] + gc_wave_xor<32>(total[b])", "total[b]"),
    "weights of other keys": (MFMA, "vit", "piece * 8 + my_group * 4", "piece * 8 + (1 - my_group) * 4"),
    "values not turned": (MFMA, "vit", "v_next[trip][0][i], v_next[trip][1][i]", "v_next[trip][1][i], v_next[trip][0][i]"),
    "queries of the other half": (MFMA, "vit", "(c * 2 + my_group) * 1", "(c * 2 + 1 - my_group) * 1"),
    "keys of the other half": (MFMA, "vit", "(c * 2 + my_group) * 8", "(c * 2 + 1 - my_group) * 8"),
    "a column past the end has weight": (MFMA, "vit", "col < 197", "col < 198"),
    "the diagonal is hidden": (MFMA, "causal", "col <= row", "col < row"),
    "the next column is seen": (MFMA, "causal", "col <= row", "col <= row + 1"),
    "a stage too few below the diagonal": (MFMA, "causal", "seen = first_row + 32", "seen = first_row"),
    "a split is lost": (MFMA, "one row, split", "part < 4", "part < 3"),
    "rows past the end are stored": (MFMA, "vit", "if (row < 197)", "if (row < 256)"),
    "the second block's rows": (MFMA, "two blocks", "my_row + b * 32", "my_row"),
    "tiles that others still write": (MFMA, "vit", BARRIER, ""),
    "weights of other keys of 16": (WIDE, "vit", "piece * 16 + my_group * 4", "piece * 16 + (1 - my_group) * 4"),
    "the same values twice": (WIDE, "vit", "(from + 8))", "(from))"),
    "weights of the next block": (WIDE, "bf16, two blocks", "gc_weight_to_bf16(s[b][j][0])", "gc_weight_to_bf16(s[b][j + 1][0])"),
    "values of the next block": (WIDE, "bf16, two blocks", "(from + 16))", "(from + 4))"),
    "each block by itself": (WIDE, "head of 200", "j += 2", "++j"),
    "weights of the partner first": (WMMA, "vit", "my_group ? others : mine", "mine"),
    "weights not exchanged": (WMMA, "vit", "gc_wave_xor<16>(mine[0])", "mine[0]"),
    "values in the order of keys": (WMMA, "vit", "place / 16 * 16 + place % 8 * 2 + place / 8 % 2 + 2 * i", "place + i"),
    "half of a row twice": (WMMA, "vit", "from + 8))", "from))"),
}  # fmt: skip


@pytest.fixture(scope="module")
def mistaken():
    sources = {}
    for position, (name, (arch, case, right, wrong)) in enumerate(MISTAKES.items()):
        _, kernel, schedule = OF[arch][case]
        source = render(kernel, schedule, TARGETS[arch], f"m{position}", AMD)
        assert right in source.text, (name, right, source.text)
        sources.setdefault(arch, {})[name] = source.text.replace(right, wrong), source.name
    found = {}
    for arch, pairs in sources.items():
        found |= dict(zip(pairs, compile_many([*pairs.values()], arch=arch), strict=True))
    return found


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_text_is_seen(name, mistaken, built):
    arch, case, *_ = MISTAKES[name]
    kernel, source = OF[arch][case][1], built(arch)[case][0]
    inputs = random_inputs(kernel)
    inputs[0] = (inputs[0] * 4).astype(inputs[0].dtype)  # maxima that grow from stage to stage
    if "split" in case:
        inputs = random_inputs(kernel)
    assert_right(kernel, launched(kernel, *built(arch)[case], inputs), inputs)

    with pytest.raises((AssertionError, CudaOnCpuError)):
        assert_right(kernel, in_any_order(kernel, source, mistaken[name], inputs), inputs)


WATCHED = (MFMA, WMMA)
MISSING = [("one work-group", 0), ("one work-group", 1), ("splits", 3)]


@pytest.fixture(scope="module")
def watched():
    """Kernels under ThreadSanitizer, by instruction set, name, and the number of the barrier that they lack."""
    found = {}
    for arch in WATCHED:
        sources = {
            name: render(kernel, on(schedule, TARGETS[arch].features), TARGETS[arch], f"r{i}", AMD)
            for i, (name, (kernel, schedule, _)) in enumerate(RACES.items())
        }
        texts = {(name, None): source.text for name, source in sources.items()}
        for name, number in MISSING:
            parts = sources[name].text.split(BARRIER)
            parts[number : number + 2] = [parts[number] + parts[number + 1]]
            texts[name, number] = BARRIER.join(parts)
        pairs = [(text, sources[name].name) for (name, _), text in texts.items()]
        built = compile_many(pairs, sanitizer="thread", arch=arch)
        found |= {(arch, *key): (sources[key[0]], one) for key, one in zip(texts, built, strict=True)}
    return found


@pytest.mark.parametrize("arch", WATCHED)
@pytest.mark.parametrize("name", RACES)
def test_it_has_no_race(name, arch, watched):
    kernel, _, barriers = RACES[name]
    source, program = watched[arch, name, None]
    assert source.text.count(BARRIER) == barriers

    launched(kernel, source, program, random_inputs(kernel), order="shuffled")


@pytest.mark.parametrize("arch", WATCHED)
@pytest.mark.parametrize(("name", "number"), MISSING)
def test_a_missing_barrier_is_a_race(name, number, arch, watched):
    kernel = RACES[name][0]

    with pytest.raises(RaceError):
        launched(kernel, *watched[arch, name, number], random_inputs(kernel))


CLAMPS = ("q", "k", "v")
PARTIAL = ("vit", "copies of 4 bytes", "heads that are no whole steps", "keys that heads share", "one row, split")


@pytest.fixture(scope="module")
def bounded():
    """Kernels under AddressSanitizer, by instruction set, name, and the operand whose rows are not limited."""
    found = {}
    for arch in WATCHED:
        sources = {
            name: render(kernel, schedule, TARGETS[arch], f"a{i}", AMD)
            for i, (name, (_, kernel, schedule)) in enumerate(OF[arch].items())
            if name in PARTIAL
        }
        texts = {(name, None): source.text for name, source in sources.items()}
        for operand in CLAMPS:
            limit = f"if ({operand}_span > 196) {operand}_span = 196;"
            assert limit in sources["vit"].text
            texts["vit", operand] = sources["vit"].text.replace(limit, "")
        pairs = [(text, sources[name].name) for (name, _), text in texts.items()]
        built = compile_many(pairs, sanitizer="address", arch=arch)
        found |= {(arch, *key): (sources[key[0]], one) for key, one in zip(texts, built, strict=True)}
    return found


@pytest.mark.parametrize("arch", WATCHED)
@pytest.mark.parametrize("name", PARTIAL)
def test_it_reads_nothing_beside_its_operands(name, arch, bounded):
    kernel = OF[arch][name][1]

    launched(kernel, *bounded[arch, name, None], random_inputs(kernel))


@pytest.mark.parametrize("arch", WATCHED)
@pytest.mark.parametrize("operand", CLAMPS)
def test_rows_past_the_end_are_out_of_bounds(operand, arch, bounded):
    kernel = OF[arch]["vit"][1]

    with pytest.raises(CudaOnCpuError, match="heap-buffer-overflow, read"):
        launched(kernel, *bounded[arch, "vit", operand], random_inputs(kernel))


def test_the_engine_is_for_hip_on_devices_with_matrix_instructions():
    def engines(kernel, target):
        return [family.title for family in engines_of(kernel, target.features)]

    both, plain = ["attention/amd", "attention/simt"], ["attention/simt"]
    half, single = attention(64, 64, 64, 64, dtype=F16), attention(64, 64, 64, 64)

    assert [engines(half, TARGETS[arch]) for arch in TARGETS] == [both] * len(TARGETS)
    assert engines(half, hip.manifest("gfx906")) == engines(half, hip.manifest("gfx1030")) == plain
    assert engines(half, opencl.manifest("gfx90a")) == plain
    assert engines(single, TARGETS["gfx908"]) == both
    assert engines(single, TARGETS["gfx1100"]) == engines(single, TARGETS["gfx1201"]) == plain
    assert engines(attention(64, 64, 64, 64, dtype=F64), TARGETS["gfx90a"]) == plain


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (attention(64, 64, 64, 64, transposed=True, dtype=F16), "k cannot be read along its heads"),
        (attention(64, 64, 63, 64, dtype=F16), "q cannot be read along its heads"),
        (attention(64, 64, 64, 64, dtype=F64), "q cannot be read along its heads: it is computed"),
    ],
    ids=["keys turned", "odd heads", "f64"],
)
def test_what_it_cannot_read_is_left_to_another_engine(kernel, reason):
    assert reason in AMD.accepts(kernel, TARGETS["gfx90a"].features)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        (attention(512, 512, 64, 64, heads=12, dtype=F16), "attention/amd"),
        (attention(2048, 2048, 128, 128, heads=32, dtype=F16, causal=0), "attention/amd"),
        (attention(197, 197, 64, 64, heads=12, dtype=BF16), "attention/amd"),
    ],
    ids=["bert", "llama", "vit"],
)
def test_it_is_the_default_and_no_register_is_spilt(kernel, wanted, arch):
    target = TARGETS[arch]
    found = choose(kernel, engines_of(kernel, target.features), target.limits, target.device)
    assert found.family.title == wanted

    schedule = default(kernel, target.limits, AMD)
    source = render(kernel, schedule, target, "k0", AMD)
    used = amdgcn.resources(source, arch)

    assert used.spilled == 0
    assert used.vector <= registers(AMD.schedule(schedule), AMD.problem(kernel)) + 64
    assert used.local_bytes == shared_bytes(AMD.schedule(schedule), AMD.problem(kernel))


def test_a_head_that_is_too_wide_for_registers_is_left_to_simt():
    kernel, target = CASES_MFMA["head of 200"][1], TARGETS["gfx1100"]

    found = choose(kernel, engines_of(kernel, target.features), target.limits, target.device)

    assert found.family.title == "attention/simt"


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100"])
def test_many_weak_keys_beside_a_strong_one_count(arch):
    """Their weights are subnormal as f16, which MI200 takes as zero. Attention sinks are such keys."""
    kernel, target = attention(1, 1024, 64, 64, heads=1, dtype=F16), TARGETS[arch]
    schedule = default(kernel, target.limits, AMD)
    (program,) = compile_many([((source := render(kernel, schedule, target, "k0", AMD)).text, "k0")], arch=arch)
    q, k, v = (np.zeros(t.shape, np.float16) for t in kernel.params[:3])
    q[..., 0], k[:, 0, 0], v[:, 1:] = 8, 10, 1  # a score of 10 beside 1,023 of 0

    (found,) = launched(kernel, source, program, [q, k, v])

    weak = 1023 * np.exp(-10.0)
    assert np.allclose(found.astype(np.float64), weak / (1 + weak), rtol=5e-3)


def main_loop(assembly):
    """The lines from the loop's second barrier to its last product, which clang 22 puts in front of the barriers."""
    lines = [line.split() for line in amdgcn.code_of(assembly).splitlines()]
    names = [" ".join(line) for line in lines if line]
    blocks = [n for n, line in enumerate(names) if line.startswith((".LBB", "; %bb"))]
    first = next(n for n in blocks if "Loop" in names[n])
    loop = names[first : next(n for n in blocks if n > first and "Loop" not in names[n])]
    second = [n for n, line in enumerate(loop) if line.startswith("s_barrier")][1]
    loop = loop[second:] + loop[:second]
    return loop[: max(n for n, line in enumerate(loop) if line.startswith(("v_mfma", "v_wmma")))]


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_products_wait_for_no_load_and_sums_stay_where_they_are(dtype, arch):
    kernel, target = attention(512, 512, 64, 64, heads=12, dtype=dtype), TARGETS[arch]
    schedule = on(tile(4, 64, 1), target.features)  # one wave alone meets nobody: clang drops its barriers
    source = render(kernel, schedule, target, "k0", AMD)

    found = main_loop(amdgcn.assemble(source, arch))

    assert sum(line.startswith("v_mfma") for line in found) > 16
    assert sum(line.startswith("global_load") for line in found) >= 4  # the next tiles
    assert not [line for line in found if "vmcnt" in line]
    assert not [line for line in found if line.startswith("v_accvgpr")]


def test_f32_is_as_exact_as_f32():
    kernel, target = attention(33, 70, 64, 64, heads=1, dtype=F32), TARGETS["gfx90a"]
    schedule = default(kernel, target.limits, AMD)
    source = render(kernel, schedule, target, "k0", AMD)
    (program,) = compile_many([(source.text, "k0")], arch="gfx90a")
    inputs = random_inputs(kernel)

    (found,) = launched(kernel, source, program, inputs)

    q, k, v = (a.astype(np.float64) for a in inputs)
    scores = np.einsum("hgic,hjc->hgij", q.reshape(1, 1, 33, 64), k) * np.float64(np.float32(64**-0.5))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    right = np.einsum("hgij,hjd->hgid", weights / weights.sum(-1, keepdims=True), v)
    assert np.abs(found.reshape(right.shape) - right).max() < 2e-6
