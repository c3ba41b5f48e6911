"""Asks CuTe, the layout algebra of NVIDIA's CUTLASS: a program is compiled for the host from its headers (cute.cpp)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_suffix(".cpp")
COMPILER = "g++"
ABSENT = (
    "CUTLASS's headers and CUDA's are not installed: `make layouts` installs both as Python packages and runs this; or let "
    "CUTLASS_INCLUDE name the folder `include` of a checkout of github.com/NVIDIA/cutlass, and CUDA_HOME a CUDA toolkit"
)


class CuteError(Exception):
    """There is no program to ask, or it has no answer."""


def include_folders() -> list[Path]:
    """Where the headers of CUTLASS and CUDA are; empty where they are not installed.

    Raises CuteError where CUTLASS_INCLUDE names a folder without them.
    """
    cutlass = [*_in_package("cutlass_library", "source/include")]
    if named := os.environ.get("CUTLASS_INCLUDE"):
        cutlass = [Path(named)]
    cutlass = [folder for folder in cutlass if (folder / "cute/tensor.hpp").exists()]
    if named and not cutlass:
        raise CuteError(f"CUTLASS_INCLUDE={named}: there is no {Path(named, 'cute/tensor.hpp')}")
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
    cuda = [
        [folder, folder / below]
        for folder in (*_in_package("nvidia", "cu13/include"), toolkit)
        for below in ("cccl", "")  # since CUDA 13, and before
        if (folder / "cuda.h").exists() and (folder / below / "cuda/std/utility").exists()
    ]
    return [cutlass[0], *cuda[0]] if cutlass and cuda else []


def _in_package(name: str, below: str) -> Iterator[Path]:
    found = importlib.util.find_spec(name)
    for place in found.submodule_search_locations or () if found else ():
        yield Path(place, below)


class Cute:
    """The program, compiled in ``folder`` from the headers in ``include``."""

    def __init__(self, include: list[Path], folder: Path) -> None:
        self.include, self._program = include, folder / "cute"
        headers = [word for path in include for word in ("-isystem", str(path))]
        done = subprocess.run(
            [COMPILER, "-std=c++17", "-O0", *headers, str(SOURCE), "-o", str(self._program)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CuteError(f"{COMPILER} rejects {SOURCE.name} with the headers in {include[0]}:\n{done.stderr}")

    def ask(self, question: str, *numbers: int) -> Any:
        """What CuTe says. The questions are in cute.cpp."""
        line = f"{question}:{' '.join(map(str, numbers))}\n"
        done = subprocess.run([self._program], input=line, capture_output=True, text=True, check=False)
        answer = json.loads(done.stdout) if done.returncode == 0 else None
        if answer is None:
            raise CuteError(f"{question} {numbers}: no answer\n{done.stderr}")
        return answer
