"""onnxruntime's fused operators against onnxruntime itself, and those without a CPU kernel against numpy."""

import numpy as np
import pytest

from gpucomp.errors import ModelError, ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load
from testing.tolerance import assert_matches
from tests.microsoft import by_onnxruntime, compiled, interpreted, model_of

RNG = np.random.default_rng(7)
F = np.float32


def normal(*shape):
    return RNG.standard_normal(shape).astype(F)


B, S, D = 2, 5, 12
X, GAMMA, BETA, BIAS = normal(B, S, D), normal(D), normal(D), normal(D)
IDS, SEGMENTS = RNG.integers(0, 11, (B, S)).astype(np.int32), RNG.integers(0, 2, (B, S)).astype(np.int32)
MASK = (np.arange(S) < [[5], [3]]).astype(np.int32)
TABLES = (normal(11, D), normal(7, D), normal(2, D))
IMAGE, KERNELS, CHANNELS = normal(2, 4, 7, 6), normal(6, 2, 3, 3), normal(6)
WINDOWS = {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 1]}
ALL_OF_A_SKIP = ("y", "", "", "sum")

CASES = [
    ("Gelu", (X,), {}),
    ("BiasGelu", (X, BIAS), {}),
    ("FastGelu", (X,), {}),
    ("FastGelu", (X, BIAS), {}),
    ("QuickGelu", (X,), {"alpha": 1.3}),
    ("SkipLayerNormalization", (X, normal(B, S, D), GAMMA, BETA, BIAS), {"outputs": ALL_OF_A_SKIP}),
    ("SkipLayerNormalization", (X, normal(1, S, D), GAMMA), {"epsilon": 1e-3}),
    ("SkipLayerNormalization", (X, normal(S, D), GAMMA, None, BIAS), {"epsilon": 1e-3}),
    ("SkipSimplifiedLayerNormalization", (X, normal(B, S, D), GAMMA, BIAS), {"outputs": ALL_OF_A_SKIP}),
    ("SimplifiedLayerNormalization", (X, GAMMA), {"domain": "", "epsilon": 1e-3, "outputs": ("y", "root")}),
    ("LayerNormalization", (X, GAMMA, BETA), {"domain": "", "standard": 13, "outputs": ("y", "mean", "root")}),
    ("EmbedLayerNormalization", (IDS, SEGMENTS, *TABLES, GAMMA, BETA, MASK), {"outputs": ("y", "kept", "sum")}),
    (
        "EmbedLayerNormalization",
        (IDS, None, *TABLES[:2], None, GAMMA, BETA, None, SEGMENTS),
        {"outputs": ("y", "kept")},
    ),
    *(
        ("FusedConv", (IMAGE, KERNELS, CHANNELS), {"activation": name, **given, **WINDOWS})
        for name, given in (
            ("Relu", {}),
            ("Sigmoid", {}),
            ("Tanh", {}),
            ("LeakyRelu", {"activation_params": [0.2]}),
            ("Clip", {"activation_params": [-0.5, 1.0]}),
            ("HardSigmoid", {"activation_params": [0.3, 0.4]}),
            ("HardSwish", {}),
            ("Relu", {"activation_params": [0.3]}),
        )
    ),
    ("FusedConv", (IMAGE, KERNELS, CHANNELS, normal(2, 6, 4, 6)), {"activation": "Relu", **WINDOWS}),
    ("FusedMatMul", (normal(3, 5, 4), normal(3, 6, 5)), {"transA": 1, "transB": 1, "alpha": 0.3}),
    ("FusedMatMul", (normal(5, 3, 4), normal(3, 4, 6)), {"transBatchA": 1}),
    (
        "FusedMatMul",
        (normal(4, 3, 2, 5), normal(6, 3, 2, 4)),
        {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1},
    ),
    ("TransposeMatMul", (normal(5, 4), normal(5, 6)), {"transA": 1}),
    (
        "FusedGemm",
        (normal(3, 5), normal(6, 5), CHANNELS),
        {"activation": "Relu", "transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    ("FusedGemm", (normal(3, 5), normal(5, 6)), {"activation": "LeakyRelu", "activation_alpha": 0.3}),
    *(
        (
            "FusedGemm",
            (normal(3, 5), normal(5, 6)),
            {"activation": name, **{f"activation_{k}": v for k, v in given.items()}},
        )
        for name, given in (
            ("Softplus", {}),
            ("Softsign", {}),
            ("Relu", {"alpha": 0.3}),
            ("LeakyRelu", {"alpha": 0.3, "beta": 0.2, "gamma": 0.7}),
            ("Elu", {"alpha": 0.3}),
            ("ThresholdedRelu", {"alpha": 0.3}),
            ("Selu", {"alpha": 0.3, "gamma": 1.3}),
            ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        )
    ),
    ("CDist", (normal(5, 3), normal(7, 3)), {"metric": "sqeuclidean"}),
    ("CDist", (normal(5, 3), normal(7, 3)), {"metric": "euclidean"}),
    ("ExpandDims", (X, np.int32(-2)), {}),
    ("Range", (F(1.5), F(7), F(0.7)), {"fixed": (0, 1, 2)}),
    ("Range", (np.int64(1), np.int64(7)), {"fixed": (0, 1)}),
    ("Pad", (X[0], np.int64([1, 0, 2, 1]), F([2.5])), {"mode": "constant"}),
    ("Pad", (X[0], np.int64([[1, 0, 2, 1]])), {"mode": "reflect"}),
    ("Trilu", (X, np.int64(1)), {"upper": 0}),
    ("GatherND", (X, RNG.integers(0, 2, (5, 2)).astype(np.int32)), {}),
    ("GridSample", (IMAGE, np.tanh(normal(2, 3, 4, 2))), {}),
    ("UnfoldTensor", (X[0],), {"dim": -1, "size": 4, "step": 3}),
    ("UnfoldTensor", (X[0],), {"dim": 0, "size": 2, "step": 2}),
    ("ConvTransposeWithDynamicPads", (IMAGE, normal(4, 3, 3, 3), np.int64([1, 1, 0, 1])), {"strides": [2, 2]}),
]


@pytest.mark.parametrize(("operator", "arrays", "attributes"), CASES, ids=[f"{c[0]}-{k}" for k, c in enumerate(CASES)])
def test_it_computes_what_onnxruntime_does(operator, arrays, attributes):
    known = [k for k, a in enumerate(arrays) if k and a is not None and a.dtype == np.int64]
    fixed = [*known, *{"ExpandDims": [1], "Pad": [2]}.get(operator, [])]
    proto, feeds = model_of(operator, arrays, **{"fixed": fixed, **attributes})

    expected = by_onnxruntime(proto, feeds)

    for actual, wanted in zip(interpreted(proto, feeds), expected, strict=True):
        assert_matches(actual, wanted, terms=36)


@pytest.mark.parametrize("types", [(np.float16, F), (F, np.float16)])
@pytest.mark.parametrize(
    ("operator", "outputs", "count"),
    [("SimplifiedLayerNormalization", ("y", "root"), 1), ("LayerNormalization", ("y", "mean", "root"), 2)],
)
def test_the_norm_of_one_type_may_be_scaled_by_another(operator, outputs, count, types):
    arrays = (X.astype(types[0]), *(v.astype(types[1]) for v in (GAMMA, BETA)[:count]))
    proto, feeds = model_of(operator, arrays, range(1, count + 1), outputs, domain="", standard=13)

    expected = by_onnxruntime(proto, feeds)

    for actual, wanted in zip(interpreted(proto, feeds), expected, strict=True):
        assert actual.dtype == wanted.dtype
        assert_matches(actual, wanted, terms=D)


@pytest.mark.parametrize(
    ("given", "alpha", "beta"), [({"alpha": 0.3}, 0.3, 0.5), ({"beta": 0.3}, 0.2, 0.3), ({}, 0.2, 0.5)]
)
def test_an_absent_parameter_is_the_standards(given, alpha, beta):
    """onnxruntime refuses the model."""
    named = {f"activation_{name}": number for name, number in given.items()}
    proto, feeds = model_of("FusedGemm", (normal(3, 5), normal(5, 6)), activation="HardSigmoid", **named)

    (y,) = interpreted(proto, feeds)

    product = feeds["x0"].astype(np.float64) @ feeds["x1"]
    assert_matches(y, np.clip(alpha * product + beta, 0, 1).astype(F), terms=5)


def gelu(x):
    return interpreted(*model_of("Gelu", (x,)))[0]


def group_norm(x, groups, epsilon=1e-5):
    parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups).astype(np.float64)
    mean, variance = (getattr(parts, name)(axis=(1, 3), keepdims=True) for name in ("mean", "var"))
    return ((parts - mean) / np.sqrt(variance + epsilon)).reshape(x.shape)


def test_biases_are_added_before_a_gate():
    x, bias, skip = normal(3, 7, 10), normal(10), normal(3, 7, 10)

    (y,) = interpreted(*model_of("BiasSplitGelu", (x, bias)))
    assert_matches(y, (x + bias)[..., :5] * gelu((x + bias)[..., 5:]), terms=2)

    (y,) = interpreted(*model_of("BiasAdd", (x, bias, skip)))
    assert_matches(y, x + bias + skip, terms=2)


@pytest.mark.parametrize(("bias", "inner"), [((7, 10), 0), ((3, 1, 10), 0), ((3, 10), 1)])
def test_a_bias_of_rows_may_lack_axes(bias, inner):
    x, added = normal(3, 7, 10), normal(*bias)

    (y,) = interpreted(*model_of("BiasSoftmax", (x, added), axis=2, is_inner_broadcast=inner))

    power = np.exp(x + (added[:, None] if inner else added), dtype=np.float64)
    assert_matches(y, (power / power.sum(-1, keepdims=True)).astype(F), terms=10)


@pytest.mark.parametrize("activation", [0, 1])
def test_groups_of_channels_are_normalised(activation):
    x, skip, gamma, beta = normal(2, 3, 5, 6), normal(2, 6), normal(6), normal(6)

    (plain,) = interpreted(*model_of("GroupNorm", (x, gamma, beta), groups=3, activation=activation))
    y, total = interpreted(
        *model_of("SkipGroupNorm", (x, gamma, beta, skip), groups=2, activation=activation, outputs=("y", "s"))
    )

    def expected(x, groups):
        wanted = group_norm(x, groups) * gamma + beta
        return (wanted / (1 + np.exp(-wanted)) if activation else wanted).astype(F)

    assert_matches(plain, expected(x, 3), terms=30)
    assert_matches(total, x + skip[:, None, None])
    assert_matches(y, expected(x + skip[:, None, None], 2), terms=45)


def test_a_convolution_of_images_with_channels_last():
    proto, feeds = model_of("FusedConv", (IMAGE, KERNELS, CHANNELS), activation="Relu", **WINDOWS)
    swapped = [np.moveaxis(IMAGE, 1, -1).copy(), np.moveaxis(KERNELS, 1, -1).copy(), CHANNELS]

    (y,) = interpreted(*model_of("NhwcFusedConv", swapped, activation="Relu", **WINDOWS))

    assert_matches(np.moveaxis(y, -1, 1), interpreted(proto, feeds)[0])


def test_a_residual_block_of_a_transformer_is_compiled():
    proto, feeds = model_of("SkipLayerNormalization", (X, normal(B, S, D), GAMMA, BETA, BIAS), outputs=ALL_OF_A_SKIP)

    for actual, wanted in zip(compiled(proto, feeds), by_onnxruntime(proto, feeds), strict=True):
        assert_matches(actual, wanted, terms=D)


@pytest.mark.parametrize(
    ("operator", "arrays", "attributes", "error", "message"),
    [
        ("BiasSplitGelu", (X[..., :3], BIAS[:3]), {}, ShapeError, "an even number of columns"),
        ("FusedConv", (IMAGE, KERNELS), {"activation": "Gelu", "group": 2}, UnsupportedError, "activation 'Gelu'"),
        (
            "FusedConv",
            (IMAGE, KERNELS),
            {"activation": "Clip", "activation_params": [1.0], "group": 2},
            ShapeError,
            "2 parameters of Clip expected",
        ),
        ("FusedGemm", (X[0], X[0].T.copy()), {"activation": "Clip"}, UnsupportedError, "activation 'Clip'"),
        ("SkipLayerNormalization", (X[:1], X, GAMMA), {}, ShapeError, "an addend that broadcasts to"),
        ("EmbedLayerNormalization", (IDS, SEGMENTS, *TABLES[:2], None, GAMMA, BETA), {}, ShapeError, "segments with"),
        ("GroupNorm", (X, GAMMA, BETA), {"groups": 2, "activation": 2}, ShapeError, "activation 0 or 1"),
        ("CDist", (X[0], X[0]), {"metric": "cosine"}, ShapeError, "and 'cosine' given"),
        ("UnfoldTensor", (X,), {"size": 13}, ShapeError, "windows of 1 to 12 elements"),
        ("RMSNormalization", (X, GAMMA), {"domain": ""}, ModelError, "is not part of this opset"),
        (
            "SkipGroupNorm",
            (X, GAMMA, BETA, X),
            {"groups": 2, "activation": 0, "channels_last": 0},
            UnsupportedError,
            "channels_last=0",
        ),
    ],
)
def test_what_does_not_fit_is_refused(operator, arrays, attributes, error, message):
    with pytest.raises(error, match=message):
        load(model_of(operator, arrays, **attributes)[0])
