"""Models with onnxruntime's operators that onnxruntime refuses are refused here too, by an error of gpucomp's own.

The operators have no schema in ONNX. The signatures of translators check inputs and attributes; each translator checks
element types and shapes.
"""

import numpy as np
import pytest
from onnx import helper

from gpucomp.errors import GpucompError, ModelError, ShapeError
from gpucomp.frontend.onnx import load
from tests.microsoft import MICROSOFT, by_onnxruntime, model_of
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(17)
F, I32 = np.float32, np.int32


def normal(*shape):
    return RNG.standard_normal(shape).astype(F)


def codes(dtype, *shape):
    return RNG.integers(0, 100, shape).astype(dtype)


B, S, H, SIZE, KEYS, HEADS, GROUPS, WIDE = 2, 5, 3, 4, 7, 4, 2, 16
D = H * SIZE
X, W, BIAS, Q, K, V = (
    normal(B, S, D),
    normal(D, 3 * D),
    normal(3 * D),
    normal(B, S, D),
    normal(B, KEYS, D),
    normal(B, KEYS, D),
)
SAME = normal(B, S, D)  # keys and values as many as queries
PAST = normal(B, H, 3, SIZE)
PLACES, TABLE = RNG.integers(0, 9, (B, S)), normal(9, SIZE // 2)
U, Z, J = codes(np.uint8, 3, 5), np.uint8(3), np.int8(3)
IMAGE = codes(np.uint8, 1, 3, 4, 4)
BITS = {"K": 70, "N": 9, "block_size": 32}
PACKED, SCALES = codes(np.uint8, 9, 3, 16), RNG.random(27).astype(F)
PROMPT = [
    normal(B, S, HEADS * WIDE),
    normal(B, S, GROUPS * WIDE),
    normal(B, S, GROUPS * WIDE),
    None,
    None,
    I32([4, 4]),
    I32(5),
]
BUFFER = [normal(B, GROUPS, 12, WIDE), normal(B, GROUPS, 12, WIDE)]
STEP = [
    normal(B, 1, HEADS * WIDE),
    normal(B, 1, GROUPS * WIDE),
    normal(B, 1, GROUPS * WIDE),
    *BUFFER,
    I32([7, 4]),
    I32(8),
]
LONG = [*PROMPT[:3], normal(B, GROUPS, 9, WIDE), normal(B, GROUPS, 9, WIDE), *PROMPT[5:]]
COSINES = normal(32, WIDE // 2)


def but(arrays, **changes):
    """The operands with some of them changed, by position: _3 is the fourth."""
    return tuple(changes.get(f"_{k}", a) for k, a in enumerate(arrays))


def listed():
    def attention(*arrays):
        return "Attention", arrays, {"num_heads": H}

    def heads(*arrays):
        return "MultiHeadAttention", arrays, {"num_heads": H}

    def grouped(*arrays, **attributes):
        return "GroupQueryAttention", arrays, {"num_heads": HEADS, "kv_num_heads": GROUPS, "fixed": (6,), **attributes}

    def rotary(*arrays, **attributes):
        return "RotaryEmbedding", arrays, attributes

    yield attention(X, W, BIAS, np.int64([5, 3])), "i32 expected"
    yield attention(X, W, normal(1)), "a bias of 36 elements"
    yield attention(X, W, BIAS, None, None, normal(3, 1, S, S)), "a bias of scores"
    yield attention(X, W, BIAS, None, None, normal(S, S)), "a bias of scores"
    yield attention(X, W, BIAS, None, None, normal(B, H, 1, S)), "a bias of scores"
    codes_of_weights = codes(np.int8, D, 3 * D)
    yield ("QAttention", (X, codes_of_weights, BIAS, F(0.1), F(0.1)), {"num_heads": H}), "i8 or u8 expected"
    half = BIAS.astype(np.float16)
    yield (
        ("QAttention", (codes(np.uint8, B, S, D), codes_of_weights, half, F(1), F(1)), {"num_heads": H}),
        "one element type",
    )

    yield heads(I32(Q), I32(K), I32(V)), "f16 or bf16 or f32 or f64 expected"
    yield heads(Q, K, V, None, np.int64([7, 5])), "i32 expected"
    yield heads(Q, K, V, None, F([7, 5])), "i32 expected"
    yield heads(Q, K, V, None, I32([7, 5, 1, 0])), "a mask of the numbers of keys expected"
    yield heads(Q, K, V, None, None, normal(3, 1, S, KEYS)), "a bias of scores"
    yield heads(Q[:1], K[:1], V[:1], None, None, normal(3, 1, S, KEYS)), "a bias of scores"
    yield heads(Q, K, V, None, None, normal(S, KEYS)), "a bias of scores"
    yield heads(Q, K, V, None, None, normal(1, H, 1, KEYS)), "a bias of scores"
    yield heads(Q, K, V, None, None, normal(1, 1, S, KEYS).astype(np.float64)), "one element type expected"
    yield heads(Q, K[:1], V[:1]), "do not fit together"
    yield heads(Q, normal(B, H, KEYS, SIZE), V), "keys and values expected"
    yield heads(Q, SAME, SAME, None, None, None, PAST), "past keys and past values belong together"
    yield heads(Q, SAME, SAME, None, None, None, None, PAST), "past keys and past values belong together"
    yield heads(Q, SAME, SAME, None, None, None, PAST[:1], PAST[:1]), "only in length"

    yield rotary(X, PLACES[:1], TABLE, TABLE), "one position or those of"
    yield rotary(X, PLACES[0], TABLE, TABLE), "one position or those of"
    yield rotary(X, PLACES[:, :1], TABLE, TABLE), "one position or those of"
    yield rotary(X, I32(PLACES), TABLE, TABLE), "i64 expected"
    yield rotary(X, PLACES, TABLE.astype(np.float16), TABLE.astype(np.float16)), "one element type"
    yield rotary(I32(X), PLACES, I32(TABLE), I32(TABLE)), "f16 or bf16"
    yield rotary(normal(B, H, S, 8), PLACES, TABLE, TABLE), "cosines of half of 8"
    yield rotary(normal(B, S, H * 8), PLACES, TABLE, TABLE, num_heads=H), "cosines of half of 8"
    yield rotary(normal(B, S, H * 8), PLACES, TABLE, TABLE, rotary_embedding_dim=4), "needs num_heads"

    yield grouped(*STEP, *[None] * 3, normal(1, HEADS, 1, 12)), "a bias of scores"
    yield grouped(*STEP, *[None] * 3, normal(1, HEADS, 1, 10)), "a bias of scores"
    yield grouped(*LONG, *[None] * 3, normal(B, HEADS, S, 9)), "a bias of scores"
    yield grouped(*PROMPT, *[None] * 3, normal(B, HEADS, S, 8)), "a bias of scores"
    yield grouped(*PROMPT, *[None] * 3, normal(1, 1, 1, S)), "a bias of scores"
    yield grouped(*PROMPT, *[None] * 3, normal(S, S)), "a bias of scores"
    yield grouped(*PROMPT, *[None] * 4, normal(1)), "4 sinks expected"
    yield grouped(*PROMPT, *[None] * 4, normal(1, HEADS)), "4 sinks expected"
    yield grouped(*but(PROMPT, _2=None)), "keys: both or neither expected"
    yield grouped(*but(PROMPT, _1=None)), "keys: both or neither expected"
    yield grouped(*but(STEP, _4=None)), "past: both or neither expected"
    yield grouped(*but(LONG, _6=I32(3))), "total_sequence_length 3"
    yield grouped(*but(STEP, _6=F(8.5))), "i32 expected"
    for places in (np.arange(S)[None], np.arange(S)):
        yield grouped(*PROMPT, COSINES, COSINES, places, do_rotary=1), "positions of 2 x 5"

    yield ("SkipLayerNormalization", (X, SAME, normal(1, D)), {}), "12 elements expected"
    yield ("SkipLayerNormalization", (X, SAME, normal(1)), {}), "12 elements expected"
    yield ("SkipLayerNormalization", (X, SAME, normal(D), normal(1, D)), {}), "12 elements expected"
    yield ("SkipLayerNormalization", (X, SAME, normal(D), normal(D), normal(1, D)), {}), "12 elements expected"
    yield ("SkipLayerNormalization", (X, normal(1, 1, D), normal(D)), {}), "an addend that broadcasts to"
    yield ("SkipSimplifiedLayerNormalization", (X, SAME, normal(1, D)), {}), "12 elements expected"
    yield (
        ("FusedConv", (normal(1, 2, 5, 5), normal(3, 2, 3, 3), None, normal(1, 3, 1, 1)), {"activation": "Relu"}),
        "an addend of shape",
    )

    product = (U, codes(np.uint8, 5, 6), F(0.1), F(0.2))
    yield ("MatMulIntegerToFloat", (*product, None, None, normal(3, 6)), {}), "a bias of 6"
    yield ("MatMulIntegerToFloat", (*product, None, None, normal(1)), {}), "a bias of 6"
    yield ("MatMulIntegerToFloat", (normal(3, 5), *product[1:]), {}), "i8 or u8 expected"
    yield ("QGemm", (normal(3, 5), F(0.1), Z, product[1], F(0.1), Z), {}), "i8 or u8 expected"
    yield ("QGemm", (U, F(0.1), J, product[1], F(0.1), Z), {}), "one element type"
    one, other = (U, F(0.1), Z), (codes(np.int8, 3, 5), F(0.1), J)
    for operator in ("QLinearAdd", "QLinearMul"):
        yield (operator, (normal(3, 5), F(0.1), None, *one, F(0.1), Z), {}), "i8 or u8 expected"
        yield (operator, (*one, *other, F(0.1), Z), {}), "one element type"
        yield (operator, (U, F(0.1), J, *one, F(0.1), Z), {}), "one element type"
        yield (operator, (*one, *one, F(0.1), J), {}), "one element type"
    yield ("QLinearSigmoid", (U, F(0.1), J, F(0.1), Z), {}), "one element type"
    yield ("QLinearSigmoid", (*one, F(0.1), J), {}), "u8 expected"
    yield ("QLinearSoftmax", (*one, F(0.1), J), {"opset": 13}), "u8 expected"
    yield ("QLinearConcat", (F(0.1), Z, *one, *other), {"axis": 0}), "one element type"
    yield ("QLinearWhere", (U > 3, *one, *other, F(0.1), Z), {}), "one element type"
    yield ("QLinearGlobalAveragePool", (IMAGE, F(0.1), J, F(0.1), Z), {"channels_last": 0}), "one element type"
    yield ("QLinearAveragePool", (IMAGE, F(0.1), Z, F(0.1), J), {"kernel_shape": [2, 2]}), "u8 expected"
    yield ("MatMulNBits", (np.zeros((3, 70), I32), PACKED, SCALES), BITS), "f16 or bf16"
    yield ("MatMulNBits", (normal(3, 70), PACKED, SCALES.astype(np.float16)), BITS), "one element type"
    yield ("MatMulNBits", (normal(3, 70), PACKED, SCALES, np.zeros(27, I32)), BITS), "i32"
    yield ("MatMulNBits", (normal(3, 70), PACKED, SCALES, None, None, normal(1)), BITS), "a bias of 9"
    yield ("ExpandDims", (normal(3), F(0.5)), {}), "i32 or i64 expected"
    yield ("Trilu", (normal(3, 3), F(0.5)), {}), "i64 expected"


CASES = [(*case, message) for case, message in listed()]


@pytest.mark.parametrize(
    ("operator", "arrays", "attributes", "message"), CASES, ids=[f"{case[0]}-{k}" for k, case in enumerate(CASES)]
)
def test_what_onnxruntime_refuses_is_refused(operator, arrays, attributes, message):
    fixed = [k for k, a in enumerate(arrays) if k and a is not None and np.ndim(a) == 0]
    proto, feeds = model_of(operator, arrays, **{"fixed": fixed, **attributes})

    with pytest.raises(ShapeError, match=message):
        load(proto)

    with pytest.raises(Exception, match=r"ONNXRuntimeError|onnxruntime"):
        by_onnxruntime(proto, feeds)


@pytest.mark.parametrize(
    ("operator", "count", "place", "attributes"),
    [
        ("MultiHeadAttention", 3, 0, {"num_heads": H}),
        ("GroupQueryAttention", 7, 5, {"num_heads": H, "kv_num_heads": H}),
        ("QLinearMul", 7, 0, {}),
        ("QLinearConcat", 5, 0, {"axis": 0}),
        ("QLinearConcat", 5, 3, {"axis": 0}),
        ("QGemm", 6, 1, {}),
        ("MatMulIntegerToFloat", 4, 2, {}),
        ("MatMulNBits", 3, 1, BITS),
    ],
)
def test_an_input_that_is_needed_is_not_absent(operator, count, place, attributes):
    arrays = [None if k == place else normal(3, 5) for k in range(count)]
    with pytest.raises(ModelError, match=rf"GPC3013 .*: input {place} is required"):
        load(model_of(operator, arrays, **attributes)[0])


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("MultiHeadAttention", {"num_heads": "x"}),
        ("MultiHeadAttention", {"num_heads": 3.0}),
        ("MultiHeadAttention", {"num_heads": 3, "scale": 1}),
        ("Attention", {"num_heads": 3, "qkv_hidden_sizes": [12.0, 12.0, 12.0]}),
        ("MatMulNBits", {**BITS, "K": "a"}),
        ("MatMulNBits", {**BITS, "K": 70.0}),
        ("GroupNorm", {"activation": 0, "groups": "2"}),
        ("QLinearSoftmax", {"opset": "x"}),
        ("UnfoldTensor", {"size": "x"}),
        ("QLinearReduceMean", {"axes": [1.5], "keepdims": 1}),
        ("Trilu", {"upper": "x"}),
        ("QuickGelu", {"alpha": 1}),
        ("FusedConv", {"pads": 1}),
        ("FusedConv", {"strides": [1.0, 1.0]}),
        ("FusedConv", {"dilations": "x"}),
        ("FusedConv", {"activation": 1}),
        ("FusedConv", {"activation_params": [1]}),
    ],
)
def test_an_attribute_is_of_the_kind_that_its_operator_takes(operator, attributes):
    with pytest.raises(ModelError, match=r"GPC3014 .* is of a wrong type"):
        load(model_of(operator, (normal(3, 5), normal(5, 3)), **attributes)[0])


def test_an_empty_list_is_of_every_kind():
    proto, _ = model_of("FusedConv", (normal(1, 2, 5, 5), normal(3, 2, 3, 3)))
    proto.graph.node[0].attribute.append(helper.make_attribute("activation_params", [], attr_type=6))

    load(proto)


def test_a_list_of_tensors_is_no_tensor():
    """Only an operator without a schema can have one."""
    listing = node("SequenceConstruct", ["x"], ["many"])
    proto = model(
        [listing, node("Gelu", ["many"], ["y"], domain=MICROSOFT)], [value("x", (3,))], ["y"], domains=[MICROSOFT]
    )

    with pytest.raises(GpucompError, match=r"GPC3015.*input 0 must not be of type seq"):
        load(proto)


def test_an_attribute_that_is_needed_and_absent_is_named():
    with pytest.raises(ModelError, match=r"GPC3013 .*needs attributes that are not given: 'size'"):
        load(model_of("UnfoldTensor", [normal(3, 5)], dim=1)[0])


def test_too_many_inputs_are_not_blamed_on_attributes():
    with pytest.raises(ModelError, match=r"GPC3013 .*does not take 2 inputs"):
        load(model_of("UnfoldTensor", [normal(3, 5), normal(3, 5)], size=2)[0])
