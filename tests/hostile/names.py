"""Names and texts of a model that mean something elsewhere: to C, jinja, a shell, a terminal, a path, a format.

A name is only a name: the model runs, nothing is made of it, and a message that quotes it stays one plain line.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.hostile.corpus import OK, Act, add, check, proto
from tests.onnx_builders import model, node, value

NAMES = {
    "comment_end": "*/ int x; /*",
    "line_comment": "// \\",
    "include": 'a\n#include "/etc/passwd"\n',
    "pragma": "\n#pragma once\n",
    "continued_line": "line\\\n",
    "trigraph": "??/",
    "call": '"; system("touch PWNED"); //',
    "assembly": 'asm("int3")',
    "jinja_expression": "{{7*7}}",
    "jinja_block": "{% include '/etc/passwd' %}",
    "jinja_call": "{{ cycler.__init__.__globals__.os.system('touch PWNED') }}",
    "jinja_comment": "{# #}",
    "percent_formats": "%n%s%x%99999999d",
    "brace_formats": "{0.__class__} {:>999999999}",
    "dollar": "$(touch PWNED) ${HOME} `touch PWNED`",
    "quotes": "'\"'\"\"\"'''",
    "path_up": "../../../tmp/pwned",
    "path_absolute": "/tmp/pwned",
    "path_device": "CON",
    "nul_inside": "a\0b",
    "only_nul": "\0",
    "newlines": "\r\n\x0b\x0c\x85\u2028\u2029",
    "terminal_colours": "\x1b[31mred\x1b[0m",
    "terminal_title": "\x1b]0;title\x07",
    "right_to_left": "\u202eevil",
    "zero_width": "\u200b\ufeff",
    "combining": "e" + "\u0301" * 500,
    "noncharacters": "\uffff\U0010ffff",
    "surrogates_escaped": "\\ud800",
    "emoji": "🦊" * 50,
    "c_keyword": "float",
    "kernel_keyword": "__kernel",
    "cuda_keyword": "__global__",
    "llvm_name": "%0 = call void @abort()",
    "llvm_quotes": '" } declare void @abort()',
    "own_variable": "gid",
    "own_kernel": "k0",
    "own_weight": "w0",
    "own_padding": "pad.0",
    "own_metadata": "__metadata__",
    "member_name": "manifest.json",
    "python_dunder": "__class__",
    "python_code": "__import__('os').system('touch PWNED')",
    "yaml_tag": "!!python/object/apply:os.system ['touch PWNED']",
    "sql": "'; DROP TABLE models; --",
    "html": "<script>alert(1)</script>",
    "regex": "(a+)+$",
    "option": "--output=PWNED",
    "glob": "*?[a-z]",
    "blank": " ",
    "number": "1e999",
    "nothing_but_dots": "...",
    "very_long": "x" * 1_000_000,
}


def everywhere(name: str) -> onnx.ModelProto:
    """y = relu(a x + b), with ``name`` in every name and text that a model has."""
    names = [f"{name}{k}" for k in range(6)]
    nodes = [
        helper.make_node("Mul", names[:2], [names[3]], f"{name}a", doc_string=name),
        helper.make_node("Add", [names[3], names[2]], [names[4]], f"{name}b"),
        helper.make_node("Relu", [names[4]], [names[5]], f"{name}c"),
    ]
    weights = [numpy_helper.from_array(np.full(3, k, np.float32), names[k]) for k in (1, 2)]
    info = helper.make_tensor_value_info(names[0], TensorProto.FLOAT, ["N", 3], doc_string=name)
    info.type.tensor_type.shape.dim[0].dim_param = name
    info.type.denotation = name
    graph = helper.make_graph(nodes, name, [info], [onnx.ValueInfoProto(name=names[5])], weights, doc_string=name)
    found = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    found.producer_name = found.producer_version = found.domain = found.doc_string = name
    found.metadata_props.add(key=name, value=name)
    return found


def through_everything(folder: Path, name: str) -> None:
    """Compile, show, save, load, run and write the outputs, as the command line does."""
    import gpucomp
    from gpucomp.cli import show, tensors

    exe = gpucomp.compile(folder / "m.onnx", target="cpu", shapes={f"{name}0": (2, 3)})
    exe.save(folder / "m.gpuc")
    loaded = gpucomp.load(folder / "m.gpuc")
    outputs = loaded.run({f"{name}0": np.array([[-7, 0, 1], [2, 3, 4]], np.float32)})
    (array,) = outputs.values()
    np.testing.assert_array_equal(array, [[0, 2, 3], [4, 5, 6]])
    for line in (*show.summary(exe), *show.kernels(exe.kernels)):
        assert line.isprintable(), line
        assert len(line) < 4000, len(line)
    written = tensors.write_outputs(folder / "out", outputs)
    assert [path.parent for path in written.values()] == [folder / "out"]
    for path in (folder / "m.gpuc", *written.values()):
        path.unlink()
    (folder / "out").rmdir()


def running(folder: Path, name: str) -> Act:
    (folder / "m.onnx").write_bytes(everywhere(name).SerializeToString())
    return partial(through_everything, folder, name)


def refused(name: str) -> onnx.ModelProto:
    """A model that is wrong at a node of this name."""
    return model([node("MatMul", [name, name], ["y"], name=name)], [value(name)])


for what, text in NAMES.items():
    add(f"names/{what}_everywhere", OK, partial(running, name=text))
    proto(f"names/{what}_in_a_message", "GPC3101", partial(refused, text), "MatMul (opset 20) at node ")

for what in ("include", "jinja_call", "very_long", "terminal_colours", "nul_inside"):
    text = NAMES[what]
    proto(
        f"names/{what}_as_operator",
        "GPC4001",
        lambda t=text: model([node(t, ["x"], ["y"], name="n")], [value("x")]),
        "'n'",
    )
    proto(
        f"names/{what}_as_domain",
        "GPC4001",
        lambda t=text: model([node("Relu", ["x"], ["y"], name="n", domain=t)], [value("x")], domains=[t]),
        "'n'",
    )
    proto(
        f"names/{what}_as_attribute",
        "GPC3014",
        lambda t=text: model([node("Relu", ["x"], ["y"], name="n", **{t: 1.0})], [value("x")]),
        "'n'",
    )
    proto(
        f"names/{what}_as_dimension",
        "GPC2102",
        lambda t=text: model([node("Relu", ["x"], ["y"])], [value("x", [t])]),
        "'x'",
    )

# fifteen names that are one when what is no letter is left out, and names that differ in ways that a file system forgets
ALIKE = ["a.b", "a/b", "a_b", "a-b", "a b", "a:b", "a+b", "a*b", "a(b", "a\0b", "a\nb", "A.B", "é", "e\u0301", "\u212b"]


def alike() -> onnx.ModelProto:
    nodes = [node("Add", ["x", f"w{name}"], [name]) for name in ALIKE]
    weights = {f"w{name}": np.full(3, k, np.float32) for k, name in enumerate(ALIKE)}
    return model(nodes, [value("x", (3,))], ALIKE, weights=weights)


def apart(folder: Path) -> None:
    import gpucomp
    from gpucomp.cli import tensors

    outputs = gpucomp.compile(folder / "m.onnx", target="cpu").run({"x": np.zeros(3, np.float32)})
    assert [float(outputs[name][0]) for name in ALIKE] == list(range(len(ALIKE)))
    written = tensors.write_outputs(folder / "out", outputs)
    assert len({str(path).lower() for path in written.values()}) == len(ALIKE)
    for path in written.values():
        path.unlink()
    (folder / "out").rmdir()


def prepared(folder: Path) -> Act:
    (folder / "m.onnx").write_bytes(alike().SerializeToString())
    return partial(apart, folder)


add("names/alike_when_cleaned", OK, prepared)
proto(
    "names/of_five_thousand_weights",
    OK,
    lambda: model(
        [node("Relu", ["x"], ["y"])],
        [value("x")],
        weights=[TensorProto(name=f"w{k}", data_type=1, raw_data=b"\0\0\0\0") for k in range(5_000)],
    ),
    act=check,
)
