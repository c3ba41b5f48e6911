"""Models out of packages, as C projects: those that ``bench.packages`` has downloaded; others are skipped."""

import shutil
import sys
from pathlib import Path

import pytest

import gpucomp
from bench import packages
from bench.packages import MODELS, content
from gpucomp.export.project import export_c
from testing.webassembly import COMPILER, MISSING, ended
from tests.export.built import COMPILERS, WARNINGS, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or not COMPILERS, reason="no C compiler for ELF is installed"),
]
DOWNLOADED = Path.home() / ".cache" / "gpucomp" / "bench-packages"  # the tests' own cache is another one
NAMES = ["ppocr_rec", "silero_vad", "magika", "minilm"]  # a width, a state and any number of samples, bytes, words


def exported(name, target, place, monkeypatch):
    model = MODELS[name]
    if not any((DOWNLOADED / model.package).glob("*.whl")):
        pytest.skip(f"{model.package} was not downloaded")
    monkeypatch.setattr(packages, "folder", lambda: DOWNLOADED)
    how = {"shapes": model.shapes, "constants": model.constants}
    if name == "silero_vad":
        how["states"] = "auto"

    def compiled(target):
        return gpucomp.compile(content(model), target=target, **how)

    export_c(compiled(target), place, name="net", elsewhere=lambda: compiled("cpu"))


def built(place, compiler, program, *flags):
    parts = ("net.c", "net_weights.S", "net_kernels.o", "selftest.c", "selftest_data.S")
    run(*compiler, *WARNINGS, "-O1", *flags, *parts, "-lm", "-o", program, cwd=place)
    return place / program


@pytest.mark.parametrize("name", NAMES)
def test_the_self_test_gives_the_bits_of_python(name, tmp_path, monkeypatch):
    exported(name, "cpu", tmp_path, monkeypatch)

    program = built(tmp_path, COMPILERS[:1], "selftest")

    assert "as they were recorded, bit for bit" in run(program)


@pytest.mark.parametrize("name", ["silero_vad"])  # the others take minutes in an emulator
def test_64_bit_arm_runs_it(name, tmp_path, monkeypatch):
    if not shutil.which("aarch64-linux-gnu-gcc") or not shutil.which("qemu-aarch64"):
        pytest.skip("no compiler or no emulator for 64-bit Arm is installed")
    exported(name, "cpu:armv8-a", tmp_path, monkeypatch)

    program = built(tmp_path, ["aarch64-linux-gnu-gcc"], "selftest")

    assert "as they were recorded" in run("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", program)


@pytest.mark.parametrize("name", ["silero_vad", "magika"])
@pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} is missing")
def test_webassembly_runs_it(name, tmp_path, monkeypatch):
    exported(name, "cpu:wasm32", tmp_path, monkeypatch)

    program = built(tmp_path, COMPILER, "selftest.wasm")

    assert ended(program, tmp_path) == 0
    assert "as they were recorded" in (tmp_path / "printed").read_text()
