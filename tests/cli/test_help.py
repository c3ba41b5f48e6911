"""Every command and option says in its help what it does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import gpucomp
from gpucomp.cli.commands import gpucomp as program

BENCH = Path(gpucomp.__file__).parent.parent / "bench"
PARSERS = [path for path in sorted(BENCH.rglob("*.py")) if "add_argument" in path.read_text(encoding="utf-8")]


def commands(command: click.Command, path: str = "gpucomp") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, f"{path} {name}")


COMMANDS = list(commands(program))


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])
def test_every_option_of_a_command_has_a_help_text(path: str, command: click.Command) -> None:
    assert command.help, path
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])
def test_a_number_has_a_name_in_the_help_and_not_a_type(path: str, command: click.Command) -> None:
    context = click.Context(command)
    shown = [p.make_metavar(context) for p in command.params if isinstance(p, click.Option) and not p.is_flag]
    assert [name for name in shown if "RANGE" in name or name in ("INTEGER", "FLOAT")] == []


@pytest.mark.parametrize("path", PARSERS, ids=lambda path: str(path.relative_to(BENCH)))
def test_every_argument_of_a_benchmark_has_a_help_text(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    arguments = [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument" and call.args
    ]
    bare = [ast.unparse(call) for call in arguments if "help" not in {keyword.arg for keyword in call.keywords}]
    assert bare == []


@pytest.mark.parametrize("path", PARSERS, ids=lambda path: str(path.relative_to(BENCH)))
def test_the_help_of_a_benchmark_shows_how_it_is_started(path: Path) -> None:
    module = ".".join(["bench", *path.relative_to(BENCH).with_suffix("").parts]).removesuffix(".__main__")
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    named = [ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "parser_of" and call.args]
    assert set(named) <= {repr(module), "module"}  # ``module``: handed on by those who share a parser


def test_only_one_module_makes_the_benchmarks_parsers() -> None:
    made = {path.name for path in BENCH.rglob("*.py") if "ArgumentParser(" in path.read_text(encoding="utf-8")}
    # the second runs in the environment of Kernel Tuner, without this package
    assert made == {"options.py", "tuning_lab_kernel_tuner.py"}
