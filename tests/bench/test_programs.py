"""What all programs of ``bench`` have in common."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def parsers() -> dict[str, str]:
    """The name that each parser of a command line shows, by file; "" if argparse would make one up."""
    found = {}
    for path in sorted((ROOT / "bench").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("ArgumentParser"):
                name = next((k.value for k in call.keywords if k.arg == "prog"), None)
                found[path.relative_to(ROOT).as_posix()] = name.value if isinstance(name, ast.Constant) else ""
    return found


@pytest.mark.parametrize(("file", "name"), parsers().items())
def test_the_help_shows_how_the_program_is_started(file, name):
    module = file.removesuffix(".py").removesuffix("/__main__").replace("/", ".")

    assert name == f"python -m {module}"
