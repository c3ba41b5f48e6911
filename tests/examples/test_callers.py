"""The digits network, exported as C projects and called from other languages: each program reads what Python reads."""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gpucomp
from examples.digits import data
from gpucomp import cli
from gpucomp.targets.cpu import host

ROOT = Path(__file__).parents[2]
CALLERS = ROOT / "examples" / "callers"
MODEL = ROOT / "examples" / "digits" / "digits.onnx"
PICTURES = 40
ZIG = importlib.util.find_spec("ziglang")


def needs(*tools):
    missing = [tool for tool in tools if not shutil.which(tool)]
    return pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)} is not installed")


def commands():
    """The commands of the README, by their first words."""
    blocks = re.findall(r"```sh\n(.*?)```", (CALLERS / "README.md").read_text(), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return {" ".join(line.split()): line for line in lines}


def command(begins, **said):
    """The command of the README that begins in this way, with other words in place of some."""
    found = next(line for words, line in commands().items() if words.startswith(begins))
    for word, other in said.items():
        found = found.replace(word, other)
    return found


def shell(line, folder, **variables):
    """What a command of the README prints, in a folder that has the examples beside it."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **variables}
    ended = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=240, env=environment
    )
    assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def pictures():
    return data.held_back()[0][:PICTURES]


@pytest.fixture(scope="module")
def expected(pictures):
    exe = gpucomp.compile(MODEL, target="cpu", shapes={"image": (PICTURES, 1, 8, 8)})
    return exe.run({"image": pictures})["logits"].argmax(1).tolist()


def exported(begins, folder, target=""):
    """The project that a command of the README writes, which is run in this process."""
    words = shlex.split(command(begins))
    words = [
        str(MODEL) if word.endswith(".onnx") else str(folder / word) if before == "-o" else word
        for before, word in zip(["", *words], words, strict=False)
    ]
    if target:
        words[words.index("--target") + 1] = target
    assert cli.main(words[1:]) == 0


@pytest.fixture(scope="module")
def project(pictures, tmp_path_factory):
    """A folder with the project ``digits`` for this machine, built, with the examples and pictures."""
    folder = tmp_path_factory.mktemp("callers")
    (folder / "examples").symlink_to(ROOT / "examples")
    pictures.tofile(folder / "digits.bin")
    here = "" if host().features & {"sse4.1"} else "cpu:armv8-a"
    exported("gpucomp export examples/digits/digits.onnx --shapes image:1x1x8x8 --target cpu:x86-64-v2", folder, here)
    if shutil.which("cmake"):
        shell(command("cmake -S digits"), folder)
    return folder


def digits(printed):
    return [int(line) for line in printed.split()]


def path_of(tool):
    """The folders of commands for a compiler that lies elsewhere than Debian's."""
    return f"{Path(shutil.which(tool)).parent}:/usr/bin:/bin"


@needs("cmake", "rustc", "cc")
def test_rust_reads_them(project, expected):
    variables = {"PATH": path_of("rustc"), "HOME": str(Path.home())}  # rustup finds its compiler there
    shell(command("rustc").replace("rustc", "rustc -D warnings", 1), project, **variables)

    assert digits(shell(command("./digits-rust"), project)) == expected


@needs("cmake", "go", "cc")
def test_go_reads_them(project, expected):
    shell(command("CGO_CFLAGS"), project, PATH=path_of("go"), GOCACHE=str(project / "go-cache"), GOFLAGS="-mod=mod")

    assert digits(shell(command("./digits-go"), project)) == expected


@needs("cmake", "javac", "java", "cc")
def test_java_reads_them(project, expected):
    home = Path(shutil.which("javac")).resolve().parents[1]
    strict = command("cc -shared").replace("cc ", "cc -Wall -Wextra -Wpedantic -Werror ", 1)
    shell(strict, project, JAVA_HOME=str(home))
    shell(command("javac"), project)

    assert digits(shell(command("java -D"), project)) == expected


@needs("javac")
@pytest.mark.skipif(ZIG is None, reason="ziglang is not installed")
def test_the_library_for_java_is_linked_for_android(tmp_path):
    """Without Android's C library, of which jni.h wants one header and the program nothing."""
    exported(
        "gpucomp export examples/digits/digits.onnx --shapes image:1x1x8x8 --target cpu:x86-64-v2",
        tmp_path,
        "cpu:armv8-a",
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "stdio.h").write_text("")
    include = Path(shutil.which("javac")).resolve().parents[1] / "include"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-android", "-mno-outline-atomics"]
    parts = [
        str(CALLERS / "digits_jni.c"),
        *(f"digits/{part}" for part in ("digits.c", "digits_weights.S", "digits_kernels.o")),
    ]
    flags = ["-shared", "-nostdlib", "-O2", "-Iempty", f"-I{include}", f"-I{include}/linux", "-Idigits"]

    subprocess.run([*compiler, *flags, *parts, "-o", "libdigits_jni.so"], cwd=tmp_path, check=True, timeout=240)

    library = (tmp_path / "libdigits_jni.so").read_bytes()
    assert int.from_bytes(library[18:20], "little") == 183
    assert b"Java_Digits_run" in library


@needs("node")
@pytest.mark.skipif(ZIG is None, reason="ziglang is not installed")
def test_node_reads_them(project, expected):
    exported("gpucomp export examples/digits/digits.onnx --shapes image:1x1x8x8 --target cpu:wasm32", project)
    line = command("python -m ziglang").replace("python", sys.executable, 1)
    shell(
        line, project / "wasm", HOME=str(Path.home())
    )  # zig keeps WASI's library there, which takes a minute to build

    found = shell(command("node"), project, PATH=path_of("node"))

    assert digits(found) == expected


@needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_a_microcontroller_reads_them(project):
    exported("gpucomp export examples/digits/digits.onnx --shapes image:1x1x8x8 --target cpu:cortex-m4", project)
    header = (project / "m4" / "digits.h").read_text()
    assert f"The bytes of an arena: {re.search(r'-DARENA=([0-9]+)', command('arm-none-eabi-gcc'))[1]} where" in header
    strict = command("arm-none-eabi-gcc").replace("-Os", "-Os -Wall -Wextra -Wpedantic -Werror", 1)
    shell(strict, project / "m4")

    found = shell(f"timeout 60 {command('qemu-system-arm')}", project)

    images, labels = data.held_back()
    firsts = images[[int(np.flatnonzero(labels == digit)[0]) for digit in range(10)]]
    rows = re.findall(r"\{([0-9, \n]+)\}", (CALLERS / "cortex_m" / "images.h").read_text())
    assert np.array_equal([[int(n) for n in row.split(",")] for row in rows], (firsts * 16).reshape(10, 64).astype(int))
    exe = gpucomp.compile(MODEL, target="cpu", shapes={"image": (10, 1, 8, 8)})
    assert digits(found) == exe.run({"image": firsts})["logits"].argmax(1).tolist()


@needs("size", "gcc")
def test_code_beside_the_kernels_is_small(project):
    """Of this network: at most 40 KB, with the threads."""
    for file in ("digits.c", "gpucomp_pool.c"):
        subprocess.run(["gcc", "-std=c11", "-Os", "-c", file], cwd=project / "digits", check=True)
    listed = shell("size digits.o gpucomp_pool.o", project / "digits").splitlines()[1:]
    assert sum(int(line.split()[3]) for line in listed) < 40_000
