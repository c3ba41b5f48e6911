"""Contractions by tile registers and dot products, compared with numpy.

They use the processor's instructions if it has them, and on every processor also their emulation in software.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
import pytest

import gpucomp
from gpucomp import config
from gpucomp.artifact.elf import Image
from gpucomp.cli.compare import relative_error
from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.amx.emit import AHEAD_BYTES, LIGHT_EPILOGUE, Tiles
from gpucomp.codegen.llvm.amx.operands import element_of, image_of, narrow_of, straight_rows
from gpucomp.codegen.llvm.amx.space import (
    COPIED,
    IN_PLACE,
    LINE,
    LINES,
    NarrowProblem,
    NarrowSizes,
    TileSchedule,
    copied_bytes,
    derive,
    line_counts,
    registers,
)
from gpucomp.codegen.llvm.engines import AMX, PAIRS, VNNI, engines_of
from gpucomp.device.target import Target
from gpucomp.errors import ScheduleError
from gpucomp.expr.core import call, cast, load, select
from gpucomp.ir.types import BF16, F16, F32, I8, I32, U8, DType, TensorType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.interpreter import UNWRITTEN, expected
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernel.source import KernelSource
from gpucomp.schedule.choose import choose
from gpucomp.schedule.space import Family, Schedule
from gpucomp.targets import cpu
from testing.kernels import conv, grouped_conv, matmul, random_inputs, stem
from testing.tolerance import assert_identical, assert_rounded_once
from tests.matrix_emulation import emulated
from tests.native import innermost_loops
from tests.onnx_builders import model, node, value

pytestmark = pytest.mark.usefixtures("strict_tiles")
HOST = cpu.host()
SAPPHIRE_RAPIDS = cpu.named("cpu:sapphirerapids")
ALDER_LAKE = cpu.named("cpu:alderlake")  # dot products of bytes alone, and vectors of half the width


@dataclass(frozen=True)
class Way:
    """An engine, whether it runs on real instructions or in software, and the processor that it is compiled for."""

    engine: str
    on: str
    family: Family
    target: Target
    names: tuple[str, ...] = ()
    more: int = 0  # random schedules besides the default

    @property
    def title(self) -> str:
        return f"{self.engine} {self.on}"


BY_VNNI = ("rows of an odd length", "columns turned", "3x3 padded", "3x3 strided", "i8 by i8", "u8 by i8", "i8 by u8")
OF_BYTES = ("i8 by i8", "u8 by i8", "i8 by u8")
FEATURES = [
    (("avx2", "fma"), Way("amx", "software", AMX, HOST)),
    (("avx2", "fma"), Way("vnni", "software", VNNI, HOST, BY_VNNI)),
    (("avx2", "fma"), Way("narrow vnni", "software", VNNI, ALDER_LAKE, OF_BYTES)),
    (("amx-tile", "amx-bf16", "amx-int8"), Way("amx", "processor", AMX, HOST, more=1)),
    (("avx512bf16", "avx512vnni"), Way("vnni", "processor", VNNI, HOST, BY_VNNI, more=1)),
    (("avx2",), Way("pairs", "processor", PAIRS, cpu.named("cpu:haswell"), OF_BYTES, more=1)),
    (
        ("avx512bw", "avx512vl"),
        Way("wide pairs", "processor", PAIRS, cpu.named("cpu:skylake-avx512"), OF_BYTES, more=1),
    ),
    (("avxvnni",), Way("narrow vnni", "processor", VNNI, ALDER_LAKE, OF_BYTES, more=1)),
]
WAYS = [way for needed, way in FEATURES if HOST.features.issuperset(needed)]


def constant_weights(kernel: Kernel[Contraction]) -> Kernel[Contraction]:
    return replace(kernel, constants=frozenset({1}))


def with_bytes(kernel: Kernel[Contraction], a: DType, b: DType) -> Kernel[Contraction]:
    """A matmul of I8 with operands of ``a`` and ``b``."""
    body = kernel.body
    assert isinstance(body, Contraction)
    operands = [cast(load(k, element_of(e, I32).index, dtype), I32) for k, (e, dtype) in  # type: ignore[union-attr]
                enumerate(((body.a, a), (body.b, b)))]  # fmt: skip
    params = tuple(TensorType(d, p.shape) for d, p in zip((a, b), kernel.params, strict=False))
    return replace(kernel, params=params + kernel.params[2:], body=replace(body, a=operands[0], b=operands[1]))


def joined_channels() -> Kernel[Contraction]:
    """A 1x1 convolution over the sum of a constant and two images that are joined along the channels."""
    kernel = conv((1, 5, 7, 96), 21, (1, 1), dtype=BF16)
    body, parts = kernel.body, (TensorType(BF16, (1, 5, 7, 40)), TensorType(BF16, (1, 5, 7, 56)))
    assert isinstance(body, Contraction)
    (image, y, x), channel = body.m, body.k[-1]
    first, second = load(0, (image, y, x, channel), BF16), load(2, (image, y, x, channel - 40), BF16)
    a = cast(cast(cast(select(channel < 40, first, second), F32) + 1.5, BF16), F32)
    params = (parts[0], kernel.params[1], parts[1], kernel.params[-1])
    store = replace(kernel.stores[0], target=3, value=cast(body.acc, BF16))
    return replace(kernel, params=params, body=replace(body, a=a), stores=(store,), label="1x1 of two images")


def long_epilogue() -> Kernel[Contraction]:
    """An epilogue that is too long to be interleaved with the steps of another block."""
    kernel = matmul(37, 70, 262, dtype=BF16)
    first, *others = kernel.stores
    value = cast(first.value, F32)
    for step in range(LIGHT_EPILOGUE):
        value = call("max", value * 0.5, -1.0 - step)
    return replace(kernel, stores=(replace(first, value=cast(value, BF16)), *others), label="a long epilogue")


KERNELS: dict[str, Kernel[Contraction]] = {
    "rows in place": constant_weights(matmul(49, 70, 96, dtype=BF16)),
    "rows of an odd length": constant_weights(matmul(37, 41, 51, dtype=BF16)),
    "rows of many steps": constant_weights(matmul(37, 70, 291, dtype=BF16)),
    "one row": constant_weights(matmul(1, 23, 50, dtype=BF16)),
    "columns of pairs": matmul(23, 19, 40, batch=(3,), dtype=BF16),
    "columns turned": matmul(21, 35, 45, batch=(2,), dtype=BF16, b_transposed=True),
    "rows across": constant_weights(matmul(19, 17, 33, dtype=BF16, a_transposed=True)),
    "3x3 padded": constant_weights(conv((2, 7, 6, 19), 40, (3, 3), pad=1, dtype=BF16)),
    "3x3 strided": constant_weights(conv((1, 9, 21, 32), 24, (3, 3), stride=2, pad=1, dtype=BF16)),
    "5x3 dilated": constant_weights(conv((1, 11, 9, 7), 17, (5, 3), pad=2, dilation=2, dtype=BF16)),
    "1x1 strided": constant_weights(conv((1, 9, 7, 22), 35, (1, 1), stride=2, dtype=BF16)),
    "deep pixels": constant_weights(conv((1, 5, 7, 515), 37, (3, 2), stride=2, pad=1, dtype=BF16)),
    "groups": constant_weights(grouped_conv((1, 6, 5, 54), 3, 10, (3, 3), pad=1, dtype=BF16)),
    "stem of planes": stem((2, 13, 37, 3), 21, (7, 7), stride=2, pad=3, dtype=BF16),
    "long epilogue": constant_weights(long_epilogue()),
    "two images": constant_weights(joined_channels()),
    "i8 by i8": constant_weights(matmul(37, 41, 131, dtype=I8, acc=I32)),
    "u8 by i8": constant_weights(with_bytes(matmul(33, 19, 64, dtype=I8, acc=I32), U8, I8)),
    "i8 by u8": with_bytes(matmul(18, 20, 37, dtype=I8, acc=I32), I8, U8),
    "u8 by u8": with_bytes(matmul(5, 16, 9, dtype=I8, acc=I32, b_transposed=True), U8, U8),
}  # fmt: skip


def problem_of(kernel: Kernel[Contraction], family: Family = AMX) -> NarrowProblem:
    return family.problem(kernel)


def some_schedules(
    kernel: Kernel[Contraction], count: int, family: Family = AMX, target: Target = HOST
) -> list[Schedule]:
    """The default and ``count`` random legal schedules."""
    problem, chooser = family.problem(kernel), random.Random(kernel.digest)
    found = [dict(family.default(problem, target.limits).numbers)]
    while len(found) < count + 1:
        trial = {p.name: chooser.choice(p.choices) for p in family.params}
        if not family.reasons(trial, problem, target.limits):
            found.append(trial)
    return found


class Compiled:
    """Kernels, each with several schedules, in one program."""

    def __init__(self, way: Way) -> None:
        self.names = way.names or tuple(KERNELS)
        self.entries: dict[str, list[tuple[Schedule, Kernel, int, list[np.ndarray]]]] = {}
        sources: list[KernelSource] = []
        for kernel in (KERNELS[name] for name in self.names):
            inputs = random_inputs(kernel)
            for schedule in some_schedules(kernel, way.more, way.family, way.target):
                packing = way.family.packing(kernel, way.family.schedule(schedule), problem_of(kernel, way.family))
                each, arrays = kernel, inputs
                if packing is not None:
                    packed = pack(kernel, packing)
                    each = packed.kernel
                    arrays = [*(inputs[j] for j in packed.kept), packed_constant(packed, inputs)]
                source = emit(each, schedule, way.target, f"k{len(sources)}", way.family)
                self.entries.setdefault(kernel.digest, []).append((schedule, each, len(sources), arrays))
                sources.append(emulated(source, first=not sources) if way.on == "software" else source)
        self.tasks = [source.geometry.groups[0] for source in sources]
        # one module: the software is in its first kernel
        binary = cpu.compile_text(cpu.module_text(sources, way.target, runner=False), way.target)
        self.image = Image(len(binary).to_bytes(8, "little") + binary)

    def run(self, kernel: Kernel, number: int, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs. Tasks run one by one, the last first."""
        arrays = [np.ascontiguousarray(a) for a in arrays]
        outputs = [np.full(t.shape, UNWRITTEN).astype(t.dtype.numpy) for t in kernel.params[kernel.inputs :]]
        pointers = [a.ctypes.data for a in (*arrays, *outputs)]
        prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64, ctypes.c_int64)
        function = prototype(self.image.address(f"k{number}"))
        for task in range(self.tasks[number] - 1, -1, -1):
            function(*pointers, task, task + 1)
        return outputs


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: way.title)
def compiled(request: pytest.FixtureRequest) -> Compiled:
    return Compiled(request.param)


@pytest.fixture(scope="module", params=[way for way in WAYS if way.names is not OF_BYTES], ids=lambda way: way.title)
def compiled_bf16(request: pytest.FixtureRequest) -> Compiled:
    return Compiled(replace(request.param, names=("rows in place", "3x3 strided"), more=0))


def test_the_oracle_is_matched(compiled: Compiled) -> None:
    for name in compiled.names:
        kernel = KERNELS[name]
        wanted = expected(kernel, random_inputs(kernel))
        for schedule, packed, number, arrays in compiled.entries[kernel.digest]:
            for actual, want in zip(compiled.run(packed, number, arrays), wanted, strict=True):
                try:
                    assert_rounded_once(actual, want, terms=problem_of(kernel).k)
                except AssertionError as error:
                    raise AssertionError(f"{name}, {schedule}: {error}") from error


def test_the_same_bits_come_out_again(compiled_bf16: Compiled) -> None:
    compiled = compiled_bf16
    kernel = KERNELS["3x3 strided"]
    _, packed, number, arrays = compiled.entries[kernel.digest][0]

    for first, second in zip(*(compiled.run(packed, number, arrays) for _ in range(2)), strict=True):
        assert_identical(first, second)


def test_denormals_count_as_zero_and_infinities_do_not(compiled_bf16: Compiled) -> None:
    compiled = compiled_bf16
    kernel = KERNELS["rows in place"]
    _, packed, number, arrays = compiled.entries[kernel.digest][0]
    a, bias, weights = arrays[0].copy(), np.zeros_like(arrays[1]), np.ones_like(arrays[2])
    a[...] = 0
    a[3, 5] = 1e-39  # a denormal: 1e-39 * 1 is no zero in IEEE arithmetic
    a[7, 9] = np.inf
    result = compiled.run(packed, number, [a, bias, weights])[0].astype(np.float64)

    assert (result[7] == np.inf).all()
    assert (np.delete(result, 7, axis=0) == 0).all()


# what is accepted, chosen and refused


@pytest.mark.parametrize("name", ["3x3 padded", "u8 by i8", "columns turned"])
def test_a_processor_with_the_instructions_gets_them(name: str) -> None:
    kernel = KERNELS[name]
    choice = choose(kernel, (AMX,), SAPPHIRE_RAPIDS.limits)
    laid_out = pack(kernel, choice.packing).kernel if choice.packing else kernel
    text = cpu.assembly([emit(laid_out, choice.schedule, SAPPHIRE_RAPIDS, "k", AMX)], SAPPHIRE_RAPIDS)

    assert ("tdpbusd" if name == "u8 by i8" else "tdpbf16ps") in text
    assert "ldtilecfg" in text
    assert text.rindex("tilerelease") > text.rindex("tilestored")


@pytest.mark.parametrize("lacking", ["amx-tile", "amx-bf16"])
def test_a_processor_without_them_keeps_its_engine(lacking: str) -> None:
    kernel, features = KERNELS["3x3 padded"], SAPPHIRE_RAPIDS.features

    assert AMX in engines_of(kernel, features)
    assert AMX not in engines_of(kernel, features - {lacking})
    assert AMX in engines_of(KERNELS["u8 by i8"], features - {"amx-bf16"})
    assert lacking in AMX.accepts(kernel, features - {lacking})


@pytest.mark.parametrize(
    ("target", "of_bf16", "of_bytes"),
    [("x86-64-v4", [], []), ("haswell", [], []), ("alderlake", [], [VNNI]), ("icelake-server", [], [VNNI]),
     ("znver4", [VNNI], [VNNI]), ("sapphirerapids", [AMX, VNNI], [AMX, VNNI])],
)  # fmt: skip
def test_a_target_gets_the_engines_of_its_instructions(target: str, of_bf16: list, of_bytes: list) -> None:
    features = cpu.named(f"cpu:{target}").features

    for name, wanted in (("3x3 padded", of_bf16), ("u8 by i8", of_bytes)):
        assert [family for family in engines_of(KERNELS[name], features) if family in (AMX, VNNI)] == wanted


@pytest.mark.parametrize(
    ("name", "target", "instruction"),
    [("3x3 strided", "znver4", r"vdpbf16ps.*%zmm"), ("u8 by i8", "icelake-server", r"vpdpbusd.*%zmm"),
     ("i8 by i8", "alderlake", r"\{vex\}\s+vpdpbusd.*%ymm")],
)  # fmt: skip
def test_dot_products_keep_their_sums_in_registers(name: str, target: str, instruction: str) -> None:
    kernel, device = KERNELS[name], cpu.named(f"cpu:{target}")
    choice = choose(kernel, (VNNI,), device.limits)
    assert choice.packing is not None
    packed = pack(kernel, choice.packing).kernel
    text = cpu.assembly([emit(packed, choice.schedule, device, "k", VNNI)], device)
    loops = [loop for loop in innermost_loops(text) if re.search(instruction, loop)]

    assert loops, "no loop with the instruction"
    for loop in loops:
        body = re.split(r"\n\tj\w+\t", loop)[0]  # what follows the jump stores the sums
        assert not re.search(r"v(mov|dp|pdp)\S+\s+%[yz]mm\d+, -?\d*\(%rsp\)", body), "a sum is written to the stack"


def test_bytes_without_a_sign_are_no_dot_product() -> None:
    assert "signed" in VNNI.accepts(KERNELS["u8 by u8"], SAPPHIRE_RAPIDS.features)


def test_wider_operands_are_refused() -> None:
    assert "wider" in AMX.accepts(matmul(5, 7, 9), SAPPHIRE_RAPIDS.features)
    assert "wider" in AMX.accepts(matmul(5, 7, 9, dtype=F16), SAPPHIRE_RAPIDS.features)
    assert "wider" in AMX.accepts(matmul(5, 7, 9, dtype=I32, acc=I32), SAPPHIRE_RAPIDS.features)


def test_padding_that_a_byte_cannot_hold_is_refused() -> None:
    inside = load(0, (0,), U8)
    condition = call("lt", cast(inside, I32), 3)

    assert element_of(select(condition, cast(inside, I32), 255), I32) is not None
    assert element_of(select(condition, cast(inside, I32), 256), I32) is None
    assert element_of(select(condition, cast(inside, I32), -1), I32) is None


def test_columns_of_several_axes_of_k_are_not_copied() -> None:
    kernel = conv((1, 7, 6, 19), 40, (3, 3), pad=1, dtype=BF16)  # its weights are no constant

    assert "several axes of k" in AMX.accepts(kernel, SAPPHIRE_RAPIDS.features)


def test_objections() -> None:
    kernel = KERNELS["rows of an odd length"]
    problem = AMX.problem(kernel)
    schedule = dict(AMX.default(problem, HOST.limits).numbers)

    def reasons(**changes: int) -> str:
        return "; ".join(AMX.reasons(schedule | changes, problem, HOST.limits))

    assert reasons() == ""
    assert "rows in memory do not have the layout of tiles" in reasons(pack_a=IN_PLACE)
    assert "leave too few of 8 registers" in reasons(tiles_m=4, tiles_n=2)
    assert "there are no lines" in reasons(pack_a=COPIED, across=1)
    assert "the columns are not constant" in "; ".join(
        AMX.reasons(schedule | {"pack_a": COPIED, "pack_b": 2}, problem.replace(b_constant=0), HOST.limits)
    )


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("family", [AMX, VNNI], ids=lambda family: family.engine)
def test_every_legal_schedule_is_emitted_for_the_kernel_that_it_packs(family: Family, name: str) -> None:
    """And for no other kernel: the columns of a convolution that nobody packed could not be copied."""
    kernel = KERNELS[name]
    if reason := family.accepts(kernel, SAPPHIRE_RAPIDS.features):
        assert "signed" in reason
        return
    for schedule in some_schedules(kernel, 12, family, SAPPHIRE_RAPIDS):
        packing = family.packing(kernel, family.schedule(schedule), family.problem(kernel))
        assert (packing is not None) == (schedule["pack_b"] == 2)
        packed = kernel
        if packing is not None:
            packed = pack(kernel, packing).kernel
            with pytest.raises(ScheduleError, match=r"pack_b=2 reads columns packed to .*: pack the kernel"):
                emit(kernel, schedule, SAPPHIRE_RAPIDS, "k", family)

        assert emit(packed, schedule, SAPPHIRE_RAPIDS, "k", family).geometry.groups[0] > 0


# how operands are found


def test_rows_in_place_are_evenly_apart() -> None:
    found = straight_rows(narrow_of(KERNELS["rows in place"]))  # type: ignore[arg-type]

    assert found is not None
    assert (found.source, found.row, found.points) == (0, 96, (0,))
    assert straight_rows(narrow_of(KERNELS["3x3 padded"])) is None  # type: ignore[arg-type]
    assert straight_rows(narrow_of(KERNELS["rows across"])) is None  # type: ignore[arg-type]


def test_windows_of_a_convolution() -> None:
    image = image_of(KERNELS["3x3 strided"])
    stem_image = image_of(KERNELS["stem of planes"])

    assert image is not None
    assert stem_image is not None
    assert (image.taps_y, image.taps_x, image.stride_y, image.stride_x, image.planes) == (3, 3, 2, 2, False)
    assert (image.line.extent, image.pixel.extent) == (2 * 4 + 3, 2 * 10 + 3)
    assert (stem_image.taps_y, stem_image.stride_x, stem_image.planes) == (7, 2, True)
    assert image_of(KERNELS["5x3 dilated"]) is None


def test_few_channels_are_filled_up_to_whole_words() -> None:
    kernel = KERNELS["stem of planes"]
    s, p = AMX.schedule(some_schedules(kernel, 0)[0]), problem_of(kernel)
    d = derive(s, p)

    assert s.pack_a == LINES
    assert (d.channels, d.depth, d.parts, d.runs) == (4, 28, 1, 7)
    assert d.pitch % p.stride_x == 0
    assert sum(line_counts(d, p)) == (d.lines - 1) * 2 + 7
    assert copied_bytes(s, p) >= sum(line_counts(d, p)) * d.pitch * 4 * 2


def lines_of(kernel: Kernel[Contraction]) -> NarrowSizes:
    problem = problem_of(kernel)
    return derive(AMX.schedule(some_schedules(kernel, 0)[0] | {"pack_a": LINES}), problem)


def test_taps_are_inside_for_deep_pixels_that_several_taps_read() -> None:
    deep = lines_of(KERNELS["deep pixels"])

    assert deep.taps_inside
    assert (deep.channels, deep.depth, deep.parts, deep.runs) == (544, 32, 17, 6)
    assert deep.pixel_bytes // LINE % 2 == 1  # pixels fall into all sets of the first cache
    assert deep.pixel_bytes >= deep.channels * 2
    for channels, window in ((510, (3, 2)), (515, (1, 1))):
        shallow = lines_of(constant_weights(conv((1, 5, 7, channels), 37, window, dtype=BF16)))
        assert not shallow.taps_inside
        assert shallow.pixel_bytes == shallow.channels * 2


def test_stores_are_put_off_unless_they_are_long_or_steps_are_few() -> None:
    def tiles(name: str) -> Tiles:
        kernel, schedule = KERNELS[name], some_schedules(KERNELS[name], 0)[0]
        packing = AMX.packing(kernel, AMX.schedule(schedule), problem_of(kernel))
        packed = kernel if packing is None else pack(kernel, packing).kernel
        return Tiles(packed, AMX.schedule(schedule), "k", SAPPHIRE_RAPIDS)  # type: ignore[arg-type]

    assert tiles("3x3 strided").late is not None
    assert tiles("rows of many steps").late is not None
    assert tiles("long epilogue").late is None
    assert tiles("rows in place").late is None  # 96 points of k are three steps


@pytest.mark.parametrize(("rows", "close"), [(1, True), (16, True), (37, False)])
def test_columns_that_are_read_once_are_asked_for_close_ahead(rows: int, close: bool) -> None:
    kernel = constant_weights(matmul(rows, 70, 2603, dtype=BF16))
    schedule = some_schedules(kernel, 0)[0] | {"tiles_m": 1, "tiles_n": 4, "tile_m": 48, "pack_b": 2, "ahead": 1}
    problem = problem_of(kernel)
    packing = AMX.packing(kernel, AMX.schedule(schedule), problem)
    assert packing is not None
    text = emit(pack(kernel, packing).kernel, schedule, SAPPHIRE_RAPIDS, "k", AMX).text
    panel = derive(AMX.schedule(schedule), problem).panel_bytes

    assert panel > AHEAD_BYTES
    assert (f"i64 {AHEAD_BYTES}\n" in text) == close
    assert "@llvm.prefetch" in text


def test_registers_for_operands() -> None:
    def of(tiles_m: int, tiles_n: int) -> tuple[int, int]:
        task = {"tile_m": 16, "panels": 1, "pack_a": COPIED, "pack_b": 1, "across": 0, "ahead": 0}
        return registers(TileSchedule(tiles_m=tiles_m, tiles_n=tiles_n, **task))

    assert of(2, 2) == (2, 2)
    assert of(1, 6) == (1, 1)
    assert of(4, 1) == (3, 1)
    assert 0 in of(2, 4)


# whole programs: the permission to use tiles is per process, their state is per thread


def small_net() -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    w0, w1 = (rng.standard_normal(s).astype(np.float32) * 0.1 for s in ((37, 5, 3, 3), (41, 37, 1, 1)))
    nodes = [node("Conv", ["x", "w0"], "h", pads=[1, 1, 1, 1]), node("Relu", "h", "r"), node("Conv", ["r", "w1"], "y")]
    return model(nodes, [value("x", (1, 5, 131, 127))], [value("y", (1, 41, 131, 127))], {"w0": w0, "w1": w1})


@pytest.mark.parametrize(("rows", "columns", "depth"), [(33, 97, 64), (100, 257, 192), (7, 33, 64)])
def test_a_last_column_alone_leaves_what_follows(rows: int, columns: int, depth: int) -> None:
    """If LLVM finds out late that the mask of the last vector has one lane, it stores four bytes there."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-1, 2, shape).astype(np.int8) for shape in ((rows, depth), (depth, columns)))
    nodes = [node("MatMulInteger", ["x", "w"], ["t"]), node("Cast", ["t"], ["y"], to=onnx.TensorProto.INT8)]
    made = model(nodes, [value("x", x.shape, onnx.TensorProto.INT8)], ["y"], {"w": w})

    found = gpucomp.compile(made, target="cpu").run({"x": x})["y"]

    np.testing.assert_array_equal(found, (x.astype(np.int32) @ w).astype(np.int8))


def test_threads_and_forked_processes_give_the_same_bits() -> None:
    x = {"x": np.random.default_rng(5).standard_normal((1, 5, 131, 127)).astype(np.float32)}
    with config.using(threads=1):
        alone = gpucomp.compile(small_net(), target="cpu", precision="bf16").run(x)["y"]
    reader, writer = os.pipe()

    with config.using(threads=2):
        together = gpucomp.compile(small_net(), target="cpu", precision="bf16")
    assert_identical(together.run(x)["y"], alone)
    child = os.fork()
    if child == 0:
        os.write(writer, b"1" if np.array_equal(together.run(x)["y"], alone) else b"0")
        os._exit(0)
    os.close(writer)
    answer = os.read(reader, 1)
    os.close(reader)
    os.waitpid(child, 0)

    assert answer == b"1"
    exact = gpucomp.compile(small_net(), target="cpu").run(x)["y"]
    assert relative_error(together.run(x)["y"], exact) <= 2**-7  # two roundings of operands and one between the layers
