"""The library as it is shipped: how it is built, what it exports, how large it is, and its tools and wrappers."""

import hashlib
import re
import shutil
import subprocess

import numpy as np
import pytest

import gpucomp
from gpucomp.artifact import manifest, plan
from gpucomp.artifact.tensor_map import ELEMENT_BYTES
from gpucomp.ir.run_numbers import MAGIC, SHIFT, SIZE
from gpucomp.ir.types import NAMED
from testing.c_library import COMPILERS, NATIVE, SOURCES, Model, Native, build, folder, same_bits, shared
from tests.c_runtime.models import any_size, any_size_feed, fixed, generator

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")
ROOT = NATIVE.parents[1]
LARGEST, LARGEST_CPU = 250_000, 120_000  # bytes of the stripped library, and of one for the processor alone
TOOLS = [NATIVE / "tools" / "gpucomp_run.c", NATIVE / "tools" / "npy.c", *SOURCES]
TEXT = {path: path.read_text(encoding="utf-8") for path in NATIVE.rglob("*.[ch]")}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_compilers_have_nothing_to_warn_of(compiler):
    _, path, feeds = fixed("digits")
    library = Native(shared(compiler))

    assert same_bits(Model(path, library).context().run(feeds[0]), fixed("digits")[0].run(feeds[0]))


@pytest.mark.parametrize(("cpu_only", "largest"), [(False, LARGEST), (True, LARGEST_CPU)])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_stripped_library_is_small(compiler, cpu_only, largest):
    stripped = folder() / f"stripped.{compiler}"
    subprocess.run(["strip", "-o", stripped, shared(compiler, cpu_only=cpu_only)], check=True)

    assert stripped.stat().st_size <= largest


@pytest.mark.parametrize("cpu_only", [False, True])
def test_only_the_interface_is_exported(cpu_only):
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", shared(cpu_only=cpu_only)], capture_output=True, text=True, check=True
    ).stdout
    found = {line.split()[-1].partition("@")[0] for line in listed.splitlines()} - {"GPUCOMP_1"}
    declared = set(
        re.findall(r"\b(gpucomp_\w+)\(", re.sub(r"/\*.*?\*/", "", TEXT[NATIVE / "include/gpucomp.h"], flags=re.S))
    )

    assert found == declared


def test_nothing_is_needed_but_the_c_library():
    listed = subprocess.run(["readelf", "-d", shared()], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", listed))

    assert {name.partition(".so")[0] for name in needed} <= {"libc", "libm", "libpthread", "libdl"}


def test_the_version_is_that_of_the_package():
    assert f'"{gpucomp.__version__}"' in TEXT[NATIVE / "include/gpucomp.h"]


def test_every_code_is_documented():
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    codes = set(re.findall(r"#define GCRT_\w+ (\d{4})", TEXT[NATIVE / "src/store.h"]))

    assert len(codes) > 20
    assert {code for code in codes if f"### GPC{code}:" not in page} == set()


def test_what_a_manifest_may_say_is_what_python_lets_it_say():
    text = TEXT[NATIVE / "src/manifest.c"]
    found = {
        name: tuple(re.findall(r'"([^"]*)"', values)) for name, values in re.findall(r"(\w+)\[\] = \{([^{}]*)\};", text)
    }
    kinds = (plan.INPUT, plan.OUTPUT, plan.WEIGHT, plan.TEMP, plan.COUNTER, plan.NUMBERS)

    assert found["DEVICES"] == manifest.KINDS
    assert found["LANGUAGES"] == manifest.LANGUAGES
    assert found["BUFFER_KINDS"] == kinds
    assert found["GIVEN_KINDS"] == (SIZE, MAGIC, SHIFT)
    assert set(found["MAP_TYPES"]) == set(ELEMENT_BYTES)
    assert set(found["DTYPE_NAMES"]) == {"", *NAMED}
    assert (found["DTYPE_NAMES"][0], found["DTYPE_NAMES"][-1]) == (
        "",
        "string",
    )  # both ends are left out where they are wrong


def test_lines_and_files_are_short():
    assert {path.name for path, text in TEXT.items() if len(text.splitlines()) > 600} == set()
    assert {path.name for path, text in TEXT.items() if max(map(len, text.splitlines())) > 130} == set()


def test_digests_are_those_of_python():
    """Of every length of some blocks, alone and two side by side, with the processor's instructions and without."""
    files = [ROOT / "tests/c_runtime/digests.c", NATIVE / "src/digest.c"]
    program = build("digests", files, f"-I{NATIVE / 'src'}", "-O1")
    lines = subprocess.run([program, "300"], capture_output=True, text=True, check=True).stdout.splitlines()
    text = bytes((k * 7 + k // 251) % 256 for k in range(600))
    whole = hashlib.sha256(text).hexdigest()

    assert {int(line.split()[0]) for line in lines} == set(range(301))
    for line in lines:
        length, *found = line.split()
        own = hashlib.sha256(text[: int(length)]).hexdigest()
        assert found == [own, own, whole]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opencl", "gpu", "largest"),
    [("ON", "ON", LARGEST), ("ON", "OFF", LARGEST), ("OFF", "ON", LARGEST), ("OFF", "OFF", LARGEST_CPU)],
)
def test_cmake_builds_and_installs(tmp_path, opencl, gpu, largest):
    if not shutil.which("cmake"):
        pytest.skip("no cmake")
    made, installed = tmp_path / "build", tmp_path / "installed"
    for command in (
        [
            "cmake",
            "-S",
            NATIVE,
            "-B",
            made,
            "-DGPUCOMP_WERROR=ON",
            f"-DCMAKE_INSTALL_PREFIX={installed}",
            f"-DGPUCOMP_OPENCL={opencl}",
            f"-DGPUCOMP_GPU={gpu}",
        ],
        ["cmake", "--build", made],
        ["cmake", "--install", made, "--strip"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    there = {path.name for path in installed.rglob("*")}

    assert {
        "gpucomp.h",
        "gpucomp.hpp",
        "gpucomp-run",
        "libgpucomp_rt.so",
        "libgpucomp_rt.so.1",
        "libgpucomp_rt.a",
    } <= there
    library = next(installed.rglob("libgpucomp_rt.so.1.0"))
    assert library.stat().st_size <= largest


def test_the_tool_runs_files_of_numpy(tmp_path):
    exe, path, feeds = fixed("digits")
    np.save(tmp_path / "x.npy", feeds[0]["x"])
    tool = build("gpucomp-run", TOOLS, "-O1")
    command = [tool, path, "--input", f"x={tmp_path / 'x.npy'}", "--output", f"y={tmp_path / 'y.npy'}", "--bench", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"3 runs: median [\d.]+ us, least [\d.]+ us, 90 % within [\d.]+ us\n", done.stdout)
    assert same_bits({"y": np.load(tmp_path / "y.npy")}, exe.run(feeds[0]))


def test_the_tool_runs_steps():
    """A state of 64 rows: so many steps of one token fit, and a run that fails is told and not measured."""
    tool, path = build("gpucomp-run", TOOLS, "-O1"), generator()[1]

    def of(*arguments):
        return subprocess.run([tool, path, *arguments], capture_output=True, text=True, check=False)

    assert (done := of("--steps", "64")).returncode == 0, done.stderr
    assert done.stdout == ""
    for arguments in (("--steps", "65"), ("--steps", "3", "--bench", "62")):
        done = of(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert "GPC2118 state" in done.stderr
    assert of("--steps", "3", "--bench", "61").stdout.startswith("61 runs: median")


def test_the_tool_says_what_a_file_holds():
    tool = build("gpucomp-run", TOOLS, "-O1")
    done = subprocess.run([tool, any_size()[1]], capture_output=True, text=True, check=True)

    assert "input   x: f32[n,3,h,w]" in done.stdout
    assert "dim     h: 4 to 64, a multiple of 4" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        ([], 2, "usage: gpucomp-run MODEL.gpuc"),
        (["none.gpuc"], 1, "GPC7005 cannot read 'none.gpuc': No such file or directory"),
        (["MODEL", "--input", "x=none.npy"], 1, "none.npy: cannot be opened"),
        (["MODEL", "--input", "x=MODEL"], 1, "not a .npy file"),
        (["MODEL", "--what", "3"], 2, "usage"),
        (["MODEL", "--steps", "0"], 2, "usage"),
        (["MODEL", "--bench", "x"], 2, "usage"),
        (["MODEL", "--input", "image=x.npy"], 2, "the model has no input of this name"),
        (["MODEL", "--output", "x=x.npy"], 2, "the model has no output of this name"),
    ],
)
def test_the_tool_refuses(arguments, status, told):
    tool, path = build("gpucomp-run", TOOLS, "-O1"), str(fixed("digits")[1])
    given = [one.replace("MODEL", path) for one in arguments]
    done = subprocess.run([tool, *given], capture_output=True, text=True, check=False)

    assert done.returncode == status
    assert told in done.stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_examples_of_the_page_compile(tmp_path, compiler):
    page = (ROOT / "docs" / "how-to" / "c.md").read_text(encoding="utf-8")
    examples = re.findall(r"```c\n(.*?)```", page, re.S)
    assert len(examples) == 2
    for number, text in enumerate(examples):
        (tmp_path / f"example{number}.c").write_text(text)

        build(f"example{number}.{compiler}.o", [tmp_path / f"example{number}.c"], "-c", compiler=compiler)


CPP = r"""
#include <cstdio>
#include <utility>
#include "gpucomp.hpp"

int main(int, char **given)
{
    gpucomp::Model model(given[1]);
    gpucomp::Context first(model), context(std::move(first));
    std::vector<float> x(2 * 3 * 8 * 9, 0.5f), b(2, 1.0f);
    const std::int64_t xs[] = {2, 3, 8, 9}, bs[] = {2, 1, 1, 1};
    std::vector<gpucomp_tensor> in = {gpucomp::tensor(x.data(), x.size(), xs, 4), gpucomp::tensor(b.data(), b.size(), bs, 4)};
    context.plan(in);
    std::size_t count = 1;
    for (std::int64_t extent : context.output_shape(0))
        count *= static_cast<std::size_t>(extent);
    std::vector<float> y(count);
    context.run(in, {gpucomp::tensor(y.data(), y.size())});
    std::fwrite(y.data(), sizeof(float), y.size(), stdout);
    try {
        gpucomp::Model none("none.gpuc");
    } catch (const gpucomp::Error &error) {
        return error.code() == 7005 && model.info().inputs == 2 && std::string(model.input(0).name) == "x" ? 0 : 1;
    }
    return 2;
}
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
def test_the_wrapper_for_cpp(tmp_path):
    (tmp_path / "main.cpp").write_text(CPP)
    library = shared()
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{NATIVE / 'include'}"]
    subprocess.run([*command, tmp_path / "main.cpp", library, "-o", tmp_path / "main"], check=True)
    run = subprocess.run([tmp_path / "main", any_size()[1]], capture_output=True, check=True)
    feed = {
        name: np.full(array.shape, value, np.float32)
        for (name, array), value in zip(any_size_feed(2, 8, 9).items(), (0.5, 1), strict=True)
    }
    wanted = any_size()[0].run(feed)["y"]

    assert run.stdout == wanted.tobytes()
