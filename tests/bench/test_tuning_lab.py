"""The laboratory's cache: curves are taken from it only where nothing has changed that they depend on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bench.tuning_lab import Cache, fingerprint, searchers


def curves(folder, source, *, content="a", seeds=2, file="space"):
    """Whether the search was run, and not taken from the cache."""
    runs = []

    def run(seed):
        runs.append(seed)
        return SimpleNamespace(fractions=[0.25, 0.5 + seed / 8, 1.0], sampler_s=0.5)

    cache = Cache(folder, {"space": content, "other": "c"}, [source])
    found, _ = cache.curves("key", run, seeds, (file,))
    assert found.shape == (seeds, 3)
    return bool(runs)


@pytest.mark.parametrize("change", [{"content": "b"}, {"seeds": 3}, {"file": "other"}, {}])
def test_a_search_is_run_again_where_something_changed(tmp_path, change):
    source = tmp_path / "sampler.py"
    source.write_text("1")

    assert curves(tmp_path / "cache", source)
    assert not curves(tmp_path / "cache", source)
    if not change:
        source.write_text("2")
    assert curves(tmp_path / "cache", source, **change)


def test_a_file_is_named_by_its_content(tmp_path):
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(text)
    a, b, c = (fingerprint([tmp_path / name]) for name in "abc")

    assert a == b != c


def test_the_samplers_are_among_the_sources():
    assert {"genetic.py", "legal.py", "replay.py"} <= {path.name for path in searchers()}
