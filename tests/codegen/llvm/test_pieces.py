"""The first lanes of a vector, loaded and stored in pieces where masks are no registers."""

from __future__ import annotations

import pytest

from gpucomp.codegen.llvm.ir.builder import Code
from gpucomp.codegen.llvm.ir.pieces import first_lanes
from gpucomp.codegen.llvm.ir.types import PTR, Type


@pytest.mark.parametrize(
    ("lanes", "count"),
    [
        ((True, True, True, False), 3),
        ((True, False, True, False), 0),
        ((False, True), 0),
        ((True, True), 2),
        ((False,), 0),
    ],
)
def test_only_first_lanes_that_are_known_are_counted(lanes, count):
    code = Code("f")

    assert first_lanes(code.vector(lanes, "i1").text) == count
    assert first_lanes("%v1") == 0


@pytest.mark.parametrize(("masks", "pieces"), [(False, 3), (True, 0)])
def test_seven_lanes_are_four_and_two_and_one_where_masks_are_no_registers(masks, pieces):
    code = Code("f", native_scale=masks)
    mask = code.vector([lane < 7 for lane in range(8)], "i1")

    value = code.masked_load(code.argument("p", PTR), Type("float", 8), mask)
    code.masked_store(value, code.argument("q", PTR), mask)
    text = code.function("define void @f(ptr %p, ptr %q) #0")

    assert text.count(" = load <") == text.count("  store <") == pieces
    assert text.count("masked") == (2 if masks else 0)
