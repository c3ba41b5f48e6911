"""HTML pages of reports: one file each, without anything to load. Charts are SVG from ``chart``, and work without a script.

Texts of models and records are data. ``shown`` makes one harmless line of a text, ``data`` embeds values for a script, and a
content security policy stops every script but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any

from gpucomp.errors import plain

MOST_SHOWN = 160  # characters of a text
WRAPPED = 40  # characters of a cell: a longer text takes several lines if the page is narrow
MOST_MARKS = 4  # combining characters in a row: no language needs more, and hundreds cover the lines above
NUMBER = re.compile(r"-|failed|[\d.]+( \([^)]*\)| to [\d.]+)?")  # also with its interval
COLOURS = 8  # in page.css: --c0 to --c7
HERE = Path(__file__).parent


def shown(text: object, most: int = MOST_SHOWN) -> str:
    """``text`` as one line of HTML, escaped. Long texts are cut; control and direction characters become visible."""
    return html.escape(line(text, most))


def line(text: object, most: int = MOST_SHOWN) -> str:
    """``text`` as one printable line of at most ``most`` characters, for ``data``."""
    found = plain("".join(islice(_without_heaps(str(text)), most + 1)))
    return found if len(found) <= most else f"{found[: most - 1]}…"


def _without_heaps(text: str) -> Iterator[str]:
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MOST_MARKS:
            yield character


def heading(text: str, level: int = 2) -> str:
    return f"<h{level}>{shown(text)}</h{level}>"


def paragraph(text: str) -> str:
    return f"<p>{shown(text, 2000)}</p>"


def source(title: str, body: str) -> str:
    """A source or a diff, preformatted, folded until it is asked for."""
    kept = "".join(c if c.isprintable() or c in "\n\t" else plain(c) for c in body)
    return f"<details><summary>{shown(title)}</summary><pre>{html.escape(kept)}</pre></details>"


def folded(title: str, body: str) -> str:
    """A part of the page, folded until it is asked for."""
    return f"<details><summary>{shown(title)}</summary>{body}</details>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; columns of numbers are set to the right."""
    right = [bool(rows) and all(NUMBER.fullmatch(row[k]) for row in rows) for k in range(len(head))]
    lines = [("th", head), *(("td", row) for row in rows)]
    body = "".join(f"<tr>{''.join(map(_cell, repeat(tag), row, right))}</tr>" for tag, row in lines)
    return f'<div class="scroll"><table>{body}</table></div>'


def _cell(tag: str, text: str, right: bool) -> str:
    style = ' class="n"' if right else ' class="long"' if len(text) > WRAPPED and tag == "td" else ""
    return f"<{tag}{style}>{shown(text, 400)}</{tag}>"


def data(name: str, values: Any) -> str:
    """Values that the page's script reads by ``name``. No text in them can end the element."""
    text = json.dumps(values, separators=(",", ":"))  # ASCII: everything else is \\u escaped
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


def page(title: str, body: Sequence[str], *, sheets: Sequence[str] = (), script: str = "") -> str:
    """A whole page. ``sheets`` are style sheets beside ``page.css``; ``script``, a file beside them, runs at the end."""
    style = "".join((HERE / name).read_text(encoding="utf-8") for name in ("page.css", *sheets))
    code = (HERE / script).read_text(encoding="utf-8") if script else ""
    runs = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{runs}'" if code else "script-src 'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; {allowed}; base-uri 'none'; form-action 'none'"
    return "".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{shown(title)}</title><style>{style}</style></head><body>",
            *body,
            f"<script>{code}</script>" if code else "",
            "</body></html>\n",
        ]
    )
