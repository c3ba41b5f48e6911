"""onnxruntime's attention operators against onnxruntime itself."""

import numpy as np
import pytest

from gpucomp.errors import ShapeError, UnsupportedError
from gpucomp.frontend.onnx import load
from testing.tolerance import assert_matches
from tests.microsoft import by_onnxruntime, compiled, interpreted, model_of

RNG = np.random.default_rng(13)
F = np.float32
B, S, H, SIZE = 2, 5, 3, 4
D = H * SIZE
KEYS = 7


def normal(*shape):
    return RNG.standard_normal(shape).astype(F)


def lengths(*counts, total):
    return (np.arange(total) < np.array(counts)[:, None]).astype(np.int32)


def some(*shape):
    return RNG.integers(0, 2, shape).astype(np.int32)


X, WEIGHTS, BIAS = normal(B, S, D), normal(D, 3 * D), normal(3 * D)
MASKS = {
    "none": None,
    "rows": lengths(5, 3, total=S),
    "lengths": np.int32([5, 3]),
    "ends and starts": np.int32([5, 4, 1, 2]),
    "of queries": some(B, S, S),
    "lengths and sums of lengths": np.int32([5, 3, 0, 5, 10, 0, 5, 8]),
}
Q, K, V = normal(B, S, D), normal(B, KEYS, D), normal(B, KEYS, D)
PAST = normal(2, B, H, 3, SIZE)
QKV, AS_HEADS, NO = (Q, K, V), (normal(B, H, KEYS, SIZE), normal(B, H, KEYS, SIZE)), (None,) * 5


def agrees(operator, arrays, *, count=1, **attributes):
    outputs = tuple(f"y{k}" for k in range(count))
    proto, feeds = model_of(operator, arrays, outputs=outputs, **attributes)
    found = interpreted(proto, feeds)
    for actual, expected in zip(found, by_onnxruntime(proto, feeds), strict=True):
        assert_matches(actual, expected, terms=2 * D)
    return found


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention_with_a_mask(mask, causal):
    agrees("Attention", (X, WEIGHTS, BIAS, mask), num_heads=H, unidirectional=causal)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_with_what_was_before(causal):
    mask = lengths(8, 6, total=S + 3)
    agrees("Attention", (X, WEIGHTS, BIAS, mask, PAST), num_heads=H, unidirectional=causal, scale=0.7, count=2)
    agrees("Attention", (X, WEIGHTS, BIAS, None, None, normal(1, 1, S, S)), num_heads=H, unidirectional=causal)


def test_attention_with_values_of_another_size():
    agrees("Attention", (X, normal(D, 2 * D + 18), normal(2 * D + 18)), num_heads=H, qkv_hidden_sizes=[D, D, 18])


@pytest.mark.parametrize("past", [None, PAST])
def test_attention_of_codes(past):
    x, w = RNG.integers(0, 256, (B, S, D)).astype(np.uint8), RNG.integers(-99, 99, (D, 3 * D)).astype(np.int8)
    scale = F(0.005) if past is None else (RNG.random(3 * D) * 0.01).astype(F)
    zero = np.int8(3) if past is None else np.zeros(3 * D, np.int8)
    arrays = (x, w, BIAS, F(0.01), scale, np.int32([5, 3]), np.uint8(120), zero, past)

    count = 1 if past is None else 2
    agrees("QAttention", arrays, fixed=(1, 2, 3, 4, 6, 7), num_heads=H, unidirectional=count - 1, count=count)


@pytest.mark.parametrize(
    "arrays",
    [
        (Q, K, V),
        (Q, K, V, BIAS),
        (Q, K, V, None, lengths(7, 5, total=KEYS)),
        (Q, K, V, None, np.int32([7, 5]), normal(B, H, S, KEYS)),
        (Q, K, V, None, np.int32([7, 5, 0, 5, 10, 0, 7, 12]), normal(B, 1, S, KEYS)),
        (Q, K, V, None, some(B, S, KEYS), normal(1, H, S, KEYS)),
        (Q, K, normal(B, KEYS, 18)),
        (Q, normal(B, H, KEYS, SIZE), normal(B, H, KEYS, SIZE)),
    ],
    ids=range(8),
)
def test_heads_of_their_own_operands(arrays):
    agrees("MultiHeadAttention", arrays, num_heads=H, scale=0.3)


@pytest.mark.parametrize("causal", [0, 1])
def test_heads_with_what_was_before(causal):
    arrays = (Q, normal(B, S, D), normal(B, S, D), BIAS, None, None, PAST[0], PAST[1])

    agrees("MultiHeadAttention", arrays, num_heads=H, unidirectional=causal, count=3)


def test_packed_heads_are_the_same():
    """onnxruntime has these for CUDA only."""
    q, k, v = (normal(B, S, H, SIZE) for _ in range(3))
    flat = [x.reshape(B, S, D) for x in (q, k, v)]
    (expected,) = agrees("MultiHeadAttention", flat, num_heads=H)

    (of_three,) = interpreted(*model_of("MultiHeadAttention", (np.stack([q, k, v], 3),), num_heads=H))
    (of_two,) = interpreted(*model_of("MultiHeadAttention", (flat[0], np.stack([k, v], 3)), num_heads=H))

    np.testing.assert_array_equal(of_three, expected)
    np.testing.assert_array_equal(of_two, expected)


@pytest.mark.parametrize("filtered", [-3.4e38, -65504.0, -60000.0, -10000.0])
def test_a_sentence_without_keys_is_finite_in_f16(filtered):
    """Its scores are large for f16. onnxruntime adds in f32, where numbers below f16's range give the same result."""
    q, k, v = (x.astype(np.float16) for x in (Q * 20, K, V))
    arrays = (q, k, v, None, lengths(5, 0, total=KEYS))
    proto, feeds = model_of("MultiHeadAttention", arrays, num_heads=H, mask_filter_value=filtered)

    (found,), (expected,) = interpreted(proto, feeds), by_onnxruntime(proto, feeds)

    assert np.isfinite(found).all()
    sentences = B if filtered < -65504 else 1
    assert_matches(found[:sentences], expected[:sentences], terms=20 * D)


def test_a_causal_row_beyond_the_queries_sees_its_own_place():
    """In onnxruntime, the last row sees every key if there are more keys than queries and no past keys."""
    proto, feeds = model_of("MultiHeadAttention", (Q, K, V), num_heads=H, unidirectional=1)
    (square,) = by_onnxruntime(*model_of("MultiHeadAttention", (Q, K[:, :S], V[:, :S]), num_heads=H, unidirectional=1))

    (found,) = interpreted(proto, feeds)

    assert_matches(found, square, terms=2 * D)
    assert_matches(found[:, :-1], by_onnxruntime(proto, feeds)[0][:, :-1], terms=2 * D)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_pairs_are_rotated(interleaved):
    places = RNG.integers(0, 9, (B, S))
    halves = normal(9, SIZE // 2), normal(9, SIZE // 2)
    agrees("RotaryEmbedding", (X, places, *halves), interleaved=interleaved)
    agrees("RotaryEmbedding", (X, np.int64([3]), *halves), interleaved=interleaved, num_heads=H)
    agrees("RotaryEmbedding", (X, np.int64(3), *halves), interleaved=interleaved)
    agrees("RotaryEmbedding", (normal(B, H, S, 8), places, normal(9, 4), normal(9, 4)), interleaved=interleaved)
    agrees(
        "RotaryEmbedding",
        (normal(B, S, H * 8), places, *halves),
        interleaved=interleaved,
        num_heads=H,
        rotary_embedding_dim=4,
    )


HEADS, GROUPS, WIDE = 4, 2, 16


def grouped(length, past, counts, total, *, packed=False, rotary=0, more=()):
    """The inputs of GroupQueryAttention for sentences with ``counts`` keys in total."""
    batch, own = len(counts), HEADS * WIDE
    q = normal(batch, length, own + 2 * GROUPS * WIDE * packed)
    new = (None, None) if packed else (normal(batch, length, GROUPS * WIDE), normal(batch, length, GROUPS * WIDE))
    before = (normal(batch, GROUPS, past, WIDE), normal(batch, GROUPS, past, WIDE)) if past else (None, None)
    tables = (normal(32, WIDE // 2), normal(32, WIDE // 2)) if rotary else (None, None)
    arrays = (q, *new, *before, np.array(counts, np.int32) - 1, np.int32(total), *tables, *more)
    return {
        "arrays": arrays,
        "fixed": (6,),
        "num_heads": HEADS,
        "kv_num_heads": GROUPS,
        "do_rotary": rotary,
        "count": 3,
    }


PROMPT, STEP, CHUNK = (5, 0, [5, 5], 5), (1, 7, [8, 6], 8), (3, 7, [10], 10)


@pytest.mark.parametrize(
    "attributes",
    [
        grouped(*PROMPT),
        grouped(*PROMPT, packed=True, rotary=1),
        {**grouped(*PROMPT, rotary=1), "rotary_interleaved": 1},
        grouped(5, 9, [5, 5], 5, rotary=1),
        grouped(*STEP, rotary=1),
        grouped(1, 12, [8, 5], 8, packed=True, rotary=1),
        grouped(*CHUNK, rotary=1),
        grouped(3, 12, [10], 10, rotary=1),
        *({**grouped(*sizes), "local_window_size": w} for sizes in (PROMPT, STEP, CHUNK) for w in (1, 3)),
        {**grouped(*PROMPT), "softcap": 0.7, "scale": 0.9},
        {**grouped(*STEP), "smooth_softmax": 1},
        grouped(*PROMPT, more=(None, normal(2, HEADS, 5, 5))),
        grouped(*STEP, more=(None, normal(1, HEADS, 1, 8))),
        grouped(1, 12, [8, 5], 8, more=(None, normal(1, HEADS, 1, 8))),
        grouped(5, 9, [5, 5], 5, more=(None, normal(2, 1, 5, 5))),
        {**grouped(3, 12, [10], 10, more=(None, normal(1, 1, 3, 10))), "local_window_size": 4, "softcap": 0.7},
        grouped(*PROMPT, more=(None, None, normal(HEADS))),
        grouped(*PROMPT, rotary=1, more=(np.stack([np.arange(5) + 2] * 2),)),
    ],
    ids=range(23),
)
def test_groups_of_queries_share_keys(attributes):
    agrees("GroupQueryAttention", **attributes)


def test_a_shorter_sentence_of_a_prompt_is_right_where_it_counts():
    """Values after its end are undefined, and onnxruntime's two implementations differ there."""
    given = grouped(5, 9, [5, 3], 5, rotary=1)
    given.pop("count")
    proto, feeds = model_of("GroupQueryAttention", **given, outputs=("y", "k", "v"))

    found, expected = interpreted(proto, feeds)[0], by_onnxruntime(proto, feeds)[0]

    assert_matches(found[0], expected[0], terms=WIDE)
    assert_matches(found[1, :3], expected[1, :3], terms=WIDE)


def test_norms_of_queries_and_keys_come_before_the_rotation():
    """onnxruntime has it for CUDA only, so it is compared with operands that were normalised before."""
    weights = np.abs(normal(2, WIDE))
    plain = grouped(*PROMPT, rotary=1)
    plain.pop("count")

    def normalised(x, weight):
        parts = x.reshape(*x.shape[:2], -1, WIDE).astype(np.float64)
        return (parts / np.sqrt((parts**2).mean(-1, keepdims=True) + 1e-3) * weight).reshape(x.shape).astype(F)

    arrays = plain["arrays"]
    before = (normalised(arrays[0], weights[0]), normalised(arrays[1], weights[1]), *arrays[2:])
    own = (*arrays, None, None, None, None, None, *weights)

    (expected,) = interpreted(*model_of("GroupQueryAttention", **{**plain, "arrays": before}))
    (actual,) = interpreted(*model_of("GroupQueryAttention", **{**plain, "arrays": own}, qk_norm_epsilon=1e-3))

    assert_matches(actual, expected, terms=WIDE)


def test_a_decoders_step_is_compiled():
    given = grouped(*STEP, rotary=1)
    given.pop("count")
    proto, feeds = model_of("GroupQueryAttention", **given, outputs=("y", "k", "v"))

    for actual, expected in zip(compiled(proto, feeds), by_onnxruntime(proto, feeds), strict=True):
        assert_matches(actual, expected, terms=WIDE)


@pytest.mark.parametrize(
    ("operator", "arrays", "attributes", "error", "message"),
    [
        ("Attention", (X, WEIGHTS), {"num_heads": 5}, ShapeError, "of 5 heads expected"),
        ("Attention", (X, WEIGHTS), {"num_heads": H, "do_rotary": 1}, UnsupportedError, "do_rotary 1 is not supported"),
        ("Attention", (X, WEIGHTS, BIAS, some(B, 1, S, S)), {"num_heads": H}, UnsupportedError, "a mask i32"),
        ("Attention", (X, WEIGHTS, BIAS, None, PAST[:, :1]), {"num_heads": H}, ShapeError, "past keys and values"),
        (
            "Attention",
            (X, WEIGHTS, BIAS, None, PAST[:, :, :, :, :2]),
            {"num_heads": H},
            ShapeError,
            "only in length",
        ),
        ("Attention", (X, WEIGHTS), {"num_heads": H, "qkv_hidden_sizes": [1, 2]}, ShapeError, "the 36 columns of"),
        ("MultiHeadAttention", (X,), {"num_heads": H}, ShapeError, "keys and values expected"),
        ("MultiHeadAttention", (X, normal(B, S, 2, 2, D)), {"num_heads": H}, ShapeError, r"\[batch, length, 3, 2"),
        ("RotaryEmbedding", (X, np.int64([0]), normal(9, 2), normal(9, 2)), {"scale": 2.0}, UnsupportedError, "scale"),
        ("RotaryEmbedding", (X, np.int64([0]), normal(9, 2), normal(9, 3)), {}, ShapeError, "cosines and sines"),
        (
            "MultiHeadAttention",
            (*QKV, *NO[:3], PAST[0], PAST[1], np.int32([3])),
            {"num_heads": H},
            UnsupportedError,
            r"past_sequence_length i32\[1\] is not supported",
        ),
        (
            "MultiHeadAttention",
            (Q, *AS_HEADS, *NO[:3], *PAST),
            {"num_heads": H},
            ShapeError,
            "already split into heads",
        ),
    ],
)
def test_what_does_not_fit_is_refused(operator, arrays, attributes, error, message):
    with pytest.raises(error, match=message):
        load(model_of(operator, arrays, **attributes)[0])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"local_window_size": 0}, "local_window_size=0"),
        ({"softcap": -0.5}, "softcap=-0.5"),
        ({"smooth_softmax": 2}, "smooth_softmax=2"),
        ({"smooth_softmax": -2}, "smooth_softmax=-2"),
        ({"causal": 0}, "causal=0 is not supported"),
        ({"k_quant_type": "PER_TENSOR"}, "k_quant_type PER_TENSOR is not supported"),
        ({"qk_output": 1}, "qk_output 1 is not supported"),
    ],
)
def test_attributes_without_a_meaning_are_refused(attributes, message):
    """onnxruntime accepts a window of 0 and similar numbers, but each of its kernels interprets them differently."""
    given = grouped(*PROMPT)
    given.pop("count")
    with pytest.raises((ShapeError, UnsupportedError), match=message):
        load(model_of("GroupQueryAttention", **given, **attributes)[0])


def test_a_norm_of_queries_needs_that_of_keys():
    given = grouped(*PROMPT, more=(*NO, np.abs(normal(WIDE))))
    given.pop("count")
    with pytest.raises(ShapeError, match="norms: both or neither expected"):
        load(model_of("GroupQueryAttention", **given)[0])


def test_the_length_of_the_keys_decides_a_shape():
    given = grouped(*STEP)
    given.pop("count")
    with pytest.raises(UnsupportedError, match="total_sequence_length must be known"):
        load(model_of("GroupQueryAttention", **{**given, "fixed": ()})[0])
