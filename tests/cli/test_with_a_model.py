"""The command with the real compiler: the digits network, and models that are none."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

import gpucomp
from examples.digits import data
from gpucomp import cli
from gpucomp.errors import UsageError
from gpucomp.frontend.onnx import declared_shapes

DIGITS = Path(data.__file__).with_name("digits.onnx")


@pytest.fixture
def command(monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.excepthook", __import__("sys").excepthook)

    def run(*arguments):
        code = cli.main([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def digits(tmp_path):
    images, labels = data.held_back()
    np.save(tmp_path / "digits.npy", images[:7])
    return labels[:7]


def test_compile_then_run_reads_digits(command, digits, tmp_path):
    made = command("compile", DIGITS, "--target", "cpu", "--shapes", "image:7x1x8x8", "-o", "d.gpuc")
    ran = command("run", "d.gpuc", "--input", "digits.npy", "--output-dir", "out")

    assert (made[0], ran[0]) == (0, 0)
    assert "input     image: f32[7,1,8,8]" in made[1]
    assert (np.load(tmp_path / "out" / "logits.npy").argmax(1) == digits).sum() >= 6


def test_sources_for_cuda_come_with_the_functions_that_they_call(command, tmp_path):
    code, out, err = command(
        "inspect", DIGITS, "--shapes", "image:7x1x8x8", "--target", "cuda:sm_90a", "--sources", "src"
    )

    assert code == 0, err
    assert "prelude_cuda.h is compiled in front of each" in out
    defined = set(re.findall(r"\b(gc_\w+)\(.*\{", (tmp_path / "src" / "prelude_cuda.h").read_text()))
    called = {name for path in tmp_path.glob("src/*.cu") for name in re.findall(r"\b(gc_\w+)\(", path.read_text())}
    assert "gc_grid_wait" in called
    assert called <= defined


def test_run_agrees_with_onnxruntime(command, digits):
    code, out, err = command(
        "run", DIGITS, "--shapes", "image:7x1x8x8", "--input", "image=digits.npy", "--compare", "onnxruntime"
    )

    assert code == 0, err
    assert out.splitlines()[-1].split()[0] == "'logits'"
    assert out.splitlines()[-1].split()[-1] == "ok"


def test_run_takes_an_open_shape_from_the_array(command, digits):
    code, out, err = command("run", DIGITS, "--input", "image=digits.npy")

    assert code == 0, err
    assert "f32[7,10]" in out


def test_a_photo_is_a_batch_of_one_where_the_model_leaves_the_batch_open(command, digits, tmp_path):
    Image.new("L", (11, 13), 200).save(tmp_path / "grey.png")

    named = command("run", DIGITS, "--input", "image=grey.png")
    alone = command("run", DIGITS, "--input", "grey.png")

    assert (named[0], named[2]) == (0, "")
    assert "f32[1,10]" in named[1]
    assert alone[1] == named[1]


def test_declared_shapes_are_those_of_what_is_fed():
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", ["N", 3]), ("w", [3]), ("y", ["N", 3]))
    ]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", infos[:2], infos[2:], [weight])

    assert declared_shapes(helper.make_model(graph, ir_version=3)) == {"x": (None, 3)}


def test_a_shape_that_is_given_is_not_taken_from_the_array(command, digits):
    code, _, err = command("run", DIGITS, "--shapes", "image:3x1x8x8", "--input", "image=digits.npy")

    assert code == 2
    assert "shape [3, 1, 8, 8] expected, found [7, 1, 8, 8]" in err


def test_a_shape_that_nothing_tells_is_asked_for(command, digits):
    code, _, err = command("run", DIGITS)

    assert code == 2
    assert err.startswith("error GPC2102")
    assert "--shapes image:Nx1x8x8" in err


def test_check_is_content_with_the_digits(command):
    code, out, _ = command("check", DIGITS, "--shapes", "image:1x1x8x8")

    assert code == 0
    assert "everything can be compiled for cpu" in out


def test_check_names_every_unsupported_operator_at_once(command, tmp_path):
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], "first", domain="org.example"),
        helper.make_node("Relu", ["a"], ["b"], "second"),
        helper.make_node("Twist", ["b"], ["y"], "third", domain="org.example"),
    ]
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.example", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", tensors[:1], tensors[1:]), opset_imports=opsets)
    onnx.save(model, tmp_path / "m.onnx")

    code, out, err = command("check", "m.onnx")
    compiled = command("compile", "m.onnx", "-o", "m.gpuc")

    assert code == 4
    assert "Frobnicate" in out
    assert "Twist" in out
    assert "Relu" not in out
    assert err.startswith("error GPC4001: 'm.onnx' cannot be compiled: 2 problems")
    assert compiled[0] == 4
    assert "Twist" in compiled[2]


def test_check_names_unknown_operators_beside_open_dimensions(command, tmp_path):
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], "first", domain="org.example"),
        helper.make_node("Relu", ["a"], ["b"], "second"),
        helper.make_node("If", ["c"], ["y"], "third", **{
            f"{branch}_branch": helper.make_graph(
                [helper.make_node("Bar", ["b"], ["z"], branch, domain="org.example")], branch, [],
                [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
            )
            for branch in ("then", "else")
        }),
    ]  # fmt: skip
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in "xy")
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("org.example", 1)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x, c], [y]), opset_imports=opsets), tmp_path / "m.onnx")

    code, out, err = command("check", "m.onnx")

    assert code == 4
    assert [line.split()[0].removeprefix("org.example.") for line in out.splitlines()] == ["Foo", "Bar", "Bar", "give"]
    assert "--shapes x:Nx3" in out
    assert err.startswith("error GPC4001: 'm.onnx' cannot be compiled: 4 problems")


def test_an_input_is_fixed_on_the_command_line(command, tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])
    s = helper.make_tensor_value_info("s", TensorProto.INT64, [2])
    model = helper.make_model(helper.make_graph(nodes, "g", [x, s], [y]), opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "m.onnx")

    for name, more in (("run", ("--compare", "onnxruntime")), ("check", ()), ("inspect", ()), ("compare", ())):
        if name == "run":
            np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32))
            more = (*more, "--input", "x=x.npy")
        code, out, err = command(name, "m.onnx", "--constants", "s=3,2", *more)
        assert (code, err) == (0, ""), name
        assert name not in ("run", "inspect") or "f32[3,2]" in out.replace(" ", "")
    assert "cannot hold" in command("check", "m.onnx", "--constants", "s=3.5,2")[2]


def test_an_error_speaks_the_language_of_the_caller(command):
    with pytest.raises(UsageError) as python:
        gpucomp.compile(DIGITS)

    assert "give shapes={'image': (N, 1, 8, 8)} with a number for each N" in str(python.value)
    assert "--" not in str(python.value)
    assert "give --shapes image:Nx1x8x8 with a number for each N" in command("run", DIGITS)[2]


def test_a_sequence_is_asked_for_in_the_language_of_the_caller(command, tmp_path):
    sequence = helper.make_tensor_sequence_value_info("xs", TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("ConcatFromSequence", ["xs"], ["y"], axis=0)]
    graph = helper.make_graph(nodes, "g", [sequence], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")

    with pytest.raises(UsageError, match=r"its contents: shapes=\{'xs': a list of shapes\}"):
        gpucomp.compile(tmp_path / "m.onnx")
    assert "its contents: --shapes xs:[2x3,4x3], a list of shapes" in command("check", "m.onnx")[2]


def test_inputs_that_can_be_given_are_listed_without_weights(tmp_path):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3] if n == "x" else [3]) for n in "xw"]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", infos, [y], [weight])

    with pytest.raises(UsageError, match=r"the model has no input 'inp'; its inputs are: 'x'$"):
        gpucomp.compile(helper.make_model(graph, ir_version=3), shapes={"inp": (2, 3)})


class Module:
    def forward(self):
        """Stands for a module of PyTorch's."""

    def state_dict(self):
        """Stands for a module of PyTorch's."""


def test_what_is_no_onnx_model_is_told_how_to_become_one():
    with pytest.raises(
        UsageError, match=r"Module given; export a PyTorch module first: gpucomp.compile\(torch.onnx.export"
    ):
        gpucomp.compile(Module())
    with pytest.raises(UsageError, match=r"pass its \.model_proto"):
        gpucomp.compile(SimpleNamespace(model_proto=None))
    with pytest.raises(UsageError, match=r"torch.onnx.export\(program, dynamo=True\).model_proto"):
        gpucomp.compile(SimpleNamespace(graph_signature=None, run_decompositions=None))


def test_inspect_shows_the_graph_before_and_after(command):
    shapes = ("--shapes", "image:1x1x8x8")
    before = command("inspect", DIGITS, *shapes, "--graph", "before")
    after = command("inspect", DIGITS, *shapes, "--graph", "after")
    passes = command("inspect", DIGITS, *shapes, "--passes")

    assert before[1].count("graph(%image: f32[1,1,8,8])") == 1
    assert before[1] != after[1]
    assert len(passes[1].splitlines()) > 3
    assert passes[1].splitlines()[0].split() == ["#", "pass", "ms", "nodes", "after", "rules", "that", "fired"]
    assert (before[0], after[0], passes[0]) == (0, 0, 0)


def test_inspect_shows_the_kernels_of_a_device_that_is_absent(command, tmp_path):
    code, out, _ = command(
        "inspect", DIGITS, "--shapes", "image:1x1x8x8", "--target", "cuda:sm_90a", "--kernels", "--sources", "src"
    )

    assert code == 0
    assert "Conv Add Relu" in out
    assert any("__global__" in path.read_text() for path in (tmp_path / "src").iterdir())


def test_bench_measures_the_digits(command):
    code, out, _ = command("bench", DIGITS, "--shapes", "image:1x1x8x8", "--duration", "0.05", "--warmup", "1")

    assert code == 0
    assert "Method: cpu, " in out


def test_a_wrong_target_is_a_usage_error(command):
    code, out, err = command("run", DIGITS, "--target", "tpu")

    assert (code, out) == (2, "")
    assert err.startswith(
        "error GPC2002: unknown target 'tpu'; targets are auto, cpu, cpu:PROCESSOR, opencl, opencl:NAME"
    )
    assert len(err.splitlines()) == 1


def test_an_open_dimension_asks_for_shapes(command):
    code, _, err = command("compile", DIGITS, "-o", "d.gpuc")

    assert code == 2
    assert "--shapes image:Nx1x8x8" in err
    assert len(err.splitlines()) == 1


def cyclic(model):
    model.graph.node[0].input[0] = model.graph.node[2].output[0]


def huge(model):
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1 << 62


def no_output(model):
    model.graph.output[0].name = "nowhere"


def outside(model):
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../../etc/passwd")


@pytest.mark.parametrize("damage", [cyclic, huge, no_output, outside], ids=lambda f: f.__name__)
def test_a_bad_model_is_one_line(command, tmp_path, damage):
    model = onnx.load(DIGITS)
    damage(model)
    (tmp_path / "bad.onnx").write_bytes(model.SerializeToString())

    code, out, err = command("run", "bad.onnx", "--input", "none.npy")

    assert code in (2, 3)
    assert err.startswith("error GPC")
    assert "internal" not in err
    assert len(err.splitlines()) == 1
    assert out == ""


@pytest.mark.parametrize("size", [0, 1, 37, 1000, 40_000])
def test_a_truncated_model_is_one_line(command, tmp_path, size):
    (tmp_path / "cut.onnx").write_bytes(DIGITS.read_bytes()[:size])

    code, _, err = command("run", "cut.onnx")

    assert code == 3
    assert err.startswith("error GPC300")
    assert len(err.splitlines()) == 1


def test_an_untrusted_file_is_built_from_its_sources(command, digits, tmp_path):
    from gpucomp.loading import load
    from gpucomp.runtime import artifact

    command("compile", DIGITS, "--shapes", "image:7x1x8x8", "-o", "d.gpuc")
    parts = artifact.load(tmp_path / "d.gpuc")
    poisoned = dict.fromkeys(parts.binaries, b"not code")
    artifact.save(tmp_path / "p.gpuc", artifact.Contents(parts.plan, parts.sources, poisoned, parts.weights))

    exe = load(tmp_path / "p.gpuc", trusted=False)

    x = {"image": np.load(tmp_path / "digits.npy")}
    assert np.array_equal(exe.run(x)["logits"], load(tmp_path / "d.gpuc").run(x)["logits"])


def test_a_sequence_is_compiled_and_its_tensors_are_files(command, tmp_path):
    sequence = helper.make_tensor_sequence_value_info("xs", TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("ConcatFromSequence", ["xs"], ["y"], axis=0)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [sequence], [y]), opset_imports=[helper.make_opsetid("", 17)]
    )
    onnx.save(model, tmp_path / "m.onnx")
    for k, rows in enumerate((2, 3)):
        np.save(tmp_path / f"{k}.npy", np.full((rows, 5), k, np.float32))

    files = ("--input", "xs[0]=0.npy", "--input", "xs[1]=1.npy", "--output-dir", "out")
    code, _, _ = command("run", "m.onnx", "--shapes", "xs:[2x5,3x5]", *files)

    assert code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "y.npy")[:, 0], [0, 0, 1, 1, 1])


def test_check_names_where_values_decide_shapes(command, tmp_path):
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("NonZero", ["e"], ["p"], "places"),
        helper.make_node("Transpose", ["p"], ["y"], "turned"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "m.onnx")

    code, out, _ = command("check", "m.onnx")
    compiled = command("compile", "m.onnx", "-o", "m.gpuc")

    assert code == 0
    assert "NonZero at node 'places': the shape of its result depends on values" in out
    assert "operators that read such results (1): Transpose" in out
    assert "if only an input decides them, fix its value with --constants NAME=VALUE" in out
    assert "Exp" not in out
    assert "dynamic   2 operators" in compiled[1]
    assert "NonZero Transpose" in compiled[1]


def test_the_graph_is_drawn_beside_everything_else(command, digits, tmp_path):
    shapes = ("--target", "cpu", "--shapes", "image:7x1x8x8")
    rest = ("--kernels", "--sources", "s", "--json", "t.json")

    code, out, err = command("inspect", DIGITS, *shapes, "--graph", "-o", "g.html", *rest)

    assert code == 0, err
    assert "kernels -> g.html" in out
    assert (tmp_path / "g.html").exists()
    assert list((tmp_path / "s").iterdir())
    assert list(json.loads((tmp_path / "t.json").read_text())) == ["kernels"]


@pytest.mark.parametrize("output", [("-o", "g.html"), ("--output=g.html",), ()])
def test_a_model_behind_graph_is_not_its_value(command, tmp_path, output):
    code, _, err = command("inspect", "--graph", DIGITS, *output, "--target", "cpu", "--shapes", "image:7x1x8x8")

    assert code == (0 if output else 2), err
    assert (tmp_path / "g.html").exists() == bool(output)
    assert output or err.startswith(
        "error GPC2028: the page of kernels needs both --graph and a file: give --graph -o FILE.html"
    )
