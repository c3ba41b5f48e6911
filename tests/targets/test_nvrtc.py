"""NVRTC: which one is loaded and with what, and that kernels of every engine compile with one that finds nothing itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from gpucomp.errors import DeviceError
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.targets import cuda
from tests.nvrtc import OF_OTHER_GPUS

ROOT = Path(__file__).parents[2]
OTHER = "OTHER_NVRTC"  # a folder with an unpacked wheel
VERSION = "13.0.88"  # comes with torch 2.11 for CUDA 13, and finds its builtins only where somebody has loaded them
COMMAND = f"pip install --no-deps --target FOLDER nvidia-cuda-nvrtc=={VERSION}, then {OTHER}=FOLDER"


class Loader:
    """Stands in for ``ctypes.CDLL``: what was loaded, in order; ``broken`` cannot be."""

    def __init__(self, *broken):
        self.broken, self.loaded = broken, []

    def __call__(self, path):
        if Path(path).name in self.broken:
            raise OSError(f"{path}: wrong ELF class")
        self.loaded.append(path)
        return self


@pytest.fixture
def wheels(monkeypatch, tmp_path):
    """Makes folders of Python's path with libraries of the package ``nvidia`` in them, and a system's library."""

    def make(*folders, system=None):
        for number, names in enumerate(folders):
            for name in names:
                path = tmp_path / str(number) / "nvidia" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        spec = ModuleSpec("nvidia", None, is_package=True)
        spec.submodule_search_locations = [str(tmp_path / str(n) / "nvidia") for n in range(len(folders))]
        monkeypatch.setattr(cuda.importlib.util, "find_spec", lambda name: spec if folders else None)
        monkeypatch.setattr(cuda.ctypes.util, "find_library", lambda name: system)

    return make


def loaded(monkeypatch, tmp_path, *broken):
    loader = Loader(*broken)
    monkeypatch.setattr(cuda.ctypes, "CDLL", loader)
    cuda.nvrtc.__wrapped__()
    return [str(Path(p).relative_to(tmp_path)) if Path(p).is_absolute() else p for p in loader.loaded]


def test_the_builtins_beside_nvrtc_are_loaded_before_it_and_alternatives_are_left_alone(wheels, monkeypatch, tmp_path):
    names = ("libnvrtc.so.13", "libnvrtc.alt.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.alt.so.13.0")
    wheels([f"cu13/lib/{name}" for name in names])

    found = loaded(monkeypatch, tmp_path)

    assert found == ["0/nvidia/cu13/lib/libnvrtc-builtins.so.13.0", "0/nvidia/cu13/lib/libnvrtc.so.13"]


def test_of_nvrtcs_side_by_side_the_first_of_python_s_path_and_there_the_newest_is_loaded(
    wheels, monkeypatch, tmp_path
):
    wheels(
        ["cuda_nvrtc/lib/libnvrtc.so.12", "cuda_nvrtc/lib/libnvrtc-builtins.so.12.9", "cu13/lib/libnvrtc.so.13"],
        ["cu14/lib/libnvrtc.so.14"],
    )

    assert loaded(monkeypatch, tmp_path) == ["0/nvidia/cu13/lib/libnvrtc.so.13"]


@pytest.mark.parametrize("broken", ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"])
def test_an_nvrtc_that_cannot_be_loaded_whole_is_passed_over(broken, wheels, monkeypatch, tmp_path):
    wheels(["cu13/lib/libnvrtc-builtins.so.13.0", "cu13/lib/libnvrtc.so.13"], system="libnvrtc.so.12")

    assert loaded(monkeypatch, tmp_path, broken)[-1] == "libnvrtc.so.12"


def test_the_system_s_nvrtc_brings_its_own_builtins(wheels, monkeypatch, tmp_path):
    """Its name is no path: what lies in the working directory has nothing to do with it."""
    wheels(system="libnvrtc.so.13")
    (tmp_path / "libnvrtc-builtins.so.13.0").touch()
    monkeypatch.chdir(tmp_path)

    assert loaded(monkeypatch, tmp_path) == ["libnvrtc.so.13"]


def test_why_no_nvrtc_was_loaded_is_said(wheels, monkeypatch):
    wheels(["cu13/lib/libnvrtc.so.13"])
    monkeypatch.setattr(cuda.ctypes, "CDLL", Loader("libnvrtc.so.13"))

    with pytest.raises(DeviceError, match=r"wrong ELF class\): pip install 'nvidia-cuda-nvrtc>=13,<14'") as caught:
        cuda.nvrtc.__wrapped__()

    assert caught.value.code == "GPC5002"


# ---- another NVRTC than the newest ----


@pytest.fixture(scope="module")
def spread():
    """What an NVRTC that is not this process's says of a spread of kernels, by a process that has it first in its path."""
    folder = os.environ.get(OTHER)
    if not folder:
        pytest.skip(f"no other NVRTC: {COMMAND}")
    path = os.pathsep.join([folder, str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.nvrtc_spread"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *entries = map(json.loads, done.stdout.splitlines())
    return first, entries


@pytest.mark.slow
def test_kernels_of_every_engine_compile_with_an_nvrtc_that_does_not_find_its_builtins(spread):
    first, entries = spread

    assert first == {"compiler": "nvrtc " + VERSION.rpartition(".")[0]}
    assert [e for e in entries if "fault" in e] == []
    for arch in cuda.ARCHITECTURES:
        lacking = OF_OTHER_GPUS | {"tile_transform"}
        lacking |= {"contraction/wgmma", "attention/wgmma"} if arch != "sm_90a" else set()
        lacking |= {"contraction/tcgen05", "attention/tcgen05"} if arch != "sm_100" else set()
        lacking |= {"attention/mma"} if arch == "sm_75" else set()
        assert {e["engine"] for e in entries if e["arch"] == arch} == FAMILIES.keys() - lacking
    assert {e["cubin"][:8] for e in entries} == {b"\x7fELF".hex()}
    assert min(e["registers"] for e in entries) > 0
