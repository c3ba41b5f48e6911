"""The `amd` engine of contractions: its lane maps on PoCL, and clang's machine code for AMD GPUs."""

from __future__ import annotations

import os
import random
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from gpucomp.errors import DeviceError, KernelBuildError
from gpucomp.ir.types import BF16, F16, F32, I8, I32, U8, TensorType
from gpucomp.kernel import Kernel
from gpucomp.kernel.interpreter import expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernels_templates.contraction.amd.space import AmdProblem, registers, shared_bytes
from gpucomp.kernels_templates.engines import FAMILIES, engines_of
from gpucomp.kernels_templates.render import render
from gpucomp.schedule.choose import choose
from gpucomp.targets import amdgcn, hip, opencl
from testing import opencl_device
from testing.amd_emulation import emulated, shape_only
from testing.cases.amd import KERNELS, of_two
from testing.kernels import attention, conv, matmul, random_inputs, reduction
from testing.tolerance import assert_matches
from tests import oclgrind

FAMILY = FAMILIES["contraction/amd"]
CDNA1, CDNA, CDNA3, CDNA4, RDNA, RDNA4 = (
    opencl.manifest(name) for name in ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
)
SMALL = {
    "wave": 64,
    "block": 16,
    "waves_m": 1,
    "waves_n": 1,
    "blocks_m": 1,
    "blocks_n": 1,
    "steps": 1,
    "stages": 2,
    "splits": 1,
}
needs_clang = pytest.mark.skipif(amdgcn.compiler() is None, reason="clang is not installed")


def constant(kernel: Kernel) -> Kernel:
    return replace(kernel, constants=frozenset({1}))


def compiled(kernel: Kernel, schedule: dict[str, int], inputs=None):
    """The kernel with its constant weights packed, and its inputs."""
    wanted = FAMILY.packing(kernel, FAMILY.schedule(schedule), FAMILY.problem(kernel))
    if wanted is None:
        return kernel, inputs
    made = pack(kernel, wanted)
    return made.kernel, inputs and [*(inputs[k] for k in made.kept), packed_constant(made, inputs)]


def source_of(kernel: Kernel, schedule: dict[str, int], target=CDNA):
    return render(compiled(kernel, schedule)[0], schedule, target, "k0", FAMILY)


def default(kernel: Kernel, target=CDNA) -> dict[str, int]:
    return dict(FAMILY.default(FAMILY.problem(kernel), target.limits).numbers)


def in_f32(kernel: Kernel) -> Kernel:
    """``kernel`` with the types of the emulation: f32 instead of f16."""
    return replace(kernel, params=tuple(TensorType(F32, t.shape) if t.dtype is F16 else t for t in kernel.params))


def assert_right(kernel: Kernel, schedule: dict[str, int], target=CDNA, change=None) -> None:
    inputs = random_inputs(kernel)
    ready, arrays = compiled(kernel, schedule, inputs)
    source = render(ready, schedule, target, "k0", FAMILY)
    if change is not None:
        changed = change(source.text)
        assert changed != source.text
        source = replace(source, text=changed)
    sent = [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays]
    found = opencl_device.run(in_f32(ready), emulated(source), sent)
    for actual, right in zip(found, expected(kernel, inputs), strict=True):
        with np.errstate(over="ignore"):  # of what a mistake reads
            actual = actual.astype(right.dtype)
        assert_matches(actual, right, terms=max(1, FAMILY.problem(kernel).k))


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_gives_numpy_s_answer(name):
    kernel = constant(KERNELS[name])

    assert_right(kernel, default(kernel))


@pytest.mark.parametrize("name", ["f16", "f32_odd", "batched", "b_transposed", "bf16", "bf16_odd", "i8"])
def test_operands_that_are_no_constants(name):
    assert_right(KERNELS[name], default(KERNELS[name]))


def products(m: int, n: int, k: int, dtype) -> Kernel:
    return constant(matmul(m, n, k, dtype=dtype, acc=I32 if dtype is I8 else F32))


@pytest.mark.parametrize(
    ("dtype", "target"),
    [*((t, CDNA) for t in (F16, BF16, F32, I8)), (BF16, CDNA1), (I8, CDNA3), *((t, CDNA4) for t in (F16, BF16, I8))],
    ids=lambda value: getattr(value, "arch", str(value)),
)
@pytest.mark.parametrize(("block", "stages", "splits"), [(16, 1, 1), (32, 2, 1), (16, 2, 2), (32, 1, 3)])
def test_every_matrix_instruction_in_every_place_of_a_tile(dtype, target, block, stages, splits):
    kernel = products(150, 90, 56 if splits == 1 else 420 // dtype.nbytes, dtype)
    schedule = SMALL | {"block": block, "waves_m": 2, "waves_n": 2, "blocks_m": 2, "steps": 2, "stages": stages}

    assert_right(kernel, schedule | {"splits": splits}, target)


@pytest.mark.parametrize("target", [RDNA, RDNA4], ids=lambda t: t.arch)
@pytest.mark.parametrize("dtype", [F16, BF16, I8])
@pytest.mark.parametrize("shape", [(33, 47, 40), (20, 16, 29), (1, 5, 3)])
def test_wmma(shape, dtype, target):
    kernel = products(*shape, dtype)

    for schedule in (default(kernel, target), SMALL | {"wave": 32, "waves_m": 2, "blocks_n": 2, "steps": 2}):
        assert_right(kernel, schedule, target)


def replaced(old: str, new: str):
    return lambda text: text.replace(old, new)


SPLIT = SMALL | {"splits": 3}


def test_splits_give_the_same_bits_in_every_run():
    kernel = constant(matmul(40, 39, 150, dtype=F16))
    ready, arrays = compiled(kernel, SPLIT, random_inputs(kernel))
    source = emulated(render(ready, SPLIT, CDNA, "k0", FAMILY))
    sent = [a.astype(np.float32) for a in arrays]

    runs = [opencl_device.run(in_f32(ready), source, sent, launches) for launches in (1, 1, 3)]

    for found in runs:
        np.testing.assert_array_equal(found[0], runs[0][0])
        assert_matches(found[0].astype(np.float16), expected(kernel, random_inputs(kernel))[0], terms=150)


SPLIT_MISTAKES = {
    "a split is left out": replaced("part < 3;", "part < 2;"),
    "the first sums stay": lambda text: "".join(text.rpartition("acc[0][0] = 0.0f;")[::2]),
    "a split's part of the depth": replaced("(int)get_group_id(1) * 8", "(int)get_group_id(1) * 4"),
    "a split's place": replaced("vload4(0, partial + part * 256", "vload4(0, partial + part * 128"),
    "a run's place": replaced(
        "vstore4((float4)(acc[0][0][0], acc[0][0][1]", "vstore4((float4)(acc[0][0][1], acc[0][0][0]"
    ),
}


@pytest.mark.parametrize("mistake", SPLIT_MISTAKES)
def test_a_mistake_of_splits_is_found(mistake):
    with pytest.raises(AssertionError, match=r"max error|Mismatched|NaN"):
        assert_right(constant(matmul(40, 39, 150, dtype=F16)), SPLIT, change=SPLIT_MISTAKES[mistake])


PLACE, CHUNK = "[now][wave_row + lane % 32]", "step * 2 + lane / 32"
FIRST = "tile_b[0][my_slot][my_chunk]"
MISTAKES = {
    "one operand's chunks are the others": replaced(f"tile_a{PLACE}[{CHUNK}]", f"tile_a{PLACE}[{CHUNK} ^ 1]"),
    "a row of the result is in another lane": replaced("r / 4 * 8 + lane / 32 * 4", "r / 4 * 4 + lane / 32 * 8"),
    "the halves of a chunk are mixed": replaced("a_part[0].lo, b_part[0].lo", "a_part[0].lo, b_part[0].hi"),
    "the wave's column is that of its row": replaced("lane % 32;\n", "lane / 2;\n"),
    "the first tile of one operand is the other's": replaced(f"{FIRST} = b_next0", f"{FIRST} = a_next0"),
    "a tile's load is one tile late": replaced("a_chunk = chunk0 + my_chunk", "a_chunk = chunk0 - 4 + my_chunk"),
    "the tail of the depth is not zero": replaced("_chunk < 7", "_chunk < 8"),
    "the last row is not stored": replaced("row < 40 &&", "row < 39 &&"),
}


BF16_MISTAKES = {
    "pairs of a chunk are mixed": (CDNA1, "a_part[0].s23, b_part[0].s23", "a_part[0].s23, b_part[0].s32"),
    "an element is its lower half": (CDNA, ") >> 16)", ") >> 0)"),
    "the halves of a chunk are mixed": (CDNA, "a_part[0].hi, b_part[0].hi", "a_part[0].hi, b_part[0].lo"),
    "the second chunk is the first": (RDNA, "+ lane % 16][1]", "+ lane % 16][0]"),
    "a row is where RDNA3 has it": (RDNA4, "lane / 16 * 8 + r", "r * 2 + lane / 16"),
}


@pytest.mark.parametrize("mistake", BF16_MISTAKES)
def test_a_mistake_with_bf16_is_found(mistake):
    target, *change = BF16_MISTAKES[mistake]
    kernel = constant(matmul(19, 21, 29, dtype=BF16))

    with pytest.raises(AssertionError, match=r"max error|Mismatched|NaN"):
        assert_right(kernel, SMALL | {"wave": target.limits.warp}, target, change=replaced(*change))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake):
    kernel = constant(matmul(40, 39, 56, dtype=F16))
    schedule = SMALL | {"block": 32, "waves_m": 2, "steps": 2}

    with pytest.raises(AssertionError, match=r"max error|Mismatched|NaN"):
        assert_right(kernel, schedule, change=MISTAKES[mistake])


# ---- under Oclgrind ----

needs_oclgrind = pytest.mark.skipif(shutil.which("oclgrind") is None, reason="oclgrind is not installed")


def job(kernel: Kernel, schedule: dict[str, int], target=CDNA, change=None) -> oclgrind.Job:
    inputs = random_inputs(kernel)
    ready, arrays = compiled(kernel, schedule, inputs)
    source = render(ready, schedule, target, "k0", FAMILY)
    text = change(source.text) if change else source.text
    assert (text != source.text) is bool(change)
    sent = [a.astype(np.float32) if a.dtype == np.float16 else a for a in arrays]
    return in_f32(ready), shape_only(replace(source, text=text)), sent


@needs_oclgrind
@pytest.mark.parametrize("stages", [1, 2])
def test_work_items_meet_before_they_read_what_others_wrote(stages, tmp_path):
    kernels = (matmul(17, 18, 136, dtype=F16), matmul(17, 5, 72), conv((1, 4, 5, 8), 12, (3, 3), pad=1, dtype=F16))
    jobs = [job(constant(k), SMALL | {"waves_m": 2, "steps": 2, "stages": stages}) for k in kernels]

    assert oclgrind.findings(jobs, tmp_path) == []


RACES = {
    "the barrier is missing": (2, lambda text: text.replace("    barrier(CLK_LOCAL_MEM_FENCE);\n", "")),
    "the buffers do not change": (2, lambda text: text.replace("    now ^= 1;\n", "")),
    "the barrier before one buffer is written is missing": (
        1,
        lambda text: text.replace("    barrier(CLK_LOCAL_MEM_FENCE);\n", "", 1),
    ),
}


@needs_oclgrind
@pytest.mark.parametrize("mistake", RACES)
def test_a_race_is_found(mistake, tmp_path):
    stages, change = RACES[mistake]

    found = oclgrind.findings(
        [
            job(
                constant(matmul(17, 18, 136, dtype=F16)),
                SMALL | {"waves_m": 2, "steps": 2, "stages": stages},
                change=change,
            )
        ],
        tmp_path,
    )

    assert any("data race at local memory" in f for f in found)


# ---- as AMD's compiler makes it ----


WANTED = {
    ("gfx908", F16): "v_mfma_f32",
    ("gfx908", BF16): "v_mfma_f32_32x32x4bf16",
    ("gfx90a", BF16): "v_mfma_f32_32x32x8bf16_1k",
    ("gfx942", BF16): "v_mfma_f32",
    ("gfx90a", F32): "v_mfma_f32",
    ("gfx908", I8): "v_mfma_i32",
    ("gfx90a", I8): "v_mfma_i32",
    ("gfx942", I8): "v_mfma_i32",
    ("gfx1100", F16): "v_wmma_f32_16x16x16_f16",
    ("gfx1100", BF16): "v_wmma_f32_16x16x16_bf16",
    ("gfx1100", I8): "v_wmma_i32_16x16x16_iu8",
    ("gfx1201", F16): "v_wmma_f32_16x16x16_f16",
    ("gfx1201", BF16): "v_wmma_f32_16x16x16_bf16",
    ("gfx1201", I8): "v_wmma_i32_16x16x16_iu8",
}


def known(arch: str) -> None:
    """Skips the test if no clang here compiles for ``arch``."""
    try:
        amdgcn.resources(
            source_of(constant(matmul(8, 8, 8)), SMALL, CDNA), "gfx90a" if arch.startswith("gfx90") else arch
        )
    except KernelBuildError:
        pass  # it knows the processor, which has no such instruction
    except DeviceError as unknown:
        pytest.skip(str(unknown))


@needs_clang
@pytest.mark.parametrize(("arch", "dtype"), WANTED, ids=str)
def test_defaults_use_matrix_instructions_and_wide_accesses_and_spill_nothing(arch, dtype):
    known(arch)
    target = opencl.manifest(arch)
    for kernel in (products(1024, 1024, 1024, dtype), products(49, 512, 4608, dtype)):
        schedule = default(kernel, target)
        found = amdgcn.resources(source_of(kernel, schedule, target), arch)
        s, p = FAMILY.schedule(schedule), FAMILY.problem(kernel)

        assert found.count(WANTED[arch, dtype]) >= 4
        wide = "b128" if target.limits.warp == 32 else "dwordx4"
        assert found.count(f"global_load_{wide}") >= 2
        assert sum(found.count(f"{ds}_b128") for ds in ("ds_read", "ds_load")) >= 2
        assert sum(found.count(f"{ds}_b128") for ds in ("ds_write", "ds_store")) >= 2
        assert (found.spilled, found.private_bytes) == (0, 0)
        assert found.local_bytes == shared_bytes(s, p)
        assert found.vector <= registers(s, p) + 8


@needs_clang
@pytest.mark.parametrize("splits", [1, 6])
def test_partial_sums_go_by_whole_accesses_between_fences_of_the_device(splits):
    kernel = products(49, 512, 4608, F16)  # its epilogue reads and writes halves
    schedule = SMALL | {"block": 32, "waves_m": 2, "waves_n": 2, "steps": 2, "splits": splits}

    code = amdgcn.assemble(source_of(kernel, schedule, opencl.manifest("gfx90a")), "gfx90a")
    found = amdgcn.parse(code)

    assert found.instructions.get("global_load_dword", 0) == found.instructions.get("global_store_dword", 0) == 0
    assert found.count("global_store_dwordx4") == (4 if splits > 1 else 0)
    assert (found.count("buffer_wbinvl1") > 0) is (splits > 1)
    assert " glc" not in "".join(line for line in code.splitlines() if "dwordx4" in line)


# LLVM's AMDGPUUsage, "Memory Model", of a release and of an acquire at agent scope: what stands between the last store and the
# barrier, and between the barrier and the first load
JOINED = {
    "gfx90a": (["s_waitcnt vmcnt(0)"], ["buffer_wbinvl1_vol"]),
    "gfx942": (["buffer_wbl2 sc1", "s_waitcnt vmcnt(0)"], ["buffer_inv sc1"]),
    "gfx1030": (["s_waitcnt_vscnt null, 0x0"], ["buffer_gl0_inv", "buffer_gl1_inv"]),
    "gfx1100": (["s_waitcnt_vscnt null, 0x0"], ["buffer_gl1_inv", "buffer_gl0_inv"]),
}


@needs_clang
@pytest.mark.parametrize("arch", JOINED)
def test_sums_of_other_work_groups_are_under_way_together_between_fences(arch):
    """Sixteen sums in four loads. With volatile loads, each would wait for the one before."""
    engine, kernel = FAMILIES["contraction/simt"], matmul(128, 128, 1024)
    schedule = dict.fromkeys((p.name for p in engine.params), 1) | {
        "tile_m": 64,
        "tile_n": 64,
        "tile_k": 8,
        "stages": 2,
    }
    schedule |= {"reg_m": 4, "reg_n": 4, "splits": 4, "asynchronous": 0}
    try:
        listing = amdgcn.assemble(render(kernel, schedule, opencl.manifest(arch), "k0", engine), arch)
    except DeviceError as error:
        pytest.skip(str(error))
    lines = [line.strip() for line in amdgcn.code_of(listing).splitlines()]
    arrived = next(n for n, line in enumerate(lines) if line.startswith("global_atomic_add"))
    left = max(n for n in range(arrived) if lines[n].startswith("global_store"))
    met = next(n for n in range(left, arrived) if lines[n] == "s_barrier")
    again = next(n for n in range(arrived, len(lines)) if lines[n] == "s_barrier")
    read = next(n for n in range(again, len(lines)) if lines[n].startswith("global_load"))

    for part, wanted in zip((lines[left:met], lines[again:read]), JOINED[arch], strict=True):
        places = [max((n for n, line in enumerate(part) if line.startswith(text)), default=-1) for text in wanted]
        assert -1 not in places
        assert places == sorted(places)
    flying = most = 0
    for line in lines[read:]:
        flying += line.startswith(("global_load_dwordx4", "global_load_b128"))
        if waits := re.search(r"vmcnt\((\d+)\)", line):
            flying = min(flying, int(waits[1]))
        most = max(most, flying)
    assert 4 * most == schedule["reg_m"] * schedule["reg_n"]


@needs_clang
@pytest.mark.parametrize("arch", JOINED)
@pytest.mark.parametrize(
    ("engine", "kernel", "schedule"),
    [
        (
            "attention/simt",
            attention(96, 8, 72, 72, heads=2),
            {"tile_m": 64, "tile_n": 16, "reg_m": 4, "row_items": 16, "splits": 16, "vector": 1},
        ),
        (
            "rowwise",
            reduction("sum", 512, 4096, rows_inside=True),
            {"lanes": 1, "rows_per_group": 64, "vector": 4, "keep": 0, "splits": 64},
        ),
    ],
    ids=["attention", "rowwise"],
)
def test_what_many_work_groups_left_is_not_all_read_ahead(arch, engine, kernel, schedule):
    """If clang unrolled the whole loop, all its loads would be in flight and need more registers than there are."""
    family = FAMILIES[engine]
    try:
        found = amdgcn.resources(render(kernel, schedule, opencl.manifest(arch), "k0", family), arch)
    except DeviceError as error:
        pytest.skip(str(error))

    assert (found.spilled, found.private_bytes) == (0, 0)


@needs_clang
def test_registers_are_at_most_what_the_formula_says():
    draw, checked = random.Random(5), 0
    kernel = products(512, 512, 512, F16)
    p = FAMILY.problem(kernel)
    while checked < 8:
        schedule = {param.name: draw.choice(param.choices) for param in FAMILY.params}
        if FAMILY.reasons(schedule, p, CDNA.limits):
            continue
        found = amdgcn.resources(source_of(kernel, schedule), "gfx90a")

        assert found.spilled == 0, schedule
        assert found.vector <= registers(FAMILY.schedule(schedule), p) + 8, schedule
        checked += 1


@needs_clang
def test_a_device_without_the_instruction_is_told_at_build_time():
    source = source_of(constant(matmul(64, 64, 64, dtype=F16)), SMALL)

    with pytest.raises(KernelBuildError, match="mfma"):
        amdgcn.resources(source, "gfx1030")


@pytest.mark.parametrize("clang", amdgcn.compilers() or [pytest.param("", marks=needs_clang)], ids=os.path.basename)
@pytest.mark.parametrize("arch", ["gfx906", "gfx90a", "gfx1030"])
def test_plain_kernels_keep_their_tiles_in_registers(arch, clang, monkeypatch):
    monkeypatch.setattr(amdgcn, "compilers", lambda language: [clang])  # each: they allocate registers otherwise
    target = replace(opencl.manifest(arch), features=opencl.FEATURES["amd"])
    kernel = matmul(1024, 1024, 1024)
    choice = choose(kernel, engines_of(kernel, target.features), target.limits)
    found = amdgcn.resources(render(kernel, choice.schedule, target, "k0", choice.family), arch)

    assert choice.family.engine == "simt"
    assert found.spilled == 0
    assert found.count("v_fma") + found.count("v_pk_fma") + found.count("v_mac") + found.count("v_fmac") >= 64
    assert (found.count("v_pk_fma_f32") > 0) is (arch == "gfx90a")


def test_resources_are_read_from_the_assembly():
    text = """
\tv_add_u32_e32 v0, v1, v2
\tv_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]
\tglobal_load_dwordx4 v[0:3], v4, s[0:1]
\ts_endpgm
.amdhsa_kernel k0
; Occupancy: 3
    .group_segment_fixed_size: 40960
    .private_segment_fixed_size: 16
    .sgpr_count:     24
    .sgpr_spill_count: 1
    .vgpr_count:     140
    .vgpr_spill_count: 4
"""

    found = amdgcn.parse(text)

    assert (found.vector, found.scalar, found.spilled, found.occupancy) == (140, 24, 5, 3)
    assert (found.local_bytes, found.private_bytes) == (40960, 16)
    assert (found.count("v_mfma"), found.count("global_load"), found.count("v_")) == (1, 1, 2)


# ---- the space ----


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"wave": 32}, "waves of 32, the device has waves of 64"),
        ({"wave": 32, "block": 32}, "no matrix instruction of waves of 32"),
        ({"waves_m": 4, "waves_n": 4}, "1024 work-items per work-group, the device allows 256"),
        ({"block": 32, "waves_m": 1, "waves_n": 4, "steps": 1}, "cannot share the loads of 32 and 128 rows"),
        ({"block": 32, "waves_m": 2, "waves_n": 2, "blocks_m": 4, "blocks_n": 2, "steps": 4}, "B of local memory"),
        ({"block": 32, "blocks_m": 4, "blocks_n": 4, "waves_m": 2, "waves_n": 2, "steps": 1}, ""),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(change, reason):
    problem = FAMILY.problem(matmul(300, 300, 300, dtype=F16))

    found = FAMILY.reasons(SMALL | change, problem, CDNA.limits)

    assert FAMILY.reasons(SMALL, problem, CDNA.limits) == []
    assert any(reason in r for r in found) if reason else found == []


def test_sums_that_no_register_holds_are_refused():
    problem = FAMILY.problem(matmul(300, 300, 300, dtype=F16))
    schedule = SMALL | {"wave": 32, "blocks_m": 2, "blocks_n": 2}

    assert FAMILY.reasons(schedule, problem, RDNA.limits) == []
    (reason,) = FAMILY.reasons(schedule, problem, replace(RDNA.limits, registers=128))
    assert "registers per work-item" in reason


@pytest.mark.parametrize("target", [CDNA, RDNA], ids=lambda t: t.name)
@pytest.mark.parametrize("size", [1, 7, 64, 1000, 1 << 16])
def test_defaults_are_legal_at_every_size(target, size):
    for m, n, k in ((size, 8, 8), (8, size, 8), (8, 8, size), (size, size, size), (1, size, size)):
        for element_bytes in (2, 4) if target is CDNA else (2,):
            problem = AmdProblem(batch=1, m=m, n=n, k=k, element_bytes=element_bytes, b_constant=1, b_batched=0)
            schedule = FAMILY.default(problem, target.limits).numbers

            assert FAMILY.reasons(schedule, problem, target.limits) == []


def test_the_engine_is_chosen_where_there_are_matrix_instructions():
    half, short, single = (constant(matmul(64, 64, 64, dtype=dtype)) for dtype in (F16, BF16, F32))

    def engine(kernel, arch):
        target = opencl.manifest(arch)
        return choose(kernel, engines_of(kernel, target.features), target.limits).family.engine

    assert [engine(half, a) for a in ("gfx90a", "gfx1100", "gfx1030", "amd")] == ["amd", "amd", "simt_pairs", "simt"]
    assert [engine(short, a) for a in ("gfx908", "gfx942", "gfx1201", "gfx1030")] == ["amd", "amd", "amd", "simt"]
    assert (engine(short, "gfx906"), engine(half, "gfx906")) == ("simt", "simt_pairs")
    assert [engine(single, a) for a in ("gfx942", "gfx1100")] == ["amd", "simt"]


def test_the_model_counts_each_type_at_its_rate():
    """An MI100 multiplies bf16 half as fast as f16; lanes are slower than both."""
    devices = [CDNA1.device, CDNA.device]
    half, short = (FAMILY.problem(constant(matmul(4096, 4096, 4096, dtype=dtype))) for dtype in (F16, BF16))
    work = [FAMILY.work(FAMILY.default(p, CDNA1.limits), p) for p in (half, short)]

    rates = [[device.rate(of.math) for of in work] for device in devices]

    assert [w.math for w in work] == ["f16", "bf16"]
    assert [f16 / bf16 for f16, bf16 in rates] == [2, 1]
    assert CDNA1.device.rate("fma") < CDNA1.device.rate("bf16")
    assert work[0].macs == work[1].macs


@pytest.mark.parametrize(
    ("kernel", "features", "reason"),
    [
        (matmul(3, 4, 5, dtype=F16), {"amd"}, "no matrix instructions"),
        (matmul(3, 4, 5, dtype=BF16), {"sdot4"}, "no matrix instructions"),
        (matmul(3, 4, 5, dtype=BF16), {"mfma"}, ""),
        (matmul(3, 4, 5, dtype=BF16), {"wmma"}, ""),
        (of_two(3, 4, 5, BF16, F16), {"mfma", "mfma_1k"}, "products of f16, bf16 or f32"),
        (of_two(3, 4, 5, BF16, F32), {"mfma"}, ""),
        (of_two(3, 4, 5, BF16, F32), {"wmma"}, "no f32"),
        (matmul(3, 4, 5, dtype=I32, acc=I32), {"mfma"}, "bf16 or f32"),
        (matmul(3, 4, 5, dtype=U8, acc=I32), {"mfma"}, "i8 in i32"),
        (matmul(3, 4, 5, dtype=I8, acc=I32), {"wmma"}, ""),
        (matmul(3, 4, 5), {"wmma"}, "no f32"),
        (matmul(3, 4, 5), {"mfma"}, ""),
    ],
)
def test_kernels_that_it_cannot_compute_are_left_to_others(kernel, features, reason):
    said = FAMILY.accepts(kernel, frozenset(features))

    assert reason in said
    assert bool(said) is bool(reason)


@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize(("channels", "n", "window"), [(512, 128, 1), (672, 128, 1), (128, 32, 3), (576, 160, 1)])
def test_small_images_share_their_depth_and_keep_to_matrix_instructions(arch, channels, n, window):
    """Of densenet121 and mobilenet_v2: 16 steps of one work-group would each wait for their tile."""
    target = hip.manifest(arch)
    kernel = conv((1, 7, 7, channels), n, (window, window), pad=window // 2, dtype=F16)
    kernel = replace(kernel, constants=frozenset({1}))

    chosen = choose(kernel, engines_of(kernel, target.features), target.limits, target.device)

    assert chosen.family is FAMILY
    assert chosen.schedule["splits"] > 1


def test_a_product_that_fills_the_device_shares_no_depth():
    for target in (hip.manifest("gfx1100"), hip.manifest("gfx942")):
        assert default(matmul(4096, 4096, 1024, dtype=F16), target)["splits"] == 1
