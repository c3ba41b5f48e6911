"""The swizzle of the ``mma`` engines: where rows are in shared memory, and how a warp's lanes read fragments from them.

A tile in shared memory consists of rows of 16-byte chunks. The position of a chunk in its row is its number, combined
by exclusive or with bits of the row's number, so that rows that one access reads together are in different banks. Sizes
are powers of two, so each part of a position (row, chunk, step, block) sets bits of its own. Offsets are therefore
combined by exclusive or too, with constants at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpucomp.codegen.c.text import guarded, loop, plus

if TYPE_CHECKING:
    from gpucomp.kernels_templates.contraction.mma.space import MmaProblem, MmaSchedule, MmaSizes

CHUNK = 16


@dataclass(frozen=True)
class Rows:
    """The layout of the rows of one operand's tile in shared memory; positions and offsets are in bytes.

    Rows along the depth, and rows of 2-byte elements across it, are read eight at a time. Rows of 4-byte elements
    across the depth are read one element at a time, four rows together.
    """

    by_depth: int
    row_bytes: int
    element_bytes: int

    @property
    def by_element(self) -> bool:
        return not self.by_depth and self.element_bytes == 4

    def _bits(self) -> tuple[int, int, int]:
        """(shift right, mask, factor): turns a row's number into the bytes that its positions are combined with."""
        chunks = self.row_bytes // CHUNK
        if self.by_element:
            return 0, min(3, (chunks - 1) // 2), 2 * CHUNK
        together = min(chunks, 8)
        return (8 // together).bit_length() - 1, together - 1, CHUNK

    def change(self, row: int) -> int:
        shift, mask, factor = self._bits()
        return (row >> shift & mask) * factor

    def offset(self, row: str, position: str) -> str:
        """C text of the offset of ``position`` in ``row``; both are names or numbers."""
        shift, mask, factor = self._bits()
        start = f"{row} * {self.row_bytes}"
        if mask == 0:
            return f"{start} + {position}"
        moved = f"{row} >> {shift}" if shift else row
        return f"{start} + ({position} ^ ({moved} & {mask}) * {factor})"

    def repeating(self, items: int, steps: int) -> str | None:
        """By what a step of ``items`` rows changes positions; ``None`` if it does not.

        The text is the rest of an expression that starts with ``(step``.
        """
        shift, mask, factor = self._bits()
        changed = [self.change(items * step) for step in range(steps)]
        if not any(changed):
            return None
        scale = items >> shift
        if scale == 0:  # several steps have the same change
            return f" * {items} >> {shift} & {mask}) * {factor}"
        return f" & {mask // scale}) * {factor * scale}"


@dataclass(frozen=True)
class Fragments:
    """How a warp reads the fragments of one operand, ``per_read`` blocks of 16 rows or 8 columns at once.

    row, position    a lane's first element, in ``<name>_at``; steps and blocks add bytes to it or combine it by
                     exclusive or
    """

    name: str
    rows: Rows
    blocks: int
    per_read: int
    row: str
    position: str
    step_add: int
    step_xor: int
    block_add: int
    block_xor: int
    begins: int  # offset in a stage, in bytes
    half_xor: int = 0  # for elements: the offset of the second eight rows
    depth_add: int = 0  # and of the second four steps of the depth

    def declared(self) -> list[str]:
        name = self.name
        return [
            f"const int {name}_row = {self.row};",
            f"const int {name}_position = {self.position};",
            f"const int {name}_at = {self.rows.offset(f'{name}_row', f'{name}_position')};",
        ]

    @property
    def reads(self) -> int:
        return self.blocks // self.per_read

    def read(self, to: str, stage: str, step: str) -> list[str]:
        """Statements that read the fragments of ``step`` of ``stage`` into ``to``."""
        return loop("i", self.reads, self._read(to, stage, step, "i"))

    def read_part(self, to: str, stage: str, step: str, parts: int) -> list[str]:
        """Those of part ``i`` of ``parts`` of the fragments; both counts are powers of two."""
        if self.reads <= parts:
            return guarded("" if self.reads == parts else f"i < {self.reads}", self._read(to, stage, step, "i"))
        each = self.reads // parts
        return loop("part", each, self._read(to, stage, step, f"(i * {each} + part)"))

    def _read(self, to: str, stage: str, step: str, number: str) -> list[str]:
        """Statements of one read; ``number`` is the text of its number where there are several."""
        many = self.reads > 1
        at, add = f"{self.name}_at", ""
        if many and self.block_xor:
            at += f" ^ {number} * {self.block_xor}"
        if many and self.block_add:
            add += f" + {number} * {self.block_add}"
        if step != "0" and self.step_xor:
            at += f" ^ {step} * {self.step_xor}"
        if step != "0" and self.step_add:
            add += f" + {step} * {self.step_add}"
        begin = plus(stage, self.begins)
        text = self._elements if self.rows.by_element else self._matrices
        return text(to, begin, at, add, number if many else "")

    def _matrices(self, to: str, begin: str, at: str, add: str, number: str) -> list[str]:
        count = 4 if self.name == "a" else 2 * self.per_read
        function = f"gc_ldmatrix_x{count}" + ("" if self.rows.by_depth else "_trans")
        slot = f"[{number or 0}]" if self.name == "a" else f" + {number} * {2 * self.per_read}" if number else ""
        return [f"{function}({to}{slot}, {begin} + {f'({at})' if '^' in at else at}{add});"]

    def _elements(self, to: str, begin: str, at: str, add: str, number: str) -> list[str]:
        lines = []
        for depth in range(2):
            for half in range(2 if self.name == "a" else 1):
                slot = f"[{number or 0}][{half + 2 * depth}]"
                if self.name == "b":
                    slot = f"[{number} * 2 + {depth}]" if number else f"[{depth}]"
                place = f"{at} ^ {self.half_xor}" if half else at
                place = f"({place})" if "^" in place else place
                more = f" + {self.depth_add}" if depth else ""
                lines.append(f"{to}{slot} = *reinterpret_cast<const unsigned*>({begin} + {place}{add}{more});")
        return lines


def fragments_of(name: str, s: MmaSchedule, p: MmaProblem, d: MmaSizes) -> Fragments:
    is_a = name == "a"
    sizes, blocks, span, warps = (
        (d.a, d.blocks_m, s.warp_m, s.warps_m) if is_a else (d.b, d.blocks_n, s.warp_n, s.warps_n)
    )
    rows = Rows(sizes.shared_by_depth, sizes.row_bytes, p.element_bytes)
    per_read = 1 if is_a or blocks == 1 or rows.by_element else 2
    block_span = 16 if is_a else 8
    # lanes 8i to 8i + 7 address the rows of matrix i; matrices of `a` are in order of rows first, of `b` of depth first
    high, low = "my_lane / 16", "my_lane / 8 % 2"
    along_span, along_depth = (low, high) if is_a else (high if per_read > 1 else "", low)
    step_depth = 32 // p.element_bytes
    offset_k = f"warp_k * {d.warp_steps * step_depth}" if s.warps_k > 1 else ""
    offset_span = f"{name}_warp * {span}" if warps > 1 else ""
    by_step = {"step_add": step_depth * rows.row_bytes, "step_xor": 0}
    if rows.by_element:
        row, position = _sum(offset_k, "my_lane % 4"), scaled(_sum(offset_span, "my_lane / 4"), 4)
        ways = by_step | {
            "block_add": 0,
            "block_xor": block_span * 4,
            "half_xor": 8 * 4,
            "depth_add": 4 * rows.row_bytes,
        }
    elif rows.by_depth:
        row = _sum(offset_span, f"{along_span} * 8" if along_span else "", "my_lane % 8")
        position = scaled(_sum(f"warp_k * {d.warp_steps * 2}" if s.warps_k > 1 else "", along_depth), 16)
        ways = {"step_add": 0, "step_xor": 32, "block_add": block_span * per_read * rows.row_bytes, "block_xor": 0}
    else:
        row = _sum(offset_k, f"{along_depth} * 8", "my_lane % 8")
        position = scaled(_sum(f"{name}_warp * {span // 8}" if warps > 1 else "", along_span), 16)
        ways = by_step | {"block_add": 0, "block_xor": block_span * per_read * 2}
    begins = 0 if is_a else d.a.bytes
    return Fragments(name, rows, blocks, per_read, row, position, begins=begins, **ways)


def scaled(text: str, factor: int) -> str:
    """``text * factor``; 0 if there is no text."""
    if not text:
        return "0"
    return f"({text}) * {factor}" if "+" in text else f"{text} * {factor}"


def _sum(*parts: str) -> str:
    return " + ".join(p for p in parts if p)
