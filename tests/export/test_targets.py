"""C projects for processors of 32 bits, for WebAssembly and for Android: built, and run where there is an emulator."""

import importlib.util
import re
import shutil
import struct
import sys

import numpy as np
import pytest

import gpucomp
from gpucomp.device.isa import ISAS
from gpucomp.errors import DeviceError, KernelBuildError, UnsupportedError
from gpucomp.export import refusals
from gpucomp.export.project import export_c
from gpucomp.targets import cpu, resolve
from gpucomp.targets.linked import needed, without_calls
from testing.webassembly import COMPILER, ZIG, ended
from tests.export.built import WARNINGS, run
from tests.export.models import ANY_SIZE, classifier, filter_of, odd, quantized, recurrent, transformed, transformer
from tests.onnx_builders import model, node, value

NEEDS_ZIG = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
NEEDS_WASMTIME = pytest.mark.skipif(importlib.util.find_spec("wasmtime") is None, reason="wasmtime is not installed")
ARM = ("arm-linux-gnueabihf-gcc", "qemu-arm")
NEEDS_ARM = pytest.mark.skipif(not all(map(shutil.which, ARM)), reason=f"{' or '.join(ARM)} is not installed")
FIXED = {one.__name__: one for one in (classifier, quantized, transformer, recurrent, odd, transformed)}
MODELS = [*FIXED, *ANY_SIZE, "filters"]


def exported(name, target, folder):
    """A project of a model for a processor that this one is not."""
    how = {}
    if name in FIXED:
        proto = FIXED[name]()
    elif name in ANY_SIZE:
        proto, how["shapes"] = ANY_SIZE[name]()
    else:
        shape = (gpucomp.Dim("n", 1, 8), 16)
        proto, how = filter_of("n"), {"shapes": {"x": shape, "h": shape}, "states": {"h": "h_new"}}
    exe = gpucomp.compile(proto, target=target, **how)
    export_c(exe, folder, name="net", elsewhere=lambda: gpucomp.compile(proto, target="cpu", **how))
    return exe


def built(folder, compiler, *flags, to="selftest", sources=("selftest.c", "selftest_data.S")):
    parts = ("net.c", "net_weights.S", "net_kernels.o", *sources)
    run(*compiler, *WARNINGS, "-O2", "-I.", *parts, *flags, "-o", to, cwd=folder)
    return folder / to


SIZES = """
#include <stdio.h>
#include "net.h"
int main(void) { return printf("%d %d\\n", (int)net_arena_size(), (int)sizeof(void *)) < 0; }
"""


@NEEDS_ARM
@pytest.mark.parametrize("name", MODELS)
def test_32_bit_arm_runs_it(name, tmp_path):
    exported(name, "cpu:armv7-a", tmp_path)

    program = built(tmp_path, ARM[:1], "-lm")

    assert "as they were recorded" in run("qemu-arm", "-L", "/usr/arm-linux-gnueabihf", program)
    if name not in FIXED:
        return
    (tmp_path / "sizes.c").write_text(SIZES)
    sizes = built(tmp_path, ARM[:1], to="sizes", sources=("sizes.c",))
    arena, pointer = run("qemu-arm", "-L", "/usr/arm-linux-gnueabihf", sizes).split()
    assert f"The bytes of an arena: {arena} where a pointer has {pointer} bytes" in (tmp_path / "net.h").read_text()
    assert pointer == "4"


@pytest.mark.parametrize("target", ["cpu:armv7-a", "cpu:wasm32"])
def test_a_model_of_these_has_winograds_algorithm(target):
    plan = gpucomp.compile(transformed(), target=target).plan
    assert "contraction/winograd" in {kernel.family for kernel in plan.kernels}


@NEEDS_ARM
def test_a_pool_of_threads_runs_it_on_32_bit_arm(tmp_path):
    exported("transformer", "cpu:armv7-a", tmp_path)
    sources = ("selftest.c", "selftest_data.S", "gpucomp_pool.c")

    program = built(tmp_path, ARM[:1], "-DNET_POOL", "-pthread", "-lm", sources=sources)

    assert "recorded" in run("qemu-arm", "-L", "/usr/arm-linux-gnueabihf", program, "--threads", "3")


@NEEDS_ARM
def test_other_compilers_are_told_what_it_is_for(tmp_path):
    exported("odd", "cpu:armv7-a", tmp_path)
    with pytest.raises(AssertionError, match="net was exported for cpu:armv7-a: export it for this processor"):
        run("gcc", "-c", "net.c", cwd=tmp_path)


@NEEDS_ZIG
@NEEDS_WASMTIME
@pytest.mark.parametrize("name", MODELS)
def test_webassembly_runs_it(name, tmp_path):
    exported(name, "cpu:wasm32", tmp_path)

    program = built(tmp_path, COMPILER, to="selftest.wasm")

    assert ended(program, tmp_path) == 0
    assert "as they were recorded" in (tmp_path / "printed").read_text()
    data = bytearray((tmp_path / "selftest_data.bin").read_bytes())
    (tmp_path / "selftest_data.bin").write_bytes(bytes(byte ^ 0x40 for byte in data))  # inputs and outputs
    with (tmp_path / "selftest_data.S").open("a") as source:  # zig keeps what it made of the same text
        source.write("/* another one */\n")
    wrong = built(tmp_path, COMPILER, to="wrong.wasm")
    assert ended(wrong, tmp_path) == 1


def in_readme(folder, begins):
    """The commands of the project's README from the line that begins in this way to the end of its block."""
    text = (folder / "README.md").read_text()
    return text[text.index(f"\n{begins}") : text.index("```", text.index(f"\n{begins}"))]


@NEEDS_ZIG
@NEEDS_WASMTIME
@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
def test_cmake_builds_webassembly_as_the_readme_says(tmp_path):
    exported("steps", "cpu:wasm32", tmp_path)
    lines = in_readme(tmp_path, "export CC").replace("'python ", f"'{sys.executable} ")
    assert "wasmtime build/selftest" in lines

    run("bash", "-ec", lines.replace("&& wasmtime build/selftest", ""), cwd=tmp_path)

    assert ended(tmp_path / "build" / "selftest", tmp_path) == 0


@pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="arm-none-eabi-gcc is not installed")
def test_cmake_builds_for_a_microcontroller_as_the_readme_says(tmp_path):
    exported("steps", "cpu:cortex-m7", tmp_path)

    run("bash", "-ec", in_readme(tmp_path, "cmake -S . -B build -DCMAKE_SYSTEM_NAME=Generic"), cwd=tmp_path)

    assert (tmp_path / "build" / "libnet.a").exists()


@NEEDS_ZIG
@pytest.mark.parametrize(
    ("target", "flags", "machine"),
    [
        ("cpu:armv8-a", ("aarch64-linux-android", "-mno-outline-atomics"), 183),
        ("cpu:armv7-a-android", ("arm-linux-androideabi", "-mcpu=generic+v7a+neon"), 40),
    ],
)
def test_it_is_linked_for_android(target, flags, machine, tmp_path):
    exported("transformer", target, tmp_path)

    library = built(tmp_path, (*ZIG, "-target", *flags), "-shared", "-nostdlib", to="libnet.so", sources=())

    data = library.read_bytes()
    assert struct.unpack_from("<HH", data, 16) == (3, machine)
    assert b"net_run" in data


def test_what_a_linker_has_to_give_is_known():
    for target in ("cpu:armv7-a", "cpu:cortex-m4", "cpu:wasm32"):
        text = """
declare float @llvm.sin.f32(float)
define void @f(ptr %a) {
  %x = load float, ptr %a
  %y = call float @llvm.sin.f32(float %x)
  store float %y, ptr %a
  %p = load i64, ptr %a
  %q = udiv i64 %p, 12345
  store i64 %q, ptr %a
  ret void
}
"""
        with pytest.raises(KernelBuildError, match="GPC5102 generated code calls sinf, which is not defined"):
            cpu.compile_text(text, resolve(target))
        assert (
            needed(
                cpu.compile_text(
                    text.replace("call float @llvm.sin.f32(float %x)", "fadd float %x, %x"), resolve(target)
                )
            )
            == []
        )


def test_rounding_is_arithmetic_where_the_processor_has_no_instruction():
    text = (
        "  %a = call <8 x i32> @llvm.lrint.v8i32.v8f32(<8 x float> %b)\n  %c = call i32 @llvm.lrint.i32.f32(float %d)"
    )

    found = without_calls(text, rounds=True)

    assert "llvm.lrint" not in found
    assert found.count("define internal") == 2
    assert without_calls("nothing of it", rounds=True) == "nothing of it"
    floor = "  %a = call double @llvm.floor.f64(double %b)"
    assert without_calls(floor, rounds=True) == floor
    assert without_calls(floor, rounds=False).count("define internal") == 2


ROUNDED = np.array(
    [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 0.3, -0.3, 0.7, -0.7, 1e-30, -1e-30, np.inf, -np.inf, np.nan, 8388607.5, -8388607.5,
     8388608.0, 8388609.0, -16777217.0, 4194303.5, 4194304.5, 3e38, -3e38], np.float32
)  # fmt: skip


@NEEDS_ARM
def test_floats_are_rounded_as_ieee_754_has_it(tmp_path):
    """By arithmetic on 32-bit Arm. The program prints the bits."""
    nodes = [node(op, ["x"], [f"{op}ed"]) for op in ("Floor", "Ceil", "Round")]
    outputs = [value(f"{op}ed", [len(ROUNDED)]) for op in ("Floor", "Ceil", "Round")]
    proto = model(nodes, [value("x", [len(ROUNDED)])], outputs)
    exe = gpucomp.compile(proto, target="cpu:armv7-a")
    export_c(exe, tmp_path, name="net", elsewhere=lambda: gpucomp.compile(proto, target="cpu"))
    numbers = ", ".join(f"0x{bits:08x}" for bits in ROUNDED.view(np.uint32))
    (tmp_path / "bits.c").write_text(BITS.replace("NUMBERS", numbers).replace("COUNT", str(len(ROUNDED))))

    printed = run(
        "qemu-arm", "-L", "/usr/arm-linux-gnueabihf", built(tmp_path, ARM[:1], to="bits", sources=("bits.c",))
    )

    found = np.array([int(word, 16) for word in printed.split()], np.uint32).view(np.float32).reshape(3, -1)
    for one, function in zip(found, (np.floor, np.ceil, np.rint), strict=True):
        expected = function(ROUNDED)
        assert np.array_equal(one, expected, equal_nan=True)
        assert np.array_equal(np.signbit(one), np.signbit(expected))


BITS = """
#include <stdio.h>
#include "net.h"
static const uint32_t numbers[COUNT] = {NUMBERS};
static _Alignas(64) unsigned char arena[65536];
static uint32_t found[3][COUNT];
int main(void)
{
    net_inputs inputs = {(const void *)numbers};
    net_outputs outputs = {(void *)found[0], (void *)found[1], (void *)found[2]};
    if (net_init(arena, sizeof arena, net_weights) || net_run(arena, &inputs, &outputs, NULL))
        return 1;
    for (int k = 0; k < 3 * COUNT; ++k)
        printf("%08x ", (unsigned)found[k / COUNT][k % COUNT]);
    return 0;
}
"""


def test_what_is_too_large_for_32_bits_is_refused(monkeypatch):
    monkeypatch.setattr(refusals, "LARGEST_ARENA", {4: 1000, 8: 1 << 48})
    proto = model(
        [node("Softmax", ["x"], ["y"]), node("Softmax", ["y"], ["z"])], [value("x", [64, 64])], [value("z", [64, 64])]
    )
    with pytest.raises(UnsupportedError, match=r"GPC4030 .*takes \d+ bytes beside its weights, and at most 1000"):
        export_c(gpucomp.compile(proto, target="cpu:armv7-a"), None)


@pytest.mark.parametrize("isa", [isa for isa in ISAS if not isa.loads], ids=lambda isa: isa.name)
def test_gpucomp_runs_none_of_it(isa):
    for name in isa.processors:
        exe = gpucomp.compile(odd(), target=f"cpu:{name}")
        with pytest.raises(DeviceError, match=re.escape(f"GPC5007 gpucomp runs no code for {name} ({isa.name})")):
            exe.open()
