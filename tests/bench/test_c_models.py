"""``bench.c_models``: C gives Python's bits at every level, differences are told, and what an interval of ratios is."""

import json

import numpy as np
import pytest

from bench.c_models import __main__ as program
from bench.c_models import latency, levels, report, script
from bench.c_models.latency import Latency, interval
from bench.c_models.levels import Row, judged
from bench.c_models.models import MODELS, Model, photos
from bench.c_models.script import Order, Step
from gpucomp import Dim
from gpucomp.runtime.inputs import TensorSpec
from testing.c_library import COMPILERS
from tests.onnx_builders import model, node, value

pytestmark = pytest.mark.skipif(not COMPILERS, reason="no C compiler")
HERE = [level for level in levels.LEVELS if not levels.missing(level)]
FIXED = model([node("Exp", ["x"], ["y"]), node("Identity", ["y"], ["z"])], [value("x", [2, 5])], [value("y", [2, 5])])
FILTER = model(
    [
        node("Mul", ["h", "half"], ["a"]),
        node("Add", ["a", "x"], ["hn"]),
        node("Exp", ["x"], ["e"]),
        node("Concat", ["hn", "e"], ["y"], axis=1),
    ],
    [value("x", ["n", 3]), value("h", ["n", 3])],
    [value("y", ["n", 6]), value("hn", ["n", 3])],
    weights={"half": np.full((), 0.5, np.float32)},
)
SHAPE = (Dim("n", 1, 8), 3)
SMALL = {
    "fixed": Model(FIXED.SerializeToString),
    "filter": Model(
        FILTER.SerializeToString,
        {"shapes": {"x": SHAPE, "h": SHAPE}, "states": {"h": "hn"}},
        ({"n": 5},) * 3,
        ({"n": 2},) * 3,
    ),
    "sizes": Model(
        model(
            [node("Exp", ["x"], ["y"]), node("Transpose", ["y"], ["t"])], [value("x", ["n", 3])], [value("t", [3, "n"])]
        ).SerializeToString,
        {"shapes": {"x": SHAPE}},
        ({"n": 7}, {"n": 2}, {"n": 8}),
        ({"n": 3}, {"n": 5}),
    ),
}


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Small models in the place of the real ones. Returns the file of results."""
    for name in list(MODELS):
        monkeypatch.delitem(MODELS, name)
    MODELS.update(SMALL)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "c_models.json")
    yield report.RESULTS
    for name in SMALL:
        del MODELS[name]


QUICK = ("x86-64-v2", "aarch64", "wasm32")


@pytest.mark.parametrize(
    "level", [level if level in QUICK else pytest.param(level, marks=pytest.mark.slow) for level in levels.LEVELS]
)
def test_c_gives_the_bits_of_python(small, level, capsys):
    if level not in HERE:
        pytest.skip(f"{level}: no {', '.join(levels.missing(level))}")

    assert program.main(["--level", level, "--write"]) == 0

    found, _, _ = report.stored(small)
    runs = [2, 3, 3] if not levels.LEVELS[level].few else [1, 3, 2]
    assert [(row.model, row.runs) for row in found] == list(zip(SMALL, runs, strict=True))
    assert {row.bits for row in found} == {None if level == "wasm32" else True}
    assert all(0 <= row.worst < 1e-6 for row in found)
    assert f"{level:10} 3 runs" in capsys.readouterr().out


def test_the_page_keeps_what_was_measured_before(small):
    program.main(["fixed", "--level", HERE[0], "--write"])
    program.main(["sizes", "--level", HERE[0], "--write"])
    times = ["--latency", "--threads", "1", "--pairs", "2", "--rounds", "3", "--write"]
    assert program.main(["fixed", *times]) in (0, 1)

    assert [row["model"] for row in json.loads(small.read_text())["bits"]] == ["fixed", "sizes"]
    (latency,) = report.stored(small)[1]
    assert (latency.model, latency.threads, latency.pairs, latency.rounds) == ("fixed", 1, 2, 3)
    assert 0 < latency.low <= latency.ratio <= latency.high
    page = small.with_suffix(".md").read_text()
    assert "2 of 2 right." in page
    assert f"| fixed | 1 | {latency.c_us:.1f} |" in page


def test_a_model_with_states_is_measured(small, capsys):
    program.main(["filter", "--latency", "--threads", "2", "--pairs", "1", "--rounds", "1"])
    assert "filter             2 threads   C" in capsys.readouterr().out


def test_a_difference_of_one_bit_is_told(small, monkeypatch, capsys):
    right = levels.on_processor

    def another(made):
        every, python = right(made)
        array = python[-1]["y"] = python[-1]["y"].copy()
        array.view(np.uint32)[0, 0] ^= 1
        return every, python

    level = levels.LEVELS[HERE[0]]
    monkeypatch.setitem(levels.LEVELS, HERE[0], levels.replace(level, run=another))

    assert program.main(["fixed", "--level", HERE[0]]) == 1
    assert "bits DIFFERENT" in capsys.readouterr().out


def test_a_refusal_and_an_error_of_a_program_are_told(small, monkeypatch, capsys):
    monkeypatch.setitem(MODELS, "fixed", Model(FIXED.SerializeToString, {"shapes": {"x": (3, 3)}}))
    assert program.main(["fixed", "--level", HERE[0]]) == 1
    assert "FAILED: GPC" in capsys.readouterr().out

    monkeypatch.setitem(MODELS, "fixed", SMALL["fixed"])
    monkeypatch.setattr(levels, "runtime", lambda: "false")
    assert program.main(["fixed", "--level", HERE[0]]) == 1
    assert "FAILED: exit status 1" in capsys.readouterr().out


def test_outputs_of_another_shape_are_told(small, monkeypatch, capsys):
    right = levels.steps

    def another(*given):
        return [Step(s.sizes, s.anew, s.inputs, {"t": s.outputs["t"].T.copy()}) for s in right(*given)]

    monkeypatch.setattr(levels, "steps", another)

    for level in HERE[0], HERE[-1]:  # a file and a project
        assert program.main(["sizes", "--level", level]) == 1
        assert "FAILED: exit status 1: " in (told := capsys.readouterr().out)
        assert "another shape" in told or "outputs of [(7, 3)] expected" in told


def test_what_is_not_here_is_left_out(small, monkeypatch, capsys):
    monkeypatch.setitem(MODELS, "absent", Model(lambda: open("absent.onnx", "rb").read()))  # noqa: SIM115
    monkeypatch.setitem(levels.LEVELS, "wasm32", levels.replace(levels.LEVELS["wasm32"], missing=lambda: ["a linker"]))

    assert program.main(["absent", "--level", HERE[0]]) == 0
    assert program.main(["fixed", "--level", "wasm32"]) == 0
    told = capsys.readouterr()
    assert "absent is left out: no absent.onnx" in told.err
    assert "wasm32 is left out: no a linker" in told.err
    assert told.out == ""
    for words in (["unknown"], ["--threads", "0"], ["--pairs", "0"]):
        with pytest.raises(SystemExit):
            program.main(words)


STEP = Step({}, True, {}, {"y": np.array([1, 2], np.float32)})


def test_results_are_judged():
    near, far = ([{"y": np.array([1, 2 + d], np.float32)}] for d in (1e-6, 1e-2))

    assert judged(Row("m", "l"), [STEP], [near], near).right
    assert not judged(Row("m", "l"), [STEP], [near, far], near).right  # another number of threads
    assert not judged(Row("m", "l"), [STEP], [far], far).right  # the same bits, and wrong
    unlike = judged(Row("m", "l"), [STEP], [far], None)
    assert (unlike.bits, unlike.off) == (None, ("y",))
    assert unlike.worst == pytest.approx(1e-2 / 5**0.5, rel=1e-3)
    assert "OFF: y" in unlike.text()


def test_scripts_and_results_are_read_as_they_were_written(tmp_path):
    rng = np.random.default_rng(0)
    inputs = {"a": rng.random((3, 5)), "b": np.arange(7, dtype=np.int8), "c": np.array(2.5, np.float32)}
    outputs = {"y": np.zeros((2, 0)), "z": np.ones(3, np.int64)}
    path, order = tmp_path / "script", Order(["n"], ["b", "c", "a"], ["z", "y"])
    script.write(path, [Step({"n": 4}, True, inputs, outputs)] * 2, order)

    for anew, arrays, shapes in script.read(path, [inputs[name].dtype for name in order.inputs]):
        assert anew
        assert [array.tolist() for array in arrays] == [inputs[name].tolist() for name in order.inputs]
        assert shapes == [(3,), (2, 0)]
    path.write_bytes(np.array([1, 2, 3, 4, 5, 6]).tobytes())
    both = script.results(path, [Step({}, True, inputs, outputs)] * 2, order)
    assert [found["z"].tolist() for found in both] == [[1, 2, 3], [4, 5, 6]]


def test_the_interval_of_ratios():
    assert interval([[1.0, 1.0], [1.0]]) == (1, 1)
    noisy = np.random.default_rng(1).normal(1.01, 0.01, (6, 40))
    low, high = interval(noisy.tolist())
    assert 1.005 < low < 1.01 < high < 1.015
    low, high = interval([[0.9] * 20, [1.1] * 20])  # two processes say nothing
    assert (low, high) == (0.9, 1.1)


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(0.9, 1.02, "within"), (1.0, 1.1, "not decided"), (1.021, 1.1, "SLOWER")]
)
def test_verdicts(low, high, verdict):
    found = Latency("m", 1, 2.0, 2.0, 1.0, low, high, 3, 1)
    assert (found.verdict, found.right) == (verdict, verdict != "SLOWER")


@pytest.mark.parametrize("ratio", [0.5, 1.5])
def test_one_pair_of_processes_decides_nothing(ratio):
    found = Latency("m", 1, 2.0, 2.0, ratio, ratio, ratio, 1, 40)
    assert (found.verdict, found.right) == ("not decided", True)


def test_a_program_that_ends_is_an_error():
    with latency.Worker("true") as worker, pytest.raises(levels.ProgramError, match="3 times expected, found 0"):
        worker.times(3)


def test_photos_are_of_0_to_255():
    (pixels,) = photos([TensorSpec("x", "f32", (1, 3, 64, 64))], {}, np.random.default_rng(0)).values()
    assert pixels.dtype == np.float32
    assert pixels.min() == 0
    assert 200 < pixels.max() <= 255
