"""Commands with sizes that each run decides: those that take them, and those that say that they do not."""

import json
import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import gpucomp
from gpucomp.cli import show
from tests.onnx_builders import model, node, value

SHAPES = "x:{n:1..8}x{h:8..64:8}"


@pytest.fixture
def saved(tmp_path):
    halves = model(
        [node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2), node("Add", ["a", "b"], ["y"])],
        [value("x", ["n", "k"])],
        [value("y", None)],
    )
    onnx.save(halves, tmp_path / "m.onnx")
    np.save(tmp_path / "array.npy", np.ones((3, 24), np.float32))
    np.save(tmp_path / "odd.npy", np.ones((3, 25), np.float32))
    return tmp_path


def test_check_says_what_each_run_decides(saved, command):
    told = command("check", saved / "m.onnx", "--shapes", SHAPES).out.splitlines()

    assert told[:3] == [
        "n: 1 to 8, in 'x', says the given shape of input 'x'",
        "h: 8 to 64, a multiple of 8, in 'x', says the given shape of input 'x'",
        "output y: f32[n,h/2]",
    ]
    assert told[-1].endswith("everything can be compiled for cpu")


def test_check_says_what_sizes_must_satisfy(saved, command):
    told = command("check", saved / "m.onnx", "--shapes", "x:{n}x{k}").out.splitlines()

    assert "where 2*floor((k + 1)/2) == k" in told


def test_run_takes_an_array_of_any_size_in_the_range(saved, command):
    done = command(
        "run", saved / "m.onnx", "--shapes", SHAPES, "--input", f"x={saved / 'array.npy'}", "--output-dir", saved
    )

    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(saved / "y.npy"), np.full((3, 12), 2, np.float32))


@pytest.mark.parametrize("given", ["x={}", "{}"])
def test_run_takes_an_archive_of_any_size_in_the_range(saved, command, given):
    np.savez(saved / "arrays.npz", x=np.ones((3, 24), np.float32))
    files = given.format(saved / "arrays.npz")

    done = command("run", saved / "m.onnx", "--shapes", SHAPES, "--input", files, "--output-dir", saved)

    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(saved / "y.npy"), np.full((3, 12), 2, np.float32))


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ((3, 4, 5), "GPC2103: '{}': input 'x': shape [n, h] expected, found [3, 4, 5]"),
        ((3, 25), "GPC2111: '{}': input 'x': dimension 1, 'h', is 25, 8 to 64, a multiple of 8 expected"),
    ],
)
def test_an_array_without_a_name_is_told_by_the_input_that_it_is_for(saved, command, shape, told):
    np.savez(saved / "arrays.npz", np.ones(shape, np.float32))

    done = command("run", saved / "m.onnx", "--shapes", SHAPES, "--input", f"x={saved / 'arrays.npz'}")

    assert (done.code, told.format(saved / "arrays.npz") in done.err) == (2, True), done.err


def test_run_tells_a_size_outside_the_range(saved, command):
    done = command("run", saved / "m.onnx", "--shapes", SHAPES, "--input", f"x={saved / 'odd.npy'}")

    assert done.code == 2
    assert "GPC2111" in done.err
    assert "'h' is 25, 8 to 64, a multiple of 8 expected" in done.err


@pytest.mark.parametrize("name", ["bench", "compare"])
def test_what_is_of_one_set_of_sizes_says_so(saved, command, name):
    done = command(name, saved / "m.onnx", "--shapes", SHAPES)

    assert done.code == 2
    assert "GPC2017" in done.err
    assert name != "compare" or "--compare onnxruntime takes sizes that each run decides" in done.err


def test_bench_says_before_it_compiles_that_it_measures_one_set_of_sizes(saved, command, monkeypatch):
    monkeypatch.setattr("gpucomp.compile", None)

    for more in ((), ("--static", "--target", "cuda:sm_80")):
        told = command("bench", saved / "m.onnx", "--shapes", SHAPES, *more).error
        assert told.startswith(
            "error GPC2017: --shapes leaves 'n', 'h' to each run, and this measures one set of sizes: "
        )
        assert ("--input" in told, "--shapes-from" in told) == (not more, True)


@pytest.fixture
def compiled(saved, command):
    done = command("compile", saved / "m.onnx", "--shapes", SHAPES, "-o", saved / "m.gpuc")
    assert done.code == 0, done.err
    return saved


def test_compile_writes_a_file_for_any_size(compiled, command):
    done = command("run", compiled / "m.gpuc", "--input", f"x={compiled / 'array.npy'}", "--output-dir", compiled)

    assert done.code == 0, done.err
    np.testing.assert_array_equal(np.load(compiled / "y.npy"), np.full((3, 12), 2, np.float32))


def test_compile_says_why_there_is_no_such_file(saved, command):
    onnx.save(model([node("NonZero", ["x"], ["y"])], [value("x", ["n"])], ["y"]), saved / "v.onnx")

    done = command("compile", saved / "v.onnx", "--shapes", "x:{n}", "-o", saved / "v.gpuc")

    assert (done.code, "GPC2017" in done.err) == (2, True)
    assert "has no file (shapes depend on values); give a number for each in --shapes" in done.err
    assert not (saved / "v.gpuc").exists()


@pytest.mark.parametrize("options", [["m.gpuc"], ["m.onnx", "--shapes", SHAPES]], ids=["file", "model"])
def test_inspect_explains_a_model_for_any_size(compiled, command, options):
    told = command("inspect", compiled / options[0], *options[1:]).out.splitlines()

    assert "size      n: 1 to 8, says the given shape of input 'x'" in told
    assert "size      h: 8 to 64, a multiple of 8, says the given shape of input 'x'" in told
    assert "input     x: f32[n,h]" in told
    assert "output    y: f32[n,h/2]" in told
    assert any(line.startswith("kernels   1: ") for line in told)


def test_inspect_lists_kernels_with_the_numbers_of_a_run(compiled, command):
    told = command("inspect", compiled / "m.gpuc", "--kernels").out

    assert "numbers of a run" in told
    assert "h/2" in told


def test_inspect_writes_the_sources_of_a_file_for_any_size(compiled, command):
    done = command("inspect", compiled / "m.gpuc", "--sources", compiled / "sources")

    assert done.code == 0, done.err
    assert len(list((compiled / "sources").iterdir())) == 1


@pytest.mark.parametrize("options", [["m.gpuc"], ["m.onnx", "--shapes", SHAPES]], ids=["file", "model"])
def test_bench_takes_the_sizes_of_its_inputs(compiled, command, options):
    short = ("--duration", "0", "--warmup", "0", "--iterations", "2", "--json", compiled / "r.json", "--profile")

    done = command("bench", compiled / options[0], *options[1:], "--input", f"x={compiled / 'array.npy'}", *short)

    assert done.code == 0, done.err
    found = json.loads((compiled / "r.json").read_text())
    assert found["sizes"] == {"n": 3, "h": 24}
    assert found["kernels"] == len(found["profile"]["kernels"]) == 1
    (kernel,) = found["profile"]["kernels"]
    assert kernel["ms"] > 0
    assert kernel["operations"] is kernel["floor_ms"] is None  # what it does is known for another size only
    assert "no floor: what kernels for any size do is not counted" in done.out


def test_bench_takes_sizes_that_one_input_tells_of_the_others(tmp_path, command):
    halves = model([node("Add", ["x", "z"], ["y"])], [value("x", ["n", 4]), value("z", ["n", 4])], [value("y", None)])
    onnx.save(halves, tmp_path / "m.onnx")
    np.save(tmp_path / "z.npy", np.ones((3, 4), np.float32))
    options = ("--shapes", "x:{n}x4", "--duration", "0", "--warmup", "0", "--iterations", "2")

    done = command("bench", tmp_path / "m.onnx", *options, "--input", f"z={tmp_path / 'z.npy'}")

    assert done.code == 0, done.err
    assert "1 of 2 inputs random (seed 0)" in done.out


def test_bench_says_which_input_does_not_tell_its_sizes(tmp_path, command):
    add = model([node("Add", ["x", "z"], ["y"])], [value("x", ["n", 4]), value("z", ["k", 4])], [value("y", None)])
    onnx.save(add, tmp_path / "m.onnx")
    np.save(tmp_path / "z.npy", np.ones((1, 4), np.float32))

    done = command("bench", tmp_path / "m.onnx", "--shapes", "x:{n}x4", "--input", f"z={tmp_path / 'z.npy'}")

    assert "each run decides 'n': give an array of the size to measure with --input x=FILE, or many sizes" in done.err


def trace(folder, *lines):
    (folder / "trace.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "trace.jsonl"


def test_bench_of_a_file_for_any_size_needs_inputs_or_a_trace(compiled, command):
    told = command("bench", compiled / "m.gpuc").error

    assert told.startswith("error GPC2017: ")
    assert "m.gpuc' leaves 'n', 'h' to each run" in told
    assert all(option in told for option in ("--input", "--shapes-from"))


def test_bench_runs_a_trace(compiled, command):
    path = trace(compiled, '{"n": 1, "h": 8}', '{"x": [3, 24]}', "", '{"h": 8, "n": 1}')

    done = command("bench", compiled / "m.gpuc", "--shapes-from", path, "--json", compiled / "r.json")

    assert done.code == 0, done.err
    assert "ms for 3 runs of 2 sets of sizes from 'trace.jsonl'" in done.out
    found = json.loads((compiled / "r.json").read_text())
    assert found["sizes"] == [{"n": 1, "h": 8}, {"n": 3, "h": 24}, {"n": 1, "h": 8}]
    assert len(found["samples_ms"]) == 3


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("{", "GPC2035", "line 2: a JSON object with a size for each of 'n', 'h' expected"),
        ("[1, 8]", "GPC2035", "line 2: a JSON object with a size for each of 'n', 'h' expected"),
        ("[" * 5000, "GPC2035", "line 2: a JSON object"),
        ('{"n": 1}', "GPC2111", "dimension 'h' has no size, 8 to 64, a multiple of 8 expected"),
        ('{"n": 9, "h": 8}', "GPC2111", "dimension 'n' is 9, 1 to 8 expected, as the given shape of input 'x' says"),
        ('{"n": -1, "h": 8}', "GPC2111", "dimension 'n' is -1, 1 to 8 expected"),
        ('{"n": true, "h": 8}', "GPC2035", "line 2: a list of 2 sizes for input 'x' expected"),
        ('{"x": [1, 2, 3]}', "GPC2035", "line 2: a list of 2 sizes for input 'x' expected"),
        ('{"x": [1, 9]}', "GPC2111", "dimension 1 of input 'x': 'h' is 9"),
        ('{"k": 1}', "GPC2111", "the model has no dimension 'k'; its dimensions are 'n', 'h'"),
    ],
)
def test_a_wrong_trace_is_told(compiled, command, line, code, told):
    done = command("bench", compiled / "m.gpuc", "--shapes-from", trace(compiled, '{"n": 1, "h": 8}', line))

    assert done.code == 2
    assert code in done.err
    assert told in done.err


def test_schedules_are_chosen_for_the_middle_of_a_trace(saved, command):
    path = trace(saved, *['{"n": 2, "h": 56}'] * 3, '{"n": 1, "h": 8}', '{"n": 8, "h": 64}')

    done = command("compile", saved / "m.onnx", "--shapes", SHAPES, "--shapes-from", path, "-o", saved / "m.gpuc")

    assert done.code == 0, done.err
    assert gpucomp.load(saved / "m.gpuc").program.example == {"n": 2, "h": 56}


def test_a_trace_with_a_size_outside_the_range_is_told_by_compile(saved, command):
    path = trace(saved, '{"n": 1, "h": 8}', '{"n": 9, "h": 8}')
    done = command("compile", saved / "m.onnx", "--shapes", SHAPES, "--shapes-from", path, "-o", saved / "m.gpuc")
    fixed = command("compile", saved / "m.onnx", "--shapes", "x:1x8", "--shapes-from", path, "-o", saved / "m.gpuc")

    assert "GPC2111" in done.err
    assert "dimension 'n' is 9, 1 to 8 expected" in done.err
    assert "error GPC2028: --shapes-from needs a model for any size: give --shapes such as" in fixed.err


def test_a_trace_needs_a_model_for_any_size(saved, command):
    path = trace(saved, '{"n": 1}')
    command("compile", saved / "m.onnx", "--shapes", "x:1x8", "-o", saved / "one.gpuc")

    late = (
        "one.gpuc' is compiled for one set of sizes, too late for --shapes-from: compile the .onnx model for any size"
    )
    assert late in command("bench", saved / "one.gpuc", "--shapes-from", path).err
    assert "error GPC2028: --shapes-from needs" in command("bench", saved / "m.onnx", "--shapes-from", path).err
    done = command("bench", saved / "m.onnx", "--shapes", SHAPES, "--shapes-from", saved / "none.jsonl")
    assert "error GPC2004: cannot read" in done.err


@pytest.mark.parametrize("dim", ["{n:-1..8}", "{n:1..99999999999}", "{n:1-8}", "{n:1..8:0.5}"])
def test_a_range_that_cannot_be_read_is_told_with_its_name(saved, command, dim):
    done = command("compile", saved / "m.onnx", "--shapes", f"x:{dim}x4", "-o", saved / "m.gpuc")

    assert done.code == 2
    assert f"'{dim}': a size that each run decides is {{n}}, {{n:1..8}}, or with a multiple" in done.err


@pytest.fixture
def product(tmp_path):
    weights = numpy_helper.from_array(np.ones((384, 768), np.float32), "w")
    onnx.save(
        model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["m", 384])], [value("y", None)], [weights]),
        tmp_path / "product.onnx",
    )
    return tmp_path / "product.onnx"


def test_inspect_prints_where_a_kernel_changes_its_schedule(product, command):
    done = command("inspect", product, "--shapes", "x:{m:1..8192}x384", "--regret", "--target", "cuda:sm_86")

    assert done.code == 0, done.err
    rows = done.out.splitlines()[1:]
    assert len(rows) in (2, 3)
    assert re.search(r" m < \d+ ", rows[0])
    assert re.search(r" m >= \d+ ", rows[-1])
    assert all(1.0 <= float(row.rsplit("m=", 1)[0].split()[-1]) < 2 for row in rows)


def test_a_schedule_between_two_others_has_both_ends():
    assert show.ranges("b", (0, 19, 300)) == ["b < 19", "19 <= b < 300", "b >= 300"]


@pytest.mark.parametrize(
    ("shapes", "told"), [("x:{m:8000..8192}x384", "one schedule for all sizes"), ("x:6x384", "no size is open")]
)
def test_inspect_tells_of_no_variants(product, command, shapes, told):
    assert told in command("inspect", product, "--shapes", shapes, "--regret").out
