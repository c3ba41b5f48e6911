"""Depthwise convolutions of bytes give exactly the codes of their expressions, evaluated by numpy.

They use dot products of four bytes, where the processor has them and in software, or products of pairs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.engines import BYTE_WINDOWS, engines_of
from gpucomp.codegen.llvm.windows import bytes_emit as byte_windows
from gpucomp.device.target import Target
from gpucomp.expr.core import Expr, Var, both, call, cast, index, literal, load, reduce, select, var
from gpucomp.expr.simplify import simplify
from gpucomp.ir.size import is_one
from gpucomp.ir.types import BOOL, F32, I8, I16, I32, U8, DType, TensorType
from gpucomp.kernel import Kernel, Loops, Store
from gpucomp.kernel.interpreter import expected
from gpucomp.schedule.space import Schedule
from gpucomp.targets import cpu
from testing.kernels import depthwise as depthwise_of_floats
from testing.kernels import max_pool
from tests.matrix_emulation import emulated
from tests.native import image_of, run_source
from tests.schedules_together import assert_agrees

HOST = cpu.host()


@dataclass(frozen=True)
class Drawn:
    kernel: Kernel
    inputs: list[np.ndarray]


def kernel_of(
    image: tuple[int, int, int, int],
    window: tuple[int, int],
    *,
    stride: tuple[int, int] = (1, 1),
    pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    x: DType = U8,
    w: DType = I8,
    zero: int = 0,
    y: tuple[DType, int] = (U8, 0),
    residual: bool = False,
) -> Kernel:
    """Codes of a depthwise convolution of (x - zero) by w, and its sums; NHWC, [R, S, 1, C] weights.

    ``pad`` is top, left, bottom, right; ``y`` is the result's type and zero point. Each channel has a multiplier and a
    bias. The domain has no axes of extent 1, as after recognition.
    """
    n, h, wide, c = image
    (sy, sx), (dy, dx), (top, left, bottom, right) = stride, dilation, pad
    oh = (h + top + bottom - dy * (window[0] - 1) - 1) // sy + 1
    ow = (wide + left + right - dx * (window[1] - 1) - 1) // sx + 1
    to = tuple(var(f"i{d}", e) if not is_one(e) else index(0) for d, e in enumerate((n, oh, ow, c)))
    taps = tuple(var(f"r{d}", e) if not is_one(e) else index(0) for d, e in enumerate(window))
    py, px = to[1] * sy - top + taps[0] * dy, to[2] * sx - left + taps[1] * dx
    inside = both([py >= 0, py < h, px >= 0, px < wide]) if any(pad) else literal(True, BOOL)
    element: Expr = cast(load(0, (to[0], py, px, to[3]), x), I32)
    element = call("add", element, -zero) if zero else element
    value = select(inside, element, literal(0, I32))
    weight = cast(load(1, (*taps, 0, to[3]), w), I32)
    total = reduce("sum", tuple(t for t in taps if isinstance(t, Var)), value * weight)
    code_type, code_zero = y
    real = cast(total + load(2, (to[3],), I32), F32) * load(3, (to[3],), F32)
    shape = TensorType(code_type, (n, oh, ow, c))
    params = [TensorType(x, image), TensorType(w, (*window, 1, c)), TensorType(I32, (c,)), TensorType(F32, (c,))]
    if residual:
        params.append(shape)
        real = real + cast(load(4, to, code_type), F32) * 0.75
    info = np.iinfo(code_type.numpy)
    rounded = call("add", call("round", real), float(code_zero)) if code_zero else call("round", real)
    code = cast(call("min", call("max", rounded, float(info.min)), float(info.max)), code_type)
    first = len(params)
    params += [shape, TensorType(I32, shape.shape)]
    stores = tuple(Store(t, tuple(map(simplify, to)), simplify(v)) for t, v in ((first, code), (first + 1, total)))
    domain = tuple(v for v in to if isinstance(v, Var))
    label = f"{x} {w} {image} {window} stride {stride} pad {pad}"
    return Kernel("loops", tuple(params), 2, Loops(domain), stores, label=label, constants=frozenset({1, 2, 3}))


def depthwise(image: tuple[int, int, int, int], window: tuple[int, int], **options: Any) -> Drawn:
    """``kernel_of`` and its inputs. A third of the codes saturate."""
    kernel = kernel_of(image, window, **options)
    return Drawn(kernel, inputs_of(kernel, [*image, *window]))


def inputs_of(kernel: Kernel, seed: list[int]) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = []
    for number, type in enumerate(kernel.params[: kernel.inputs]):
        if type.dtype is F32:
            inputs.append(rng.uniform(0.001, 0.004, type.shape).astype(np.float32))
        elif number == 2:
            inputs.append(rng.integers(-3000, 3000, type.shape).astype(np.int32))
        else:
            info = np.iinfo(type.dtype.numpy)
            low, high = (-255, 255) if type.dtype is I16 else (info.min, info.max)
            inputs.append(rng.integers(low, high, type.shape, endpoint=True).astype(type.dtype.numpy))
    return inputs


CASES = [
    depthwise((1, 7, 13, 64), (3, 3), pad=(1, 1, 1, 1)),
    depthwise((2, 6, 9, 83), (3, 3), stride=(2, 2), pad=(1, 0, 1, 1), zero=131, y=(U8, 119)),
    depthwise((1, 5, 8, 37), (3, 3), pad=(1, 1, 1, 1), x=I8, zero=-7, y=(I8, -5)),
    depthwise((1, 9, 11, 16), (5, 5), pad=(2, 2, 2, 2), zero=255),
    depthwise((1, 12, 17, 5), (3, 3), pad=(2, 3, 2, 3), dilation=(2, 3), x=I8, zero=11),
    depthwise((1, 1, 29, 24), (1, 7), zero=3),
    depthwise((1, 13, 1, 19), (9, 1), pad=(4, 0, 4, 0), zero=77, y=(I8, 0)),
    depthwise((1, 5, 19, 3), (2, 4), stride=(3, 3), w=U8, zero=9),
    depthwise((1, 4, 6, 40), (3, 3), pad=(1, 1, 1, 1), w=I16, zero=100, x=U8),
    depthwise((1, 6, 7, 67), (3, 3), pad=(0, 1, 1, 0), zero=64, residual=True),
]


@dataclass(frozen=True)
class Way:
    title: str
    target: Target
    cases: Sequence[Drawn]
    software: bool = False


NARROW = CASES[1:8:3]
WAYS = [
    Way("pairs", replace(HOST, features=HOST.features - byte_windows.DOTS), CASES[1::2]),
    Way("pairs in vectors of 16 bytes", cpu.named("cpu:x86-64-v2"), NARROW),
]
if HOST.features & byte_windows.DOTS:
    WAYS.append(Way("quads", HOST, CASES))
else:
    WAYS.append(Way("quads in software", replace(HOST, features=HOST.features | {"avx512vnni"}), CASES[::2], True))
if "avx2" in HOST.features:
    WAYS.append(Way("pairs in vectors of 32 bytes", cpu.named("cpu:x86-64-v3"), NARROW))
if "avxvnni" in HOST.features:
    WAYS.append(Way("quads in vectors of 32 bytes", cpu.named("cpu:alderlake"), NARROW))


def spread(kernel: Kernel, target: Target) -> list[Schedule]:
    """The default schedule and another legal one."""
    problem = BYTE_WINDOWS.problem(kernel)
    found = [dict(BYTE_WINDOWS.default(problem, target.limits).numbers)]
    chooser = random.Random(kernel.digest)
    while len(found) < 2:
        trial = {p.name: chooser.choice(p.choices) for p in BYTE_WINDOWS.params}
        if not BYTE_WINDOWS.reasons(trial, problem, target.limits):
            found.append(trial)
    return found


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.title)
def test_every_schedule_gives_the_codes_that_the_expressions_say(way: Way) -> None:
    sources, runs = [], []
    for number, drawn in enumerate(way.cases):
        for schedule in spread(drawn.kernel, way.target)[number % 2 :]:
            source = emit(drawn.kernel, schedule, way.target, f"k{len(sources)}", BYTE_WINDOWS)
            sources.append(emulated(source, first=not sources) if way.software else source)
            runs.append((drawn, schedule))

    image = image_of(sources, way.target)

    for source, (drawn, schedule) in zip(sources, runs, strict=True):
        for found, wanted in zip(
            run_source(image, source, drawn.kernel, drawn.inputs), WANTED[drawn.kernel], strict=True
        ):
            np.testing.assert_array_equal(found, wanted, err_msg=f"{drawn.kernel.label} {schedule}")


WANTED: Mapping[Kernel, list[np.ndarray]] = {drawn.kernel: expected(drawn.kernel, drawn.inputs) for drawn in CASES}


def test_the_cases_have_codes_at_both_ends_and_between() -> None:
    for drawn in CASES:
        codes, sums = WANTED[drawn.kernel]
        info = np.iinfo(codes.dtype)
        assert np.unique(codes).size > 15
        assert (codes == info.min).any() or (codes == info.max).any()
        assert np.unique(sums).size > 30
    assert any((WANTED[d.kernel][0] == 255).any() for d in CASES)
    assert any((WANTED[d.kernel][0] == 0).any() for d in CASES)


@pytest.mark.parametrize("drawn", CASES[::3])
def test_many_schedules_at_once_are_legal_where_each_is(drawn: Drawn) -> None:
    assert_agrees(drawn.kernel, BYTE_WINDOWS, HOST)


def instructions(drawn: Drawn, target: Target) -> str:
    schedule = BYTE_WINDOWS.default(BYTE_WINDOWS.problem(drawn.kernel), target.limits).numbers
    return emit(drawn.kernel, schedule, target, "k", BYTE_WINDOWS).text


def test_weights_that_fit_no_byte_are_multiplied_in_pairs() -> None:
    assert "vpdpbusd.512" in instructions(CASES[0], cpu.named("cpu:cascadelake"))
    assert "vpdpbusd" not in instructions(CASES[8], cpu.named("cpu:cascadelake"))
    assert "pmaddw.d.512" in instructions(CASES[8], cpu.named("cpu:cascadelake"))
    assert "pmaddw.d.512" in instructions(CASES[0], cpu.named("cpu:skylake-avx512"))


def with_image(image: Expr) -> Kernel:
    """The first case with another image."""
    kernel = CASES[0].kernel
    total = kernel.stores[1].value
    changed = reduce("sum", total.axes, call("mul", image, total.body.args[1]))
    return replace(kernel, stores=(replace(kernel.stores[1], value=changed),))


def places() -> tuple[Expr, ...]:
    """The indices at which the first case reads its image."""
    return CASES[0].kernel.stores[1].value.body.args[0].then.value.index


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (depthwise_of_floats((1, 6, 6, 16), (3, 3)), "it is not one sum in i32"),
        (max_pool((1, 9, 9, 8), 3, 1, 0), "no depthwise convolution"),
        (depthwise((1, 9, 9, 8), (8, 7)).kernel, "more than 49 taps"),
        (depthwise((1, 6, 6, 16), (3, 3), x=I16).kernel, "the image is wider than a byte"),
        (depthwise((1, 6, 6, 16), (3, 3), w=I32).kernel, "weights are wider than 16 bits"),
        (depthwise((1, 6, 6, 16), (3, 3), pad=(1, 1, 1, 1), zero=256).kernel, "the padding is not a byte"),
        (with_image(cast(cast(load(0, places(), U8) * 2, U8), I32)), "the image is computed"),
        (depthwise((1, 90, 200, 8), (3, 3), dilation=(40, 40), pad=(40, 40, 40, 40)).kernel,
         "the padding reaches too far into the image"),
        (depthwise((1, 5, 2053, 64), (3, 3), pad=(1, 1, 1, 1)).kernel, "a line of the image has more than 131072 bytes"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_what_it_cannot_compute_it_refuses_and_another_engine_takes(kernel: Kernel, why: str) -> None:
    assert byte_windows.accepts(kernel, HOST.features) == why
    assert engines_of(kernel, HOST.features)
    assert all(family.engine != "bytes" for family in engines_of(kernel, HOST.features))


def test_another_kind_of_processor_has_none_of_its_instructions() -> None:
    assert byte_windows.accepts(CASES[0].kernel, frozenset({"neon"})) == "no x86 processor"
    assert byte_windows.accepts(CASES[0].kernel, frozenset({"sse4.1"})) == ""


def test_scalar_code_is_refused() -> None:
    problem = BYTE_WINDOWS.problem(CASES[0].kernel)
    schedule = {"lanes": 0, "tile_x": 4, "vectors": 1, "tasks": 16}

    assert BYTE_WINDOWS.reasons(schedule, problem, HOST.limits) == ["lanes run over channels, and there are none"]
