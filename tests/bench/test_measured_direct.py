"""Direct convolutions of MIOpen's find-db: which rows count, and how types compare."""

from __future__ import annotations

import json

import pytest

from bench.measured.__main__ import main
from bench.measured.direct import agreements, direct_of, pairs_of
from bench.measured.predict import predicted_us
from gpucomp.kernel_bench.formats import load

COLUMNS = "db,c,h,w,r,s,k,oh,ow,n,ph,pw,sh,sw,dh,dw,layout,dtype,groups,solvers_ms"


def row(dtype: str, solvers: str, channels: int = 256, groups: int = 1, db: str = "gfx90878") -> str:
    return f"{db},{channels},28,28,3,3,256,28,28,16,1,1,1,1,1,1,NCHW,{dtype},{groups},{solvers}"


ROWS = (
    row("FP16", "Gemm:1.0;Xdlops:0.4"),
    row("BF16", "Xdlops:0.6;ConvBinWinograd3x3U:0.7"),
    row("FP16", "Xdlops:0.5;ConvBinWinograd3x3U:0.3", channels=64),  # fastest by multiplying less
    row("BF16", "fft:0.2", channels=64),
    row("FP16", "Xdlops:0.03", channels=32),  # mostly its launch
    row("FP16", "Xdlops:0.4", channels=128, groups=2),
    row("FP64", "Xdlops:0.4", channels=128),
    row("FP16", "Xdlops:0.4", db="nonesuch"),
)


def folder_of(tmp_path, rows):
    (tmp_path / "find.csv").write_text("# find-db\n" + "\n".join((COLUMNS, *rows)) + "\n")
    (tmp_path / "other.csv").write_text("system,dtype,m,n,k,us\nh100_sxm,bf16,512,4096,4096,35.0\n")
    return tmp_path


def test_rows_count_whose_fastest_solver_is_direct_and_slow_enough(tmp_path):
    found = direct_of(load(folder_of(tmp_path, ROWS) / "find.csv"), 10)

    assert {key: [r.us for r in rows] for key, rows in found.rows.items()} == {
        ("gfx90878", "f16"): [400.0],
        ("gfx90878", "bf16"): [600.0],
    }
    assert set(found.solvers.values()) == {"Xdlops"}
    assert [[x.us / y.us for x, y in pairs] for pairs in found.twins.values()] == [[1.5]]
    assert direct_of(load(tmp_path / "other.csv"), 10) is None


def test_ratios_are_of_predictions_over_the_best_published_time(tmp_path):
    rows = [row(d, f"Xdlops:{us}", c) for d, us in (("FP16", 1.0), ("BF16", 1.5)) for c in range(64, 76)]
    rows += [row("BF16", "Gemm:9.0", 300), row("FP16", "Xdlops:10.0", 300)]
    found = direct_of(load(folder_of(tmp_path, rows) / "find.csv"), 100)
    times = {wanted: 3000.0 if wanted[1].dtype == "bf16" else 1000.0 for wanted in found.wanted()}

    by_type = {one.dtype: one for one in agreements(found, times)}
    pairs = {(pair.types, pair.solver): pair for pair in pairs_of(found, times)}

    assert by_type["bf16"].problems == 13
    assert by_type["bf16 Xdlops"].ratio["p50"] == 2.0
    assert "bf16 Gemm" not in by_type  # one problem tells nothing
    whole, same = pairs["bf16 / f16", ""], pairs["bf16 / f16", "Xdlops"]
    assert (whole.problems, same.problems) == (13, 12)
    assert (same.published, same.predicted, same.slower) == (1.5, 3.0, 1.0)
    assert whole.slower == round(12 / 13, 2)


def test_the_option_adds_tables_of_its_own_and_leaves_the_others_alone(tmp_path, capsys):
    folder = folder_of(tmp_path, [*ROWS, *(row("FP32", "Xdlops:2.0", c) for c in range(64, 76))])

    assert main([str(folder), "--direct", "--json", "-", "--jobs", "1"]) == 0

    out, tables = capsys.readouterr()
    (found,) = json.loads(out)["direct"]
    assert [(one["dtype"], one["problems"]) for one in found["agreements"]] == [
        ("bf16", 1),
        ("f16", 1),
        ("f32", 12),
        ("f32 Xdlops", 12),
    ]
    assert "| gfx90878 | f32 | 12 | 12 |" in tables
    folder_of(tmp_path, ROWS[:4])
    assert main([str(folder), "--json", "-", "--jobs", "1"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"files", "spaces"}


@pytest.mark.parametrize(("device", "least", "most"), [("gfx90878", 1.2, 2), ("gfx906_60", 1.8, 2.3)])
def test_bf16_is_predicted_at_its_own_rate(device, least, most, tmp_path):
    """Half of f16 on an MI100's matrix cores; half on an MI50's lanes too, which multiply f16 in pairs."""
    found = direct_of(load(folder_of(tmp_path, [row(d, "X:1.0", db=device) for d in ("FP16", "BF16")]) / "find.csv"), 9)
    ((first, second),) = found.twins[device, "bf16", "f16"]

    ratio = predicted_us(device, first.spec) / predicted_us(device, second.spec)

    assert least < ratio < most
