"""An extension of griffe: the aligned lists of docstrings become lists of the page.

A paragraph is such a list if each of its lines is a word with its text, two spaces or more apart, or goes on with the text
above. A word as long as the widest may be one space before its text.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ENTRY = re.compile(r"(?P<name>[a-z]\w*(\([^)]*\))?)(?P<gap> +)(?P<arrow>-> )?(?P<text>\S.*)")
_MORE = re.compile(r" {6,}(\S.*)")


class AlignedLists(griffe.Extension):
    """Rewrites every docstring that is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = "\n\n".join(map(listed, re.split(r"\n{2,}", obj.docstring.value)))


def listed(paragraph: str) -> str:
    """``paragraph`` as a list of Markdown if it is an aligned list, and as it is otherwise."""
    lines = paragraph.split("\n")
    entries = [_ENTRY.fullmatch(line) for line in lines]
    more = [_MORE.fullmatch(line) for line in lines]
    columns = {entry.end("gap") for entry in entries if entry and len(entry["gap"]) > 1}
    apart = [entry for entry in entries if entry and entry.end("gap") in columns]
    if len(apart) < 2 or not all(entry in apart or more[k] for k, entry in enumerate(entries)) or entries[0] is None:
        return paragraph
    return "\n".join(
        f"- `{entry['name']}`: {entry['text']}" if entry else f"  {following[1]}"  # type: ignore[index]
        for entry, following in zip(entries, more, strict=True)
    )
