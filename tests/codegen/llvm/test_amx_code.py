"""The machine code of contractions of bytes on tile registers, for a processor that has them; and what the tests' tiles in
software refuse as it does."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpucomp.codegen.llvm import emit
from gpucomp.codegen.llvm.amx.space import IN_PLACE, TileSchedule, derive, registers
from gpucomp.codegen.llvm.engines import AMX, REGISTER_BLOCKS, VNNI, engines_of
from gpucomp.ir.dim import Dim
from gpucomp.ir.types import BF16, I8, I32, U8, DType
from gpucomp.kernel import Contraction, Kernel
from gpucomp.kernel.passes.pack_weights import pack
from gpucomp.kernel.source import KernelSource
from gpucomp.targets import cpu
from testing.any_size import AnySize
from testing.kernels import matmul, random_inputs
from tests import matrix_emulation
from tests.codegen.llvm.test_amx import constant_weights, with_bytes
from tests.matrix_emulation import CONFIGURATION, SAME_TILE, UNCONFIGURED, UNEQUAL_SHAPES
from tests.native import innermost_loops

HOST, SAPPHIRE_RAPIDS = cpu.host(), cpu.named("cpu:sapphirerapids")
SIGNS = {"us": (U8, I8), "ss": (I8, I8), "su": (I8, U8), "uu": (U8, U8)}
BLOCK = {
    "tiles_m": 2,
    "tiles_n": 2,
    "tile_m": 128,
    "panels": 3,
    "pack_a": IN_PLACE,
    "pack_b": 2,
    "across": 0,
    "ahead": 0,
}
in_software = pytest.mark.skipif(
    not HOST.features.issuperset({"avx2", "fma"}), reason="tiles in software need AVX2 and FMA"
)


def product(m: int, n: int, k: int, a: DType = U8, b: DType = I8) -> Kernel[Contraction]:
    return constant_weights(with_bytes(matmul(m, n, k, dtype=I8, acc=I32), a, b))


def source_of(kernel: Kernel[Contraction], **block: int) -> KernelSource:
    schedule = BLOCK | block
    packing = AMX.packing(kernel, AMX.schedule(schedule), AMX.problem(kernel))
    assert packing is not None
    return emit(pack(kernel, packing).kernel, schedule, SAPPHIRE_RAPIDS, "k", AMX)


def function_of(assembly: str) -> str:
    """The kernel's function that configures tiles."""
    return next(part for part in re.split(r"^(?=k\S*:$)", assembly, flags=re.MULTILINE) if "\tldtilecfg\t" in part)


def main_loop(assembly: str) -> str:
    """The innermost loop with products of tiles, up to its jump."""
    (loop,) = (text for text in innermost_loops(assembly) if "\ttdpb" in text)
    return re.split(r"\n\tj\w+\t", loop)[0]


@pytest.mark.parametrize(("signs", "types"), SIGNS.items(), ids=SIGNS)
def test_the_main_loop_is_loads_and_products_of_tiles(signs: str, types: tuple[DType, DType]) -> None:
    loop = main_loop(cpu.assembly([source_of(product(128, 384, 384, *types))], SAPPHIRE_RAPIDS))

    assert re.findall(r"\ttileloadd\S*\t.*%(tmm\d)", loop) == ["tmm4", "tmm5", "tmm6", "tmm7"]
    products = re.findall(rf"\ttdpb{signs}d\t%(tmm\d), %(tmm\d), %(tmm\d)\n", loop + "\n")  # columns, rows, sums
    assert sorted(products) == [("tmm6", "tmm4", "tmm0"), ("tmm6", "tmm5", "tmm2"), ("tmm7", "tmm4", "tmm1"),
                                ("tmm7", "tmm5", "tmm3")]  # fmt: skip
    assert not re.search(r"\(%r[sb]p|%[xyz]mm", loop), "a register is spilled, or a vector is moved"
    assert len(loop.splitlines()) < 24


# rows, points of k in a tile: all of a tile, part of one, and the last tile shares rows with the one before
@pytest.mark.parametrize(
    ("m", "k", "rows", "depth"), [(128, 384, 16, 64), (19, 100, 10, 52), (33, 67, 11, 36), (5, 8, 5, 8)]
)
def test_the_configuration_has_the_shapes_of_the_tiles(m: int, k: int, rows: int, depth: int) -> None:
    kernel = product(m, 384, k)
    block = {"pack_a": IN_PLACE if k % 64 == 0 or k == 8 else 1, "tiles_m": min(2, -(-m // 16))}
    d = derive(TileSchedule(**BLOCK | block), AMX.problem(kernel))
    assembly = cpu.assembly([source_of(kernel, **block)], SAPPHIRE_RAPIDS)
    (text,) = re.findall(r"^k\.shapes:\n\t\.asciz?\t\"(.*)\"$", assembly, re.MULTILINE)
    table = text.encode().decode("unicode_escape").encode("latin-1").ljust(64, b"\0")
    sums, of_rows = block["tiles_m"] * 2, block["tiles_m"]
    shapes = [(rows, 64)] * sums + [(rows, depth)] * of_rows
    shapes += [(depth // 4, 64)] * (8 - len(shapes))

    assert (d.rows, d.depth) == (rows, depth)
    assert len(table) == 64
    assert table[0] == 1
    assert table[1:16] == bytes(15)
    assert [(table[48 + t], int.from_bytes(table[16 + 2 * t : 18 + 2 * t], "little")) for t in range(8)] == shapes
    assert table[32:48] == bytes(16)
    assert table[56:] == bytes(8)


@pytest.mark.parametrize("m", [7, 128, 0], ids=["few", "many", "any"])
def test_tiles_are_configured_once_and_released_on_each_way_out(m: int) -> None:
    """Whatever returns with tiles in use makes each switch of threads save 8 KiB more."""
    source = source_of(product(m, 384, 384), tiles_m=1) if m else any_rows().compiled.source
    function = function_of(cpu.assembly([source], SAPPHIRE_RAPIDS))
    before, after = function.split("\tldtilecfg\t")

    assert "tmm" not in before
    assert "\tret" not in before
    ways_out = re.split(r"\tretq?\n", after)[:-1]
    assert ways_out
    for way in ways_out:
        last = way[way.rindex("\ttilerelease\n") :].splitlines()[1:]
        assert all(re.match(r"\t(popq|vzeroupper|leaq|addq|movq|\.cfi)", line) for line in last), last
    assert "\tcall" not in function, "what is called may use tiles too"


def any_rows() -> AnySize:
    build = lambda m: constant_weights(matmul(m, 41, 128, dtype=I8, acc=I32))  # noqa: E731
    return AnySize(build, {"m": Dim("m", 1, 300)}, target=SAPPHIRE_RAPIDS, family=AMX)


def test_the_rows_of_a_run_are_in_the_configuration_that_is_loaded() -> None:
    """It is on the stack; a compiler that takes it for unused would drop the stores."""
    made = any_rows()
    before = function_of(cpu.assembly([made.compiled.source], SAPPHIRE_RAPIDS)).split("\tldtilecfg\t")
    at = int(before[1].partition("(%rsp)")[0])
    s = TileSchedule(**made.schedule)
    tiles = s.tiles_m * s.tiles_n + registers(s)[0]  # sums and rows; columns have the same shape in all runs

    assert f"%zmm0, {at}(%rsp)" in before[0]
    assert [f"{at + 48 + tile}(%rsp)" in before[0] for tile in range(8)] == [True] * tiles + [False] * (8 - tiles)


def test_few_rows_of_bytes_are_left_to_dot_products() -> None:
    features = SAPPHIRE_RAPIDS.features

    def engines(kernel: Kernel[Contraction], *lacking: str) -> list[bool]:
        found = engines_of(kernel, features - {*lacking})
        assert found[-1] is REGISTER_BLOCKS
        return [family in found for family in (AMX, VNNI)]

    assert engines(product(3, 384, 384)) == [False, True]
    assert engines(product(4, 384, 384)) == [True, True]
    assert engines(product(3, 384, 384), "avx512vnni", "avxvnni") == [True, False]
    assert engines(product(3, 384, 384, U8, U8)) == [True, False]
    assert engines(constant_weights(matmul(3, 384, 384, dtype=BF16))) == [True, True]
    assert "few" in AMX.accepts(product(1, 384, 384), features)


# the tiles in software


def text_of(source: KernelSource, old: str, new: str) -> KernelSource:
    assert old in source.text
    return replace(source, text=source.text.replace(old, new))


def shape_changed(at: int, number: int) -> Callable[[KernelSource], KernelSource]:
    """``source`` with another byte in its configuration."""

    def change(source: KernelSource) -> KernelSource:
        ((start, inside, end),) = re.findall(r"(@k\.shapes = .*? \[)(i8 .*?)(\])", source.text)
        numbers = inside.split(", ")
        assert len(numbers) == 64
        numbers[at] = f"i8 {number}"
        return text_of(source, start + inside + end, start + ", ".join(numbers) + end)

    return change


def released_first(source: KernelSource) -> KernelSource:
    (configured,) = re.findall(r"  call void @llvm\.x86\.ldtilecfg\(.*?\)\n", source.text)
    return text_of(source, configured, f"{configured}  call void @llvm.x86.tilerelease()\n")


def tile_for_both(source: KernelSource) -> KernelSource:
    return text_of(source, "tdpbusd(i8 0, i8 4, i8 6)", "tdpbusd(i8 0, i8 6, i8 6)")


def never_released(source: KernelSource) -> KernelSource:
    return text_of(source, "  call void @llvm.x86.tilerelease()\n", "")


WRONG = {
    "palette": (shape_changed(0, 0), CONFIGURATION),
    "first row": (shape_changed(1, 1), CONFIGURATION),
    "reserved": (shape_changed(9, 1), CONFIGURATION),
    "ninth tile": (shape_changed(56, 16), CONFIGURATION),
    "rows": (shape_changed(50, 17), CONFIGURATION),
    "width": (shape_changed(18, 68), CONFIGURATION),
    "no rows": (shape_changed(53, 0), CONFIGURATION),
    "not configured": (released_first, UNCONFIGURED),
    "the same tile": (tile_for_both, SAME_TILE),
    "rows of sums": (shape_changed(48, 8), UNEQUAL_SHAPES),
    "depth of columns": (shape_changed(54, 15), UNEQUAL_SHAPES),
    "no words": (shape_changed(24, 62), UNEQUAL_SHAPES),
}


@in_software
@pytest.mark.parametrize(("change", "told"), WRONG.values(), ids=WRONG)
def test_software_tells_what_a_processor_refuses(change: Callable[[KernelSource], KernelSource], told: str) -> None:
    matrix_emulation.faults()
    run(change)

    assert told in matrix_emulation.faults()
    assert matrix_emulation.faults() == []


@in_software
def test_software_tells_tiles_that_are_left_in_use() -> None:
    run(lambda source: source)
    assert matrix_emulation.held() == 0
    run(never_released)
    assert matrix_emulation.held() == 1
    run(lambda source: source)

    assert matrix_emulation.held() == 0
    assert matrix_emulation.faults() == []


def run(change: Callable[[KernelSource], KernelSource]) -> None:
    def changed(source: KernelSource) -> KernelSource:
        return matrix_emulation.emulated(change(source), first=True)

    made = AnySize(lambda: product(32, 32, 64), {}, schedule=BLOCK | {"panels": 1, "tile_m": 32}, target=HOST,
                   family=AMX, change=changed, features=SAPPHIRE_RAPIDS.features)  # fmt: skip
    made.compiled.run(random_inputs(made.concrete()), {})
