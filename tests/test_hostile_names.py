"""A model's names are data: whatever they hold, the kernels are the same and nothing of it is in their source."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import gpucomp
from gpucomp.cli import show, tensors

NAMES = [
    '*/ #include "/etc/passwd" /*',
    "x\n#error injected\n",
    "line \\\n continued",
    "??/ trigraph",
    "{{ 7*7 }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}",
    "{{ cycler.__init__.__globals__.os.system('touch PWNED') }}",
    "%n%s%d",
    "$(touch PWNED); `touch PWNED`",
    '\'"""\'',
    "../../tmp/pwned",
    "\x07\x1b[31m",
    "\u202eright to left",
    "x" * 5000,
    "int",
    "__global__",
    "__kernel",
    "gid",
    "tmp0",
    "w0",
    "k0",
    "DROP TABLE kernels; --",
]


def network(name):
    """y = relu(conv(x, w) + b) with its largest value; every name of the model is, or holds, ``name``."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((5, 3, 3, 3)).astype(np.float32)
    bias = rng.standard_normal((5, 1, 1)).astype(np.float32)

    def called(part):
        return f"{name}{part}"

    nodes = [
        helper.make_node("Conv", [called(0), called(1)], [called(3)], called(10), doc_string=name, pads=[1, 1, 1, 1]),
        helper.make_node("Add", [called(3), called(2)], [called(4)], called(11)),
        helper.make_node("Relu", [called(4)], [called(5)], called(12)),
        helper.make_node("ReduceMax", [called(5)], [called(6)], called(13), axes=[2, 3], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        name or "graph",
        [helper.make_tensor_value_info(called(0), TensorProto.FLOAT, [1, 3, 7, 11], doc_string=name)],
        [
            helper.make_tensor_value_info(called(5), TensorProto.FLOAT, [1, 5, 7, 11]),
            helper.make_tensor_value_info(called(6), TensorProto.FLOAT, [1, 5]),
        ],
        [numpy_helper.from_array(weights, called(1)), numpy_helper.from_array(bias, called(2))],
        doc_string=name,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    model.producer_name = model.producer_version = model.domain = model.doc_string = name
    model.metadata_props.add(key=name or "key", value=name)
    return model


def kernels_of(model, target):
    exe = gpucomp.compile(model.SerializeToString(), target=target)
    return exe, "\n".join(exe.sources[k.source] for k in exe.plan.kernels)


@pytest.fixture(scope="module", params=["cpu", "opencl", "cuda:sm_80"])
def target(request):
    return request.param


@pytest.fixture(scope="module")
def plain(target):
    return kernels_of(network("v"), target)[1]


@pytest.mark.parametrize("name", NAMES, ids=lambda n: repr(n[:30]))
def test_a_name_leaves_no_trace_in_the_source(name, target, plain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    exe, source = kernels_of(network(name), target)

    assert source == plain
    assert [spec.name for spec in exe.inputs] == [f"{name}0"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES, ids=lambda n: repr(n[:30]))
def test_a_model_of_any_names_runs_is_saved_and_shown(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(1).standard_normal((1, 3, 7, 11)).astype(np.float32)
    expected = gpucomp.compile(network("v")).run({"v0": x})
    exe = gpucomp.compile(network(name))

    exe.save(Path("m.gpuc"))
    outputs = gpucomp.load("m.gpuc").run({f"{name}0": x})

    assert list(outputs) == [f"{name}5", f"{name}6"]
    assert np.array_equal(outputs[f"{name}5"], expected["v5"])
    written = tensors.write_outputs(Path("out"), outputs)
    assert all(path.parent == Path("out") for path in written.values())
    for line in (*show.summary(exe), *show.kernels(exe.kernels), *(show.tensor(n, a) for n, a in outputs.items())):
        assert line.isprintable()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.gpuc", "out"]


def test_names_that_only_differ_in_what_is_no_identifier_stay_apart():
    model = network("v")
    names = {"v3": "a.b", "v4": "a/b", "v5": "a_b"}
    for node in model.graph.node:
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
    model.graph.output[0].name = "a_b"
    x = np.ones((1, 3, 7, 11), np.float32)

    outputs = gpucomp.compile(model).run({"v0": x})

    assert np.array_equal(outputs["a_b"], gpucomp.compile(network("v")).run({"v0": x})["v5"])
    assert list(outputs) == ["a_b", "v6"]
