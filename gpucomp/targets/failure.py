"""The message for a kernel that a compiler refused. Its source is written to a file for inspection."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpucomp import config
from gpucomp.kernel.source import SOURCE_SUFFIX, KernelSource


def build_failed(source: KernelSource, error: str) -> str:
    """One line: kernel, compiler's first error, and the path of the dumped source."""
    return f"kernel {source.name}: {error}; its source is at {dump(source)}"


def dump(source: KernelSource) -> str:
    """Write the source under ``GPUCOMP_DUMP`` or the temporary folder; return the path, or why it was not written."""
    folder = config.current().dump or Path(tempfile.gettempdir()) / "gpucomp-failed"
    path = folder / f"{source.name}-{source.digest[:12]}{SOURCE_SUFFIX.get(source.language, '.txt')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(source.text)
    except OSError as error:
        return f"(not written: {error.strerror or error})"
    return str(path)
