"""The aligned lists of docstrings become lists; other paragraphs stay as they are."""

from __future__ import annotations

import pytest

pytest.importorskip("griffe", reason="python -m pip install mkdocstrings[python]")

from docs.docstrings import listed

LISTS = {
    "name      of it\nlonger    of another,\n          on two lines": "- `name`: of it\n- `longer`: of another,\n  on two lines",
    "width  in bytes\nheight in rows\nrank   of it": "- `width`: in bytes\n- `height`: in rows\n- `rank`: of it",
    "grid(s, p)     -> the launch\ndefault(p)     -> a schedule": "- `grid(s, p)`: the launch\n- `default(p)`: a schedule",
}
TEXTS = (
    "The file holds code.\nthe target runs it.",
    "one  entry",
    "A sentence  with two spaces.\nand  another one",
    "    indented()\n    code()",
)


@pytest.mark.parametrize("paragraph", LISTS)
def test_an_aligned_list_becomes_one(paragraph):
    assert listed(paragraph) == LISTS[paragraph]


@pytest.mark.parametrize("paragraph", TEXTS)
def test_other_paragraphs_stay(paragraph):
    assert listed(paragraph) == paragraph
