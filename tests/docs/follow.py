"""Follows a page that adds something: changes a copy of the sources as the page says, and runs the page's commands there.

``python -m tests.docs.follow PAGE`` runs the commands, in the folder of the copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpucomp import config
from tests.docs.pages import ROOT, Block, blocks, commands
from tests.docs.session import Session

PARTS = ("gpucomp", "kernels_templates", "tuning", "tests", "testing", "bench")
FILES = ("pyproject.toml", "Makefile", "README.md", "CONTRIBUTING.md")
WRITTEN = "tests/golden"  # a page may write these anew: through a link it would write those of the sources
RUN = {"bench.kernel_sweep"}  # programs that show a change at work


def copied(folder: Path) -> None:
    """The sources as links: a file that the page changes is replaced, and the others stay compiled."""
    written = folder / WRITTEN
    for part in PARTS:
        for here, _, names in os.walk(ROOT / part):
            there = folder / Path(here).relative_to(ROOT)
            there.mkdir(parents=True, exist_ok=True)
            for name in names:
                if there.is_relative_to(written):
                    shutil.copy(Path(here) / name, there / name)
                else:
                    (there / name).symlink_to(Path(here) / name)
    for package in ("kernels_templates", "tuning"):
        (folder / "gpucomp" / package).symlink_to(Path("..") / package)
    for name in FILES:
        (folder / name).symlink_to(ROOT / name)


def change(folder: Path, block: Block) -> None:
    """Apply a block with a file name: a diff, or lines to add at the end of the file."""
    path = folder / block.title
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if block.language == "diff":
        for hunk in block.text.split("@@\n"):
            old, new = (side(hunk, sign) for sign in "-+")
            assert text.count(old) == 1, f"{block}: {text.count(old)} places in {block.title} have these lines:\n{old}"
            text = text.replace(old, new)
    else:
        text += "\n\n" * (bool(text) and block.language == "python") + block.text
    path.unlink(missing_ok=True)  # not through the link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def side(hunk: str, sign: str) -> str:
    """The lines of a diff before (``-``) or after (``+``) it."""
    return "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] in (" ", sign))


def followed(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Make the changes of ``page`` in a copy in ``folder``, and run its commands there, in a process of their own."""
    copied(folder)
    for block in blocks(page):
        if block.title:
            change(folder, block)
    paths = os.pathsep.join(map(str, [folder, *(installed(folder / name) for name in _packages(page))]))
    environment = os.environ | {"PYTHONPATH": paths, "GPUCOMP_CACHE": str(folder / "cache")}
    ran = _formatted(page, folder)
    if ran.returncode:
        return ran
    return subprocess.run(
        [sys.executable, "-m", "tests.docs.follow", str(page)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def _formatted(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """``make lint`` of what ``page`` changes, without mypy: that takes a minute."""
    changed = [block.title for block in blocks(page) if block.title.endswith(".py")]
    check = f"{sys.executable} -m ruff check --no-cache {' '.join(changed)}"
    laid_out = f"{sys.executable} -m ruff format --no-cache --check --diff {' '.join(changed)}"
    return subprocess.run(
        ["bash", "-c", f"{check} && {laid_out}"], cwd=folder, capture_output=True, text=True, timeout=60
    )


def _packages(page: Path) -> list[str]:
    """The folders that a page installs with ``pip install -e``."""
    words = [command.words for block in blocks(page) if block.language == "sh" for command in commands(block)]
    return [last for *start, last in words if start == ["python", "-m", "pip", "install", "-e"] and last[0] != "."]


def installed(folder: Path) -> Path:
    """``folder``, with what ``pip install -e`` leaves of a package with entry points: its metadata."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    header = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(header, encoding="utf-8")
    with (info / "entry_points.txt").open("w", encoding="utf-8") as file:
        for group, points in project["entry-points"].items():
            file.write(f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()))
    return folder


class Follower(Session):
    """A session that also runs the tests and programs that a page names."""

    def _python(self, words: Sequence[str]) -> None:
        if words[1] in RUN:
            subprocess.run([sys.executable, *words], check=True)
            return
        if words[1] != "pytest":
            super()._python(words)
            return
        ended = pytest.main(["-p", "no:cacheprovider", *words[2:]])
        assert ended == pytest.ExitCode.OK, f"pytest {' '.join(words[2:])} ended with {ended!r}"


def main(page: Path) -> None:
    with pytest.MonkeyPatch.context() as patches, config.using(records=None):
        session = Follower(Path.cwd(), patches)
        for block in blocks(page):
            if not block.title:
                session.run(block)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
