"""Machine code: control codes, loops, classes and the model of issue on listings written by hand; counts of our own kernels."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.machine_code import __main__ as program
from bench.machine_code import amd, nvidia, report
from bench.machine_code.flow import Control, Instruction, Listing, Way, blocks, main_loop, shortest
from bench.machine_code.issue import busy
from bench.machine_code.kernels import AMD, ARCHITECTURES, KERNELS, NVIDIA, build
from bench.machine_code.row import Loop, Row, read
from gpucomp.device.device import AMD as AMD_DEVICES
from gpucomp.device.device import CUDA as DEVICES
from gpucomp.targets import amdgcn
from gpucomp.targets.sass import disassembler

needs_nvdisasm = pytest.mark.skipif(disassembler() is None, reason="nvdisasm is not installed")
needs_clang = pytest.mark.skipif(amdgcn.compiler() is None, reason="clang is not installed")
A100 = DEVICES["sm_80"]

# what `nvdisasm -c -hex` prints, with zeros for the bits that nobody reads
LISTING = """
.text.kernel:
        /*0000*/                   S2R R0, SR_TID.X ;        /* 0x0000000000000000 */
                                                             /* 0x000e2a0000002100 */
.L_x_0:
        /*0010*/                   LDG.E.128 R4, [R2] ;      /* 0x0000000000000000 */
                                                             /* 0x000ea4000c1e1d00 */
        /*0020*/              @!P1 BRA `(.L_x_1) ;           /* 0x0000000000000000 */
                                                             /* 0x000fea0003800000 */
        /*0030*/                   HMMA.16816.F32 R8, R4, R6, R8 ; /* 0x0000000000000000 */
                                                             /* 0x044ff00000001808 */
.L_x_1:
        /*0040*/               @P0 BRA `(.L_x_0) ;           /* 0x0000000000000000 */
                                                             /* 0x000fea000383ffff */
        /*0050*/                   EXIT ;                    /* 0x0000000000000000 */
                                                             /* 0x000fea0003800000 */
.L_x_2:
        /*0060*/                   BRA `(.L_x_2);            /* 0x0000000000000000 */
                                                             /* 0x000fc0000383ffff */
        /*0070*/                   NOP;                      /* 0x0000000000000000 */
                                                             /* 0x000fc00000000000 */
"""


def one(name, *, stall=1, waits=0, write=7, text="", predicate=""):
    return Instruction(name, text or name, predicate, control=Control(stall, False, write, 7, waits, 0))


def test_a_listing_is_read_with_its_control_codes_and_without_its_padding():
    (listing,) = nvidia.kernels(LISTING).values()

    assert [i.name for i in listing.instructions] == ["S2R", "LDG.E.128", "BRA", "HMMA.16816.F32", "BRA", "EXIT"]
    load, product = listing.instructions[1], listing.instructions[3]
    assert load.control == Control(stall=2, yields=False, write=2, read=7, waits=0, reuse=0)
    assert product.control == Control(stall=8, yields=False, write=7, read=7, waits=4, reuse=1)
    assert [i.predicate for i in listing.instructions] == ["", "", "!P1", "", "P0", ""]


def test_blocks_end_at_jumps_and_at_what_they_go_to():
    (listing,) = nvidia.kernels(LISTING).values()

    assert [tuple(block) for block in blocks(listing)] == [
        (0, 0, [1]),
        (1, 2, [3, 2]),
        (3, 3, [3]),
        (4, 4, [1, 4]),
        (5, 5, []),
    ]


def test_the_main_loop_is_the_natural_loop_with_the_math():
    (listing,) = nvidia.kernels(LISTING).values()

    loop = main_loop(listing, lambda i: i.opcode == "HMMA")

    assert loop is not None
    assert [i.name for i in loop] == ["LDG.E.128", "BRA", "HMMA.16816.F32", "BRA"]
    assert main_loop(listing, lambda i: i.opcode == "FFMA") is None


def branch(to, *, conditional=True):
    return Instruction("BRA", "BRA", "P0" if conditional else "", (to,), True, conditional)


def test_a_jump_back_into_a_loop_that_its_head_does_not_dominate_is_none():
    """Two entries: neither block is on every way to the other."""
    body = [branch("b"), one("FFMA"), one("FADD"), branch("a"), Instruction("EXIT", "EXIT", "", (), True, False)]

    assert main_loop(Listing(body, {"a": 1, "b": 2}), lambda i: i.opcode == "FFMA") is None


@pytest.mark.parametrize(("outer", "found"), [(1, 2), (9, 12)])
def test_a_loop_around_counts_where_the_inner_one_has_less_than_half_of_the_math(outer, found):
    body = [*[one("FFMA")] * outer, *[one("FFMA")] * 1, branch("in"), branch("out")]
    listing = Listing([*body, Instruction("EXIT", "EXIT", "", (), True, False)], {"out": 0, "in": outer})

    loop = main_loop(listing, lambda i: i.opcode == "FFMA")

    assert loop is not None
    assert len(loop) == found


def test_the_way_to_the_first_load_is_the_cheapest_one():
    (listing,) = nvidia.kernels(LISTING).values()

    assert shortest(listing, nvidia.stall, lambda i: i.opcode in nvidia.LOADS) == Way(1, 5)
    assert shortest(listing, nvidia.stall, lambda i: i.opcode == "LDS") is None


@pytest.mark.parametrize(
    ("name", "arch", "name_of_pipe", "cycles"),
    [
        ("HMMA.16816.F32", "sm_80", "tensor", 8),  # 2048 multiply-adds, 1024 a cycle for four schedulers
        ("HMMA.1688.F32.TF32", "sm_80", "tensor", 8),
        ("IMMA.16832.S8.S8", "sm_80", "tensor", 8),
        ("HMMA.16816.F32", "sm_90a", "tensor", 2048 / (512 * 0.63)),
        ("HGMMA.64x128x16.F32", "sm_90a", "tensor", 64),
        ("FFMA", "sm_80", "fma", 2),
        ("FFMA", "sm_90a", "fma", 1),
        ("IMAD", "sm_90a", "fma", 2),
        ("MUFU.EX2", "sm_80", "special", 8),
        ("LDS.128", "sm_80", "memory", 16),
        ("LDSM.16.M88.4", "sm_80", "memory", 16),
        ("LDSM.16.MT88.2", "sm_80", "memory", 8),
        ("LOP3.LUT", "sm_80", "alu", 2),
        ("UIADD3", "sm_80", "none", 0),
    ],
)
def test_an_instruction_takes_its_pipe_for_as_long_as_its_lanes_need(name, arch, name_of_pipe, cycles):
    found = nvidia.pipe(one(name), DEVICES[arch])

    assert (found.name, found.cycles) == (name_of_pipe, pytest.approx(cycles))


def products(count, stall=8):
    return [one("HMMA.16816.F32", stall=stall) for _ in range(count)]


MATH = frozenset({"HMMA"})


def test_products_alone_are_busy_all_the_time():
    assert busy(products(16), MATH, A100, warps=1, per_group=1).share == pytest.approx(1)


def test_a_warp_that_waits_for_memory_is_not_and_others_fill_its_time():
    """A load of 600 cycles and then products of 128."""
    body = [one("LDG.E.128", write=0, stall=2), one("HMMA.16816.F32", waits=1, stall=8), *products(15)]

    alone = busy(body, MATH, A100, warps=1, per_group=1)
    many = busy(body, MATH, A100, warps=8, per_group=1)

    assert alone.share == pytest.approx(128 / (600 + 128), rel=0.1)
    assert alone.idle["scoreboard"] > alone.idle.get("tensor", 0)
    assert many.share > 0.95


def test_stalls_that_the_assembler_leaves_are_kept():
    assert busy(products(16, stall=15), MATH, A100, 1, 1).share == pytest.approx(8 / 15, rel=0.05)
    assert busy(products(16, stall=15), MATH, A100, 2, 1).share == pytest.approx(1, rel=0.05)


def test_warps_of_a_work_group_meet_at_its_barrier_and_a_warp_beside_them_does_not():
    body = [*products(4), one("BAR.SYNC.DEFER_BLOCKING", stall=5)]

    together = busy(body, MATH, A100, 2, 2)

    assert 0 < together.cycles < 1000
    assert together.share < 1
    assert "barrier" in together.idle


def test_asynchronous_copies_are_waited_for_by_groups():
    """With one group open, a trip's copy may take until the next one's products are done: 600 cycles for two trips' waits."""
    one_open = [one("LDGDEPBAR"), one("DEPBAR.LE", text="DEPBAR.LE SB0, 0x1"), *products(32)]
    none_open = [one("LDGDEPBAR"), one("DEPBAR.LE", text="DEPBAR.LE SB0, 0x0"), *products(32)]

    found = [busy(body, MATH, A100, 1, 1).cycles for body in (one_open, none_open)]

    assert found[0] == pytest.approx((600 + 32 * 8) / 2, rel=0.1)
    assert found[1] == pytest.approx(600 + 32 * 8, rel=0.1)


def test_classes_share_no_instruction_but_copies_and_floats_that_are_math():
    seen: dict[str, str] = {}
    for kind, names in nvidia.CLASSES.items():
        for name in names:
            assert name not in seen, (name, kind, seen.get(name))
            seen[name] = kind
    found = nvidia.classify([one("FFMA"), one("FADD"), one("LDGSTS.E.128"), one("XYZ")], frozenset({"FFMA"}))
    assert found == {"math": 1, "float": 1, "copy": 1, "other": 1}


ASSEMBLY = """
kernel:
\ts_load_dwordx4 s[0:3], s[4:5], 0x0
.LBB0_1:
\tglobal_load_dwordx4 v[0:3], v[4:5], off
\tv_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]
\tv_add_u32_e32 v4, 16, v4 ; an address
\ts_cbranch_scc1 .LBB0_1
\ts_endpgm
\t.amdhsa_kernel kernel
"""


def test_amd_s_listing_is_read_and_its_loop_is_bound_by_its_math():
    listing = amd.kernel(ASSEMBLY)

    math = amd.math_of(listing.instructions)
    loop = main_loop(listing, lambda i: i.name in math)

    assert loop is not None
    assert math == {"v_mfma_f32_32x32x8f16"}
    assert loop[0].name == "global_load_dwordx4"
    assert len(loop) == 4
    assert amd.classify(loop, math) == {"global": 1, "math": 1, "integer": 1, "branch": 1}
    assert amd.bound(loop, math, AMD_DEVICES["gfx90a"], "gfx90a") == 1.0


def test_without_a_matrix_unit_of_their_own_products_share_their_lanes():
    body = [one("v_fmac_f32_e32"), one("v_fmac_f32_e32"), one("v_add_u32_e32"), one("ds_read_b32")]

    assert amd.bound(body, frozenset({"v_fmac_f32_e32"}), AMD_DEVICES["gfx1100"], "gfx1100") == pytest.approx(2 / 3)


# --- counts of our own kernels: the most instructions of the main loop per multiply-add, and the least share of busy cycles ---

LIMITS = {
    ("gemm 4096 f16", "sm_80"): (2.05, 0.90),
    ("gemm 2048x2048x512 bf16", "sm_80"): (2.05, 0.90),
    ("gemm 4096 f16", "sm_90a"): (20.0, 0.99),
    ("gemm 4096 f32", "sm_80"): (1.14, 0.99),
    ("gemm 1024 i8", "sm_80"): (2.4, 0.77),
    ("ffn 128x3072x768 f16", "sm_80"): (2.95, 0.80),
    ("ffn 128x768x3072 f16", "sm_80"): (2.9, 0.80),
    ("conv 3x3 56x56x64 f16", "sm_80"): (6.0, 0.56),
    ("conv 1x1 56x56x256 f16", "sm_80"): (2.1, 0.91),
    ("conv 1x1 56x56x256 f16", "sm_90a"): (12.3, 0.99),
    ("conv 3x3 56x56x64 f16", "sm_90a"): (12.3, 0.89),
    ("conv 3x3 7x7x512 f16", "sm_90a"): (12.3, 0.87),
    ("conv 3x3 56x56x64 f32", "sm_80"): (1.6, 0.83),
    ("attention 4096 d64 f16", "sm_80"): (4.9, 0.76),
    ("attention 4096 d128 f16", "sm_80"): (3.4, 0.67),
    ("attention decode 4096 d64 f16", "sm_80"): (6.3, 0.38),
    ("attention 4096 d64 f16", "sm_90a"): (36.0, 0.57),
    ("attention 4096 d128 f16", "sm_90a"): (30.0, 0.99),
}
STRAIGHT = {  # instructions of the whole kernel, and of the shortest way to its first load
    ("softmax 4096x1024 f16", "sm_80"): (570, 16),
    ("softmax 4096x1024 f16", "sm_90a"): (1030, 18),
    ("layer norm 128x768 f16", "sm_80"): (680, 16),
    ("depthwise 3x3 56x56x144 f16", "sm_80"): (1480, 33),
}


@needs_nvdisasm
@pytest.mark.parametrize(("name", "arch"), LIMITS, ids=str)
def test_a_main_loop_has_no_more_instructions_and_is_no_less_busy_than_it_was(name, arch):
    most, least = LIMITS[name, arch]

    row = read(build(name, arch))

    assert row.loop is not None
    assert row.spills == 0
    assert row.loop.per_math <= most
    assert row.loop.busy >= least
    assert nvidia.OTHER not in row.loop.classes, row.loop.classes  # an instruction that no class has


@needs_nvdisasm
@pytest.mark.parametrize(("name", "arch"), STRAIGHT, ids=str)
def test_straight_code_has_no_more_instructions_than_it_had(name, arch):
    size, first = STRAIGHT[name, arch]

    row = read(build(name, arch))

    assert row.loop is None
    assert row.size <= size
    assert row.first_load is not None
    assert row.first_load.instructions <= first
    assert nvidia.OTHER not in row.classes, row.classes


@needs_clang
def test_a_product_of_amd_s_matrix_cores_is_bound_by_them():
    row = read(build("gemm 4096 f16", "gfx90a"))

    assert row.loop is not None
    assert row.loop.opcode == "v_mfma_f32_32x32x8f16"
    assert row.loop.per_math <= 3.7
    assert row.loop.busy == 1.0
    assert row.loop.alone is None


def test_every_kernel_can_be_built_for_every_architecture():
    assert {*NVIDIA, *AMD} == set(ARCHITECTURES)
    for arch in ("sm_90a", "gfx1100"):
        for name in KERNELS:
            assert build(name, arch).results > 0, name


ROW = Row(
    "gemm",
    "sm_80",
    "contraction/mma",
    {"stages": 4},
    128,
    96,
    0,
    65536,
    2,
    0.125,
    700,
    1500,
    {"math": 9},
    64.0,
    Way(9, 12),
    None,
)
LOOP = Loop(99, 32, "HMMA", {"math": 32, "integer": 67}, 334, 0.6, 0.54, {"stall": 0.1})


def test_the_table_has_a_line_for_each_row():
    rows = [
        ROW,
        replace(ROW, loop=LOOP),
        replace(ROW, arch="gfx90a", stalls=0, loop=replace(LOOP, alone=None, stalls=0)),
    ]

    lines = report.table(rows).splitlines()

    assert {line.count("|") for line in lines} == {report.HEAD.count("|")}
    assert "| 99, 32 HMMA | 3.09 | 334 | 60 / 54 % | 700 | 9 / 12 |" in lines[3]
    assert "| <= 60 % | 700 | 9 |" in lines[4]
    assert report.straight(rows).splitlines()[2:] == ["| gemm | sm_80 | 700 | 1500 | 64 | 10.9 |"]
    assert json.loads(json.dumps(report.compact(rows)))["rows"][1]["loop"]["per_math"] == 3.09


def test_a_kernel_that_is_not_known_is_refused(capsys):
    with pytest.raises(SystemExit):
        program.main(["no such kernel"])

    assert "no kernel has 'no such kernel' in its name" in capsys.readouterr().err


@needs_nvdisasm
def test_the_program_writes_its_table_as_json_and_as_a_page(tmp_path, capsys):
    json_file, page = tmp_path / "out.json", tmp_path / "out.md"

    assert program.main(["layer norm", "--arch", "sm_80", "--json", str(json_file), "--markdown", str(page)]) == 0

    (row,) = json.loads(json_file.read_text())["rows"]
    assert (row["kernel"], row["arch"], row["loop"]) == ("layer norm 128x768 f16", "sm_80", None)
    assert row["first_load"]["instructions"] > 0
    assert "| layer norm 128x768 f16 | sm_80 |" in page.read_text()
    assert "| layer norm" in capsys.readouterr().out
