"""``gpucomp compare``: the table of tensors, and a seeded wrong pass and wrong kernels cut out of larger models."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import astuple, replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from gpucomp import cli, compiler, lowering, ops, replacing, targets
from gpucomp.cli import bisect as bisecting
from gpucomp.cli import compare, cut, reproduce
from gpucomp.cli import settle as settling
from gpucomp.cli.blame import IMPORT, PLAN, Blame, blame
from gpucomp.cli.compare import Distance, distance
from gpucomp.cli.cut import Case
from gpucomp.cli.settle import Settled, settle
from gpucomp.errors import VerifyError
from gpucomp.expr.core import Call, call, load, loads, substitute, transform
from gpucomp.frontend import onnx as frontend
from gpucomp.ir.graph import Node
from gpucomp.kernel.pipeline import KernelPass
from gpucomp.kernel.step import KernelStep
from gpucomp.refusal import Refusal
from gpucomp.report.journey import Journey
from gpucomp.rewrite import pipeline as passes
from gpucomp.rewrite.rule import apply_rules, rule
from gpucomp.schedule.scheduled import Scheduled

RNG = np.random.default_rng(11)
W = {
    "filters": RNG.standard_normal((5, 3, 3, 3)).astype(np.float32),
    "matrix": RNG.standard_normal((7, 4)).astype(np.float32),
    "shift": RNG.standard_normal(4).astype(np.float32),
    "shape": np.array([2, 5, -1, 7], np.int64),
}


def net(name: str = "x", shape: tuple[int, ...] = (2, 3, 6, 7), first: int = 0) -> onnx.ModelProto:
    """Nine nodes, of which the product is the seventh; those from ``first`` on, which reads ``name``."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "filters"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 1], strides=[2, 1]),
        node("Tanh", ["p"], ["t"]),
        node("Reshape", ["t", "shape"], ["q"]),
        node("Softmax", ["q"], ["s"], axis=1),
        node("MatMul", ["s", "matrix"], ["m"]),
        node("Add", ["m", "shift"], ["a"]),
        node("Sigmoid", ["a"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes[first:],
        "net",
        [info(name, TensorProto.FLOAT, shape)],
        [info("y", TensorProto.FLOAT, [2, 5, 3, 4])],
        [numpy_helper.from_array(a, n) for n, a in W.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.fixture
def command(monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    onnx.save(net(), "net.onnx")

    def run(*arguments):
        code = cli.main(["compare", "net.onnx", *map(str, arguments)])
        return code, *capfd.readouterr()

    return run


@pytest.mark.parametrize("against", ["onnxruntime", "reference"])
def test_a_right_model_has_a_table_of_tensors(command, against):
    code, out, _ = command("--target", "cpu", "--against", against, "--bisect", "--tensors")

    summary, _, each = out.partition("\n\n")
    lines = each.splitlines()
    assert code == 0
    assert (
        summary.splitlines()[-1]
        == "9 tensors compared: none is wrong (each was made an output, so less is fused than without)"
    )
    assert lines[0].split() == ["tensor", "operator", "l2", "rms", "linf", "cosine"]
    assert [line.split()[0] for line in lines[1:10]] == [f"'{name}'" for name in "crptqsmay"]
    assert {line.split()[-1] for line in lines[1:10]} == {"ok"}


def test_a_comparison_is_a_summary_unless_every_tensor_is_asked_for(command):
    code, out, _ = command("--target", "cpu")

    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["output", "'y'", "9"]


def test_weights_in_a_file_beside_the_model_are_compared_too(command):
    onnx.save(net(), "net.onnx", save_as_external_data=True, location="net.onnx.data", size_threshold=100)

    code, out, _ = command("--target", "cpu", "--tensors")

    assert code == 0
    assert [line.split()[-1] for line in out.partition("\n\n")[2].splitlines()[1:10]] == ["ok"] * 9


@pytest.mark.parametrize(
    ("element", "wanted"), [("FLOAT", 1e-4), ("DOUBLE", 1e-4), ("FLOAT16", 2.0**-8), ("BFLOAT16", 2.0**-5)]
)
@pytest.mark.parametrize("where", ["input", "weight", "cast", "body"])
def test_the_tolerance_is_that_of_the_types_a_model_computes_in(element, wanted, where, tmp_path):
    number = getattr(TensorProto, element)
    of = {name: number if where == name else TensorProto.FLOAT for name in ("input", "weight", "cast", "body")}
    node, info = helper.make_node, helper.make_tensor_value_info
    weight = helper.make_tensor("w", of["weight"], [1], [0.5])
    inner = helper.make_graph([node("Cast", ["x"], ["b"], to=of["body"])], "inner", [], [info("b", of["body"], [3])])
    nodes = [node("Cast", ["x"], ["y"], to=of["cast"]), node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)]
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", of["input"], [3]), info("c", TensorProto.BOOL, [])],
        [info("w", of["weight"], [1])],
        [weight],
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")

    assert compare.tolerance_for(tmp_path / "m.onnx") == wanted


@pytest.mark.parametrize(
    ("precision", "wanted"),
    [("fp32", 1e-4), ("3xtf32", 1e-4), ("fp16", 2.0**-8), ("mixed", 2.0**-8), ("bf16", 2.0**-5)],
)
def test_the_tolerance_is_that_of_the_precision(precision, wanted, command):
    assert compare.tolerance_for(Path("net.onnx"), precision) == wanted


@pytest.mark.parametrize(("factor", "status"), [(1.0, 0), (1.1, 6)], ids=["right", "a tenth too large"])
def test_bf16_is_right_within_its_roundings_and_a_tenth_is_wrong(factor, status, command, monkeypatch):
    genuine = bisecting.Question.run
    scaled = lambda *given: {n: a * np.float32(factor) for n, a in genuine(*given).items()}  # noqa: E731
    monkeypatch.setattr(bisecting.Question, "run", scaled)

    assert command("--target", "cpu", "--precision", "bf16")[0] == status


@pytest.mark.parametrize(("reader", "wanted"), [("Cast", 1e-4), ("Relu", 2.0**-5)])
@pytest.mark.parametrize("where", ["model", "node", "body"])
def test_weights_that_are_only_stored_in_16_bits_widen_no_tolerance(where, reader, wanted, tmp_path):
    node, info = helper.make_node, helper.make_tensor_value_info
    weight = helper.make_tensor("w", TensorProto.BFLOAT16, [1], [0.5])
    nodes = [node(reader, ["w"], ["v"], **({"to": TensorProto.FLOAT} if reader == "Cast" else {}))]
    weights = [weight] if where == "model" else []
    if where == "node":
        nodes.insert(0, node("Constant", [], ["w"], value=weight))
    if where == "body":
        result = TensorProto.FLOAT if reader == "Cast" else TensorProto.UNDEFINED
        body = helper.make_graph(nodes, "b", [], [info("v", result, [1])], [weight])
        nodes = [node("If", ["c"], ["v"], then_branch=body, else_branch=body)]
    inputs = [info("x", TensorProto.FLOAT, [3]), info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(
        [*nodes, node("Neg", ["x"], ["y"])], "g", inputs, [info("y", TensorProto.FLOAT, [3])], weights
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")

    assert compare.tolerance_for(tmp_path / "m.onnx") == wanted


@rule(ops.Tanh)
def tanh_is_sin(node: Node):
    """tanh(x)  ->  sin(x): wrong on purpose"""
    return ops.Sin(node.inputs[0])


@pytest.fixture
def wrong_pass(monkeypatch):
    seeded = passes.Pass("seeded", lambda graph: apply_rules(graph, [tanh_is_sin]))
    monkeypatch.setattr(passes, "PIPELINE", (*passes.PIPELINE[:4], seeded, *passes.PIPELINE[4:]))


def test_a_wrong_pass_is_named_and_its_node_cut_out(command, wrong_pass, tmp_path):
    code, out, err = command("--target", "cpu", "--bisect", "-o", "found")

    assert code == 6
    assert "GPC6001: output 'y'" in err
    assert "first wrong tensor: 't', of Tanh" in out
    assert "onnxruntime is off by" in out
    assert out.count(": gpucomp is wrong\n") == 1
    assert "cut from 9 nodes to 1" in out
    assert "Wrong after pass `seeded`." in out
    assert "- it applied tanh_is_sin: 1" in out
    assert "- seeded: right" in out
    assert "- canonicalize: wrong" in out
    small = onnx.load(tmp_path / "found" / "model.onnx")
    assert [n.op_type for n in small.graph.node] == ["Tanh"]
    inputs, expected = (np.load(tmp_path / "found" / f"{name}.npz") for name in ("inputs", "expected"))
    np.testing.assert_allclose(np.tanh(inputs["p"]), expected["t"], rtol=1e-5)


def test_a_model_with_a_fixed_input_is_cut_and_blamed_with_it(command, monkeypatch, tmp_path):
    """The pass is wrong only together with the Tile that reads the fixed input."""

    def seeded(graph):
        return apply_rules(graph, [tanh_is_sin]) if graph.inputs[0].type != graph.outputs[0].type else graph

    monkeypatch.setattr(passes, "PIPELINE", (passes.Pass("seeded", seeded), *passes.PIPELINE))
    node, info = helper.make_node, helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Neg", ["x"], ["n"]), node("Tile", ["n", "s"], ["w"]), node("Tanh", ["w"], ["y"])],
        "tiled",
        [info("x", TensorProto.FLOAT, [2, 3]), info("s", TensorProto.INT64, [2])],
        [info("y", TensorProto.FLOAT, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), "net.onnx")

    code, out, _ = command("--target", "cpu", "--constants", "s=3,2", "--bisect", "-o", "found")

    found = tmp_path / "found"
    (told,) = (line for line in (found / "README.md").read_text().splitlines() if "gpucomp compare" in line)
    assert code == 6
    assert "Wrong after pass `seeded`." in out
    assert "- seeded: right" in out
    assert [n.op_type for n in onnx.load(found / "model.onnx").graph.node] == ["Tile", "Tanh"]
    assert told.endswith("--input inputs.npz --constants s=3,2")
    monkeypatch.chdir(found)
    assert cli.main(told.split()[1:]) == 6


def test_a_wrong_pass_over_kernels_is_named(command, monkeypatch):
    """It turns the sign of every tanh."""

    def turned(expr):
        return transform(expr, lambda node: call("neg", node) if isinstance(node, Call) and node.fn == "tanh" else None)

    def seeded(steps, setting):
        return [replace_kernel(step, turned) if isinstance(step, KernelStep) else step for step in steps]

    def replace_kernel(step, change):
        stores = tuple(replace(s, value=change(s.value)) for s in step.kernel.stores)
        return replace(step, kernel=replace(step.kernel, stores=stores))

    wrong = KernelPass("seeded", seeded)
    monkeypatch.setattr(lowering, "KERNEL_PASSES", (*lowering.KERNEL_PASSES, wrong))

    code, out, _ = command("--target", "cpu", "--bisect", "-o", "found")

    assert code == 6
    assert "Wrong after pass `seeded`." in out
    assert "- seeded: right" in out
    assert "- narrow-integers: wrong" in out


def patches() -> onnx.ModelProto:
    """A convolution whose windows do not overlap: the image is read along its columns."""
    filters = numpy_helper.from_array(RNG.standard_normal((16, 3, 4, 4)).astype(np.float32), "w")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], strides=[4, 4])],
        "patches",
        [info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [info("y", TensorProto.FLOAT, [1, 16, 8, 8])],
        [filters],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def bytes_product() -> onnx.ModelProto:
    """A product of bytes by constant bytes."""
    weights = numpy_helper.from_array(RNG.integers(-99, 99, (32, 24)).astype(np.int8), "w")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "bytes",
        [info("x", TensorProto.UINT8, [48, 32])],
        [info("y", TensorProto.INT32, [48, 24])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def rolled(one: Scheduled) -> Scheduled:
    """The packed operand is read one place too far."""
    (last,) = {ld for ld in loads(one.kernel.body.b) if ld.source == one.kernel.inputs - 1}
    *rest, innermost = last.index
    further = load(
        last.source, (*rest, call("mod", innermost + 1, one.kernel.params[last.source].shape[-1])), last.dtype
    )
    body = replace(one.kernel.body, b=transform(one.kernel.body.b, lambda node: further if node is last else None))
    return replace(one, kernel=replace(one.kernel, body=body))


def other_signs(one: Scheduled) -> Scheduled:
    """Signed bytes are read as unsigned ones."""
    body = replace(one.kernel.body, signed=(False, False))
    return replace(one, kernel=replace(one.kernel, body=body))


def turned_windows(one: Scheduled) -> Scheduled:
    """Rows and columns of the windows are exchanged in one operand, and not in the other one."""
    body = one.kernel.body
    row, column = (axis for axis in body.k if axis.extent == 4)
    body = replace(body, b=substitute(body.b, {row: column, column: row}))
    return replace(one, kernel=replace(one.kernel, body=body))


AFTER_THE_CHOICE = {
    "pack-weights": ("cpu", net, rolled),
    "pack-bytes": ("opencl", bytes_product, other_signs),
    "order-depth": ("opencl", patches, turned_windows),
}


@pytest.mark.parametrize("name", AFTER_THE_CHOICE)
def test_a_wrong_pass_after_the_choice_of_a_schedule_is_named(name, command, monkeypatch):
    target, model, spoil = AFTER_THE_CHOICE[name]

    def wrong(genuine):
        def run(one):
            after = genuine(one)
            return after if after is one else spoil(after)

        return run

    seeded = [replace(p, run=wrong(p.run)) if p.name == name else p for p in lowering.SCHEDULED_PASSES]
    monkeypatch.setattr(lowering, "SCHEDULED_PASSES", tuple(seeded))
    monkeypatch.setattr(compiler, "SCHEDULED_PASSES", tuple(seeded))
    onnx.save(model(), "net.onnx")

    code, out, _ = command("--target", target, "--bisect", "-o", "found")

    assert code == 6
    assert f"Wrong after pass `{name}`." in out


@pytest.mark.parametrize("name", AFTER_THE_CHOICE)
def test_no_pass_of_a_right_model_is_blamed(name):
    target, model, _ = AFTER_THE_CHOICE[name]
    journey, proto, device = Journey(), model(), targets.resolve(target)
    (spec,) = frontend.load(proto).inputs
    inputs = {"x": RNG.integers(0, 250, spec.type.shape).astype(spec.type.dtype.numpy)}
    expected = ReferenceEvaluator(proto).run(None, inputs)[0]

    compiler.lower(proto, device, watch=journey.watch)
    found = blame(Case(proto, inputs, {"y": expected}), device, "fp32", compare.Tolerance())

    assert name in [stage.name for stage in journey.scheduled if stage.after != stage.before]
    assert (found.stage, set(found.without.values())) == (PLAN, {"right"})


def test_values_that_only_kernels_compute_are_known_to_the_search():
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("DynamicQuantizeLinear", ["t"], ["y", "s", "z"])]
    shape = [8, 16, 512]
    graph = helper.make_graph(
        nodes,
        "ranged",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, shape)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    device = targets.resolve("cpu").with_limits(cache_bytes=1 << 12)
    inputs = {"x": RNG.standard_normal(shape).astype(np.float32)}
    expected = ReferenceEvaluator(proto).run(None, inputs)[0]

    labels = [step.kernel.label for step in compiler.lower(proto, device).steps if isinstance(step, KernelStep)]
    found = blame(Case(proto, inputs, {"y": expected}), device, "fp32", compare.Tolerance(absolute=1.0))

    assert any("max of rows" in label for label in labels), "there is such a value"
    assert found.stage == PLAN


WRONG = {"cpu": ("fadd contract", "fsub contract"), "opencl": ("+ ev0[", "- ev0[")}  # the addend of a product


@pytest.fixture
def wrong_kernel(monkeypatch, target):
    """The text of every product subtracts what it has to add."""
    genuine = replacing.back_end

    def seeded(language):
        engines, render = genuine(language)

        def wrong(kernel, schedule, target_, name, family):
            source = render(kernel, schedule, target_, name, family)
            text = source.text.replace(*WRONG[target]) if kernel.label.startswith("MatMul") else source.text
            return replace(source, text=text)

        return engines, wrong

    monkeypatch.setattr(replacing, "back_end", seeded)


@pytest.mark.parametrize(("target", "source"), [("cpu", "kernel.ll"), ("opencl", "k000_contraction.cl")])
def test_a_wrong_kernel_is_named_and_runs_by_itself(command, wrong_kernel, tmp_path, target, source):
    onnx.save(net("s", (2, 5, 3, 7), first=6), "net.onnx")

    code, out, _ = command("--target", target, "--bisect", "-o", "found")

    assert code == 6
    assert "cut from 3 nodes to 2" in out
    assert "The graph is right after every pass; kernel `MatMul" in out
    assert [n.op_type for n in onnx.load(tmp_path / "found" / "model.onnx").graph.node] == ["MatMul", "Add"]
    assert "`kernel/` is the wrong kernel alone" in (tmp_path / "found" / "README.md").read_text()
    kernel = tmp_path / "found" / "kernel"
    by_itself = subprocess.run([sys.executable, kernel / "run.py"], capture_output=True, text=True)
    assert (by_itself.returncode, "WRONG" in by_itself.stdout) == (6, True), by_itself.stderr
    text = (kernel / source).read_text()
    (kernel / source).write_text(text.replace(*WRONG[target][::-1]))
    corrected = subprocess.run([sys.executable, kernel / "run.py"], capture_output=True, text=True)
    assert (corrected.returncode, "ok" in corrected.stdout) == (0, True), corrected.stderr


def test_an_error_of_the_compiler_is_cut_out_too(command, monkeypatch, tmp_path):
    def failing(graph):
        if any(node.op is ops.Softmax for node in graph.nodes()):
            raise VerifyError("seeded")
        return graph

    monkeypatch.setattr(passes, "PIPELINE", (*passes.PIPELINE, passes.Pass("failing", failing)))

    code, out, err = command("--target", "cpu", "--bisect", "-o", "found")

    assert code == 6
    assert "GPC6001" in err
    assert "The compiler fails: GPC9000 seeded" in out
    assert [n.op_type for n in onnx.load(tmp_path / "found" / "model.onnx").graph.node] == ["Softmax"]


def test_a_folder_with_something_in_it_is_left_alone(command, tmp_path):
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "precious").write_text("")

    code, _, err = command("--target", "cpu", "--bisect", "-o", "found")

    assert (code, "an empty or a new folder expected" in err) == (2, True)


def test_data_is_written_under_any_name_and_in_any_type(tmp_path):
    arrays = {"file": np.arange(3.0), "../x": np.ones(2, np.int8), "allow_pickle": np.ones(2, ml_dtypes.bfloat16)}

    reproduce.write(
        tmp_path / "found", cut.Case(net(), arrays, {}), Blame(IMPORT), targets.resolve("cpu"), compare.Tolerance()
    )

    with np.load(tmp_path / "found" / "inputs.npz", allow_pickle=False) as found:
        assert {name: found[name].tolist() for name in found} == {
            "file": [0, 1, 2],
            "../x": [1, 1],
            "allow_pickle": [0x3F80, 0x3F80],
        }
    assert sorted(p.name for p in tmp_path.rglob("*")) == [
        "README.md",
        "expected.npz",
        "found",
        "inputs.npz",
        "model.onnx",
    ]


def test_a_reference_that_is_wrong_is_told_from_gpucomp_and_not_cut(command, monkeypatch, tmp_path):
    genuine = compare.answers

    def coarse(model, inputs, against, *, optimised=True):
        """A program whose tanh is half as large again, with everything behind it as it follows from that."""
        proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        (place,) = (k for k, n in enumerate(proto.graph.node) if n.op_type == "Tanh")
        proto.graph.node[place].output[0] = "exact"
        scale = numpy_helper.from_array(np.array(1.5, np.float32), "scale")
        proto.graph.initializer.append(scale)
        proto.graph.node.insert(place + 1, helper.make_node("Mul", ["exact", "scale"], ["t"]))
        return genuine(proto.SerializeToString(), inputs, against, optimised=optimised)

    monkeypatch.setattr(compare, "answers", coarse)

    code, out, err = command("--target", "cpu", "--bisect", "-o", "found")

    assert (code, "GPC6001" in err) == (0, False)
    assert out.splitlines()[-1].startswith("gpucomp is right: in f64, every operator gives what gpucomp has")
    assert "first wrong tensor: 't', of Tanh" in out
    assert out.count(": onnxruntime is wrong, gpucomp is right\n") == 1
    assert "not bisected: onnxruntime is wrong here, not gpucomp; compare with --against reference" in out
    assert not (tmp_path / "found").exists()


class UpperTanh(OpRun):
    """Tanh, rounded up to the next f32: as right as rounding to the nearest, but for one unit in the last place."""

    op_domain = ""

    def _run(self, x):
        return (np.nextafter(np.tanh(x), np.float32(1)),)


UpperTanh.__name__ = "Tanh"


def counted() -> onnx.ModelProto:
    """The whole part of 2**24 tanh(x), less a whole number that is near it."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("Tanh", ["x"], ["t"]),
        node("Mul", ["t", "many"], ["m"]),
        node("Floor", ["m"], ["f"]),
        node("Sub", ["f", "near"], ["s"]),
        node("Add", ["s", "bias"], ["y"]),
    ]
    near = np.floor(np.tanh(TIES) * np.float32(2**24)) - 4
    weights = {"many": np.float32(2**24), "near": near, "bias": np.float32(0)}
    graph = helper.make_graph(
        nodes,
        "counted",
        [info("x", TensorProto.FLOAT, TIES.shape)],
        [info("y", TensorProto.FLOAT, TIES.shape)],
        [numpy_helper.from_array(np.asarray(a, np.float32), n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def ties() -> np.ndarray:
    """Numbers whose tanh is a half more than a whole number of units of 2**-24."""
    x = np.linspace(0.3, 0.5, 64, dtype=np.float32)
    return x[np.tanh(x) * np.float32(2**25) % 2 == 1]


TIES = ties()


@pytest.mark.parametrize("faulty", [False, True])
def test_a_difference_that_a_rounding_made_is_blamed_on_nothing(command, monkeypatch, tmp_path, faulty):
    class WrongAdd(OpRun):
        op_domain = ""

        def _run(self, a, b):
            return (a + b + np.float32(1),)

    WrongAdd.__name__ = "Add"

    def run(question, model, inputs):
        evaluator = ReferenceEvaluator(model, new_ops=[UpperTanh, *([WrongAdd] if faulty else [])])
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(inputs)), strict=True))

    monkeypatch.setattr("gpucomp.cli.bisect.Question.run", run)
    onnx.save(counted(), "net.onnx")
    np.save("x.npy", TIES)

    code, out, err = command(
        "--target", "cpu", "--against", "reference", "--input", "x=x.npy", "--bisect", "-o", "found"
    )

    rounded = f"whole numbers first differ in 'f', of Floor: {TIES.size} of {TIES.size} elements, at most by 1."
    assert (code, "GPC6001" in err) == ((6, True) if faulty else (0, False))
    assert ("gpucomp is right" in out.splitlines()[-1]) is not faulty
    assert ("'y', of Add: in f64" in out and ": gpucomp is wrong" in out) is faulty
    assert "first wrong tensor: 's', of Sub" in out
    assert rounded in out.partition("\ncut from")[0]
    assert ("Neither is wrong" in out) == ("# A model that is not wrong" in (tmp_path / "found/README.md").read_text())
    assert ("Neither is wrong" in out) is not faulty


@pytest.mark.parametrize("unsettled", ["random", "fused"])
def test_what_f64_does_not_tell_is_an_error(command, monkeypatch, unsettled):
    """The other program's tanh is wrong. Behind it, a tensor of gpucomp cannot be settled, or its output is another one if
    every tensor is an output."""
    genuine, from_f64 = compare.answers, settling.settle

    def coarse(model, inputs, against, *, optimised=True):
        found = genuine(model, inputs, against, optimised=optimised)
        return {name: a * np.float32(1.5) if name in ("t", "y") else a for name, a in found.items()}

    def known(theirs, ours, tensor, tolerance):
        return Refusal("RandomNormal is random") if tensor == "y" else from_f64(theirs, ours, tensor, tolerance)

    run = bisecting.Question.run

    def fused(question, model, inputs):
        return {n: a + np.float32(len(model.graph.output) == 1) for n, a in run(question, model, inputs).items()}

    monkeypatch.setattr(compare, "answers", coarse)
    if unsettled == "random":
        monkeypatch.setattr(settling, "settle", known)
    else:
        monkeypatch.setattr(bisecting.Question, "run", fused)

    code, out, err = command("--target", "cpu")

    assert (code, "GPC6001" in err) == (6, True)
    assert "onnxruntime is wrong, gpucomp is right" in out
    last = {
        "random": "f64 does not tell which is right about 'y', of Sigmoid: RandomNormal is random",
        "fused": "output 'y' is another one if less is fused: f64 does not tell whether it is right",
    }
    assert out.splitlines()[-1] == last[unsettled]


# --- who is right, without a compiler


def one_node(node: onnx.NodeProto) -> cut.Traced:
    """A model of one node that reads ``c``, which is true, and ``x``; as the reference computes it."""
    info = helper.make_tensor_value_info
    inputs = [info("c", TensorProto.BOOL, []), info("x", TensorProto.FLOAT, [3])]
    graph = helper.make_graph([node], "g", inputs, [info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return cut.trace(model, {"c": np.array(True), "x": np.array([0.1, 2.0, -3.0], np.float32)}, "reference")


@pytest.mark.parametrize("nested", [False, True])
def test_no_program_is_right_about_a_random_operator(nested):
    node = helper.make_node("RandomNormalLike", ["x"], ["y"])
    if nested:
        body = helper.make_graph([node], "b", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
        node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    traced = one_node(node)

    found = settle(traced, traced, "y", compare.Tolerance())

    assert isinstance(found, Refusal)
    assert found.reason == "RandomNormalLike is random"


NUMBERS = {
    "Constant": [helper.make_node("Constant", [], ["k"], value=helper.make_tensor("", TensorProto.FLOAT, [1], [0.1]))],
    "value_float": [helper.make_node("Constant", [], ["k"], value_float=0.1)],
    "value_floats": [helper.make_node("Constant", [], ["k"], value_floats=[0.1, 0.2, 0.3])],
    "ConstantOfShape": [
        helper.make_node("Constant", [], ["n"], value_ints=[3]),
        helper.make_node("ConstantOfShape", ["n"], ["k"]),
    ],
    "Cast": [helper.make_node("Cast", ["c"], ["k"], to=TensorProto.FLOAT)],
    "initializer": [],
}


@pytest.mark.parametrize("of", NUMBERS)
@pytest.mark.parametrize("depth", [1, 2])
def test_a_node_with_bodies_is_settled_in_f64_too(of, depth):
    info = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    weights = [helper.make_tensor("k", TensorProto.FLOAT, [1], [0.1])] if of == "initializer" else []
    nodes = [*NUMBERS[of], helper.make_node("Add", ["x", "k"], ["y"])]
    for _ in range(depth):
        body = helper.make_graph(nodes, "b", [], [info], weights)
        nodes, weights = [helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)], []
    theirs = one_node(nodes[0])
    ours = replace(theirs, tensors={**theirs.tensors, "y": theirs.tensors["y"] + np.float32(1)})

    found = settle(theirs, ours, "y", compare.Tolerance())

    assert isinstance(found, Settled)
    assert 0 <= found.theirs.l2 < 1e-6 < 0.1 < found.ours.l2


def test_a_loop_is_settled_in_f64_too():
    node, info = helper.make_node, helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["on"], ["still"]), node("Mul", ["before", "k"], ["after"])],
        "b",
        [info("i", TensorProto.INT64, []), info("on", TensorProto.BOOL, []), info("before", TensorProto.FLOAT, [3])],
        [info("still", TensorProto.BOOL, []), info("after", TensorProto.FLOAT, [3])],
        [helper.make_tensor("k", TensorProto.FLOAT, [1], [0.1])],
    )
    graph = helper.make_graph(
        [node("Loop", ["n", "c", "x"], ["y"], body=body)],
        "g",
        [info("x", TensorProto.FLOAT, [3])],
        [info("y", TensorProto.FLOAT, [3])],
        [helper.make_tensor("n", TensorProto.INT64, [], [4]), helper.make_tensor("c", TensorProto.BOOL, [], [True])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    traced = cut.trace(model, {"x": np.ones(3, np.float32)}, "reference")

    found = settle(traced, traced, "y", compare.Tolerance())

    assert isinstance(found, Settled)
    assert 0 < found.ours.l2 < 1e-6


def microsofts(op_type: str, inputs: dict[str, np.ndarray], weights: dict[str, np.ndarray], **attrs) -> cut.Traced:
    """A model of one of onnxruntime's own operators, of which y is the result, as onnxruntime computes it."""
    info = helper.make_tensor_value_info
    made = [info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    node = helper.make_node(op_type, [*inputs, *weights], ["y"], domain="com.microsoft", **attrs)
    initialised = [numpy_helper.from_array(a, n) for n, a in weights.items()]
    graph = helper.make_graph([node], "g", made, [info("y", TensorProto.FLOAT, None)], initialised)
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
    return cut.trace(helper.make_model(graph, opset_imports=opsets, ir_version=9), inputs, "onnxruntime")


RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((2, 12)).astype(np.float32)
OURS_AND_THEIRS = {
    "Gelu": lambda: microsofts("Gelu", {"x": X}, {}),
    "FusedMatMul": lambda: microsofts("FusedMatMul", {"x": X}, {"w": X}, transB=1, alpha=0.5),
    "DynamicQuantizeMatMul": lambda: microsofts(
        "DynamicQuantizeMatMul",
        {"x": X},
        {"w": RANDOM.integers(-90, 90, (12, 5)).astype(np.int8), "s": np.array([0.01], np.float32)},
    ),
    "MatMulIntegerToFloat": lambda: microsofts(
        "MatMulIntegerToFloat",
        {"x": RANDOM.integers(0, 200, (2, 12)).astype(np.uint8)},
        {
            "w": RANDOM.integers(-90, 90, (12, 5)).astype(np.int8),
            "a": np.array([0.02], np.float32),
            "b": np.array([0.01], np.float32),
        },
    ),
}


@pytest.mark.parametrize("name", OURS_AND_THEIRS)
@pytest.mark.parametrize("wrong", ["theirs", "ours", "neither"])
def test_an_operator_that_onnx_does_not_know_is_settled_by_its_translation(name, wrong):
    right = OURS_AND_THEIRS[name]()
    spoilt = replace(right, tensors={**right.tensors, "y": right.tensors["y"] * np.float32(1.1)})

    found = settle(
        spoilt if wrong == "theirs" else right, spoilt if wrong == "ours" else right, "y", compare.Tolerance()
    )

    assert isinstance(found, Settled)
    assert (found.only_theirs, found.both_right) == (wrong == "theirs", wrong == "neither")
    assert "by gpucomp's translation, as ONNX's evaluator does not know the operator" in found.told("onnxruntime")


# --- cutting, without a compiler


def traced():
    model = net()
    x = RNG.standard_normal((2, 3, 6, 7)).astype(np.float32)
    return cut.trace(model, {"x": x}, "onnxruntime")


def test_a_part_reads_the_rest_as_inputs_and_what_is_known_as_initialisers():
    part = traced().part([4, 5])

    assert [i.name for i in part.model.graph.input] == ["t"]
    assert [w.name for w in part.model.graph.initializer] == ["shape"]
    assert list(part.expected) == ["s"]
    onnx.checker.check_model(part.model, full_check=True)


@pytest.mark.parametrize("needed", [{"Relu"}, {"Conv", "Sigmoid"}, {"MaxPool", "Tanh", "Add"}])
def test_the_smallest_part_has_the_nodes_that_are_needed_and_no_other(needed):
    found = cut.smallest(traced(), lambda case: needed <= {n.op_type for n in case.model.graph.node})

    assert {n.op_type for n in found.model.graph.node} == needed


def test_nothing_is_cut_of_what_does_not_fail():
    assert cut.smallest(traced(), lambda case: False) is None


def test_a_shape_is_known_though_its_tensor_is_not():
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [node("Shape", ["x"], ["s"]), node("Neg", ["x"], ["n"]), node("Reshape", ["n", "s"], ["y"])]
    graph = helper.make_graph(nodes, "g", [info("x", 1, [2, 3])], [info("y", 1, [2, 3])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)

    found = cut.trace(model, {"x": np.ones((2, 3), np.float32)}, "reference")

    assert found.known == {"s"}


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ([3.0, 4.0], [3.0, 0.0], Distance(4 / 3, 4.0, 0.6, 8**0.5, 4.5**0.5)),
        ([0.0, 0.0], [0.0, 0.0], Distance(0.0, 0.0, 1.0, 0.0, 0.0)),
        ([1.0, 0.0], [0.0, 0.0], Distance(1.0, 1.0, 0.0, 0.5**0.5, 0.0)),
        ([np.nan, 2.0], [np.nan, 2.0], Distance(0.0, 0.0, 1.0, 0.0, 2.0)),
        ([np.inf, 2.0], [-np.inf, 2.0], Distance(np.inf, np.inf, 0.0, np.inf, 0.0)),
        ([1.0], [1.0, 1.0], Distance(np.inf, np.inf, 0.0, np.inf, 0.0)),
    ],
)
def test_distances(a, b, wanted):
    assert astuple(distance(np.array(a), np.array(b))) == pytest.approx(astuple(wanted))


@pytest.mark.parametrize(
    ("other", "wanted"),
    [({"b": 4.0, "a": 3.0}, 0.0), ({"a": 3.0, "b": 0.0}, 4 / 3), ({"a": 3.0}, np.inf), ({"a": 3.0, 4: 4.0}, np.inf)],
)
def test_maps_are_as_far_as_their_numbers_by_key(other, wanted):
    assert distance([{"a": 1.0}, {"a": 3.0, "b": 4.0}], [{"a": 1.0}, other]).l2 == pytest.approx(wanted)
