"""A kernel cache that somebody else has been in: an entry is what was written there by this user, or it is a miss."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gpucomp.targets.cache import KernelCache
from tests.hostile.corpus import OK, Act, add

KEY, OTHER = "ab" + "0" * 62, "cd" + "1" * 62
PAYLOAD = bytes(range(256)) * 41
NOBODY = 65534


def misses(cache: KernelCache, found: bytes | None = None) -> None:
    """The entry is not taken, and writing it anew mends it, where what is in its place can be replaced by a file."""
    assert cache.get(KEY) == found
    if not cache.path(KEY).is_dir():
        cache.put(KEY, PAYLOAD)
        assert cache.get(KEY) == PAYLOAD
        cache.path(KEY).unlink()


def case(what: str, poison: Callable[[Path], object], found: bytes | None = None) -> None:
    """``poison`` is done to the file of the entry."""

    def prepare(folder: Path) -> Act:
        cache = KernelCache(folder)
        for key in (KEY, OTHER):
            cache.put(key, PAYLOAD)
        poison(cache.path(KEY))
        if cache.path(KEY).is_dir() or found is not None:
            return partial(misses, cache, found) if found is None else partial(hits, cache)
        return partial(mended, cache)

    add(f"cache/{what}", OK, prepare)


def hits(cache: KernelCache) -> None:
    assert cache.get(KEY) == PAYLOAD


def mended(cache: KernelCache) -> None:
    """A miss; what is put in its place is found, and then the folder is as it was."""
    path = cache.path(KEY)
    kept = path.with_suffix(".kept")
    assert cache.get(KEY) is None
    os.rename(path, kept)
    cache.put(KEY, PAYLOAD)
    assert cache.get(KEY) == PAYLOAD
    os.rename(kept, path)


def header(payload: bytes = PAYLOAD, **fields: object) -> bytes:
    head = {"format": 1, "key": KEY, "bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()} | fields
    return json.dumps(head).encode() + b"\n" + payload


def writes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


case("sound", lambda p: None, PAYLOAD)
case("of_root_and_readable", lambda p: p.chmod(0o444), PAYLOAD)
for what, change in {
    "empty": b"",
    "newlines": b"\n" * 5000,
    "no_header": PAYLOAD,
    "header_alone": header().partition(b"\n")[0],
    "header_list": b"[1]\n" + PAYLOAD,
    "header_deep": b"[" * 100_000 + b"\n" + PAYLOAD,
    "header_of_a_megabyte": b'{"x": "' + b"x" * 10**6 + b'"}\n' + PAYLOAD,
    "header_of_huge_numbers": header(bytes=10**4000).replace(b"1" + b"0" * 4000, b"9" * 100_000),
    "key_of_another": header(key=OTHER),
    "key_missing": header(key=None),
    "digest_of_another": header(sha256="0" * 64),
    "digest_of_a_list": header(sha256=[]),
    "length_negative": header(bytes=-1),
    "length_true": header(b"x", bytes=True)[:-1] + b"y",
    "longer": header() + b"x",
    "truncated": header()[:-7],
    "pickle": b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94.",
}.items():
    case(what, writes(change))
for seed in range(8):
    noise = bytearray(header())
    rng = random.Random(seed)
    for _ in range(1 + seed):
        noise[rng.randrange(len(noise))] ^= 1 << rng.randrange(8)
    case(f"flipped_{seed}", writes(bytes(noise)))


def swapped(path: Path) -> None:
    other = KernelCache(path.parents[1]).path(OTHER)
    path.write_bytes(other.read_bytes())


def linked(path: Path, target: str | None) -> None:
    """The right bytes behind a link, or a device."""
    path.with_name("elsewhere").write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(target or "elsewhere")


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def sparse(path: Path) -> None:
    os.truncate(path, 1 << 42)


def folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


case("entries_swapped", swapped)
case("link_to_the_right_bytes", partial(linked, target=None))
case("link_to_dev_zero", partial(linked, target="/dev/zero"))
case("link_to_itself", lambda p: linked(p, p.name))
case("link_outside", partial(linked, target="../../../../secret.bin"))
case("pipe", piped)
case("folder_in_its_place", folder_there)
case("sparse_file_of_terabytes", sparse)
case("writable_by_the_group", lambda p: p.chmod(0o664))
case("writable_by_all", lambda p: p.chmod(0o646))


def of_nobody(path: Path) -> None:
    os.chown(path, NOBODY, -1)


if os.geteuid() == 0:  # only root can give a file away
    case("of_another_user", of_nobody)
