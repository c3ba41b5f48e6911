import mmap
from pathlib import Path

import numpy as np
import pytest

from gpucomp.ir.types import BF16
from gpucomp.runtime import large_pages
from gpucomp.runtime.native import ALIGNMENT, address_of

COUNT = large_pages.LARGE_PAGE // 8 + 13  # of f64: more than one large page


def resident_bytes(path: Path) -> int:
    """Of the mappings of a file in this process."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.endswith(str(path)):
            inside = True
        elif inside and line.startswith("Rss:"):
            found += 1024 * int(line.split()[1])
            inside = False
    return found


def test_weights_move_side_by_side_and_keep_their_values() -> None:
    rng = np.random.default_rng(0)
    before = {
        "a": rng.integers(-99, 99, (3, 1), dtype=np.int8),
        "none": np.zeros((0, 7), np.float32),
        "big": rng.standard_normal((1, COUNT)),
        "across": rng.standard_normal((5, 3)).T,
        "short": rng.standard_normal(11).astype(BF16.numpy),
        "text": np.array(["x", "yz"], object),
    }
    after = dict(before)

    large_pages.gather(after)

    assert list(after) == list(before)
    assert after["text"] is before["text"]
    for name, weight in after.items():
        assert weight.dtype == before[name].dtype
        np.testing.assert_array_equal(weight, before[name], strict=True)
    moved = [weight for name, weight in after.items() if name != "text"]
    assert all(not np.shares_memory(weight, before[name]) for name, weight in after.items() if name != "text")
    assert not any(weight.flags.writeable for weight in moved)
    assert address_of(after["a"]) % large_pages.LARGE_PAGE == 0
    assert all(address_of(weight) % ALIGNMENT == 0 and weight.flags.c_contiguous for weight in moved if weight.size)


def test_less_than_a_large_page_stays_where_it_is() -> None:
    before = {"a": np.zeros(large_pages.LARGE_PAGE // 2 - ALIGNMENT, np.int8), "b": np.ones(17)}
    after = dict(before)

    large_pages.gather(after)

    assert all(after[name] is before[name] for name in before)


@pytest.fixture
def mapped(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A file of f64 and its mapping, all of it read."""
    values = np.random.default_rng(0).standard_normal(COUNT)
    path = tmp_path / "weights"
    path.write_bytes(b"head" * 20 + values.tobytes())
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    found = np.frombuffer(view[80:], np.float64)
    np.testing.assert_array_equal(found, values)
    return path, found


def test_the_pages_of_a_mapped_file_are_given_back_and_can_be_read_again(mapped: tuple[Path, np.ndarray]) -> None:
    path, weight = mapped
    assert resident_bytes(path) > weight.nbytes / 2
    weights = {"w": weight}

    large_pages.gather(weights)

    assert resident_bytes(path) <= 4 * mmap.PAGESIZE
    np.testing.assert_array_equal(weights["w"], weight)


def test_memory_that_is_no_file_is_left_alone() -> None:
    """A page of an anonymous mapping that is given back is lost."""
    memory = mmap.mmap(-1, 8 * COUNT)
    weight = np.frombuffer(memory, np.float64)
    weight[:] = np.arange(COUNT)

    large_pages.gather({"w": weight})

    np.testing.assert_array_equal(weight, np.arange(COUNT))


def test_a_system_without_large_pages_gives_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", -1)  # no advice of that number: the system refuses it

    memory = large_pages.room(1000)
    memory[:] = 7

    assert memory.size == 1000
    assert memory.sum() == 7000
