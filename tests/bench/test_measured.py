"""Files of published measurements: told by their columns, mapped to kernels and schedules, compared with the model."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from bench.measured import fit
from bench.measured.__main__ import main
from bench.measured.agreement import ranking, spearman
from bench.measured.kernels import kernel_of
from bench.measured.predict import predicted_us
from bench.measured.spaces import spaces_of, tensile_bytes, tensile_conflicts
from gpucomp.device.catalogue import NVIDIA, OTHERS, find
from gpucomp.device.device import waiting
from gpucomp.kernel import Contraction
from gpucomp.kernel_bench.formats import device_in, format_of, load, sampled, transposed
from gpucomp.kernel_bench.operations import Attend, Conv, Gemm, Rows
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.schedule.model import resident_groups
from gpucomp.targets.by_name import target_of

GEMM = """# y=x@W^T (F.linear), bf16; us
system,framework,dtype,m,n,k,us
h100_sxm,trtllm,bfloat16,512,4096,4096,35.0
h100_sxm,trtllm,bfloat16,16,4096,4096,15.0
nonesuch,trtllm,bfloat16,16,4096,4096,15.0
"""
ATTENTION = "# bf16; us\nsystem,batch,tokens,heads,head_dim,us\nl40s,1,512,16,64,60.0\nl40s,2,512,16,64,80.0\n"
EAGER = """op,device,split,us,batch,m,n,k,kernel
bmm,Tesla V100-PCIE-32GB,train,900.0,4,1000,200,3000,volta_sgemm
linear,Tesla V100-PCIE-32GB,train,5000.0,4,1000,2000,3000,volta_sgemm
linear,Tesla V100-PCIE-32GB,train,31.0,1,10,20,30,volta_sgemm
"""
CONVS = """db,c,h,w,r,s,k,oh,ow,n,ph,pw,sh,sw,dh,dw,layout,dtype,groups,solvers_ms
gfx90878,64,56,56,3,3,64,28,28,8,1,1,2,2,1,1,NCHW,FP32,1,Slow:0.5;Fast:0.2
gfx90878,64,56,56,3,3,64,28,28,8,1,1,2,2,1,1,NCHW,FP32,64,Grouped:0.2
"""
EAGER_CONVS = (
    "op,device,split,us,batch,cin,cout,window,size,stride,pad,kernel\n"
    "conv,Tesla T4,train,2709.7,8,64,96,3,56,1,1,sgemm\n"
)
VECTORS = """op,device,split,us,rows,cols
add,Tesla P4,train,900.0,4000,4000
powu,Tesla P4,train,900.0,4000,4000
ln,Tesla P4,train,900.0,4000,4000
sort,Tesla P4,train,900.0,4000,4000
"""
LAYERS = """# fp16; us
device,model,op,tp,m,n,k,us
a100,phi-2,mlp_up_proj,1,4096,10240,2560,900.0
a100,phi-2,mlp_act,1,4096,10240,0,90.0
a100,Qwen,input_layernorm,1,4096,8192,0,198.5
a100,Qwen,add,1,1,8192,0,4.0
"""
LOGIC = """arch,layout,types,m,n,batch,k,kernel,value
vega20,Alik_Bljk,HHS_BH,1024,2048,1,512,3,9000.0
vega20,Ailk_Bjlk,DB,1024,2048,1,512,3,3000.0
"""
CLBLAST = """# CLBlast Xgemm f32 1024^3, NVIDIA GeForce RTX 2080 Ti, full; us
GEMMK,MWG,NWG,KWG,MDIMC,NDIMC,MDIMA,NDIMB,KWI,VWM,VWN,STRM,STRN,SA,SB,KREG,us
0,128,64,16,16,8,16,16,2,1,1,0,0,1,1,0,300.0
0,128,64,16,16,8,16,16,2,4,1,0,0,1,1,0,250.0
0,16,16,16,16,16,16,16,2,1,1,0,0,1,1,0,2000.0
0,64,64,16,16,16,16,16,2,1,1,0,0,1,1,0,500.0
0,128,64,16,16,8,16,16,2,4,1,0,0,0,1,0,1.0
0,128,64,16,16,8,16,16,2,4,1,1,0,1,1,0,1.0
"""
TENSILE = """# best GFLOP/s; m,n are row-major (Tensile J,I)
layout,m,n,k,batch,mt_i,mt_j,depth,mi,tt,wg,gsu,gflops,us
Alik_Bljk,128,512,1024,1,64,128,32,32x32x2x1,,,3,500,50.0
Alik_Bljk,128,512,1024,1,64,64,16,32x32x2x1,,,1,400,60.0
Alik_Bljk,128,512,1024,1,32,64,16,16x16x4x1,,,1,300,70.0
"""
THREADS = """# best GFLOP/s; m,n are row-major (Tensile J,I)
layout,m,n,k,batch,mt_i,mt_j,depth,mi,tt,wg,gsu,gflops,us
Ailk_Bjlk,1728,3136,128,1,64,32,8,,8_4,8_8_4,1,3470,400.0
Ailk_Bjlk,1728,3136,128,1,128,128,8,,8_8,16_16_1,16,1390,1000.0
"""
FILES = {
    "one": GEMM,
    "two": ATTENTION,
    "three": EAGER,
    "four": CONVS,
    "five": EAGER_CONVS,
    "six": VECTORS,
    "seven": LAYERS,
    "eight": LOGIC,
    "nine": CLBLAST,
    "ten": TENSILE,
    "eleven": THREADS,
    "twelve": "a,b\n1,2\n",
    "thirteen": "system,dtype,m,n,k,us\nh100_sxm,bfloat16,many,4096,4096,35.0\n",
}


def table(text, tmp_path, name="some.csv"):
    (tmp_path / name).write_text(text)
    return load(tmp_path / name)


def rows(text, tmp_path):
    found = table(text, tmp_path)
    return [row for row in format_of(found).read(found) if row.us > 0]


def test_every_format_is_told_by_its_columns_and_compared(tmp_path, capsys):
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))

    assert main([str(folder), "--json", "-", "--jobs", "1", "--markdown", str(tmp_path / "tables.md")]) == 0

    printed, told = capsys.readouterr()
    found = json.loads(printed)
    assert set(found) == {"files", "spaces"}
    assert {f["file"].split(".")[0] for f in found["files"]} == set(FILES) - {"twelve", "thirteen"}
    for one in found["files"]:
        assert set(one) == {"file", "device", "dtype", "problems", "ratio", "spread", "spearman"}
        assert set(one["ratio"]) == {"p10", "p50", "p90"}
        assert 0 < one["ratio"]["p10"] <= one["ratio"]["p50"] <= one["ratio"]["p90"] < 20
    assert [(s["file"], s["layout"], s["problems"]) for s in found["spaces"]] == [
        ("eleven.csv.gz", "Ailk_Bjlk", 1),
        ("nine.csv.gz", "Ailk_Bjlk", 1),
        ("ten.csv.gz", "Alik_Bljk", 1),
    ]
    for space in found["spaces"]:
        assert set(space) == {"file", "layout", "problems", "spearman", "top1", "top10"}
        assert space["top10"] == 1.0 <= space["top1"]
    assert "nonesuch, of which nothing is known" in told
    assert "twelve.csv.gz: columns of no known format" in told
    assert "thirteen.csv.gz: " in told
    assert (tmp_path / "tables.md").read_text().startswith("| file | device |")


def test_products_are_those_that_were_measured(tmp_path):
    linear = rows(GEMM, tmp_path)[0].spec
    bmm, layer = (row.spec for row in rows(EAGER, tmp_path))

    assert linear == Gemm(512, 4096, 4096, dtype="bf16", b_transposed=True, constant=True)
    assert bmm == Gemm(1000, 3000, 200, 4)
    assert layer == Gemm(4000, 3000, 2000, b_transposed=True, constant=True)
    assert [row.spec for row in rows(LOGIC, tmp_path)] == [Gemm(2048, 1024, 512, dtype="f16", b_transposed=True)]
    assert rows(LOGIC, tmp_path)[0].us == pytest.approx(2e-3 * 1024 * 2048 * 512 / 9000)


def test_layouts_of_blas_are_turned_into_rows(tmp_path):
    header = "device,dtype,m,n,k,a_t,b_t,us\n"
    plain = rows(header + "V100,f32,1760,16,1760,t,n,900\n", tmp_path)[0].spec
    direct = rows("# row-major\n" + header + "V100,f32,1760,16,1760,0,1,900\n", tmp_path)[0].spec

    assert plain == Gemm(16, 1760, 1760, b_transposed=True)
    assert direct == Gemm(1760, 16, 1760, b_transposed=True)
    assert rows("device,dtype,m,n,k,us\nV100,float32,5,6,7,900\n", tmp_path)[0].spec == Gemm(5, 6, 7)


@pytest.mark.parametrize(
    ("layout", "turned"),
    [
        ("Ailk_Bljk", (False, False)),
        ("Alik_Bljk", (False, True)),
        ("Ailk_Bjlk", (True, False)),
        ("Alik_Bjlk", (True, True)),
    ],
)
def test_tensile_s_first_index_is_contiguous(layout, turned):
    assert transposed(layout) == turned


def test_other_operators_are_those_that_were_measured(tmp_path):
    conv = rows(CONVS, tmp_path)

    assert [(row.spec, row.us) for row in conv] == [
        (Conv(8, 64, 56, 56, 64, 3, 3, (1, 1), (2, 2), dtype="f32"), pytest.approx(200.0))
    ]
    assert conv[0].spec.out == (28, 28)
    assert rows(EAGER_CONVS, tmp_path)[0].spec == Conv(8, 64, 56, 56, 96, 3, 3, (1, 1))
    assert [row.spec.operator for row in rows(VECTORS, tmp_path)] == ["add", "scaled", "layer_norm"]
    assert [row.spec for row in rows(LAYERS, tmp_path)][1:] == [
        Rows("gelu", 4096, 10240, "f16"),
        Rows("rms_norm", 4096, 8192, "f16"),
    ]
    assert rows(ATTENTION, tmp_path)[0].spec == Attend(1, 512, 16, 64, "bf16")


@pytest.mark.parametrize(
    "spec",
    [
        Gemm(5, 6, 7, 3, "f16", a_transposed=True),
        Gemm(5, 6, 7, dtype="i8", b_transposed=True, constant=True),
        Gemm(5, 6, 7, dtype="tf32"),
        Conv(1, 8, 5, 5, 4, 1, 1),
        Conv(2, 8, 5, 6, 4, 3, 2, (1, 0), (2, 1), nchw=False, dtype="f16"),
        Attend(2, 16, 3, 64),
        *(
            Rows(name, 5, 8)
            for name in ("add", "gated", "relu", "tanh", "gelu", "scaled", "softmax", "layer_norm", "rms_norm")
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("device", ["h100", "mi100", "p100"])
def test_every_kernel_has_an_engine_and_a_time(spec, device):
    kernel = kernel_of(spec)

    assert engines_of(kernel, target_of(device).features)
    assert kernel.digest == kernel_of(spec).digest
    assert 0.5 < predicted_us(device, spec) < 100
    if isinstance(spec, Gemm):
        assert isinstance(kernel.body, Contraction)
        assert kernel.params[-1].shape[-2:] == (5, 6)


def test_intervals_are_of_a_vendor_and_of_what_takes_the_time(tmp_path, capsys):
    of = {device: 10.0 * k for k, device in enumerate(("a100_sxm", "h100_sxm", "l40s"), start=1)}
    lines = [f"{d},trtllm,bfloat16,{m},4096,4096,{us}" for d, us in of.items() for m in range(512, 4096, 512)]
    (tmp_path / "gemm.csv").write_text(
        "\n".join([*GEMM.splitlines()[:2], *lines, "nonesuch,trtllm,bfloat16,16,16,16,1"])
    )
    (tmp_path / "space.csv").write_text(CLBLAST)  # no kernels that anybody would take

    assert main([str(tmp_path), "--intervals", "--jobs", "1", "--json", str(tmp_path / "r.json")]) == 0
    (one,) = json.loads((tmp_path / "r.json").read_text())["intervals"]
    ratios = [predicted_us(d, Gemm(m, 4096, 4096, 1, "bf16", b_transposed=True)) / us for d, us in of.items()
              for m in range(512, 4096, 512)]  # fmt: skip

    assert (one["vendor"], one["kind"], one["problems"], one["devices"]) == ("nvidia", "matrix", 21, 3)
    assert one["ratio"] == pytest.approx(np.percentile(ratios, (10, 50, 90)), rel=0.05)
    assert 0 <= one["covered"] < 1  # the times here are nobody's: each device's are far from the others'
    assert "| nvidia | matrix | 21 | 3 |" in capsys.readouterr().out


def test_configurations_become_schedules(tmp_path):
    (space,) = spaces_of(table(CLBLAST, tmp_path))
    best = dict(next(key for key, us in space.times.items() if us == 250.0))

    assert len(space.times) == 3
    assert (space.device, space.gemm) == ("GeForce RTX 2080 Ti", Gemm(1024, 1024, 1024, a_transposed=True))
    assert (best["tile_m"], best["tile_n"], best["tile_k"], best["reg_m"], best["reg_n"]) == (64, 128, 16, 8, 8)
    assert best["stages"] == 1

    (matrix,) = spaces_of(table(TENSILE, tmp_path))
    wide = dict(next(key for key, us in matrix.times.items() if us == 50.0))
    small = dict(next(key for key, us in matrix.times.items() if us == 70.0))
    assert (matrix.device, matrix.engine) == ("MI100", "contraction/amd")
    assert matrix.gemm == Gemm(128, 512, 1024, b_transposed=True)
    assert (wide["block"], wide["blocks_m"], wide["blocks_n"], wide["steps"], wide["splits"]) == (32, 2, 1, 4, 3)
    assert (small["block"], small["blocks_m"], small["blocks_n"], small["steps"]) == (16, 2, 1, 1)

    (threads,) = spaces_of(table(THREADS, tmp_path))
    sliced = dict(next(key for key, us in threads.times.items() if us == 400.0))
    assert (threads.device, threads.engine) == ("MI50", "contraction/simt")
    assert (sliced["tile_m"], sliced["tile_n"], sliced["reg_m"], sliced["reg_n"], sliced["slices"]) == (32, 64, 4, 8, 4)


@pytest.mark.parametrize(
    ("changes", "nbytes"),
    [
        ({}, 8192 + 7680),  # 20 x (32 + 64) elements a stage; the second begins at a power of two
        ({"stages": 1}, 7680),
        ({"slices": 4}, 4 * 32 * 64 * 4),  # the tiles of all slices, in the same memory
    ],
)
def test_local_memory_is_that_of_tensile_s_kernels(changes, nbytes):
    schedule = {"tile_m": 32, "tile_n": 64, "tile_k": 20, "slices": 1, "stages": 2} | changes

    assert tensile_bytes("contraction/simt", schedule) == nbytes


@pytest.mark.parametrize(
    ("engine", "layout", "changes", "nbytes"),
    [
        ("simt", "Alik_Bljk", {}, 3 * 4096 + 3 * 4096),  # four work-items along the depth write to one bank
        ("simt", "Ailk_Bljk", {}, 3 * 4096),
        ("simt", "Ailk_Bjlk", {}, 0),  # nothing is transposed
        ("simt", "Alik_Bljk", {"tile_k": 32}, 7 * 8192 + 7 * 8192),
        ("simt", "Alik_Bljk", {"tile_k": 8, "tile_m": 128, "reg_m": 8}, 3 * 2048 + 1 * 4096),  # vectors of 2 and of 4
        ("simt", "Alik_Bljk", {"tile_k": 4}, 3 * 1024 + 3 * 1024),  # vectors of one
        ("amd", "Alik_Bljk", {}, 0),  # these kernels have padding
    ],
)
def test_transposed_tiles_of_tensile_wait_for_banks(engine, layout, changes, nbytes):
    schedule = {"tile_m": 64, "tile_n": 64, "tile_k": 16, "reg_m": 4, "reg_n": 4, "slices": 1} | changes

    assert tensile_conflicts(f"contraction/{engine}", layout, schedule) == nbytes


def test_work_groups_of_amd_have_all_local_memory_to_themselves(tmp_path):
    (threads,) = spaces_of(table(THREADS, tmp_path))
    device = target_of("MI50").device
    facts = threads.facts(device)

    assert facts.numbers["shared_bytes"].tolist() == [tensile_bytes("contraction/simt", dict(k)) for k in threads.times]
    assert resident_groups(device, 256, 32, 32768) == 2
    assert resident_groups(target_of("A100").device, 256, 32, 82 << 10) == 1  # of 164 KB, with 1 KB for each


def test_few_rows_are_the_same_in_each_run_and_of_all_sizes(tmp_path):
    text = "device,dtype,m,n,k,us\n" + "".join(f"V100,f32,{i},8,8,{i}\n" for i in range(1, 1001))
    found = rows(text, tmp_path)

    picked = sampled(found, 10)

    assert picked == sampled(list(reversed(found)), 10)
    assert [row.us for row in picked] == pytest.approx(np.arange(51, 1000, 100), abs=1)
    assert len(sampled(found[:7], 10)) == 7


def test_ranks_and_the_price_of_a_wrong_first():
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert spearman([3, 2, 1], [10, 20, 30]) == pytest.approx(-1)
    assert spearman([1, 1, 2, 2], [1, 2, 3, 4]) == pytest.approx(0.894, abs=1e-3)
    assert ranking([1, 2, 3], [20, 10, 30]) == (pytest.approx(0.5), 2.0, 1.0)
    assert ranking(list(range(20)), list(range(40, 20, -1)))[2] == pytest.approx(31 / 21)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB"),
        ("a100_sxm", "A100 80 GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB"),
        ("h100_sxm", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("h200_sxm", "H200"),
        ("b200_sxm", "B200"),
        ("l40s", "L40S"),
        ("NVIDIA L4", "L4"),
        ("rtx_pro_6000", "RTX PRO 6000"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA A40", "A40"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe"),
        ("V100 SXM2", "V100 SXM2"),
        ("Tesla P100-PCIE-16GB", "P100 PCIe"),
        ("Tesla P4", "P4"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 2080 Ti", "RTX 2080 Ti"),
        ("NVIDIA TITAN RTX", "TITAN RTX"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "RTX 3060 Laptop"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("GTX 1080 Ti", "GTX 1080 Ti"),
        ("titanx", "GTX TITAN X (Maxwell)"),
        ("gfx906_60", "MI50"),
        ("gfx906_64", "MI60"),
        ("vega20", "MI50"),
        ("gfx90878", "MI100"),
        ("arcturus", "MI100"),
        ("gfx90a68", "MI210"),
        ("gfx90a6e", "MI250X, one of two dies"),
        ("AMD Instinct MI210", "MI210"),
        ("gfx942130", "MI300X"),
        ("AMD Instinct MI300X", "MI300X"),
        ("MI325X", "MI325X"),
        ("MI355X", "MI355X"),
        ("gfx103036", "RX 6800 XT"),
        ("AMD Radeon PRO W7800", "W7800"),
        ("AMD Radeon RX 9070 XT", "RX 9070 XT"),
        ("AMD Radeon RX 9070", "RX 9070"),
        ("Mali-T860", "Mali-T860 MP4 (RK3399)"),
        ("Mali-G76", "Mali-G76 MP10 (Kirin 980)"),
        ("Mali-G610", "Mali-G610 MP4"),
        ("Mali-G715", "Mali-G715 MP7 (Tensor G3)"),
        ("Adreno (TM) 740", "Adreno 740"),
        ("nonesuch", None),
    ],
)
def test_devices_are_found_by_the_names_that_drivers_and_tables_have(name, device):
    found = find(name)

    assert (found.device.name if found else None) == device


def test_every_device_of_the_catalogue_is_found_and_has_a_target():
    for known in (*NVIDIA, *OTHERS):
        found = find(known.device.name)
        assert found is not None
        assert found.device == known.device, known.device.name
        target = target_of(known.device.name)
        assert target.device == waiting(known.device)
        assert target.limits.units == known.device.units
        assert not known.lacks & target.features


def test_the_comment_tells_a_device_that_no_column_tells(tmp_path):
    for told, device in (("NVIDIA GeForce RTX 3090, part", "GeForce RTX 3090"), ("on an A6000, f32", "A6000")):
        assert device_in(table(f"# {told}\nm,n\n1,2\n", tmp_path)) == device
    assert find(device_in(table("# f32\nm,n\n1,2\n", tmp_path, "space_RTX_2080_Ti.csv"))).device.name == "RTX 2080 Ti"


def test_a_fit_finds_numbers_that_describe_measurements_better(tmp_path, capsys):
    (tmp_path / "products.csv").write_text(
        "device,dtype,m,n,k,us\n"
        + "".join(f"V100,f32,{m},512,{k},{m * k / 9000 + 6}\n" for m in (512, 640) for k in (256, 2048))
    )
    (tmp_path / "space.csv").write_text(CLBLAST)

    given = [
        "--fit",
        "products:V100",
        "--test",
        "space",
        "--numbers",
        "fragments",
        "exposed",
        "launch_us",
        "--problems",
        "4",
    ]
    assert fit.main([str(tmp_path), *given]) == 0

    told = capsys.readouterr().out
    assert "fragments=1.35->" in told
    data = fit.collected(tmp_path, "products:V100", 4)
    start = {"fragments": 1.35, "launch_us": 2.5}
    found = fit.fitted([data], start)
    assert fit.loss([data], found) < fit.loss([data], start)
    assert all(value / 4 <= found[name] <= value * 4 for name, value in start.items())
    assert fit.changed(data.device, {"fragments": 3.0, "launch_us": 4.0}).losses.fragments == 3.0


class Wants:
    """Measurements that a number describes the better, the larger or the smaller it is."""

    def __init__(self, device, name, sign):
        self.device, self.name, self.sign = device, name, sign

    def loss(self, device):
        return self.sign * getattr(device.losses if self.name in fit.NAMES else device, self.name)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("fragments", 1, 2),
        ("matrix", 0, 1),
        ("lone", 0, 1),
        ("by_warp_share", 0, 1),
        ("launch_us", 1.19 / 4, 4 * 1.19),
    ],
)
def test_a_fit_stays_within_what_its_numbers_can_be(name, least, most):
    device = find("h100").device
    start = max(1e-3, getattr(device.losses if name in fit.NAMES else device, name))

    low, high = (fit.fitted([Wants(device, name, sign)], {name: start})[name] for sign in (1, -1))

    assert least <= low <= least + 0.2 * start
    assert most / 1.2 <= high <= most


def test_a_fit_does_not_know_numbers_that_no_device_has(tmp_path, capsys):
    with pytest.raises(SystemExit):
        fit.main([str(tmp_path), "--fit", "products:V100", "--numbers", "cache"])

    assert "fragments" in capsys.readouterr().err
