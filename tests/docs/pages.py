"""Reads the blocks of code of a page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
_BLOCK = re.compile(
    r"^(?P<held><!-- no-run: [^\n]+ -->\n)?```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_EXIT = re.compile(r"# exit code (\d+)$")
_VARIABLE = re.compile(r"([A-Z_]+)=(\S+)")


@dataclass(frozen=True)
class Block:
    """``title`` is the file that the block belongs into, or empty. ``runs`` is off below the comment ``no-run: REASON``."""

    page: Path
    line: int
    language: str
    text: str
    title: str = ""
    runs: bool = True

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A line of a shell: its words, the variables before them, and the exit code that a comment announces."""

    words: tuple[str, ...]
    exit_code: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of ``page``, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        language, *rest = shlex.split(match["info"]) or [""]
        titles = [word.removeprefix("title=") for word in rest if word.startswith("title=")]
        line = text.count("\n", 0, match.start("info")) + 1
        found.append(Block(page, line, language, match["text"], "".join(titles), not match["held"]))
    return found


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block of shell, one a line."""
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        environment = {}
        while words and (match := _VARIABLE.fullmatch(words[0])):
            environment[match[1]] = match[2]
            del words[0]
        if words:
            announced = _EXIT.search(line)
            yield Command(tuple(words), int(announced[1]) if announced else 0, environment)


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))
