"""Fused layers on the CPU: each layer reads some rows of the previous one's result from the second-level cache.

    task (image, part of the last layer's rows):
        for each band of ``rows`` rows:
            for each layer but the last: the rows that the band's rows depend on
                rows that the previous band also needed are moved to the front
                the others are computed, one after the other in the order of the image
            the last layer's rows

A row of a pointwise layer is one call of its contraction, a row of a window one task of it. Rows that two parts need are
computed by both, with the same bits. Consecutive tasks of a call continue where the previous one ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpucomp.codegen.llvm.contraction.emit import emit_contraction
from gpucomp.codegen.llvm.depth_first.layers import IMAGE, ROW, LayerRows, Stretch, layer_rows_of, stretches
from gpucomp.codegen.llvm.ir.builder import Value
from gpucomp.codegen.llvm.ir.types import I64, Type
from gpucomp.codegen.llvm.loops.nest import Entry
from gpucomp.codegen.llvm.windows.emit import emit_windows
from gpucomp.device.target import Target
from gpucomp.kernel import HANDED, FusedLayers, Kernel
from gpucomp.kernel.source import Emitted
from gpucomp.schedule.space import Schedule


@dataclass
class _Kept:
    """Rows of a layer's result that are kept: their address, and the number of the first one in its image."""

    stretch: Stretch
    room: Value
    first: Value | None = None

    def row(self, number: Value) -> Value:
        """The address of row ``number`` of the image."""
        assert self.first is not None
        return self.room.code.gep(self.room, (number - self.first) * self.stretch.row_floats, "float")


class _Emitter:
    def __init__(self, kernel: Kernel[FusedLayers], schedule: Schedule, name: str, target: Target) -> None:
        self.entry = Entry(kernel, name, target)
        self.code = self.entry.code
        fused = kernel.body
        self.fused, self.layers = fused, layer_rows_of(fused)
        self.rows = schedule["rows"]
        self.lanes = max(1, target.limits.vector_bytes // 4)
        result = self.layers[-1].result.shape
        self.images, self.out_rows = result[IMAGE], result[ROW]
        part = -(-self.out_rows // schedule["parts"])
        self.part = -(-part // self.rows) * self.rows
        self.parts = -(-self.out_rows // self.part)
        self.functions: list[str] = []
        self.tasks: list[int] = []  # tasks in a row of each layer
        for number, (layer, rows) in enumerate(zip(fused.layers, self.layers, strict=True)):
            made = self._function(rows, layer.schedule, f"{name}.{number}", target)
            assert not made.counter_bytes, "a layer's tasks share no memory"
            count = made.tasks
            self.functions.append(made.text)
            calls = 1 if rows.row is not None else rows.result.shape[IMAGE] * rows.result.shape[ROW]
            assert count % calls == 0, f"{count} tasks of {calls} rows"
            self.tasks.append(count // calls)
        self.kept = [
            _Kept(s, self.code.stack(f"[{s.count * s.row_floats + self.lanes} x float]", 64))
            for s in stretches(self.layers, self.rows)
        ]

    @staticmethod
    def _function(layer: LayerRows, schedule: Schedule, name: str, target: Target) -> Emitted:
        if layer.row is None:
            return emit_windows(layer.kernel, schedule, name, target)
        return emit_contraction(layer.row, schedule, name, target)

    def emit(self) -> Emitted:
        code, entry = self.code, self.entry
        with code.loop(entry.first, entry.last) as task:
            image, part = entry.decompose(task, [self.images, self.parts])
            begin = part * self.part
            end = code.minimum(begin + self.part, self.out_rows)
            first = task.equals(entry.first)
            with code.loop(begin, end, self.rows) as y:
                self._band(image, y, end, (first & y.equals(begin)) | y.equals(0))
        return entry.emitted(self.images * self.parts, self.functions)

    def _band(self, image: Value, y: Value, end: Value, anew: Value) -> None:
        code = self.code
        for kept in self.kept:
            kept.first = y * kept.stretch.stride - kept.stretch.before
        for number, kept in enumerate(self.kept):
            carried = kept.stretch.count - kept.stretch.fresh
            start: Value | int = 0
            if carried:
                self._carry(kept, carried, anew)
                start = code.select(anew, code.const(0, I64), code.const(carried, I64))
            inside = self.layers[number].result.shape[ROW]
            with code.loop(start, kept.stretch.count) as at:
                assert kept.first is not None
                row = kept.first + at
                with code.when((row >= 0) & (row < inside)):
                    self._row(number, image, row)
        with code.loop(y, code.minimum(y + self.rows, end)) as row:
            self._row(len(self.layers) - 1, image, row)

    def _carry(self, kept: _Kept, rows: int, anew: Value) -> None:
        """Moves the last ``rows`` rows of the previous band to the front.

        The copy goes forwards, so that no vector is read after it was overwritten.
        """
        code, stretch = self.code, kept.stretch
        type = Type("float", self.lanes) if self.lanes > 1 else Type("float")
        old = code.gep(kept.room, stretch.fresh * stretch.row_floats, "float")
        with code.when(~anew), code.loop(0, rows * stretch.row_floats, self.lanes) as at:
            code.store(code.load(code.gep(old, at, "float"), type, 4), code.gep(kept.room, at, "float"), 4)

    def _row(self, number: int, image: Value, row: Value) -> None:
        """Computes row ``row`` of the result of layer ``number``."""
        layer, params = self.layers[number], self.fused.layers[number].params
        pointers = []
        for position, param in enumerate(params):
            if param == HANDED:
                handed = position < layer.kernel.inputs
                pointers.append(self._handed(layer, self.kept[number - handed], image, row, handed=handed))
            elif layer.row is None:
                pointers.append(self.entry.params[param])
            else:
                by_image, by_row = layer.moves[position]
                pointers.append(self.code.gep(self.entry.params[param], image * by_image + row * by_row, "float"))
        first = self.code.integer(0)
        if layer.row is None:
            first = (image * layer.result.shape[ROW] + row) * self.tasks[number]
        inner = "".join(f"ptr {p.text}, " for p in pointers)
        last = first + self.tasks[number]
        self.code.emit(f"call void @{self.entry.name}.{number}({inner}i64 {first.text}, i64 {last.text})")

    def _handed(self, layer: LayerRows, kept: _Kept, image: Value, row: Value, *, handed: bool) -> Value:
        """The address of the kept rows, as the layer's kernel expects it: of its row, or of its whole image."""
        if layer.row is not None:
            stride = layer.slides.stride if handed and layer.slides is not None else 1
            return kept.row(row * stride)
        shape = self.layers[self.kept.index(kept)].result.shape
        start = kept.row(self.code.integer(0))
        return self.code.gep(start, -(image * (shape[ROW] * kept.stretch.row_floats)), "float")


def emit_depth_first(kernel: Kernel[FusedLayers], schedule: Schedule, name: str, target: Target) -> Emitted:
    """The functions' text and the number of tasks."""
    return _Emitter(kernel, schedule, name, target).emit()
