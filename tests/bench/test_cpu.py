"""``bench.cpu`` with engines that are made up: right, wrong, dying, silent, absent; and the real worker with a real model."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import gpucomp
from bench import packages
from bench.cpu import __main__ as program
from bench.cpu import peers, report
from bench.cpu.adapters import ENGINES, MODEL, TARGET, target_of
from bench.cpu.compare import Row, compare, ratio, write_inputs
from bench.cpu.peers import PEERS, PeerError, Worker
from bench.cpu.torch_models import plain, torch_module, with_constant_shapes
from bench.cpu.worker import read_inputs
from bench.models import build, inputs
from testing.tolerance import assert_matches
from tests.onnx_builders import model, node, value

FAKE = """
import json, os, sys, time
import numpy as np
how, ms = sys.argv[1], float(sys.argv[2])
for line in sys.stdin:
    command = json.loads(line)
    do = command["do"]
    if how == f"dies in {do}":
        sys.exit("boom: out of luck")
    if how == f"is killed in {do}":
        os.kill(os.getpid(), 9)
    if how == f"hangs in {do}":
        time.sleep(60)
    if how == f"babbles in {do}":
        print("loading weights ...", flush=True)
        continue
    if do == "run":
        right = np.arange(1.0, 8.0).reshape(1, 7)
        results = {"wrong": [right * 1.01], "NaN": [right * np.nan], "two": [right, right], "short": [right[:, :-1]],
                   "flat": [right[0]]}
        np.savez(command["to"], *results.get(how, [right]))
    answer = {"load": {"version": "1.2", "seconds": 0.5}, "run": {"outputs": 1},
              "time": {"ms": [ms, 3 * ms, ms], "cpu_s": 0.2, "wall_s": 0.1},
              "memory": {"resident_mb": 10.0, "peak_mb": 20.0}}[do]
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def together(tmp_path):
    """Rows of fake engines: name to (behaviour, milliseconds); behaviour None: it is not installed."""

    def run(engines, rounds=2, **more):
        def opens(name):
            how, ms = engines[name]
            if how is None:
                return Worker([str(peers.python_of("onnxruntime", tmp_path / "nowhere"))], 1), 0.0
            return Worker([sys.executable, "-c", FAKE, how, str(ms)], 1.0 if "hangs" in how else 20.0), 0.25

        found = compare("m", tmp_path, list(engines), opens, threads=2, rounds=rounds, turn_s=0.0, **more)
        return {row.peer: row for row in found}

    return run


def test_engines_that_agree_have_times_errors_and_memory(together):
    rows = together({"onnxruntime": ("right", 6.0), "gpucomp": ("right", 4.0)}, rounds=3)

    row = rows["onnxruntime"]
    assert row.failure == ""
    assert (row.version, row.convert_s, row.load_s, row.error) == ("1.2", 0.25, 0.5, 0.0)
    assert row.rounds_ms == [[6.0, 18.0, 6.0]] * 3
    assert (row.median_ms, row.noise, row.busy) == pytest.approx((6, 0, 2))
    assert (row.resident_mb, row.peak_mb) == (10, 20)
    assert ratio(row, rows["gpucomp"]) == pytest.approx((1.5, 1.5, 1.5))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("wrong", r"wrong output: relative L2 error 1\.00e-02"),
        ("NaN", "wrong output: relative L2 error inf"),
        ("two", "wrong output: relative L2 error inf"),
        ("short", "wrong output: relative L2 error inf"),
        ("dies in load", r"it died \(exit status 1\): boom: out of luck"),
        ("dies in run", r"it died \(exit status 1\): boom"),
        ("dies in time", r"it died \(exit status 1\): boom"),
        ("dies in memory", r"it died \(exit status 1\): boom"),
        ("is killed in time", r"it died \(signal 9\): without a word"),
        ("hangs in load", "no answer in 1 s"),
        ("hangs in time", "no answer in 1 s"),
        ("babbles in load", "no answer but b'loading weights ...'"),
        (None, "not installed: python -m bench.cpu setup onnxruntime"),
    ],
)
def test_an_engine_that_fails_is_a_row_with_its_error_and_the_others_go_on(together, how, why):
    rows = together({"onnxruntime": ("right", 6.0), "mnn": (how, 1.0), "gpucomp": ("right", 4.0)})

    assert re.match(why, rows["mnn"].failure), rows["mnn"].failure
    assert rows["mnn"].median_ms is None
    assert ratio(rows["mnn"], rows["gpucomp"]) is None
    assert [rows[name].failure for name in ("onnxruntime", "gpucomp")] == ["", ""]
    assert [len(rows[name].rounds_ms) for name in ("onnxruntime", "gpucomp")] == [2, 2]


def test_a_result_without_a_batch_axis_is_the_same_result(together):
    rows = together({"onnxruntime": ("right", 6.0), "ncnn": ("flat", 1.0)})

    assert rows["ncnn"].error == 0


def test_outputs_that_are_given_are_the_reference(together):
    right = [np.arange(1.0, 8.0).reshape(1, 7)]
    engines = {"onnxruntime": ("wrong", 6.0), "gpucomp": ("right", 4.0), "mnn": ("wrong", 5.0)}

    rows = together(engines, expected=right)

    assert (rows["gpucomp"].failure, rows["gpucomp"].error) == ("", 0)
    for name in ("onnxruntime", "mnn"):
        assert rows[name].failure.startswith("wrong output")
        assert rows[name].error == pytest.approx(1e-2)


def test_the_first_that_runs_is_the_reference(together):
    rows = together({"onnxruntime": ("dies in load", 1.0), "mnn": ("wrong", 2.0), "gpucomp": ("right", 3.0)})

    assert rows["mnn"].error == 0
    assert rows["gpucomp"].failure.startswith("wrong output")


ROWS = [
    Row(
        "a", "onnxruntime", 2, version="1", error=0.0, rounds_ms=[[4.0], [6.0], [5.0]], cpu_s=2, wall_s=1, peak_mb=90.0
    ),
    Row("a", "gpucomp", 2, version="2", error=1e-7, rounds_ms=[[2.0], [2.0], [2.0]], cpu_s=2, wall_s=1),
    Row("a", "mnn", 2, failure="it died (signal 11): a|b"),
    Row("b", "onnxruntime", 2, version="1", error=0.0, rounds_ms=[[1.0]], cpu_s=2, wall_s=1),
    Row("b", "gpucomp", 2, version="2", error=1e-7, rounds_ms=[[2.0]], cpu_s=2, wall_s=1),
]


def test_the_tables_have_ratios_their_spread_and_what_failed():
    lines = report.markdown(ROWS).splitlines()

    assert lines[0] == "| model | threads | gpucomp ms | fastest peer over gpucomp | onnxruntime | mnn |"
    assert lines[2] == "| a | 2 | 2.00 | 2.50 (onnxruntime) | 2.50 (2.25 to 2.75) | failed |"
    assert lines[3] == "| b | 2 | 2.00 | 0.50 (onnxruntime) | 0.50 (0.50 to 0.50) | - |"
    assert lines[4] == "| geometric mean | | | 1.12 | 1.12 | - |"
    assert "| a | 2 | onnxruntime | 1 | 5.000 | 20.0 | 666.667 | 2.00 | 0.0e+00 | 0.0 | 0.00 | - | 90 |" in lines
    assert lines[-1] == "| a | 2 | mnn | it died (signal 11): a/b |"


def test_the_tables_say_who_leads_where():
    text = report.markdown(
        [*ROWS, Row("b", "openvino", 2, version="3", error=0.0, rounds_ms=[[1.6]], cpu_s=1, wall_s=1)]
    )

    assert "- gpucomp is the fastest on 1 of 2 models, by 1.2 times or more on 1.\n" in text
    assert "- onnxruntime is the fastest, by so many times, on: b at 2 (2.00).\n" in text
    assert "- onnxruntime is faster than gpucomp on: b at 2 (2.00).\n" in text
    assert "openvino is" not in text
    assert "restricted" not in text


def test_the_tables_say_which_engines_could_be_restricted():
    target = "cpu:x86-64-v3"
    rows = [
        Row("a", peer, 2, error=0.0, rounds_ms=[[4.0]], cpu_s=2, wall_s=1, level=peers.instructions(peer, target))
        for peer in ("onnxruntime", "gpucomp", "openvino", "xnnpack")
    ]

    lines = report.markdown(rows).splitlines()

    assert "- gpucomp was restricted: x86-64-v3." in lines
    assert "- openvino was restricted: ONEDNN_MAX_CPU_ISA=AVX2." in lines
    assert "- onnxruntime, xnnpack used all instructions of the processor: there is no switch for them." in lines
    assert " ".join(peers.python_with("openvino", Path("python"), target)) == "env ONEDNN_MAX_CPU_ISA=AVX2 python"
    assert peers.python_with("openvino", Path("python")) == ["env", "python"]
    assert peers.instructions("openvino", "cpu:haswell") == ""


def test_reports_of_older_runs_can_still_be_merged():
    data = json.loads(json.dumps(report.as_json(ROWS, [])))
    for row in data["rows"]:
        del row["level"]

    assert report.rows_of(data) == ROWS


def test_the_page_says_what_the_processor_has():
    method = {"command": "run", "batch": 1, "rounds": 3, "turn_ms": 60, "machine": {"processor": "P", "cpus": 2}}

    assert "P, 2 cores\n" in report.page("", [method])
    assert "P, 2 cores (AVX2, AVX-VNNI)\n" in report.page("", [method | {"instructions": ["avx", "avx2", "avxvnni"]}])


def test_the_tables_say_so_where_gpucomp_itself_failed():
    rows = [ROWS[0], Row("a", "gpucomp", 2, failure="wrong output")]

    lines = report.markdown(rows).splitlines()

    assert lines[2] == "| a | 2 | failed | | |"
    assert lines[-1] == "| a | 2 | gpucomp | wrong output |"


def test_the_data_has_every_sample():
    data = json.loads(json.dumps(report.as_json(ROWS, [{"batch": 1}])))

    assert data["rows"][0]["rounds_ms"] == [[4.0], [6.0], [5.0]]
    assert data["rows"][0]["ratio"] == pytest.approx([2.25, 2.5, 2.75])
    assert data["rows"][2]["ratio"] is None


def test_every_peer_has_an_engine_and_exact_versions():
    assert PEERS.keys() | {"gpucomp"} == ENGINES.keys()
    for peer in PEERS.values():
        assert all("==" in r or r == "numpy" for r in (*peer.requirements, *peer.alone))


def test_the_real_worker_runs_gpucomp_on_a_real_model(tmp_path):
    options = program.parser().parse_args(
        [
            "run",
            "squeezenet1_1",
            "--reduced",
            "--peers",
            "gpucomp,mnn",
            "--rounds",
            "2",
            "--turn",
            "1",
            "--threads",
            "1",
            "--out",
            str(tmp_path / "r" / "cpu"),
            "--venvs",
            str(tmp_path),
        ]
    )

    code = program.run(options)

    data = json.loads((tmp_path / "r" / "cpu.json").read_text())
    assert code == 0
    assert [(row["peer"], row["failure"]) for row in data["rows"]] == [
        ("gpucomp", ""),
        ("mnn", "not installed: python -m bench.cpu setup mnn"),
    ]
    assert all(len(one) >= 3 for one in data["rows"][0]["rounds_ms"])
    assert data["rows"][0]["peak_mb"] >= data["rows"][0]["resident_mb"] > 5
    assert "| squeezenet1_1 | 1 |" in (tmp_path / "r" / "cpu.md").read_text()
    assert (tmp_path / "r" / "cpu.html").stat().st_size > 1000

    both = ["merge", *[str(tmp_path / "r" / "cpu.json")] * 2, "--out", str(tmp_path / "both")]
    assert program.merge(program.parser().parse_args(both)) == 0

    merged = json.loads((tmp_path / "both.json").read_text())
    assert merged["rows"] == data["rows"] * 2
    assert (tmp_path / "both.md").read_text().count("2 rounds of 1 ms") == 2


def test_a_converter_that_fails_says_why(tmp_path):
    (tmp_path / MODEL).write_bytes(b"no model")
    write_inputs(tmp_path, {})

    with pytest.raises(PeerError, match=r"its converter failed: .*GPC3"):
        peers.convert("gpucomp", Path(sys.executable), tmp_path, 60)


def test_the_first_error_of_a_compiler_that_a_converter_calls_is_what_it_says():
    said = "a.mlir:58:11: error: no MaxPool\n  ^\na.mlir:60:1: error: more\nCalledProcessError: exit status 1"

    assert peers._said(said) == "no MaxPool"
    assert peers._said("one\nValueError: 3\n") == "ValueError: 3"
    assert peers._said("\n") == "without a word"


def test_a_converter_that_hangs_is_ended(tmp_path):
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)

    with pytest.raises(PeerError, match=r"its converter did not finish in 0\.1 s"):
        peers.convert("mnn", slow, tmp_path, 0.1)


def test_setup_makes_one_environment_for_peers_that_share_it(monkeypatch, tmp_path):
    made, commands = [], []
    monkeypatch.setattr(peers.venv, "create", lambda folder, with_pip: made.append(folder.name))
    monkeypatch.setattr(peers.subprocess, "run", lambda command, check: commands.append(command[3:]))

    peers.setup(["torch", "inductor", "ncnn"], tmp_path)

    assert made == ["torch", "ncnn"]
    assert ["install", "--quiet", "--no-deps", "pnnx==20261020"] in commands
    assert len(commands) == 4


def test_unknown_models_and_engines_are_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench.cpu", "run", "resnet19", "--peers", "gpucomp,tensorflow"])

    assert program.main() == 2
    assert "unknown: tensorflow, resnet19" in capsys.readouterr().err


@pytest.fixture
def packaged(monkeypatch):
    """A package with a small model that multiplies bytes."""
    weights = {"w": np.arange(-6, 6, dtype=np.int8).reshape(4, 3)}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z"], ["i"]),
        node("Cast", ["i"], ["f"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["f", "s"], ["y"]),
    ]
    proto = model(nodes, [value("x", ["n", 4])], [value("y", ["n", 3])], weights)
    small = packages.Model("small==1", "small.onnx", {"x": (gpucomp.Dim("n", 1, 9), 4)}, {"n": 5})
    monkeypatch.setattr(packages, "MODELS", {"small": small})
    monkeypatch.setattr(packages, "content", lambda one: proto.SerializeToString())


def test_models_of_packages_are_measured_at_one_size(packaged, monkeypatch, tmp_path):
    less = ["--rounds", "1", "--turn", "1", "--threads", "1", "--peers", "gpucomp", "--out", str(tmp_path / "cpu")]
    monkeypatch.setattr(sys, "argv", ["bench.cpu", "run", "--packages", *less])

    assert program.main() == 0

    data = json.loads((tmp_path / "cpu.json").read_text())
    ((model, error),) = [(row["model"], row["error"]) for row in data["rows"]]
    assert model == "small"
    assert error < 1e-6, "compared with exact sums, as it is the only engine"
    assert data["methods"][0]["target"] == "cpu"


def test_inputs_come_back_in_the_model_s_order(tmp_path):
    graph = build("bert_base", reduced=True)
    given = inputs(graph)
    write_inputs(tmp_path, given)

    found = read_inputs(tmp_path)

    assert list(found) == list(given) == [i.name for i in graph.graph.input]
    assert all(np.array_equal(found[name], given[name]) for name in given)


def test_gpucomp_compiles_for_the_processor_that_was_asked_for(tmp_path):
    assert target_of(tmp_path) == "cpu"
    graph = build("squeezenet1_1", reduced=True)
    onnx.save(graph, tmp_path / MODEL)
    (tmp_path / TARGET).write_text("cpu:x86-64-v2\n", encoding="utf-8")

    ENGINES["gpucomp"].convert(tmp_path, {})

    assert gpucomp.load(tmp_path / "model.gpuc").target == "cpu:x86-64-v2"


def test_what_onnx2torch_would_refuse_is_folded_or_written_otherwise(tmp_path):
    branch = onnx.helper.make_graph([node("Neg", ["d"], ["then"])], "then", [], [value("then", None)])
    other = onnx.helper.make_graph([node("Abs", ["d"], ["else"])], "else", [], [value("else", None)])
    nodes = [
        node("Dropout", ["x"], ["d"]),
        node("If", ["yes"], ["i"], then_branch=branch, else_branch=other),
        node("ReduceMax", ["x"], ["high"], keepdims=0),
        node("Clip", ["i", "low", "high"], ["c"]),
        node("Reshape", ["c", "shape"], ["y"], allowzero=1),
    ]
    weights = {"yes": np.array(True), "low": np.float32(-1), "shape": np.array([6])}
    onnx.save(model(nodes, [value("x")], [value("y", [6])], weights, opset=17), tmp_path / MODEL)

    found = plain(tmp_path / MODEL)

    assert sorted(one.op_type for one in found.graph.node) == ["Max", "Min", "Neg", "ReduceMax", "Reshape"]
    x = np.array([[3, 0.5, -2], [-0.25, 1, 2]], np.float32)
    assert np.array_equal(ReferenceEvaluator(found).run(None, {"x": x})[0], np.clip(-x, -1, x.max()).ravel())


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.skipif(find_spec("onnx2torch") is None, reason="needs onnx2torch")
def test_an_lstm_is_torch_s(tmp_path, monkeypatch, direction):
    torch = pytest.importorskip("torch")
    for name in ("torchvision", "torchvision.ops"):
        monkeypatch.setitem(sys.modules, name, None)  # what is put there is taken away after the test
    ways, rng = 1 + (direction == "bidirectional"), np.random.default_rng(0)
    shapes = {"w": (ways, 20, 3), "r": (ways, 20, 5), "b": (ways, 40), "h": (ways, 2, 5), "c": (ways, 2, 5)}
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    lstm = node("LSTM", ["x", "w", "r", "b", "", "h", "c"], ["y", "yh", "yc"], hidden_size=5, direction=direction)
    proto = model(
        [lstm], [value("x", [7, 2, 3])], [value("y", None), value("yh", None), value("yc", None)], weights, 14
    )
    onnx.save(proto, tmp_path / MODEL)
    x = rng.standard_normal((7, 2, 3), np.float32)

    found = torch_module(tmp_path / MODEL)(torch.from_numpy(x))

    expected = gpucomp.compile(proto, target="cpu").run({"x": x})
    for name, tensor in zip(("y", "yh", "yc"), found, strict=True):
        assert_matches(tensor.detach().numpy(), expected[name], terms=64)


def test_shapes_that_torch_would_compute_become_numbers():
    torch, fx = pytest.importorskip("torch"), pytest.importorskip("torch.fx")

    class OnnxReshape(torch.nn.Module):
        def forward(self, x, shape):
            return torch.reshape(x, tuple(shape.tolist()))

    class OnnxSlice(torch.nn.Module):
        def forward(self, x, *parts):
            starts, ends, axes, steps = (p.tolist() for p in parts)
            index = [slice(None)] * x.dim()
            for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
                index[axis] = slice(start, end, step) if step > 0 else slice(None)
            return x[tuple(index)]

    OnnxSlice.__name__ = "Slice"

    class OnnxOther(torch.nn.Module):
        def forward(self, x):
            return x * 2

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.reshape, self.slice, self.back, self.other = OnnxReshape(), OnnxSlice(), OnnxSlice(), OnnxOther()
            self.register_buffer("shape", torch.tensor([5, 6]))
            for name, numbers in {"start": [1], "end": [4], "axis": [0], "step": [2], "minus": [-1]}.items():
                self.register_buffer(name, torch.tensor(numbers))

        def forward(self, x):
            y = self.other(self.slice(self.reshape(x, self.shape), self.start, self.end, self.axis, self.step))
            return self.back(y, self.start, self.end, self.axis, self.minus)

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m, name):
            return True

    whole = Whole()
    traced = fx.GraphModule(whole, Tracer().trace(whole))
    x = torch.arange(30.0).reshape(3, 10)
    expected = traced(x)

    found = with_constant_shapes(traced, [x])

    assert torch.equal(found(x), expected)
    assert torch.equal(found(x + 1), expected + 2), "it goes on computing"
    left = [one.target for one in found.graph.nodes if one.op == "call_module"]
    assert left == ["other", "back"], "a slice that runs backwards is torch's own to say"


def test_what_torch_would_compute_from_constants_alone_becomes_a_buffer():
    torch, fx = pytest.importorskip("torch"), pytest.importorskip("torch.fx")

    class OnnxShape(torch.nn.Module):
        def forward(self, x):
            return torch.tensor(x.shape)

    class OnnxGather(torch.nn.Module):
        _axis = 0

        def forward(self, x, index):
            return x[index]

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shape, self.gather = OnnxShape(), OnnxGather()
            self.register_buffer("index", torch.tensor(1))

        def forward(self, x):
            return self.gather(x, self.index) * self.gather(self.shape(x), self.index)

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m, name):
            return True

    whole = Whole()
    traced = fx.GraphModule(whole, Tracer().trace(whole))
    x = torch.arange(30.0).reshape(3, 10)

    found = with_constant_shapes(traced, [x])

    assert torch.equal(found(x), x[1] * 10)
    assert not [one for one in found.graph.nodes if one.op == "call_module"]
