"""A hook of mkdocs: writes ``reference/commands.md`` from the ``--help`` of every command when the pages are built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from gpucomp.cli.commands import gpucomp

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PAGE = "reference/commands.md"
WIDTH = 80  # fits beside the navigation


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs with the files of ``docs_dir``."""
    from mkdocs.structure.files import File  # tests read the page without mkdocs

    files.append(File.generated(config, PAGE, content=page()))
    return files


def page() -> str:
    """The page: a section for each command, with the text that ``--help`` prints."""
    intro = "What `--help` prints. Results go to stdout, everything else to stderr."
    parts = ["# Commands", "", intro]
    for path, command in commands(gpucomp, ("gpucomp",)):
        settings = {**gpucomp.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
        with click.Context(command, info_name=" ".join(path), **settings) as context:
            parts += ["", f"## {' '.join(path)}", "", "```text", command.get_help(context), "```"]
    return "\n".join([*parts, ""])


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """``command`` and all commands below it, each with its words on the command line."""
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from commands(child, (*path, name))
