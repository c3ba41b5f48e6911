"""``gpucomp inspect --node``: what became of one of a model's nodes, pass by pass, to the source of its kernel."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import gpucomp
from gpucomp import cli, config
from gpucomp.cli import show
from gpucomp.frontend import onnx as frontend
from gpucomp.ir.trail import followed
from gpucomp.report.journey import Journey, changes
from gpucomp.rewrite.pipeline import run_pipeline
from gpucomp.runtime.kernel_info import KernelInfo
from gpucomp.tuning.records import Store

RNG = np.random.default_rng(23)
node = helper.make_node


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model(nodes, inputs, outputs, **constants) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [info(n, TensorProto.FLOAT, None) for n in outputs], [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def normalized() -> onnx.ModelProto:
    """A Conv, its normalization and its Relu; the Relu has no name."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], name="norm"),
        node("Relu", ["n"], ["y"]),
    ]
    given = {name: weights(5) for name in ("scale", "shift", "mean")}
    return model(nodes, {"x": (1, 3, 6, 7)}, ["y"], w=weights(5, 3, 3, 3), var=np.abs(weights(5)) + 1, **given)


@pytest.fixture
def inspected(monkeypatch, tmp_path, capfd):
    """The lines that ``gpucomp inspect model.onnx ARGUMENTS`` prints, or what it ends with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.excepthook", sys.excepthook)

    def run(proto, *arguments, code=0):
        onnx.save(proto, "model.onnx")
        with config.using():
            assert cli.main(["inspect", "model.onnx", *arguments]) == code
        out, err = capfd.readouterr()
        return out.splitlines() if code == 0 else err.splitlines()[-1]

    return run


def section(lines: list[str], title: str) -> list[str]:
    """The lines under the one that starts with ``title``, up to an empty one."""
    (start,) = [k for k, line in enumerate(lines) if line.startswith(title)]
    end = next((k for k in range(start, len(lines)) if not lines[k]), len(lines))
    return lines[start:end]


def test_a_convolution_takes_in_its_normalization_and_its_activation(inspected):
    lines = inspected(normalized(), "--node", "conv", "--target", "cpu")

    assert lines[0] == "Conv 'conv' -> 'c'"
    scale = section(lines, "scale: scale_into_columns")
    assert [line[:9] for line in scale[1:]] == ["  - %conv", "  - %norm", "    %norm", "  + %norm", " " * 8 + "m"]
    assert scale[-2].startswith("  + %norm = Conv(%x, constant f32[5,3,3,3]")
    assert scale[-1] == "        made of conv, norm"
    kernel = section(lines, "Kernel 1 of 1: k000_contraction")
    assert "  made of   conv, norm, y; added by passes: Transpose*2" in kernel
    engines = section(lines, "Engines for this kind of kernel")
    assert sum("chosen" in line and "not chosen" not in line for line in engines) == 1
    assert any("refused: " in line for line in engines)
    source = section(lines, "Source of k000_contraction")
    assert source[0].endswith("lines of llvm")
    assert any("define" in line and "k000_contraction" in line for line in lines)


def test_a_node_without_a_name_goes_by_its_output_as_do_others(inspected):
    assert inspected(normalized(), "--node", "y", "--sources", "s")[0] == "Relu 'y' -> 'y'"
    assert inspected(normalized(), "--node", "n", "--sources", "s")[0] == "BatchNormalization 'norm' -> 'n'"


def test_sources_that_are_written_are_not_printed(inspected):
    lines = inspected(normalized(), "--node", "conv", "--sources", "s")
    assert any(line.startswith("Source of k000_contraction") for line in lines)
    assert not any("define" in line for line in lines)


def test_a_pattern_stands_for_every_node_that_it_matches(inspected):
    lines = inspected(normalized(), "--node", "*n*", "--sources", "s")
    assert [line for line in lines if " -> " in line and line[0] != " "][:2] == [
        "Conv 'conv' -> 'c'",
        "BatchNormalization 'norm' -> 'n'",
    ]


def test_what_nothing_is_left_of_is_told(inspected):
    nodes = [
        node("Transpose", ["x"], ["t"], name="there", perm=[0, 2, 1]),
        node("Transpose", ["t"], ["u"], name="back", perm=[0, 2, 1]),
        node("Relu", ["u"], ["y"], name="relu"),
        node("Tanh", ["x"], ["unread"], name="dead"),
        node("Exp", ["w"], ["e"], name="known"),
        node("Add", ["y", "e"], ["z"], name="sum"),
    ]
    proto = model(nodes, {"x": (2, 3, 5)}, ["z"], w=weights(5))

    assert inspected(proto, "--node", "back")[-1] == "It is gone: %x replaces it"
    assert inspected(proto, "--node", "there")[-1].startswith("It is gone: ")
    assert any("no output of the model needs them" in line for line in inspected(proto, "--node", "dead"))
    assert "constant" in inspected(proto, "--node", "known")[-1]


def test_equal_nodes_are_told_to_be_one(inspected):
    nodes = [
        node("Tanh", ["x"], ["a"], name="first"),
        node("Tanh", ["x"], ["b"], name="second"),
        node("MatMul", ["a", "b"], ["y"], name="product"),
    ]
    proto = model(nodes, {"x": (5, 5)}, ["y"])
    for name in ("first", "second"):
        lines = inspected(proto, "--node", name)
        shared = section(lines, "share: equal nodes were merged")
        assert [line[:8] for line in shared[1:]] == ["    %fir", "        ", "  - %sec"]
        assert shared[2].strip() == "made of first, second"
        assert any(line.startswith("  made of") and "first, second" in line for line in lines)


def test_a_pair_of_convolutions_in_one_kernel(inspected, monkeypatch):
    fewer = lambda self, these, those: len(these) < len(those)  # noqa: E731
    monkeypatch.setattr("gpucomp.schedule.expected.Expected.faster", fewer)
    nodes = [
        node("Conv", ["x", "w"], ["i"], name="first", pads=[1, 1, 1, 1]),
        node("Conv", ["i", "d"], ["c"], name="depth", pads=[1, 1, 1, 1], group=32),
        node("Clip", ["c", "low", "high"], ["r"], name="clip"),
        node("Conv", ["r", "p"], ["y"], name="point"),
    ]
    given = {"w": weights(32, 3, 3, 3), "d": weights(32, 1, 3, 3), "p": weights(48, 32, 1, 1)}
    proto = model(nodes, {"x": (1, 3, 28, 28)}, ["y"], low=np.float32(0), high=np.float32(6), **given)
    for name in ("depth", "point"):
        lines = inspected(proto, "--node", name, "--target", "cuda:sm_80")
        fused = section(lines, "fuse-separable")
        assert any(line.startswith("  +") and "kernel separable(" in line for line in fused)
        own = {"depth": "loops", "point": "contraction"}[name]
        assert [line.split("(")[0] for line in fused if line.startswith("  -   kernel ")] == [f"  -   kernel {own}"]
        assert sum(line.startswith("  - %") for line in fused) == 2
        (kernel,) = (line for line in lines if line.startswith("Kernel 2 of 2"))
        assert "_separable, " in kernel
        assert section(lines, kernel)[1].startswith("  made of   depth, clip, point")


def test_attention_in_pieces_on_a_cpu(inspected):
    nodes = [
        node("Transpose", ["k"], ["kt"], name="turn", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["s"], name="scores"),
        node("Softmax", ["s"], ["p"], name="softmax", axis=-1),
        node("MatMul", ["p", "v"], ["y"], name="means"),
    ]
    proto = model(nodes, {"q": (12, 17, 64), "k": (12, 100, 64), "v": (12, 100, 64)}, ["y"])
    lines = inspected(proto, "--node", "softmax", "--target", "cpu:icelake-server")
    assert any(line.startswith("  + ") and "= Attention(" in line for line in section(lines, "attention: "))
    split = section(lines, "split-attention")
    assert any(line.startswith("  -") and "kernel attention(" in line for line in split)
    kernels = [line for line in lines if line.startswith("Kernel ") and " of 3: " in line]
    assert len(kernels) == 3


def test_an_operator_on_the_host_says_so(inspected):
    noise = node("RandomUniform", [], ["r"], name="noise", shape=[2, 3])
    proto = model([noise, node("Add", ["x", "r"], ["y"], name="sum")], {"x": (2, 3)}, ["y"])
    assert inspected(proto, "--node", "noise")[-1] == "On the host: RandomUniform has no kernel: numpy runs it"


def test_a_node_that_waits_for_values_says_so(inspected):
    proto = model([node("NonZero", ["x"], ["y"], name="places")], {"x": (2, 3)}, [])
    proto.graph.output.append(helper.make_tensor_value_info("y", TensorProto.INT64, None))
    assert inspected(proto, "--node", "places")[-1].startswith("Its shape depends on values")


def test_a_name_that_no_node_has_lists_those_near_it(inspected):
    error = inspected(normalized(), "--node", "covn", code=2)
    assert error.startswith("error GPC2013: --node 'covn': no node or node output of 'model.onnx'")
    assert "similar names: 'conv'" in error
    assert "the model has 3 nodes" in inspected(normalized(), "--node", "Zzzzzz", code=2)


def test_texts_of_a_compiled_model_cannot_act_on_a_terminal():
    kernel = KernelInfo("k", "loops\x1b[2J", ("Mul",), ("a\x1b[2J",), {"tile": 1}, label="Mul\x1b[31m", why="end\x07")

    lines = show.launch(1, 1, kernel, "float f() {\n\treturn 1; // \x1b[31m\n}")

    assert all(line.replace("\t", "").isprintable() for line in lines)
    assert lines[-3:] == ["float f() {", "\treturn 1; // \\x1b[31m", "}"]


def test_a_compiled_model_knows_the_kernels_of_a_node(inspected, tmp_path, capfd):
    inspected(normalized())
    exe = gpucomp.compile("model.onnx", target="cpu")
    exe.save("model.gpuc")
    (kernel,) = exe.kernels

    assert cli.main(["inspect", "model.gpuc", "--node", f"{kernel.nodes[0][:2]}*"]) == 0
    shown = capfd.readouterr().out.splitlines()
    assert shown[0] == f"kernel 1 of 1: {kernel.label}"
    assert any(line.split() == ["nodes", *map(repr, kernel.nodes)] for line in shown)
    assert any(line.startswith("define void") for line in shown)

    assert cli.main(["inspect", "model.gpuc", "--node", "nobody"]) == 2
    error = capfd.readouterr().err
    assert "error GPC2013: --node 'nobody': no kernel computes a node of this name" in error
    assert "gpucomp inspect MODEL.onnx --node 'nobody' --target cpu" in error


def test_products_that_are_merged_are_made_of_both():
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="one"),
        node("MatMul", ["x", "v"], ["b"], name="two"),
        node("Relu", ["a"], ["r"], name="three"),
        node("Relu", ["b"], ["s"], name="four"),
        node("Softmax", ["r"], ["y"], name="five"),
        node("Softmax", ["s"], ["z"], name="six"),
    ]
    proto = model(nodes, {"x": (6, 8)}, ["y", "z"], w=weights(8, 5), v=weights(8, 4))
    journey = Journey()
    with followed(journey.replaced):
        graph = run_pipeline(frontend.load(proto), watch=journey.watch)
    assert [journey.made_of(n) for n in graph.nodes() if str(n.op) == "MatMul"] == [{"one", "two"}]
    assert [journey.made_of(n) for n in graph.nodes() if str(n.op) == "Relu"] == [{"three", "four"}]
    assert "siblings" in [change.name for change in changes(journey, "two")]


def test_a_pass_that_only_moves_others_does_not_make_a_node_of_them():
    """Layouts turn the whole graph over; still each node is made of its own nodes of the model, and of no neighbour."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="one", pads=[1, 1, 1, 1]),
        node("Sigmoid", ["a"], ["b"], name="two"),
        node("Conv", ["b", "v"], ["c"], name="three", pads=[1, 1, 1, 1]),
        node("Tanh", ["c"], ["y"], name="four"),
    ]
    proto = model(nodes, {"x": (1, 3, 6, 7)}, ["y"], w=weights(5, 3, 3, 3), v=weights(4, 5, 3, 3))
    journey = Journey()
    with followed(journey.replaced):
        graph = run_pipeline(frontend.load(proto), watch=journey.watch)
    found = {str(n.op): journey.made_of(n) for n in graph.nodes() if journey.made_of(n)}
    convolutions = [journey.made_of(n) for n in graph.nodes() if str(n.op) == "Conv"]
    assert convolutions == [{"one"}, {"three"}]
    assert (found["Sigmoid"], found["Tanh"]) == ({"two"}, {"four"})
    assert [change.name for change in changes(journey, "two")] == ["layout"]


@pytest.fixture
def records_of_others(tmp_path):
    """Records, none of them of a kernel of these models."""
    path = tmp_path / "r.jsonl"
    device = {"kind": "cpu", "arch": "another", "name": "another, 2 cores"}
    with Store(path) as store:
        store.append("pick", {"kernel": "another", "device": device, "engine": "abacus", "configuration": {},
                              "problem": {}, "ratio": 0.5, "template": "t", "source": "s"})  # fmt: skip
    return path


def test_why_no_record_answers_is_told(inspected, records_of_others):
    lines = inspected(normalized(), "--node", "conv", "--records", str(records_of_others))

    said = [line.split(maxsplit=2)[2] for line in lines if line.startswith("  not by ")]
    assert said[:2] == [
        "record: this kernel was not tuned on any device",
        "sibling: this kernel was not tuned on any device",
    ]
    assert [line.partition(":")[0] for line in said] == ["record", "sibling", "nearest", "portfolio"]
    by = next(n for n, line in enumerate(lines) if line.startswith("  chosen by "))
    assert lines[by + 1].startswith("  not by ")


def test_without_records_nothing_is_said_to_be_passed_over(inspected):
    assert not [line for line in inspected(normalized(), "--node", "conv") if line.startswith("  not by ")]
    assert not [line for line in inspected(normalized(), "--kernels") if "no record" in line]


def test_the_list_of_kernels_counts_those_without_a_record(inspected, records_of_others):
    lines = inspected(normalized(), "--kernels", "--records", str(records_of_others))

    (said,) = [line for line in lines if line.startswith("no record is used for ")]
    launches = sum(line.split()[0].isdecimal() for line in lines[1:])
    assert said.startswith(f"no record is used for {launches} of {launches} kernels: --node NAME says why")


def test_the_terms_of_the_model_come_with_why_no_record_answers(inspected, records_of_others):
    lines = inspected(normalized(), "--why", "--target", "cuda:sm_80", "--records", str(records_of_others))

    assert "  not by     record: this kernel was not tuned on any device" in lines


def test_kernels_that_store_parts_of_the_same_concat_are_not_taken_for_each_other(inspected):
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="left"),
        node("Conv", ["x", "v"], ["b"], name="right"),
        node("Concat", ["a", "b"], ["y"], axis=1, name="both"),
    ]
    parts = model(nodes, {"x": (1, 3, 6, 7)}, ["y"], w=weights(5, 3, 1, 1), v=weights(4, 3, 3, 1)[:, :, :1])

    lines = inspected(parts, "--node", "left", "--target", "cpu")

    (said,) = (line for line in lines if line.startswith("Kernel passes:"))
    assert said.startswith("Kernel passes: 0 of ")


def test_why_a_processor_has_an_engine_is_not_said_of_the_model_of_gpus(inspected):
    twice = [
        node("Conv", ["x", "w"], ["c"], "first", pads=[1] * 4),
        node("Conv", ["c", "w"], ["y"], "second", pads=[1] * 4),
    ]

    lines = inspected(model(twice, {"x": [1, 32, 40, 40]}, ["y"], w=weights(32, 32, 3, 3)), "--node", "second")

    (chosen,) = [line for line in lines if "chosen by" in line]
    told = "chosen by analytic: of the engines' defaults, it is the one that their estimates expect to be the fastest"
    assert chosen.strip() == told
