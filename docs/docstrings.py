"""An extension of griffe: the aligned lists of docstrings become lists of the page.

A paragraph is such a list if each line has one word and, from the same column on, a text, or only a text from that column on.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

INDENT = 4


class AlignedLists(griffe.Extension):
    """Rewrites every docstring that is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = "\n\n".join(map(listed, re.split(r"\n{2,}", obj.docstring.value)))


def listed(paragraph: str) -> str:
    """``paragraph`` as a list if it is aligned as one; a block of code if it is indented; otherwise as it is."""
    lines = paragraph.split("\n")
    if all(line.startswith(" " * INDENT) for line in lines):
        return paragraph
    for column in range(3, 24):
        rows = [(line[:column].strip(), line[column:]) for line in lines]
        named = [name for name, _ in rows if name]
        aligned = all(
            text[:1].strip() and line[column - 1] == " " and re.fullmatch(r"([a-z]\w*)?", name)
            for line, (name, text) in zip(lines, rows, strict=True)
        )
        if aligned and len(named) > 1 and rows[0][0]:
            return "\n".join(f"- `{name}`: {text}" if name else f"  {text}" for name, text in rows)
    return paragraph
