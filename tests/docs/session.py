"""Runs the blocks of a page as a reader would: one after the other, in one folder, with one Python session."""

from __future__ import annotations

import importlib.util
import inspect
import re
import runpy
import shutil
import sys
import tomllib
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

import gpucomp
from gpucomp import cli, config
from gpucomp.cli.commands import gpucomp as command_line
from gpucomp.tuning.tuner import tune
from tests.docs.pages import ROOT, Block, Command, commands

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)) - {"help"}
VARIABLES = set(re.findall(r"^([A-Z_]+) \?=", MAKEFILE, re.MULTILINE))
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
EXTRAS = set(tomllib.loads(PROJECT)["project"]["optional-dependencies"])
OTHERS = {"optuna-dashboard", "openssl", "source"}  # programs that are not gpucomp's
OTHER_MACHINES = {"--fleet", "--scheduler"}  # a command with one of these is parsed, and not run
QUICK = {"bench.cpu.picture"}  # programs that are run; others take minutes, and tests/bench runs them with less to do
LATENCY = ("--duration", "0.02", "--warmup", "0", "--iterations", "1")  # the same with fewer samples


def parsed_only(words: Sequence[str]) -> bool:
    """Searches take minutes, and fleets other machines: tests/tuning and tests/cli run them with less to do."""
    return bool(OTHER_MACHINES & set(words)) or (words[0] == "tune" and "--dry-run" not in words)


def parse(words: Sequence[str]) -> None:
    """Raise unless the command, its options and their values exist."""
    command: click.Command = command_line
    rest = list(words)
    while isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    command.make_context(words[0], rest)


class Session:
    """A folder, and a Python session in it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.namespace: dict[str, Any] = {"__name__": "page"}
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # ``cli.main`` sets these two
        monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
        monkeypatch.setattr(gpucomp, "tune", _tuned)
        self.monkeypatch = monkeypatch

    def run(self, block: Block) -> None:
        """Run ``block``. A block that is neither Python nor shell is output, and is left alone.

        Where the page says ``no-run``, Python must compile, and the arguments of commands must be good.
        """
        if block.language == "python":
            code = compile("\n" * block.line + block.text, block.page, "exec", dont_inherit=True)
            if block.runs:
                exec(code, self.namespace)
        elif block.language == "sh":
            for command in commands(block):
                if block.runs:
                    self._run_command(command)
                else:
                    parse(command.words[1:])

    def _run_command(self, command: Command) -> None:
        program, *words = command.words
        if program == "gpucomp":
            self._gpucomp(command, words)
        elif program == "make":
            assert words[0] in TARGETS
            assert {word.partition("=")[0] for word in words[1:]} <= VARIABLES
        elif program == "python":
            self._python(words)
        elif program == "cp":
            shutil.copy(*words)
        else:
            assert program in OTHERS, f"the tests do not know how to run {program}"

    def _gpucomp(self, command: Command, words: Sequence[str]) -> None:
        if parsed_only(words):
            parse(words)
            return
        if words[0] == "bench" and "--static" not in words:
            words = [*words, *LATENCY]
        asked = config.read(command.environment)
        fields = [name.removeprefix("GPUCOMP_").lower() for name in command.environment]
        with config.using(**{field: getattr(asked, field) for field in fields}):
            assert cli.main(list(words)) == command.exit_code, " ".join(command.words)

    def _python(self, words: Sequence[str]) -> None:
        assert words[0] == "-m"
        if words[1] == "pip":
            _installed(words[2:])
            return
        module, rest = words[1], words[2:]
        spec = importlib.util.find_spec(module)
        assert spec is not None, f"there is no module {module}"
        main = importlib.util.find_spec(f"{module}.__main__") if spec.submodule_search_locations else spec
        assert main is not None
        if module in QUICK:
            self.monkeypatch.setattr(sys, "argv", [module, *rest])
            runpy.run_module(module, run_name="__main__")
            return
        source = Path(str(main.origin)).read_text(encoding="utf-8")
        assert [word for word in rest if word.startswith("-") and f'"{word}"' not in source] == []


def _tuned(model: object, **given: Any) -> Any:
    """In place of ``gpucomp.tune``, whose parameters these must be: the model as it is compiled without a search."""
    inspect.signature(tune).bind(model, **given)
    return SimpleNamespace(executable=gpucomp.compile(model, target=given["target"]))


def _installed(words: Sequence[str]) -> None:
    """``pip install``: extras exist. What goes into a folder is copied from this environment, where there is no network."""
    for word in words:
        if match := re.fullmatch(r"\.\[([\w,]+)\]", word):
            assert set(match[1].split(",")) <= EXTRAS
    if "--target" not in words:
        return
    package = words[-1].partition("==")[0].replace("-", "_")
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"python -m pip install --no-deps {words[-1]}")
    shutil.copytree(Path(str(spec.origin)).parent, Path(words[words.index("--target") + 1]) / package)
