"""Files of sizes: a JSON object on each line, of sizes (``{"n": 3}``) or of shapes (``{"x": [3, 80]}``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpucomp.errors import UsageError, quote
from gpucomp.ir.dims import OpenShapes

MOST_LINES = 1_000_000
Given = Mapping[str, Any]


def read(path: Path) -> dict[str, Given | None]:
    """What is on each line, by the line's name in messages; ``None`` for one that is no JSON object.

    Raises ``UsageError`` for a file that cannot be read, or that has no sizes.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"cannot read {quote(path)}: {reason}", code="GPC2004") from None
    found = {
        f"{quote(path)}, line {number}": _object(line) for number, line in enumerate(lines, start=1) if line.strip()
    }
    if len(found) > MOST_LINES:
        raise UsageError(f"{quote(path)}: {len(found)} sets of sizes, at most {MOST_LINES} expected", code="GPC2035")
    if not found:
        raise UsageError(f"{quote(path)}: no sizes in it", code="GPC2035")
    return found


def _object(line: str) -> Given | None:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def given_sizes(shapes_from: str | Path | Sequence[Given]) -> dict[str, Given | None]:
    """The sizes in a file, or a list of them, by what messages call each."""
    if isinstance(shapes_from, str | Path):
        return read(Path(shapes_from))
    return {f"shapes_from[{number}]": given for number, given in enumerate(shapes_from)}


def sizes_in(given: Mapping[str, Given | None], shapes: OpenShapes) -> list[dict[str, int]]:
    """The sizes of all dimensions in each of ``given``.

    Raises ``UsageError`` (GPC2035) for what is not an object of sizes or of shapes, and ``InputError`` for sizes that the
    model does not take.
    """
    return [_sizes(one, where, shapes) for where, one in given.items()]


def _sizes(given: Given | None, where: str, shapes: OpenShapes) -> dict[str, int]:
    if given is None:
        names = ", ".join(map(quote, shapes.dims))
        raise UsageError(f"{where}: a JSON object with a size for each of {names} expected", code="GPC2035")
    return shapes.sizes_from(given, where)


def different(sizes: Iterable[Mapping[str, int]]) -> int:
    """How many of ``sizes`` are different."""
    return len({tuple(one.items()) for one in sizes})


def no_open_sizes() -> UsageError:
    """The error for sizes that are given where no run decides any."""
    return UsageError(
        'shapes_from needs sizes that each run decides: give shapes such as {"x": (gpucomp.Dim("n", 1, 8), 3)}',
        code="GPC2028",
        in_shell="--shapes-from needs a model for any size: give --shapes such as x:{n:1..8}x3x{h}",
    )
