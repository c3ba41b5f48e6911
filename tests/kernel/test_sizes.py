"""``Sizes`` and ``Tunables``: their constructors, how numbers are read, and the search space."""

import copy
import pickle

import pytest

from gpucomp.kernel.sizes import Param, Sizes, Tunables, tunable


class Tile(Sizes):
    rows: int
    columns: int
    pad: int = 0


class Deep(Tile):
    depth: int


class Wide(Tile):
    pass


class Choice(Tunables):
    rows: int = tunable((1, 2, 4), "rows of a work-item")
    unroll: int = tunable((1, 8), "steps that are written out")


class Wider(Choice):
    columns: int = tunable((4, 16), "columns of a work-item")


class Loop(Tunables):
    ahead: int = tunable((0, 1), "1: prefetch")


class Both(Choice, Loop):
    pass


def test_numbers_are_read_by_name_and_all_in_the_order_given():
    tile = Tile(columns=5, rows=3)
    assert (tile.rows, tile.columns, tile.pad) == (3, 5, 0)
    assert list(tile.numbers.items()) == [("columns", 5), ("rows", 3)]
    assert Tile(rows=3, columns=5, pad=7).numbers == {"rows": 3, "columns": 5, "pad": 7}
    assert tile == Tile(rows=3, columns=5)
    assert tile != Tile(rows=3, columns=6)
    assert tile != Wide(rows=3, columns=5)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"rows": 3}, r"Tile: missing \['columns'\], unknown \[\]"),
        ({"rows": 3, "columns": 5, "colums": 7}, r"Tile: missing \[\], unknown \['colums'\]"),
    ],
)
def test_a_number_that_is_missing_or_misspelt_is_an_error(numbers, said):
    with pytest.raises(TypeError, match=said):
        Tile(**numbers)


def test_numbers_are_frozen_and_replaced_in_a_copy():
    tile = Tile(rows=3, columns=5)
    with pytest.raises(AttributeError, match=r"Tile is frozen: use replace\(rows=...\)"):
        tile.rows = 4
    assert tile.replace(rows=4) == Tile(rows=4, columns=5)
    with pytest.raises(TypeError, match="unknown"):
        tile.replace(row=4)
    assert tile.rows == 3


def test_equal_numbers_are_one_key_and_survive_copies():
    tile = Tile(rows=3, columns=5)
    assert len({tile, Tile(rows=3, columns=5), Tile(rows=5, columns=3)}) == 2
    assert copy.copy(tile) == tile == pickle.loads(pickle.dumps(tile))


def test_a_field_may_be_called_as_a_method_of_mappings():
    class Block(Tunables):
        keys: int = tunable((1, 2, 4), "keys at a time")
        items: int = tunable((1, 2), "items at a time")

    block = Block(keys=2, items=1)
    assert [param.name for param in Block.params] == ["keys", "items"]
    assert (block.keys, block.items) == (2, 1)
    assert block.replace(keys=4).numbers == {"keys": 4, "items": 1}


def test_a_subclass_needs_the_numbers_of_its_base_too():
    assert Deep(rows=1, columns=2, depth=3).numbers == {"rows": 1, "columns": 2, "depth": 3}
    with pytest.raises(TypeError, match="missing"):
        Deep(depth=3)


def test_tunable_fields_are_the_search_space_in_their_order():
    assert Choice.params == (
        Param("rows", (1, 2, 4), "rows of a work-item"),
        Param("unroll", (1, 8), "steps that are written out"),
    )
    assert [param.name for param in Wider.params] == ["rows", "unroll", "columns"]
    assert [param.name for param in Both.params] == ["rows", "unroll", "ahead"]
    assert Both(rows=2, unroll=8, ahead=1).numbers == {"rows": 2, "unroll": 8, "ahead": 1}
    assert Wider.choices("columns") == (4, 16)
    with pytest.raises(TypeError, match="missing"):
        Choice(rows=2)  # a parameter with choices has no default
