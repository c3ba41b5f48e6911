"""Valid models with random defects: each is loaded or refused with gpucomp's own error, and nothing crashes."""

import random

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from gpucomp import config
from gpucomp.errors import GpucompError
from gpucomp.frontend.onnx import load
from tests.onnx_cases import cases

NUMBERS = [0, -1, 1, 2, 5, -5, 1000, 1 << 31, 1 << 62, -(1 << 63)]
REALS = [0.0, -1.0, float("nan"), float("inf"), 1e30]


def with_constants(case, rng: random.Random) -> onnx.ModelProto:
    """The case's model with its small inputs as initialisers, so that their values matter."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for info, array in zip(model.graph.input, case.data_sets[0][0], strict=False):
        small = isinstance(array, np.ndarray) and array.dtype != object and array.ndim <= 1
        if small and rng.random() < 0.7:
            model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    return model


def break_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    attributes = [a for n in model.graph.node for a in n.attribute]
    if not attributes:
        return
    attribute = rng.choice(attributes)
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice(REALS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = rng.choice([b"", b"\xff", b"SAME_UPPER"])
    elif attribute.type == onnx.AttributeProto.INTS:
        attribute.ints.append(rng.choice(NUMBERS))
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)


def break_node(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    names = [name for n in model.graph.node for name in n.input]
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(["", "nowhere", *names])
    if node.attribute and rng.random() < 0.3:
        del node.attribute[rng.randrange(len(node.attribute))]


def break_type(model: onnx.ModelProto, rng: random.Random) -> None:
    if not model.graph.input:
        return
    tensor = rng.choice(model.graph.input).type.tensor_type
    if rng.random() < 0.4:
        tensor.elem_type = rng.randrange(25)
    elif tensor.shape.dim and rng.random() < 0.5:
        rng.choice(tensor.shape.dim).dim_value = rng.choice(NUMBERS)
    else:
        tensor.shape.dim.add().dim_value = rng.choice([0, 1, 2, 3])


def break_constant(model: onnx.ModelProto, rng: random.Random) -> None:
    if not model.graph.initializer:
        return
    tensor = rng.choice(model.graph.initializer)
    if tensor.data_type == onnx.TensorProto.INT64 and tensor.raw_data:
        array = np.frombuffer(tensor.raw_data, np.int64).copy()
        array[rng.randrange(len(array))] = rng.choice(NUMBERS)
        tensor.raw_data = array.tobytes()
    elif tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)


def break_opset(model: onnx.ModelProto, rng: random.Random) -> None:
    model.opset_import[0].version = rng.randint(7, 28)


BREAKS = (break_attribute, break_node, break_type, break_constant, break_opset)


def broken(case, rng: random.Random) -> bytes:
    model = with_constants(case, rng)
    if rng.random() < 0.75:
        for _ in range(rng.randint(1, 3)):
            rng.choice(BREAKS)(model, rng)
        return model.SerializeToString()
    data = bytearray(model.SerializeToString())
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_every_mutated_model_is_loaded_or_refused(seed):
    rng = random.Random(seed)
    pool = [case for name, case in sorted(cases().items()) if not name.endswith("_expanded")]
    loaded, messages = 0, []

    for _ in range(500):
        data = broken(rng.choice(pool), rng)
        try:
            with config.using(fold_limit=1 << 24):
                load(data)
            loaded += 1
        except GpucompError as error:
            messages.append(str(error))

    assert all("\n" not in message for message in messages)
    assert min(loaded, len(messages)) > 50  # both must happen, otherwise the mutations are too weak or too strong
