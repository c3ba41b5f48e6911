"""``gpucomp export -o``: what it writes, what it refuses, and code for processors that this machine is not."""

import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import gpucomp
from gpucomp import cli
from gpucomp.artifact.plan import Plan
from gpucomp.device.processor import flags
from gpucomp.errors import DeviceError, UnsupportedError, UsageError
from gpucomp.export.names import Picture, members, picture_in, project_name
from gpucomp.export.processors import CPUID, Asked, asked, checks, compiler_of
from gpucomp.export.project import export_c
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.runtime.inputs import TensorSpec
from gpucomp.targets.cpu import assembly, host, named
from tests.export.built import COMPILERS, cmake, run
from tests.export.models import classifier, constant, nonzero, on_the_host, quantized, recurrent, transformer
from tests.onnx_builders import model, node, value

NEEDS_CMAKE = pytest.mark.skipif(
    not shutil.which("cmake") or not COMPILERS, reason="cmake or a C compiler is not installed"
)
ON_X86 = pytest.mark.skipif(
    sys.platform != "linux" or host().features.isdisjoint({"sse4.1"}), reason="x86-64 is needed"
)


def written(proto, tmp_path, name="model.onnx"):
    path = tmp_path / name
    onnx.save(proto, path)
    return str(path)


def test_it_lists_what_it_wrote(tmp_path, capsys):
    path = written(classifier(), tmp_path, "My net-1.onnx")

    assert cli.main(["export", path, "-o", str(tmp_path / "c")]) == 0

    printed = capsys.readouterr().out.split()
    files = {p.name for p in (tmp_path / "c").iterdir()}
    assert {f"my_net_1{end}" for end in (".h", ".c", "_kernels.o", "_weights.bin", "_weights.S", ".pc.in")} < files
    assert {"README.md", "CMakeLists.txt", "selftest.c", "example.c", "selftest_data.bin"} < files
    assert all(str(tmp_path / "c" / name) in printed for name in files)


@NEEDS_CMAKE
def test_a_compiled_model_is_exported_too(tmp_path):
    exe = gpucomp.compile(classifier(), target="cpu")
    exe.save(tmp_path / "net.gpuc")

    assert cli.main(["export", str(tmp_path / "net.gpuc"), "-o", str(tmp_path / "c"), "--name", "Net"]) == 0

    assert "bit for bit" in run(cmake(tmp_path / "c") / "selftest")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "GPC2063: one of -o FOLDER"),
        (("-o", "a", "--triton", "b"), "GPC2063: one of -o FOLDER"),
        (("-o", "a", "--max-batch", "4"), "GPC2063: --max-batch and --independent-rows are for --triton"),
        (("--triton", "b", "--name", "n"), "GPC2063: --name is for -o"),
        (
            ("--triton", "b", "--constants", "a=1", "--keep-fp32", "b"),
            "GPC2063: --constants and --keep-fp32 with --triton",
        ),
        (("-o", "a", "--name", "2x"), "GPC2060: --name '2x'"),
        (("-o", "a", "--name", "int"), "GPC2060: --name 'int'"),
        (("-o", "a", "--name", "selftest"), "GPC2060: --name 'selftest'"),
        (("-o", "a", "--name", "time"), "GPC2060: --name 'time': a header, a library or a target of cmake"),
        (("-o", "a", "--name", "n" * 64), "GPC2060: --name"),
        (("-o", "a", "--target", "opencl:mali"), "GPC2061: C code for opencl:mali"),
    ],
)
def test_a_wrong_command_is_told(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = written(classifier(), tmp_path)

    assert cli.main(["export", path, *words]) == 2

    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("-o", "a", "--name", "clean"), "GPC2060"),
        (("-o", "a", "--target", "cuda:sm_90a"), "GPC2061"),
        (("-o", "."), "GPC2064"),
        (("-o", "model.onnx"), "GPC2005"),
    ],
)
def test_what_is_wrong_is_told_before_a_model_is_compiled(words, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpucomp.cli.export.open_model", lambda how: pytest.fail("it is compiled"))
    path = written(classifier(), tmp_path)

    assert cli.main(["export", path, *words]) == 2

    assert code in capsys.readouterr().err


def test_files_that_are_no_export_are_not_written_over(tmp_path):
    exe = gpucomp.compile(classifier(), target="cpu")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "CMakeLists.txt").write_text("project(mine)")
    with pytest.raises(UsageError, match=r"GPC2064 .*mine' has files, and no C project net"):
        export_c(exe, mine, name="net")
    (mine / "net.h").write_text("int net(void);")
    with pytest.raises(UsageError, match="GPC2064"):
        export_c(exe, mine, name="net")
    assert sorted(path.name for path in mine.iterdir()) == ["CMakeLists.txt", "net.h"]
    assert (mine / "CMakeLists.txt").read_text() == "project(mine)"

    empty = tmp_path / "empty"
    empty.mkdir()
    files = export_c(exe, empty, name="net")
    (empty / "build").mkdir()
    assert export_c(exe, empty, name="net") == files
    with pytest.raises(UsageError, match="GPC2064"):
        export_c(exe, empty, name="other")


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="GPC2005 cannot write"):
        export_c(gpucomp.compile(classifier(), target="cpu"), tmp_path / "file" / "c")


def test_operators_on_the_host_are_told_all_at_once():
    exe = gpucomp.compile(on_the_host(), target="cpu")
    with pytest.raises(UnsupportedError, match=r"GPC4030 the model cannot be C code: .* problem") as told:
        export_c(exe, None)
    problems = "\n".join(told.value.problems)
    assert "StringConcat at node 'twice' runs on the host, in Python" in problems
    assert "StringConcat at node 'thrice' runs on the host, in Python" in problems
    assert "'words' is of strings" in problems
    assert "'y' is of strings" in problems


def test_shapes_that_depend_on_values_are_refused():
    with pytest.raises(UnsupportedError, match=r"GPC4030 .*NonZero at node 'where' runs on the host"):
        export_c(gpucomp.compile(nonzero(), target="cpu"), None)


def test_code_for_another_processor_needs_the_model(tmp_path):
    other = "cpu:cortex-a72" if host().features & {"sse4.1"} else "cpu:x86-64-v3"
    exe = gpucomp.compile(classifier(), target=other)
    with pytest.raises(UsageError, match="GPC2062 the results of the self-test are recorded here"):
        export_c(exe, tmp_path)


@ON_X86
@NEEDS_CMAKE
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_a_processor_without_the_instructions_is_told_so(level, tmp_path):
    path = written(classifier(), tmp_path)
    assert cli.main(["export", path, "--target", f"cpu:{level}", "-o", str(tmp_path / "c")]) == 0
    programs = cmake(tmp_path / "c")

    if named(f"cpu:{level}").features <= host().features:
        assert "bit for bit" in run(programs / "selftest")
    else:
        with pytest.raises(
            AssertionError, match=f"lacks instructions of cpu:{level}: export the model for a smaller one"
        ):
            run(programs / "selftest")


VECTORS = ("-cpu", "rv64,v=true,vext_spec=v1.0,vlen=128")
WIDER = ("-cpu", "rv64,v=true,vext_spec=v1.0,vlen=256")
# model, target, machine, and what else QEMU is told
OTHERS = {
    "arm": (classifier, "cpu:armv8-a", "aarch64", ()),
    "arm-bytes": (quantized, "cpu:cortex-a76", "aarch64", ()),
    "arm-words": (transformer, "cpu:armv8-a", "aarch64", ()),
    "riscv": (classifier, "cpu:rv64gc", "riscv64", ()),
    "riscv-bytes": (quantized, "cpu:rv64gcv", "riscv64", VECTORS),
    "riscv-words": (transformer, "cpu:rv64gcv", "riscv64", VECTORS),
    "riscv-loop": (recurrent, "cpu:rv64gcv", "riscv64", WIDER),
}


@NEEDS_CMAKE
@pytest.mark.parametrize(("make", "target", "machine", "told"), OTHERS.values(), ids=OTHERS)
def test_code_for_another_processor_runs_in_an_emulator(make, target, machine, told, tmp_path):
    for tool in (f"{machine}-linux-gnu-gcc", f"qemu-{machine}"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    path = written(make(), tmp_path)
    assert cli.main(["export", path, "--target", target, "-o", str(tmp_path / "c")]) == 0
    assert f"qemu-{machine}" in (tmp_path / "c" / "README.md").read_text()
    root = f"/usr/{machine}-linux-gnu"

    programs = cmake(
        tmp_path / "c",
        "-DCMAKE_SYSTEM_NAME=Linux",
        f"-DCMAKE_SYSTEM_PROCESSOR={machine}",
        f"-DCMAKE_C_COMPILER={machine}-linux-gnu-gcc",
        f"-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-{machine};-L;{root};{';'.join(told)}",
        "-DMODEL_POOL=ON",
    )

    assert "outputs are as they were recorded" in run(f"qemu-{machine}", "-L", root, *told, programs / "selftest")
    assert "1/1" in run("ctest", "--test-dir", programs)
    with pytest.raises(AssertionError, match=f"model was exported for {target}: export it for this processor"):
        run("gcc", "-c", "model.c", "-o", tmp_path / "wrong.o", cwd=tmp_path / "c")


def test_code_of_which_gpucomp_runs_none_is_not_loaded():
    exe = gpucomp.compile(classifier(), target="cpu:rv64gc")
    with pytest.raises(DeviceError, match=r"GPC5007 gpucomp runs no code for rv64gc \(riscv64\): .* export -o"):
        exe.run({"image": np.zeros((1, 3, 28, 28), np.float32)})


def test_that_code_is_not_run_is_told_before_it_is_compiled(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpucomp, "compile", lambda *args, **options: pytest.fail("it is compiled"))
    path = written(classifier(), tmp_path)

    assert cli.main(["run", path, "--target", "cpu:rv64gcv"]) != 0

    assert "GPC5007: gpucomp runs no code for rv64gcv" in " ".join(capsys.readouterr().err.split())


def test_arm_code_leaves_the_register_alone_that_systems_keep(tmp_path):
    """x18 is Android's, Apple's and Windows'."""
    exe = gpucomp.compile(transformer(), target="cpu:cortex-a72")
    text = assembly([*map(source_of(exe), exe.plan.kernels)], named("cpu:cortex-a72"))
    assert re.search(r"\bx17\b", text)
    assert not re.search(r"\b[xw]18\b", text)


def source_of(exe):
    return lambda kernel: KernelSource(kernel.name, "llvm", exe.sources[kernel.source], Geometry((1, 1, 1)))


@NEEDS_CMAKE
def test_a_wrong_result_fails_the_self_test(tmp_path):
    """Of both kinds: recorded by the very code, and by other code."""
    exe = gpucomp.compile(classifier(), target="cpu")
    for exact in (True, False):
        folder = tmp_path / f"exact-{exact}"
        export_c(exe, folder)
        if not exact:
            with pytest.MonkeyPatch.context() as patches:
                patches.setattr("gpucomp.export.recording.processor.missing", lambda features: ["something"])
                export_c(exe, folder, elsewhere=lambda: exe)
        programs = cmake(folder)
        run(programs / "selftest")
        data = bytearray((folder / "selftest_data.bin").read_bytes())
        last = np.frombuffer(data, np.float32)  # the features, 16 numbers
        last[-1] += np.abs(last[-16:]).max()
        (folder / "selftest_data.bin").write_bytes(data)
        run("cmake", "--build", programs)
        with pytest.raises(AssertionError, match="features"):
            run(programs / "selftest")


@NEEDS_CMAKE
@pytest.mark.parametrize(
    ("elem_type", "pairs"),
    [
        (TensorProto.INT8, {(0, 0): True, (-1, 0): True, (0, -1): True, (127, -128): False, (-2, 0): False}),
        (TensorProto.UINT8, {(127, 128): True, (255, 0): False, (0, 255): False, (3, 1): False}),
    ],
)
def test_bytes_recorded_by_other_code_may_be_off_by_one(elem_type, pairs, tmp_path, monkeypatch):
    proto = model([node("Identity", ["x"], ["y"])], [value("x", [4], elem_type)], [value("y", [4], elem_type)])
    exe = gpucomp.compile(proto, target="cpu")
    monkeypatch.setattr("gpucomp.export.recording.processor", SimpleNamespace(missing=lambda features: ["something"]))
    export_c(exe, tmp_path, elsewhere=lambda: exe)
    programs = cmake(tmp_path)
    numpy_type = exe.outputs[0].type.dtype.numpy
    for (expected, found), is_right in pairs.items():
        data = np.zeros(128, numpy_type)
        data[3], data[64 + 3] = found, expected  # the input, which comes out, and the output
        (tmp_path / "selftest_data.bin").write_bytes(data.tobytes())
        run("cmake", "--build", programs)
        if is_right:
            run(programs / "selftest")
        else:
            with pytest.raises(AssertionError, match=f"element 3: {expected} expected, found {found}"):
                run(programs / "selftest")


@NEEDS_CMAKE
def test_numbers_that_are_none_end_the_self_test(tmp_path):
    export_c(gpucomp.compile(constant(), target="cpu"), tmp_path, name="net")
    programs = cmake(tmp_path, "-DNET_POOL=ON", flags="-fsanitize=address")
    for words in (("--time", "-1"), ("--time", "0"), ("--time", "5x"), ("--time", ""), ("--threads", "4294967297")):
        with pytest.raises(AssertionError, match=f"selftest: {words[1]}: a number of 1 to "):
            run(programs / "selftest", *words)
    assert "of 5 runs" in run(programs / "selftest", "--time", "5", "--threads", "2")


@NEEDS_CMAKE
def test_the_example_reads_a_picture(tmp_path):
    exe = gpucomp.compile(classifier(), target="cpu")
    export_c(exe, tmp_path / "c", name="net")
    programs = cmake(tmp_path / "c")
    pixels = np.random.default_rng(2).integers(0, 256, (28, 28, 3), np.uint8)
    (tmp_path / "p.ppm").write_bytes(b"P6\n# a comment 12\n28 28\n255\n" + pixels.tobytes())

    lines = run(programs / "example", tmp_path / "p.ppm", "0.5", "0.25").splitlines()

    image = ((pixels.astype(np.float32) / np.float32(255) - np.float32(0.5)) / np.float32(0.25)).transpose(2, 0, 1)[
        None
    ]
    logits = exe.run({"image": np.ascontiguousarray(image)})["logits"][0]
    assert lines[0] == "logits:"
    assert [int(line.split()[0]) for line in lines[1:]] == np.argsort(-logits)[:5].tolist()
    (tmp_path / "short.ppm").write_bytes(b"P6 28 28 255\n12")
    with pytest.raises(AssertionError, match="ends too early"):
        run(programs / "example", tmp_path / "short.ppm")
    with pytest.raises(AssertionError, match="no PPM file"):
        run(programs / "example", tmp_path / "c" / "README.md")


@NEEDS_CMAKE
def test_the_example_reads_numbers_where_no_picture_fits(tmp_path):
    exe = gpucomp.compile(transformer(), target="cpu")
    export_c(exe, tmp_path / "c", name="net")
    programs = cmake(tmp_path / "c")
    words, seen = np.arange(12, dtype=np.int64)[None], np.ones((1, 1, 12), bool)
    (tmp_path / "words.bin").write_bytes(words.tobytes())
    (tmp_path / "seen.bin").write_bytes(seen.tobytes())

    lines = run(programs / "example", tmp_path / "words.bin", tmp_path / "seen.bin").splitlines()

    numbers = exe.run({"words": words, "seen": seen})["y"].reshape(-1)
    assert [int(line.split()[0]) for line in lines[1:]] == np.argsort(-numbers, kind="stable")[:5].tolist()
    with pytest.raises(AssertionError, match="12 bytes expected"):
        run(programs / "example", tmp_path / "words.bin", tmp_path / "words.bin")


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((1, 3, 8, 9), "f32", Picture("x", "float", 3, 8, 9, False)),
        ((1, 8, 9, 3), "u8", Picture("x", "uint8_t", 3, 8, 9, True)),
        ((1, 1, 28, 28), "f32", Picture("x", "float", 1, 28, 28, False)),
        ((2, 3, 8, 9), "f32", None),
        ((1, 4, 8, 9), "f32", None),
        ((1, 3, 8), "f32", None),
        ((1, 3, 8, 9), "i64", None),
    ],
)
def test_which_inputs_are_pictures(shape, dtype, expected):
    assert picture_in(members("INPUT", [TensorSpec("x", dtype, shape)])) == expected


def test_names_come_from_files():
    assert project_name("", "PP-OCRv4 rec (mobile)") == "pp_ocrv4_rec_mobile"
    assert project_name("", "7segments") == "model_7segments"
    assert project_name("", "int") == "int_model"
    assert project_name("", "模型") == "model"
    assert project_name("Net2", "anything") == "Net2"


@pytest.mark.parametrize(
    "name",
    ["time", "string", "math", "stdatomic", "limits", "pthread", "sched", "clean", "help", "edit_cache", "m", "c"],
)
def test_names_that_something_else_has_are_not_taken(name):
    assert project_name("", name) == f"{name}_model"
    with pytest.raises(UsageError, match="GPC2060"):
        project_name(name, "anything")


@NEEDS_CMAKE
def test_tensors_named_as_macros_and_types_compile_in_c_and_cxx(tmp_path):
    names = ["INT8_MAX", "EOF", "NAN", "I", "stdin", "errno", "uint64_t", "SIZE_MAX", "X"]
    nodes = [node("Relu", [name], [f"{name}_out"]) for name in names]
    proto = model(nodes, [value(name) for name in names], [value(f"{name}_out") for name in names])
    export_c(gpucomp.compile(proto, target="cpu"), tmp_path, name="net")

    cmake(tmp_path)

    assert "*X;" in (tmp_path / "net.h").read_text()
    (tmp_path / "main.cc").write_text(
        "#include <climits>\n#include <cmath>\n#include <complex.h>\n#include <cstdio>\n#include <cerrno>\n"
        '#include "net.h"\nnet_inputs inputs;\n'
    )
    if shutil.which("g++"):
        run("g++", "-std=c++20", "-c", "main.cc", "-o", "main.o", cwd=tmp_path)


# Linux's names of features, where they are others
OF_LINUX = {
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "lahf": "lahf_lm",
    "lzcnt": "abm",
    "avx512vnni": "avx512_vnni",
    "avx512fp16": "avx512_fp16",
    "avx512bf16": "avx512_bf16",
    "avxvnni": "avx_vnni",
}
ASKS = """
#include <cpuid.h>
#include <stdio.h>
int main(void)
{
    unsigned leaf1[4], leaf7[4] = {0}, leaf71[4] = {0}, extended[4] = {0};
    __cpuid(1, leaf1[0], leaf1[1], leaf1[2], leaf1[3]);
    __cpuid_count(7, 0, leaf7[0], leaf7[1], leaf7[2], leaf7[3]);
    if (leaf7[0] >= 1)
        __cpuid_count(7, 1, leaf71[0], leaf71[1], leaf71[2], leaf71[3]);
    __cpuid(0x80000001u, extended[0], extended[1], extended[2], extended[3]);
    LINES
    return 0;
}
"""


@ON_X86
@pytest.mark.skipif(not COMPILERS, reason="no C compiler is installed")
def test_features_are_where_linux_finds_them(tmp_path):
    lines = [f'printf("{name} %u\\n", {words} >> {bit} & 1);' for name, (words, bit) in CPUID.items()]
    (tmp_path / "asks.c").write_text(ASKS.replace("LINES", "\n    ".join(lines)))
    run(COMPILERS[0], "asks.c", "-o", "asks", cwd=tmp_path)

    found = dict(line.split() for line in run(tmp_path / "asks").splitlines())

    assert found.pop("osxsave") == "1"  # Linux does not list it
    assert found == {name: str(int(OF_LINUX.get(name, name) in flags())) for name in found}
    assert "1" in found.values()


def plan_of(target: str) -> Plan:
    return gpucomp.compile(classifier(), target=target).plan


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("cpu:x86-64-v2", Asked("x86-64-v2", True)),
        ("cpu:x86-64-v3", Asked("x86-64-v3", True)),
        ("cpu:znver3", Asked("x86-64-v3", False)),
        ("cpu:znver4", Asked("x86-64-v4, avx512bf16, avx512vnni", False)),
        ("cpu:armv8-a", Asked("", False)),
        ("cpu:rv64gcv", Asked("", False)),
    ],
)
def test_a_project_says_how_much_of_a_processor_is_asked_for(target, expected, tmp_path):
    exe = gpucomp.compile(constant(), target=target)
    assert asked(exe.plan) == expected

    export_c(exe, tmp_path, name="net", elsewhere=lambda: gpucomp.compile(constant(), target="cpu"))

    told = {path.name: " ".join(path.read_text().split()) for path in (tmp_path / "README.md", tmp_path / "net.h")}
    if not expected.told:
        assert f"nothing asks the processor whether it has the instructions of {target}" in told["README.md"]
        assert "not returned" in told["net.h"]
    elif expected.whole:
        assert f"for all instructions of {target} before" in told["README.md"]
        assert f"lacks instructions of {target} */" in told["net.h"]
    else:
        assert f"asks the processor for {expected.told} before" in told["README.md"]
        assert f"lacks {expected.told}; {target} may need more" in told["net.h"]


def test_of_this_machine_only_a_level_is_asked_for():
    assert not asked(plan_of("cpu")).whole


def test_what_a_processor_is_asked():
    told = {check.told for check in checks(plan_of("cpu:x86-64-v2"))}
    assert not any("avx" in one or "saves" in one for one in told)
    assert any("sse4.2" in one for one in told)

    features = ", ".join(check.told for check in checks(plan_of("cpu:x86-64-v3")))
    assert "bmi2" in features
    assert "avx512f" not in features
    saved = {
        target: [c.bits for c in checks(plan_of(target)) if c.words == "saved"]
        for target in ("cpu:x86-64-v3", "cpu:x86-64-v4")
    }
    assert saved == {"cpu:x86-64-v3": ["0x6"], "cpu:x86-64-v4": ["0xe6"]}
    assert "avx512bf16" in ", ".join(check.told for check in checks(plan_of("cpu:cooperlake")))
    assert not checks(plan_of("cpu:cortex-a72"))
    assert "__aarch64__" in compiler_of(plan_of("cpu:cortex-a72")).architecture
