"""Counts the instructions in a cubin, from nvdisasm's listing. Needs neither a GPU nor a driver."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
TIMEOUT_S = 60


@cache
def disassembler() -> Path | None:
    """nvdisasm, from NVIDIA's wheel (nvidia-cuda-nvdisasm) or the PATH."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*/bin/nvdisasm"), reverse=True):
            return path
    found = shutil.which("nvdisasm")
    return Path(found) if found else None


def listing(cubin: bytes, *options: str) -> str | None:
    """The output of nvdisasm with ``options`` for ``cubin``; ``None`` if nvdisasm is missing or refuses it."""
    tool = disassembler()
    if tool is None:
        return None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [tool, "-c", *options, file.name], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    return None if done.returncode else done.stdout


def instructions(cubin: bytes) -> Counter[str] | None:
    """The count of each instruction in ``cubin``, modifiers included; ``None`` without nvdisasm."""
    text = listing(cubin)
    return None if text is None else Counter(INSTRUCTION.findall(text))


def count(found: Mapping[str, int], *opcodes: str) -> int:
    """The number of instructions whose name before the first dot is one of ``opcodes``."""
    return sum(n for name, n in found.items() if name.split(".")[0] in opcodes)


def wide_share(found: Mapping[str, int]) -> float:
    """The share of global loads, asynchronous copies included, that move 16 bytes; 1 if there are none."""
    loads = {name: n for name, n in found.items() if name.split(".")[0] in ("LDG", "LDGSTS")}
    total = sum(loads.values())
    return sum(n for name, n in loads.items() if ".128" in name) / total if total else 1.0
