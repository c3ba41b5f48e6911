"""The commands that messages tell are for the packages of pyproject.toml, and a shell takes them as they are."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from gpucomp.extras import EXTRAS, install

ROOT = Path(__file__).parent.parent


def test_every_extra_has_the_requirements_of_the_project():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert {name: list(extra.packages) for name, extra in EXTRAS.items()} == {
        name: requirements for name, requirements in declared.items() if name != "all"
    }


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_command_survives_a_shell(extra):
    command = install(extra)

    assert shlex.split(command) == ["pip", "install", *EXTRAS[extra].packages]
    assert not re.search(r"[\[\]<>]", re.sub(r"'[^']*'", "", command))


def test_no_message_tells_to_install_gpucomp_from_an_index():
    """It is on none: what a message tells to install has to be there."""
    told = [
        path
        for folder in ("gpucomp", "tuning", "kernels_templates")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"pip install '?gpucomp", path.read_text(encoding="utf-8"))
    ]

    assert told == []
