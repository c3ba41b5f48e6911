"""Each command prints its result on stdout and ends with the exit code of what happened."""

import json
import sys

import numpy as np
import pytest

import gpucomp
from gpucomp import config
from gpucomp.cli import compare
from gpucomp.errors import DeviceError, KernelBuildError, UnsupportedError, VerifyError
from tests.cli.conftest import X
from tests.runtime.samples import executable

pytestmark = pytest.mark.usefixtures("compiled")


def test_compile_writes_a_file_that_run_takes(command, tmp_path):
    made = command("compile", "model.onnx", "-o", "m.gpuc")
    ran = command("run", "m.gpuc", "--input", "x=x.npy", "--output-dir", "out")

    assert (made.code, ran.code) == (0, 0)
    assert "kernels   2: loops*2" in made.out
    assert "arena     128 B (128 bytes, 1.000 of the largest live set)" in made.out
    assert "'y' f32[3,5] min " in ran.out
    assert made.err == ran.err == ""
    assert np.array_equal(np.load(tmp_path / "out" / "z.npy"), X)


def test_target_and_shapes_reach_the_compiler(command, compiled):
    command("compile", "model.onnx", "--target", "opencl:pocl", "--shapes", "a:b:2x3", "--shapes", "s:", "-o", "m.gpuc")

    assert compiled[0]["target"] == "opencl:pocl"
    assert compiled[0]["shapes"] == {"a:b": (2, 3), "s": ()}


def test_run_takes_one_input_without_its_name(command):
    assert command("run", "model.onnx", "--input", "x.npy").code == 0


def test_bench_prints_trtexec_lines_and_its_method(command):
    ran = command("bench", "model.onnx", "--duration", "0", "--warmup", "0", "--iterations", "7")

    assert ran.code == 0
    assert ran.out.startswith("=== Performance summary ===\nThroughput: ")
    assert "median = " in ran.out
    assert "percentile(99%) = " in ran.out
    assert "of 7 samples)" in ran.out
    assert "Method: cpu, 7 samples after a first run of " in ran.out
    assert "; inputs random (seed 0)" in ran.out


def test_bench_keeps_every_sample_in_its_json(command, tmp_path):
    command(
        "bench",
        "model.onnx",
        "--input",
        "x.npy",
        "--duration",
        "0",
        "--iterations",
        "11",
        "--json",
        "b.json",
        "--percentile",
        "75",
    )

    report = json.loads((tmp_path / "b.json").read_text())

    assert len(report["samples_ms"]) == 11
    assert report["latency_ms"].keys() == {"min", "max", "mean", "median", "p75"}
    assert report["target"] == "cpu"
    assert report["kernels"] == 2
    assert "inputs from files" in report["method"]
    assert report["machine"]["cpus"] >= 1
    assert report["inputs"] == {"x": {"type": "f32", "shape": [3, 5]}}
    assert report["device"].startswith(report["machine"]["processor"])
    assert report["date"].startswith("20")


def test_bench_counts_copies_when_asked(command, tmp_path):
    short = ("bench", "model.onnx", "--duration", "0", "--warmup", "0", "--json", "b.json")
    assert "Copies of a run" not in command(*short).out
    assert "copies" not in json.loads((tmp_path / "b.json").read_text())

    ran = command(*short, "--copies")

    lines = [line for line in ran.out.splitlines() if line.startswith("Copies of a run ")]
    assert [line.partition(": ")[0].removeprefix("Copies of a run ") for line in lines] == [
        "from numpy arrays to numpy arrays",
        "with inputs and results on the device",
    ]
    assert json.loads((tmp_path / "b.json").read_text())["copies"].keys() == {"numpy", "device"}


def test_bench_prints_nothing_but_json_when_asked(command):
    ran = command("bench", "model.onnx", "--duration", "0", "--json", "-")

    assert json.loads(ran.out)["first_run_ms"] > 0


def test_inspect_shows_every_kernel_and_why_it_ends(command):
    command("compile", "model.onnx", "-o", "m.gpuc")

    ran = command("inspect", "m.gpuc", "--kernels")

    header, first, second, *memory = ran.out.splitlines()
    assert header.split() == ["#", "kernel", "family", "operators", "schedule", "tier", "why", "it", "ends", "there"]
    assert first.split("  ")[0].strip() == "1"
    assert "mul 3x5" in first
    assert "Mul" in first
    assert "vector=8" in first
    assert "its result is read twice" in first
    assert "Add Relu" in second
    assert "default" in second
    assert memory[0].startswith("arena")


def test_inspect_writes_the_sources(command, tmp_path):
    command("compile", "model.onnx", "-o", "m.gpuc")
    ran = command("inspect", "m.gpuc", "--sources", "src")

    assert ran.out == "2 sources -> src\n"
    assert (tmp_path / "src" / "k1.ll").read_text() == executable().sources["k1.ll"]


def test_inspect_reads_a_compiled_model(command):
    command("compile", "model.onnx", "-o", "m.gpuc")

    ran = command("inspect", "m.gpuc")

    assert ran.code == 0
    assert "model     'sample'" in ran.out
    assert "input     x: f32[3,5]" in ran.out


@pytest.mark.parametrize("option", ["--passes", "--graph=after"])
def test_inspect_knows_that_a_compiled_model_has_no_graph(command, option):
    command("compile", "model.onnx", "-o", "m.gpuc")

    ran = command("inspect", "m.gpuc", option)

    asked = option.replace("=", " ")
    assert ran.code == 2
    assert ran.error.startswith("error GPC2033: 'm.gpuc' is compiled and holds no graph; ask the model: ")
    assert ran.error.endswith(f"gpucomp inspect MODEL.onnx {asked} --target cpu")


@pytest.mark.parametrize(
    ("arguments", "command_of_the_model"),
    [
        (("inspect", "--why"), "gpucomp inspect MODEL.onnx --why --target cpu"),
        (("inspect", "--spaces"), "gpucomp inspect MODEL.onnx --spaces --target cpu"),
        (("inspect", "--graph", "-o", "g.html"), "gpucomp inspect MODEL.onnx --graph -o g.html --target cpu"),
        (("bench", "--static"), "gpucomp bench MODEL.onnx --static --target cpu"),
        (("run", "--compare", "onnxruntime"), "gpucomp run MODEL.onnx --compare onnxruntime --target cpu"),
        (("bench", "--static", "--target", "cuda:sm_80"), "gpucomp bench MODEL.onnx --static --target cuda:sm_80"),
        (("compare",), "gpucomp compare MODEL.onnx --target cpu"),
    ],
)
def test_what_only_the_model_knows_is_told_with_the_command_that_asks_it(command, arguments, command_of_the_model):
    command("compile", "model.onnx", "-o", "m.gpuc")

    ran = command(arguments[0], "m.gpuc", *arguments[1:])

    assert ran.code == 2
    assert ran.error.startswith("error GPC2033: 'm.gpuc' is compiled and holds no ")
    assert ran.error.endswith(command_of_the_model)


def test_doctor_names_what_it_looked_at(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)

    ran = command("doctor")

    assert ran.code == 0
    for heading in ("gpucomp", "packages", "cpu", "opencl", "cuda", "tools for the tests", "settings"):
        assert f"{heading}\n" in ran.out
    assert "pip install 'pyopencl[pocl]>=2025.1'" in ran.out
    assert "usable cores" in ran.out


def test_doctor_writes_settings_as_their_variables_are_written(command, monkeypatch):
    settings = {"verify": False, "threads": 0, "records": config.SHIPPED}
    with config.using(**settings):
        rows = dict(line.split(maxsplit=1) for line in command("doctor").out.split("settings\n")[1].splitlines())

    assert rows["GPUCOMP_VERIFY"] == "0"
    assert rows["GPUCOMP_THREADS"] == "0: one for each usable core"
    assert rows["GPUCOMP_RECORDS"] == "not set: the records of the package"


def test_version_and_help_end_well(command):
    assert command("--version").out == f"gpucomp {gpucomp.__version__}\n"
    assert command("run", "--help").code == 0
    assert "Usage" in command("-h").out


def test_comparing_a_right_answer_ends_well(command, monkeypatch):
    exe = executable()
    right = {"y": X * exe.weights["w0"] + exe.weights["w1"], "z": X}
    monkeypatch.setattr(compare, "onnxruntime_outputs", lambda model, inputs: right)
    monkeypatch.setattr(compare, "tolerance_for", lambda model, precision: 1e-4)

    ran = command("run", "model.onnx", "--input", "x.npy", "--compare", "onnxruntime")

    assert ran.code == 0
    assert ran.out.count(" ok") == 2


def test_comparing_a_wrong_answer_ends_with_6(command, monkeypatch):
    monkeypatch.setattr(compare, "onnxruntime_outputs", lambda model, inputs: {"y": X, "z": X * np.float32(1.001)})

    ran = command("run", "model.onnx", "--input", "x.npy", "--compare", "onnxruntime", "--tolerance", "0.01")

    assert ran.code == 6
    assert ran.error.startswith("error GPC6001: output 'y' differs from onnxruntime: relative L2 error ")
    assert "allowed: 0.01 relative + 1e-06 absolute (1 of 2 outputs are wrong); " in ran.error
    assert ran.error.endswith("gpucomp compare model.onnx finds the first wrong tensor, and who is right")
    assert [line.split()[-1] for line in ran.out.splitlines() if line.startswith(("'y' ", "'z' "))][-2:] == [
        "WRONG",
        "ok",
    ]


def test_an_output_near_zero_is_not_wrong_for_a_rounding_of_one(command, monkeypatch):
    exe = executable()
    tiny = X * exe.weights["w0"] + exe.weights["w1"] + np.float32(2e-7)
    monkeypatch.setattr(compare, "onnxruntime_outputs", lambda model, inputs: {"y": tiny, "z": X})
    strict = ("run", "model.onnx", "--input", "x.npy", "--compare", "onnxruntime", "--tolerance", "0")

    assert command(*strict).code == 0
    assert command(*strict, "--atol", "0").code == 6


def failing(monkeypatch, error):
    def compile(*arguments, **options):
        raise error

    monkeypatch.setitem(vars(gpucomp), "compile", compile)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (DeviceError("no OpenCL device 'mali': run gpucomp doctor"), 5, "error GPC5000: no OpenCL device 'mali'"),
        (KernelBuildError("k3: 2 errors"), 5, "error GPC5100: k3: 2 errors"),
        (VerifyError("after pass 'fold': node 3\nhas no type"), 1, "error GPC9000: after pass 'fold': node 3 has no"),
        (MemoryError("Unable to allocate 4 TiB"), 1, "error GPC1001: out of memory: Unable to allocate 4 TiB"),
        (MemoryError(), 1, "error GPC1001: out of memory"),
        (DeviceError("\x1b[31mred\x07\u202e"), 5, "error GPC5000: \\x1b[31mred\\x07\\u202e"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(command, monkeypatch, error, code, line):
    failing(monkeypatch, error)

    ran = command("run", "model.onnx")

    assert ran.code == code
    assert ran.err.lstrip().startswith(line)  # after ^C the cursor is on a line of its own
    assert len(ran.err.split("\n")) <= 3
    assert ran.out == ""


def test_every_unsupported_case_has_its_line(command, monkeypatch):
    failing(monkeypatch, UnsupportedError("2 cases", problems=("NonMaxSuppression at 'n'", "Loop at 'm\n'")))

    ran = command("compile", "model.onnx", "-o", "m.gpuc")

    assert ran.code == 4
    assert ran.err.splitlines() == ["error GPC4000: 2 cases", "  NonMaxSuppression at 'n'", "  Loop at 'm '"]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["frob"], 2, "error GPC2000: No such command 'frob'; see gpucomp --help"),
        (["explain"], 2, "error GPC2000: no command 'explain': gpucomp inspect does that; see gpucomp --help"),
        (["run"], 2, "error GPC2000: Missing argument 'MODEL'; see gpucomp run --help"),
        (["compile", "model.onnx"], 2, "error GPC2000: Missing option '-o' / '--output'; see gpucomp compile --help"),
        (["compile", "model.onnx", "-o", "m.bin"], 2, "error GPC2008: --output 'm.bin': a name that ends in .gpuc"),
        (["compile", "m.gpuc", "-o", "n.gpuc"], 2, "error GPC2034: 'm.gpuc' is compiled already; gpucomp run"),
        (["run", "none.onnx"], 3, "error GPC3001: model 'none.onnx': no such file or directory"),
        (["run", "none.gpuc"], 3, "error GPC7005: cannot read 'none.gpuc': No such file or directory"),
        (["run", "bad.gpuc"], 3, "error GPC7001: 'bad.gpuc' is not a compiled model: "),
        (["run", "bad.gpuc", "--compare", "onnxruntime"], 3, "error GPC7001: 'bad.gpuc' is not a compiled model: "),
        (["run", "model.onnx", "--shapes", "x"], 2, "error GPC2024: --shapes 'x': NAME:1x3x224x224 expected"),
        (["run", "model.onnx", "--shapes", "x:1x-3"], 2, "error GPC2024: --shapes 'x:1x-3': NAME:1x3x224x224 expected"),
        (["run", "model.onnx", "--shapes", "x:" + "9" * 99], 2, "error GPC2024: --shapes "),
        (["run", "model.onnx", "--shapes", "x:1", "--shapes", "x:2"], 2, "error GPC2026: --shapes: input 'x' is given"),
        (["run", "model.onnx", "--constants", "x"], 2, "error GPC2025: --constants 'x': NAME=VALUE expected"),
        (
            ["run", "model.onnx", "--constants=x=1", "--constants=x=2"],
            2,
            "error GPC2026: --constants: input 'x' is given",
        ),
        (["check", "m.gpuc"], 2, "error GPC2034: 'm.gpuc' is compiled already; gpucomp run"),
        (
            ["run", "model.onnx", "--target", "tpu"],
            2,
            "error GPC2002: unknown target 'tpu'; targets are auto, cpu, cpu:PROCESSOR, opencl, opencl:NAME",
        ),
        (["bench", "model.onnx", "--static", "--copies"], 2, "error GPC2028: --static measures nothing, --profile, "),
        (["bench", "model.onnx", "--static", "--profile"], 2, "error GPC2028: --static measures nothing, --profile, "),
        (["run", "model.onnx"], 2, "error GPC2109: not all inputs are given, missing: 'x' f32[3,5]; give each a"),
        (
            ["run", "model.onnx", "--input", "q=x.npy"],
            2,
            "error GPC2101: --input 'q=x.npy': no such input; the model's",
        ),
        (
            ["run", "model.onnx", "--input", "x.npy", "--input", "x=x.npy"],
            2,
            "error GPC2026: --input: input 'x' is given twice; give it once",
        ),
        (["run", "model.onnx", "--input", "x=none.npy"], 2, "error GPC2004: cannot read 'none.npy': No such file or"),
        (["run", "model.onnx", "--input", "x=."], 2, "error GPC2003: '.': a file of one of these kinds expected: .npy"),
        (
            ["run", "model.onnx", "--input", "x=model.onnx"],
            2,
            "error GPC2003: 'model.onnx': a file of one of these kinds",
        ),
        (["run", "model.onnx", "--input", "x=bad.npy"], 2, "error GPC2004: cannot read 'bad.npy': "),
        (["run", "model.onnx", "--input", "x=bad.npz"], 2, "error GPC2004: cannot read 'bad.npz': "),
        (["run", "model.onnx", "--input", "x=bad.pb"], 2, "error GPC2004: cannot read 'bad.pb': "),
        (
            ["run", "model.onnx", "--input", "x=bad.jpg"],
            2,
            "error GPC2003: input 'x' is f32[3,5]; for a photo [1, C, H, W] or [1, H, W, C] expected",
        ),
        (["run", "model.onnx", "--input", "x=pickled.npy"], 2, "error GPC2004: cannot read 'pickled.npy': "),
        (
            ["run", "model.onnx", "--input", "x=wide.npy"],
            2,
            "error GPC2103: input 'x': shape [3, 5] expected, found [3",
        ),
        (
            ["run", "model.onnx", "--input", "x=double.npy"],
            2,
            "error GPC2104: input 'x': element type f32 (float32) exp",
        ),
        (["run", "model.onnx", "--tolerance", "x"], 2, "error GPC2000: Invalid value for '--tolerance'"),
        (["bench", "model.onnx", "--percentile", "0"], 2, "error GPC2027: --percentile '0': numbers above 0"),
        (["bench", "model.onnx", "--percentile", "a,b"], 2, "error GPC2027: --percentile 'a,b': numbers above 0"),
        (
            ["bench", "model.onnx", "--duration=0", "--json", "no/b"],
            2,
            "error GPC2005: cannot write 'no/b': No such file",
        ),
        (["inspect", "model.onnx", "--graph", "middle"], 2, "error GPC2000: Invalid value for '--graph'"),
        (["inspect", "model.onnx", "--sources", "x.npy/d"], 2, "error GPC2005: cannot write to 'x.npy/d': Not a dir"),
        (
            ["run", "model.onnx", "--input=x.npy", "--output-dir", "x.npy"],
            2,
            "error GPC2005: cannot write to 'x.npy': Fi",
        ),
        (["compile", "model.onnx", "-o", "no/m.gpuc"], 3, "error GPC7005: cannot write 'no/m.gpuc': No such file"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_a_wrong_call_is_one_line_and_an_exit_code(command, tmp_path, arguments, code, line):
    for name in ("bad.gpuc", "bad.npy", "bad.npz", "bad.pb", "bad.jpg"):
        (tmp_path / name).write_bytes(b"\x93NUMPY\x01\x00\xff\xff not what it says")
    np.save(tmp_path / "wide.npy", np.zeros((3, 7), np.float32))
    np.save(tmp_path / "double.npy", np.zeros((3, 5)))
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)

    ran = command(*arguments)

    assert ran.error.startswith(line)
    assert ran.code == code


def test_a_compiled_model_is_not_run_on_another_target(command):
    command("compile", "model.onnx", "-o", "m.gpuc")

    other = command("run", "m.gpuc", "--target", "cuda:sm_90a")
    shaped = command("run", "m.gpuc", "--shapes", "x:3x5")

    late = "error GPC2007: 'm.gpuc' is compiled for cpu at fp32, too late for {}: compile the .onnx model again with it"
    assert other.error == late.format("--target")
    assert shaped.error == late.format("--shapes")


def test_a_file_that_only_claims_to_be_large_is_refused(command, tmp_path):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }"
    header += b" " * (117 - len(header)) + b"\n"
    (tmp_path / "huge.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)

    ran = command("run", "model.onnx", "--input", "x=huge.npy")

    assert ran.code == 2
    assert ran.error.startswith("error GPC2004: cannot read 'huge.npy': ")


def test_precision_and_what_keeps_f32_reach_the_compiler(command, compiled):
    assert command("compile", "model.onnx", "-o", "m.gpuc", "--precision", "fp16", "--keep-fp32", "Soft*").code == 0

    (call,) = compiled
    assert (call["precision"], call["keep_fp32"]) == ("fp16", ("Soft*",))


def test_a_compiled_model_has_the_precision_it_was_compiled_at(command, compiled):
    command("compile", "model.onnx", "-o", "m.gpuc")

    found = command("run", "m.gpuc", "--precision", "fp16")

    assert found.code == 2
    assert "compiled for cpu at fp32, too late for --precision" in found.error
