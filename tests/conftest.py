"""Fixtures that every test may use: golden files, and a compiled-kernel cache that no test shares with the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(text, name)``: the text is that of ``tests/golden/<name>``; ``--update-golden`` writes it."""

    def compare(text: str, name: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden file {path.name}: run with --update-golden and read what it wrote"
        assert text == path.read_text(), f"{path.name} differs: --update-golden, if the change is meant"

    return compare
