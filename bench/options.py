"""The command-line parser of every program under ``bench/``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

# options that several programs have: their help, and what else argparse is told
SHARED: dict[str, tuple[str, dict[str, Any]]] = {
    "--jobs": ("number of processes that compile", {"type": int, "default": 2, "metavar": "N"}),
    "--reduced": ("use the small versions of the models", {"action": "store_true"}),
    "--again": ("repeat the cases that failed", {"action": "store_true"}),
    "--journal": (
        "journal of all results; a later call continues from it (default: in the cache folder)",
        {"type": Path, "metavar": "FILE"},
    ),
    "--markdown": ("also write the table to this file, as Markdown", {"type": Path, "metavar": "FILE"}),
    "--summary": ("add the results to this JSON file", {"type": Path, "metavar": "FILE"}),
}


class _Format(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Keeps the lines of the description, and appends an option's default to its help."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = action.default
        shown = isinstance(default, (str, int, float, Path)) and default is not False and default != ""
        return super()._get_help_string(action) if shown else action.help


def parser_of(module: str, description: str | None) -> argparse.ArgumentParser:
    """A parser for ``python -m module``, whose help starts with ``description``, the docstring of that module."""
    return argparse.ArgumentParser(prog=f"python -m {module}", description=description, formatter_class=_Format)


def engines_here(parser: argparse.ArgumentParser, given: str, known: Sequence[str]) -> list[str]:
    """gpucomp, and those of the ``known`` peers that ``given`` names, as ``a,b``, and that are installed; others are told."""
    wanted, engines = [name for name in given.split(",") if name], ["gpucomp"]
    if unknown := sorted(set(wanted) - set(known)):
        parser.error(f"no peer {unknown[0]!r}: one of {', '.join(known)} expected")
    for name in wanted:
        try:
            import_module(name)
        except ImportError:
            print(f"{name} is not installed here and is left out: pip install {name}", file=sys.stderr)
        else:
            engines.append(name)
    return engines


def openvino_f32(threads: int, hint: str = "LATENCY") -> dict[str, Any]:
    """OpenVINO's options for products in f32, as the model says.

    By default it rounds to bf16 on processors that have it. Where weights are stored in 8 bits it also rounds the activations
    to 8 bits: minilm_int8 is then 12 % off, where onnxruntime's answer and ours agree to 2e-6.
    """
    narrow = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    return {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": hint, **narrow}


def add_shared(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add options of ``SHARED``, in this order."""
    for name in names:
        text, how = SHARED[name]
        parser.add_argument(name, help=text, **how)
