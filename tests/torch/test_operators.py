"""Operators that torch's exporter translates into something else: they are taken apart, or they stay in eager."""

from __future__ import annotations

import math

import pytest

import gpucomp

torch = pytest.importorskip("torch", reason="could not import 'torch'")
pytest.importorskip("onnxscript", reason="could not import 'onnxscript'")

from torch.nn import functional  # noqa: E402

from tests.torch.calls import assert_same, compiled, graphs, leaves  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch about torch
INF, NAN = math.inf, math.nan
SPECIAL = torch.tensor([0.0, -0.0, INF, -INF, NAN, 1e-30, -1e-30, 88.0, -88.0, 1e-10, 1.0, -1.0])
LARGE = torch.tensor([2**40 + 7, -(2**40) - 9, 2**53 + 1, 123456789012345])
LARGE_32 = torch.tensor([16777217, -16777219, 2**31 - 1, -(2**31) + 1, 7, -7], dtype=torch.int32)
DIVISORS_32 = torch.tensor([2, 2, 3, 7, 2, -2], dtype=torch.int32)
DIVISORS = torch.tensor([3, 7, 5, -11])
TOPS, BOTTOMS = (
    torch.tensor([7.5, -7.5, 1e8, 0.7, 5.0, -5.0, 1.0, 0.0]),
    torch.tensor([2.0, 2, 3, 0.1, INF, INF, 0.1, -2]),
)
MASK = torch.tensor([[True] * 3, [False] * 3, [True, False, False], [False] * 3])


def small(x):
    """Of numbers near 0, each is to have its own digits."""
    return torch.log1p(x), torch.expm1(x)


def logarithms(x, y):
    far = torch.tensor([-200.0, -20.0, 0.0, 20.0, 200.0])
    losses = functional.binary_cross_entropy_with_logits(far, far.sigmoid().round())
    products = torch.xlogy(x, y), torch.xlogy(0.0, y), torch.xlogy(x, NAN), torch.xlogy(y, 2)
    return torch.logaddexp(x, y), torch.logaddexp2(x, y), functional.logsigmoid(far), losses, products


def powers(x):
    of_two = 2.0 ** torch.arange(-20, 31)
    whole = torch.log2(of_two), torch.log2(of_two).floor(), torch.log2(torch.tensor([1, 8192, 2**30]))
    return *whole, torch.log2(x), torch.log2(torch.tensor([0.0, INF, NAN, -1.0, 3e38, 1.2e-38]))


def signs(x):
    return (
        torch.signbit(x),
        torch.sign(x),
        torch.heaviside(x, torch.tensor(0.5)),
        torch.copysign(torch.ones(()), x),
        functional.softshrink(x, 0.3),
        torch.angle(x),
    )


def angles(y, x):
    up, right = torch.tensor([0, 0, 1, -1]), torch.tensor([-1, 1, -1, 0])
    whole = torch.atan2(up, right), torch.atan2(up, right.float()), torch.atan2(up.half(), right)
    return torch.atan2(y, x), torch.atan2(y, torch.ones_like(y)), torch.atan2(y[:, None], x), *whole


def quotients(a, b):
    return a % b, a // b, torch.div(a, b, rounding_mode="floor"), a % -3.0, 0.7 % b, a // 0.1, torch.fmod(a, b)


def in_16_bits(x):
    tops, bottoms = torch.tensor([6140.0, -6140.0]).to(x.dtype), torch.tensor([2047.0, 2047.0]).to(x.dtype)
    whole = torch.div(tops, bottoms, rounding_mode="trunc"), x // 0.3, torch.div(x, 0.3, rounding_mode="trunc"), x % 0.3
    return *whole, torch.log1p(x), torch.expm1(x), torch.atan2(x, 1 - x), torch.logaddexp(x, 1 + x), torch.log2(x)


def in_bf16(x):
    return [one.float() for one in in_16_bits(x.bfloat16())]


def in_f16(x):
    return in_16_bits(x.half())


def truncated(a, b):
    return torch.div(a, b, rounding_mode="trunc"), torch.trunc(a), torch.div(a, 0.3, rounding_mode="trunc")


def whole_quotients(a, b):
    modes = [torch.div(a, b, rounding_mode=mode) for mode in ("floor", "trunc")]
    return (
        *modes,
        torch.div(a, 5, rounding_mode="trunc"),
        a // b,
        a % b,
        a // 7,
        a % -7,
        torch.sign(a),
        torch.fmod(a, b),
    )


def products(x, y, z):
    nothing = torch.full((3, 3), NAN)
    many = torch.full((2, 3, 3), NAN)
    return (
        torch.addmm(nothing, x, y, beta=0, alpha=2),
        torch.addmm(z, x, y, beta=2, alpha=3),
        torch.baddbmm(many, x.expand(2, 3, 4), y.expand(2, 4, 3), beta=0, alpha=2),
        torch.addmv(torch.full((3,), NAN), x, y[:, 0], beta=0, alpha=2),
        torch.addmv(z[0], x, y[:, 0], beta=2, alpha=3),
        torch.addbmm(nothing, x.expand(2, 3, 4), y.expand(2, 4, 3), beta=0, alpha=2),
        torch.cross(x[:, :3], y[:3], dim=0),
        torch.cross(z, z.t() + 1),
    )


def diagonals(x):
    square = torch.tensor([[1.0, INF], [NAN, 2.0]])
    wide = [x.diagonal(n) for n in (0, 1, -2, 5)]
    return *wide, torch.diagonal(square), x.expand(3, 4, 5).diagonal(1, 0, 2), square.diagonal().sum()


def losses(x, y):
    return functional.cross_entropy(x, y, label_smoothing=0.1), functional.cross_entropy(x, y, ignore_index=1)


def in_other_types(x):
    narrow = x.bfloat16()
    return (
        functional.softmax(narrow, -1, dtype=torch.float32),
        functional.log_softmax(narrow, -1, dtype=torch.float32),
        torch.special.softmax(narrow, -1, dtype=torch.float32),
        torch.special.log_softmax(narrow, -1, dtype=torch.float32),
        torch.isclose(torch.tensor([10**9, 3]), torch.tensor([10**9 + 1, 3])),
    )


def attention(q, k, mask):
    added = torch.zeros(mask.shape).masked_fill(~mask, -INF)
    run = functional.scaled_dot_product_attention
    q, k = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k))  # as heads are that a product gives
    heads = run(q, k, k, attn_mask=mask).transpose(1, 2).reshape(1, 4, 16)
    return (
        heads,
        run(q, k, k, attn_mask=mask),
        run(q, k, k, attn_mask=added),
        run(q, k, k, attn_mask=mask[:1]),
        run(q, k, k),
    )


def resized(x):
    return (
        functional.interpolate(x, size=(9, 5), mode="nearest-exact"),
        functional.interpolate(x, scale_factor=1.7, mode="nearest-exact"),
        functional.interpolate(x[..., 0], size=13, mode="nearest-exact"),
        functional.interpolate(x, scale_factor=3.0),
    )


def wide(x):
    whole = functional.relu(functional.conv1d(x, x[:, :, :2])) + x.sum() * 0.5
    return (x @ x.mT).softmax(-1), whole, x.clamp(min=0.25), x.exp().log().mean(1, keepdim=True), x.to(torch.float32)


CASES = [
    (small, [torch.tensor([1e-10, -1e-7, 1e-3, 0.2, -0.24, 0.26, -0.5, 2.0, 50.0, INF, -1.0])]),
    (logarithms, [torch.tensor([1000.0, -1000, 0, -INF, 0, 3]), torch.tensor([1000.0, -1001, 5, -INF, NAN, 2])]),
    (powers, [torch.linspace(0.001, 9000, 300)]),
    (in_f16, [torch.linspace(0.01, 3, 500)]),
    (in_bf16, [torch.linspace(0.01, 3, 500)]),
    (resized, [torch.randn(1, 2, 6, 7)]),
    (signs, [SPECIAL]),
    (angles, [SPECIAL, SPECIAL.flip(0)]),
    (quotients, [TOPS, BOTTOMS]),
    (truncated, [TOPS, BOTTOMS]),
    (whole_quotients, [LARGE, DIVISORS]),
    (whole_quotients, [LARGE_32, DIVISORS_32]),
    (products, [torch.randn(3, 4), torch.randn(4, 3), torch.randn(3, 3)]),
    (diagonals, [torch.randn(4, 5)]),
    (losses, [torch.randn(4, 6), torch.tensor([0, 1, 5, 2])]),
    (in_other_types, [torch.randn(3, 4)]),
    (attention, [torch.randn(1, 2, 4, 8), torch.randn(1, 2, 3, 8), MASK]),
    (wide, [torch.randn(3, 3, 5, dtype=torch.float64)]),
]
BY_NAME = {"ids": lambda value: getattr(value, "__name__", "")}


class Named(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


def assert_near(function, found, wanted):
    for number, (a, b) in enumerate(zip(leaves(found), leaves(wanted), strict=True)):
        assert a.dtype == b.dtype, number
        kind = torch.bfloat16 if function is in_bf16 else b.dtype
        close = {torch.float64: 1e-12, torch.bfloat16: 8e-3, torch.float16: 1e-3}.get(kind, 3e-6)
        torch.testing.assert_close(a, b, rtol=close, atol=0 if function is small else close, equal_nan=True)


@pytest.mark.parametrize(("function", "given"), CASES, **BY_NAME)
def test_what_is_compiled_is_what_eager_computes(function, given):
    wanted = function(*given)

    found = compiled(function)(*given)

    assert graphs()[0].compiled
    assert_near(function, found, wanted)


@pytest.mark.parametrize(("function", "given"), CASES, **BY_NAME)
def test_an_exported_program_computes_the_same(function, given):
    program = torch.export.export(Named(function), tuple(given))

    exe = gpucomp.compile(program, target="cpu")
    found = exe.run({spec.name: one.numpy() for spec, one in zip(exe.inputs, given, strict=True)})

    assert_near(function, [torch.from_numpy(found[spec.name]) for spec in exe.outputs], function(*given))


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: functional.avg_pool2d(x, 2, divisor_override=3), "avg_pool2d"),
        (lambda x: functional.interpolate(x, scale_factor=0.6), "upsample_nearest2d"),
        (
            lambda x: functional.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=True),
            "upsample_bilinear2d",
        ),
        (
            lambda x: functional.interpolate(x, scale_factor=0.6, mode="bilinear", antialias=True),
            "_upsample_bilinear2d_aa",
        ),
        (lambda x: functional.interpolate(x[..., :2], size=(6, 82)), "upsample_nearest2d"),
        (torch.erfc, "erfc"),
        (lambda x: torch.logcumsumexp(x * 100, 3), "logcumsumexp"),
        (lambda x: torch.as_strided(x.mT, (3, 2), (1, 4)) + 0, "as_strided"),
        (lambda x: x.round().long().mean(2, dtype=torch.float32), "mean"),
        (lambda x: ((x * 50).to(torch.uint8) << 1).int(), "lshift"),
        (
            lambda x: torch.bitwise_left_shift(torch.full((2,), 100, dtype=torch.uint8), 1) + x[0, 0, 0, 0].byte(),
            "left_shift",
        ),
        (lambda x: torch.bitwise_right_shift((x.abs() * 50).to(torch.uint8), 1).int(), "right_shift"),
        (lambda x: torch.special.erfcx(x + 9), "erfcx"),
        (lambda x: torch.special.log_ndtr(x - 9), "erfcx"),
        (
            lambda x: x[0, 0, 0, :3].scatter_reduce(
                0, LARGE_32[:3].long() % 3, x[0, 0, 1, :3], "amax", include_self=False
            ),
            "scatter",
        ),
        (lambda x: torch.linspace(x[0, 0, 0, 0].abs(), 4.3, 50, dtype=torch.int64), "linspace"),
        (lambda x: functional.interpolate(x, scale_factor=41.0), "upsample_nearest2d"),
        (lambda x: x.double() * 0.1, "mul"),
        (lambda x: functional.celu(x.double()), "celu"),
        (lambda x: torch.isinf(x.double()), "isinf"),
        (lambda x: x.double() + torch.linspace(0, 1, 8, dtype=torch.float64), "linspace"),
        (lambda x: x.flatten().scatter_reduce(0, x.flatten().argsort() // 2, x.flatten(), "mean"), "scatter_reduce"),
    ],
)
def test_operators_that_are_others_in_onnx_stay_in_eager(function, operator):
    x = torch.randn(1, 2, 6, 8)

    assert_same(compiled(function, strict=False)(x), function(x))
    assert operator in str(graphs()[0].eager)


@pytest.mark.parametrize(("before", "after"), [((6, 8), (12, 32)), ((6, 8), (3, 20)), ((5, 7), (10, 3))])
def test_nearest_places_that_are_alike_are_compiled(before, after):
    x = torch.randn(1, 2, *before)

    def function(x):
        return functional.interpolate(x, size=after)

    assert_same(compiled(function)(x), function(x))


def test_nearest_places_of_any_size_are_compiled_where_sizes_are_doubled():
    def doubled(x):
        return functional.interpolate(x, size=(2 * x.shape[2], 4 * x.shape[3])) * 2

    def other(x):
        return functional.interpolate(x, size=(x.shape[2] + 1, x.shape[3])) * 2

    run, left = compiled(doubled, dynamic=True), compiled(other, dynamic=True, strict=False)
    for size in (5, 7):
        x = torch.randn(1, 2, size, size + 1)
        assert_same(run(x), doubled(x))
        assert_same(left(x), other(x))

    assert [graph.compiled for graph in graphs()] == [True, False]


def test_quotients_of_sizes_are_rounded_down():
    def function(x):
        return x * ((x.shape[0] - 10) // 3), x * (x.shape[0] // 3)

    run = compiled(function, strict=False, dynamic=True)
    for rows in (5, 12):
        x = torch.randn(rows, 2)
        assert_same(run(x), function(x))

    assert "rounds quotients" in str(graphs()[0].eager)


def test_statistics_that_a_norm_writes_without_saying_so():
    net = torch.nn.InstanceNorm2d(3, track_running_stats=True, affine=True).train().requires_grad_(False)
    other = torch.nn.InstanceNorm2d(3, track_running_stats=True, affine=True).train().requires_grad_(False)
    x = torch.randn(2, 3, 5, 6)

    assert_same(compiled(net, strict=False)(x), other(x))

    torch.testing.assert_close(net.running_mean, other.running_mean)
    assert bool(net.running_mean.any())


def test_random_operators_that_torch_takes_apart_are_torchs():
    def function(x):
        return functional.gumbel_softmax(x, dim=1) * 2

    x = torch.randn(3, 4)
    torch.manual_seed(5)
    wanted = function(x)
    torch.manual_seed(5)

    assert_same(compiled(function, strict=False)(x), wanted)
