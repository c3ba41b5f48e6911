"""Files that a user asked for."""

from __future__ import annotations

from pathlib import Path

from gpucomp.errors import UsageError, quote


def write(path: Path, text: str) -> None:
    """Write a file. Raises ``UsageError`` if it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {quote(path)}: {error.strerror}", code="GPC2005") from None
