"""Fixtures that every test may use: golden files, and a compiled-kernel cache that no test shares with the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpucomp import config

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


@pytest.hookimpl(tryfirst=True)  # before the workers read the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a fixture of their module run in one worker: what it builds is built once."""
    for item in items:
        shared = [
            name
            for name, found in item._fixtureinfo.name2fixturedefs.items()
            if found[-1].scope == "module" and found[-1].baseid == item.parent.nodeid
        ]
        if shared:
            first = min(shared)
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            item.add_marker(pytest.mark.xdist_group(f"{item.parent.nodeid}:{first}:{parameters.get(first, '')}"))


@pytest.fixture(scope="session", autouse=True)
def checked_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The IR is verified after every pass of every test, and compiled kernels are kept for this run alone.

    Schedules are those of an untuned machine: what is shipped was measured on some and not on others.
    """
    with config.using(verify=True, cache=tmp_path_factory.mktemp("cache"), records=None):
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(text, name)``: the text is that of ``tests/golden/<name>``; ``--update-golden`` writes it."""

    def compare(text: str, name: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {path.name}: run with --update-golden and read what it wrote"
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: --update-golden, if it is meant"

    return compare
