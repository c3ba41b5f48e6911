"""The command-line parser of every program under ``bench/``."""

from __future__ import annotations

import argparse
from pathlib import Path


class _Format(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Keeps the lines of the description, and appends an option's default to its help."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = action.default
        shown = isinstance(default, (str, int, float, Path)) and default is not False and default != ""
        return super()._get_help_string(action) if shown else action.help


def parser_of(module: str, description: str | None) -> argparse.ArgumentParser:
    """A parser for ``python -m module``, whose help starts with ``description``, the docstring of that module."""
    return argparse.ArgumentParser(prog=f"python -m {module}", description=description, formatter_class=_Format)
