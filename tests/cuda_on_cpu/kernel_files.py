"""The hand-written kernels of these tests: reading them, and breaking them on purpose."""

import re
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PRELUDE_CUDA = ROOT / "kernels_templates" / "dialect" / "prelude_cuda.h"
KERNEL_FILES = tuple(sorted((HERE / "kernels").glob("*.cu")))


def architectures(path: Path, known: Sequence[str]) -> list[str]:
    """Those of ``known`` that compile a file, by what its first line says: "sm_90 and later", "sm_90a alone"."""
    first = path.read_text().splitlines()[0]
    if alone := re.search(r"(sm_\w+) alone", first):
        return [alone[1]]
    least = re.search(r"sm_(\d+) and later", first)
    return [a for a in known if not least or int(a[3:].rstrip("a")) >= int(least[1])]


def kernel_text(name: str) -> str:
    return (HERE / "kernels" / f"{name}.cu").read_text()


def broken(source: str, *, replace: str, by: str = "", occurrence: int = 0) -> str:
    """``source`` with one occurrence of ``replace`` changed, lines kept; there must be such an occurrence."""
    parts = source.split(replace)
    assert len(parts) > occurrence + 1, f"{replace!r} does not occur {occurrence + 1} times"
    return replace.join(parts[: occurrence + 1]) + by + replace.join(parts[occurrence + 1 :])


def line_of(source: str, fragment: str) -> int:
    """The number of the one line that has ``fragment``, from 1."""
    (number,) = (i for i, line in enumerate(source.splitlines(), start=1) if fragment in line)
    return number
