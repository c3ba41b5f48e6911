"""Text for templates whose work-groups compute tile_y x tile_x outputs of an image with tile_n columns each."""

from __future__ import annotations

from typing import Protocol

from gpucomp.codegen.c.text import modulo, over, plus, times
from gpucomp.kernel.forms.stem import ImageTile


class OutputImage(Protocol):
    """Sizes of the result."""

    @property
    def images(self) -> int: ...
    @property
    def out_y(self) -> int: ...
    @property
    def out_x(self) -> int: ...


class ImageTiles(Protocol):
    """The number of tiles."""

    @property
    def tiles_y(self) -> int: ...
    @property
    def tiles_x(self) -> int: ...
    @property
    def tiles_n(self) -> int: ...


def pixel_texts(
    index: str, s: ImageTile, p: OutputImage, d: ImageTiles, tile_n: int, counter: str = "output"
) -> dict[str, object]:
    """What ``contraction/pixels.j2`` reads; ``counter`` counts the outputs of a tile.

    tile_place   statements: the work-group's tile, and its image if there are several
    pixel        the statement that computes the position of output ``counter``
    row          the row of the result at this position
    """
    wide = "" if index == "int" else f"({index})"
    column = [f"const {index} first_column = {times(f'{wide}(tile % {d.tiles_n})', tile_n)};"] if d.tiles_n > 1 else []
    out_y = plus(f"tile_y * {s.tile_y}" if d.tiles_y > 1 else "0", over(counter, s.tile_x))
    out_x = plus(f"tile_x * {s.tile_x}" if d.tiles_x > 1 else "0", modulo(counter, s.tile_x))
    line = f"({wide}image * {p.out_y} + out_y)" if p.images > 1 else f"{wide}out_y"
    return {
        "tile_place": [*column, *image_tile(p, d)],
        "pixel": f"const int out_y = {out_y}, out_x = {out_x};",
        "row": plus(times(line, p.out_x), "out_x"),
    }


def image_tile(p: OutputImage, d: ImageTiles) -> list[str]:
    """Which tile of which image a work-group has, where there are several."""
    rows, row_tiles = d.tiles_n * d.tiles_x, d.tiles_y * p.images
    found = [
        f"const int tile_x = {_digit(d.tiles_n, d.tiles_x, last=row_tiles == 1)};" if d.tiles_x > 1 else "",
        f"const int tile_y = {_digit(rows, d.tiles_y, last=p.images == 1)};" if d.tiles_y > 1 else "",
        f"const int image = {over('tile', rows * d.tiles_y)};" if p.images > 1 else "",
    ]
    return [line for line in found if line]


def _digit(before: int, count: int, *, last: bool) -> str:
    """A digit of ``tile``'s number."""
    return over("tile", before) + ("" if last else f" % {count}")
