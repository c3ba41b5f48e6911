import mmap
from pathlib import Path

import numpy as np
import pytest

from gpucomp import config
from gpucomp.ir.types import BF16
from gpucomp.runtime import large_pages
from gpucomp.runtime.native import HOST_ALIGNMENT, address_of

COUNT = large_pages.LARGE_PAGE // 8 + 13  # of f64: more than one large page


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A system's settings, which say that large pages are given; any advice is taken, also where there are none."""
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    monkeypatch.setattr(large_pages, "SETTINGS", tmp_path)
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", mmap.MADV_NORMAL, raising=False)
    return tmp_path


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


def test_weights_move_side_by_side_and_keep_their_values(pages: Path) -> None:
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
    assert all(
        address_of(weight) % HOST_ALIGNMENT == 0 and weight.flags.c_contiguous for weight in moved if weight.size
    )


def test_less_than_a_large_page_stays_where_it_is(pages: Path) -> None:
    before = {"a": np.zeros(large_pages.LARGE_PAGE // 2 - HOST_ALIGNMENT, np.int8), "b": np.ones(17)}
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


def test_the_pages_of_a_mapped_file_are_given_back_and_can_be_read_again(
    pages: Path, mapped: tuple[Path, np.ndarray]
) -> None:
    path, weight = mapped
    assert resident_bytes(path) > weight.nbytes / 2
    weights = {"w": weight}

    large_pages.gather(weights)

    assert resident_bytes(path) <= 4 * mmap.PAGESIZE
    np.testing.assert_array_equal(weights["w"], weight)


def test_a_file_and_its_copy_are_never_both_in_memory(
    pages: Path, mapped: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, weight = mapped
    monkeypatch.setattr(large_pages, "PART", weight.nbytes // 4 + 40)  # ends inside of a page
    give_back, seen = large_pages._give_back, []
    monkeypatch.setattr(large_pages, "_give_back", lambda part: (give_back(part), seen.append(resident_bytes(path))))

    large_pages.gather({"w": weight})

    quarters = [resident / weight.nbytes * 4 for resident in seen]
    assert len(quarters) == 4
    assert all(
        found < left + 0.25 for found, left in zip(quarters, (3, 2, 1, 0), strict=True)
    )  # some systems unmap more


def test_memory_that_is_no_file_is_left_alone(pages: Path) -> None:
    """A page of an anonymous mapping that is given back is lost."""
    memory = mmap.mmap(-1, 8 * COUNT)
    weight = np.frombuffer(memory, np.float64)
    weight[:] = np.arange(COUNT)

    large_pages.gather({"w": weight})

    np.testing.assert_array_equal(weight, np.arange(COUNT))


def stays(nbytes: int = large_pages.LARGE_PAGE) -> bool:
    weight = np.broadcast_to(np.int8(7), (nbytes,))  # a byte, however large
    weights = {"w": weight}

    large_pages.gather(weights)

    return weights["w"] is weight


def test_without_memory_for_copies_weights_stay_where_they_are(pages: Path) -> None:
    assert stays(1 << 60)


@pytest.mark.parametrize(
    ("of_all", "of_size", "given"),
    [
        ("[always] madvise never", None, True),
        ("always [madvise] never", None, True),
        ("always madvise [never]", None, False),
        (None, None, False),
        ("always [madvise] never", "always [inherit] madvise never", True),
        ("always madvise [never]", "always [inherit] madvise never", False),
        ("always madvise [never]", "always inherit [madvise] never", True),
        ("always [madvise] never", "always inherit madvise [never]", False),
    ],
)
def test_weights_are_copied_only_where_the_system_gives_large_pages(
    pages: Path, of_all: str | None, of_size: str | None, given: bool
) -> None:
    (pages / "enabled").unlink()
    (pages / "hugepages-2048kB").mkdir()
    for place, setting in ((pages, of_all), (pages / "hugepages-2048kB", of_size)):
        if setting is not None:
            (place / "enabled").write_text(f"{setting}\n")

    assert stays() is not given


def test_advice_that_is_refused_is_no_reason_to_copy(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "MADV_HUGEPAGE", -1)  # no advice of that number

    assert stays()


def test_a_setting_leaves_weights_where_processes_share_them(pages: Path) -> None:
    with config.using(large_pages=config.read({"GPUCOMP_LARGE_PAGES": "0"}).large_pages):
        assert stays()
    with config.using(large_pages=config.read({}).large_pages):
        assert not stays()
