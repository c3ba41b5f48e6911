"""One operator of com.microsoft through the interpreter and through onnxruntime."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

import gpucomp
from gpucomp.cli.compare import onnxruntime_session
from gpucomp.frontend.onnx import load
from gpucomp.ops.interpreter import interpret
from tests.onnx_builders import model, node, value

MICROSOFT = "com.microsoft"
Array = np.ndarray | np.generic


def model_of(
    operator: str,
    arrays: Sequence[Array | None],
    fixed: Collection[int] = (),
    outputs: Sequence[str] = ("y",),
    domain: str = MICROSOFT,
    standard: int = 17,
    **attributes: object,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model and what its inputs hold; those in ``fixed`` are initialisers."""
    names = ["" if a is None else f"x{k}" for k, a in enumerate(arrays)]
    given = {f"x{k}": np.asarray(a) for k, a in enumerate(arrays) if a is not None}
    weights = {f"x{k}": given.pop(f"x{k}") for k in fixed if f"x{k}" in given}
    inputs = [value(name, a.shape, helper.np_dtype_to_tensor_dtype(a.dtype)) for name, a in given.items()]
    nodes = [node(operator, names, list(outputs), domain=domain, **attributes)]
    proto = model(nodes, inputs, [o for o in outputs if o], weights, opset=standard, domains=[MICROSOFT])
    return proto, given


def by_onnxruntime(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Its answers. Operands of i8 are constants to it: of these alone are its sums exact on every processor."""
    constant = {name: array for name, array in feeds.items() if array.dtype == np.int8}
    judged = onnx.ModelProto()
    judged.CopyFrom(proto)
    del judged.graph.input[:]
    judged.graph.input.extend(i for i in proto.graph.input if i.name not in constant)
    judged.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constant.items())
    session = onnxruntime_session(judged.SerializeToString(), optimised=False, threads=1)
    return session.run(None, {name: array for name, array in feeds.items() if name not in constant})


def interpreted(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(interpret(load(proto), feeds))


def compiled(proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    found = gpucomp.compile(proto, target="cpu").run(feeds)
    return [found[output.name] for output in proto.graph.output]
