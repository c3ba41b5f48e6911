"""The compiled-kernel cache: what is read is what was written, or nothing is; it never fails a compilation."""

from __future__ import annotations

import logging
import multiprocessing
import resource

import pytest

from gpucomp import config
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.targets.cache import KernelCache, open_cache

SOURCE = KernelSource("k0", "cuda", "void k0() {}", Geometry((1, 1, 1)))
PAYLOAD = bytes(range(256)) * 41


def key_of(source=SOURCE, target="sm_80", compiler="nvrtc 13.5", flags=("-O3",)):
    return KernelCache.key(source, target=target, compiler=compiler, flags=flags)


@pytest.fixture
def cache(tmp_path):
    return KernelCache(tmp_path / "kernels")


def test_what_was_put_is_got(cache):
    cache.put(key_of(), PAYLOAD)

    assert cache.get(key_of()) == PAYLOAD


def test_an_empty_cache_misses(cache):
    assert cache.get(key_of()) is None


def test_everything_that_decides_the_binary_is_in_the_key():
    other = KernelSource("k0", "cuda", "void k0() { }", Geometry((1, 1, 1)))
    keys = [key_of(), key_of(source=other), key_of(target="sm_86"), key_of(compiler="nvrtc 13.6"), key_of(flags=())]

    assert len(set(keys)) == len(keys)
    assert key_of() == keys[0]


@pytest.mark.parametrize(
    "damage",
    {
        "flipped bit": lambda b: b[:-7] + bytes([b[-7] ^ 1]) + b[-6:],
        "truncated": lambda b: b[: len(b) // 2],
        "longer": lambda b: b + b"x",
        "empty": lambda b: b"",
        "no header": lambda b: PAYLOAD,
        "header alone": lambda b: b.split(b"\n")[0],
        "header of another type": lambda b: b"[1]\n" + PAYLOAD,
        "another entry": lambda b: b.replace(key_of().encode(), key_of(target="sm_75").encode()),
    }.items(),
    ids=lambda d: d[0],
)
def test_a_damaged_entry_is_a_miss_and_is_replaced(cache, damage):
    cache.put(key_of(), PAYLOAD)
    path = cache.path(key_of())
    path.write_bytes(damage[1](path.read_bytes()))

    assert cache.get(key_of()) is None
    cache.put(key_of(), PAYLOAD)
    assert cache.get(key_of()) == PAYLOAD


def test_an_unwritable_folder_is_said_once_and_compilation_goes_on(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    cache = KernelCache(tmp_path / "file")

    with caplog.at_level(logging.WARNING):
        cache.put(key_of(), PAYLOAD)
        cache.put(key_of(), PAYLOAD)

    assert cache.get(key_of()) is None
    assert len(caplog.records) == 1
    assert "not cached" in caplog.text


def test_a_full_disk_leaves_nothing_behind(cache, caplog):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        cache.put(key_of(), PAYLOAD)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert cache.get(key_of()) is None
    assert [p for p in cache.folder.rglob("*") if p.is_file()] == []
    assert "File too large" in caplog.text


def _hammer(folder, number):
    cache = KernelCache(folder)
    wrong = 0
    for turn in range(60):
        key = key_of(target=str(turn % 5))
        found = cache.get(key)
        wrong += found not in (None, PAYLOAD)
        if (turn + number) % 3 == 0:
            cache.put(key, PAYLOAD)
    return wrong


def test_many_processes_share_it(tmp_path):
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        wrong = pool.starmap(_hammer, [(tmp_path, n) for n in range(4)])

    assert wrong == [0, 0, 0, 0]
    assert all(KernelCache(tmp_path).get(key_of(target=str(t))) == PAYLOAD for t in range(5))
    assert list(tmp_path.rglob("*.tmp")) == []


def test_the_configuration_switches_it_off(tmp_path):
    with config.using(cache=None):
        assert open_cache() is None
    with config.using(cache=tmp_path):
        assert open_cache().folder == tmp_path / "kernels"
