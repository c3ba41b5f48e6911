"""The program that plays PTX in GPGPU-Sim: what it tells the launcher, what it reads of the simulator's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import gpgpu_sim
from bench.gpgpu_sim import DONE, cells, complaint, configured, job, opened
from bench.kernel_sweep.cases import draw
from bench.kernel_sweep.play import prepared
from bench.simulated import arguments_of
from gpucomp.targets.cuda import Resources

LAUNCHER = Path(gpgpu_sim.__file__).with_name("gpgpu_sim_launcher.cc")


def test_the_job_names_a_file_for_each_argument_in_the_kernel_s_order():
    cell = next(cell for cell in cells() if cell.engine == "contraction/simt")
    split = next(ready for n in range(40) if (ready := prepared(draw(cell, n))).source.geometry.counter_bytes)
    geometry, (given, first, count) = split.source.geometry, arguments_of(split)

    lines = job(split.source, Resources(40, 8, 0, 0, 512), first, count).splitlines()

    assert lines[0] == "ptx k.ptx 75 k0"
    assert lines[1] == "grid " + " ".join(map(str, geometry.groups))
    assert lines[4] == "info 40 512 8"
    assert lines[5:] == [
        *(f"in {n}.bin" for n in range(first)),
        *(f"out {n}.bin" for n in range(first, first + count)),
        f"zero {geometry.workspace_bytes}",
        f"zero {geometry.counter_bytes}",
    ]
    assert len(lines) - 5 == len(given)


def test_every_line_of_a_job_is_one_that_the_launcher_knows():
    text = LAUNCHER.read_text(encoding="utf-8")

    assert all(f'"{word}"' in text for word in ("ptx", "grid", "block", "shared", "info", "in", "out", "zero"))
    assert DONE.replace("0", "%d") in text


def test_the_configuration_is_that_of_the_card_but_for_what_sm_75_allows():
    text = configured("-gpgpu_shmem_per_block 49152\n-gpgpu_n_clusters 30\n-enable_ptx_file_line_stats 1")

    assert text.split() == [
        "-gpgpu_n_clusters",
        "30",
        "-gpgpu_shmem_per_block",
        "65536",
        "-enable_ptx_file_line_stats",
        "0",
        "-gpgpu_ptx_inst_debug_to_file",
        "0",
    ]


@pytest.mark.parametrize(
    ("log", "code", "said"),
    [
        (f"many words\n{DONE}\n", 0, ""),
        ("many words\n", 0, "GPGPU-Sim ends with 0: "),
        (f"{DONE}\n", -6, "GPGPU-Sim ends with -6: "),
        ("x\nGPGPU-Sim PTX: ERROR ** unknown\n", 1, "GPGPU-Sim ends with 1: GPGPU-Sim PTX: ERROR ** unknown"),
        ("k.ptx:31 Syntax error:\nldmatrix", 134, "GPGPU-Sim ends with 134: k.ptx:31 Syntax error:"),
    ],
)
def test_what_the_simulator_says_is_told(log, code, said):
    assert complaint(log, code) == said


def test_no_cell_needs_what_the_simulator_has_not():
    for cell in cells():
        text = prepared(draw(cell, 0)).source.text

        assert not any(word in text for word in ("gc_mma", "gc_ldmatrix", "gc_dp4a", "gc_copy_async", "bf16"))


def test_a_checkout_that_is_not_built_is_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a built checkout of GPGPU-Sim"):
        opened(tmp_path, tmp_path, tmp_path, 1.0)
    for name in ("lib/a/libcudart.so", "build/b/cuda-sim/ptx.tab.h"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    with pytest.raises(FileNotFoundError, match="--cuda names the toolkit"):
        opened(tmp_path, tmp_path, tmp_path, 1.0)
