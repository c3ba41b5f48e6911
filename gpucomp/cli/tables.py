"""The one place where tables come from: as text for people, and with ``--json`` and ``--csv`` for other programs."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpucomp.errors import UsageError
from gpucomp.files import write
from gpucomp.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import rich.table

UNKNOWN = "-"  # in a cell
DECIMAL = re.compile(
    r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?"
)  # as numbers are formatted; names may look like others


@dataclass(frozen=True)
class Figure:
    """A cell with a number, which may be infinite, as it is formatted for people."""

    value: float
    form: str

    def __str__(self) -> str:
        return format(self.value, self.form)


@dataclass(frozen=True)
class Table:
    """A table that was shown: cells are text, figures, or numbers where nothing was rounded for people."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def records(self) -> list[dict[str, object]]:
        """The rows by column, with numbers as numbers; cells that are unknown or not finite are ``None``."""
        return [dict(zip(self.columns, map(_value, row), strict=True)) for row in self.rows]


HELP = {
    "json": "Also write the tables to FILE, as JSON. With -: to stdout, and nothing else.",
    "csv": "Also write the table to FILE, as CSV; further ones to FILE-NAME.csv beside it. With -: the first one to stdout, and "
    "nothing else.",
}
_shown: ContextVar[list[Table] | None] = ContextVar("_shown", default=None)
_forms: ContextVar[tuple[str, ...]] = ContextVar("_forms", default=())  # that the command is asked for


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], name: str = "table", keys: Sequence[str] = ()
) -> list[str]:
    """Columns as wide as their widest cell, two spaces apart; numbers to the right.

    ``keys`` are the columns for other programs, if the titles for people are not the same every time.
    """
    rows = [tuple(row) for row in rows]
    _note(name, keys or header, rows)
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
    right = [all(_is_number(row[k]) for row in cells[1:]) and len(cells) > 1 for k in range(len(header))]
    lines = []
    for row in cells:
        parts = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        lines.append("  ".join(parts).rstrip())
    return lines


def note_facts(name: str, facts: Mapping[str, object]) -> None:
    """Note a table of one row, which only other programs get."""
    _note(name, tuple(facts), [tuple(facts.values())])


def print_tables(**found: rich.table.Table) -> None:
    """Print rich tables by name, and note them for ``--json`` and ``--csv``."""
    note_tables(**found)
    draw_tables(*found.values())


def draw_tables(*found: rich.table.Table) -> None:
    """Print rich tables to stdout: cut to the width of a terminal, but complete in a file."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, width=1000)
    for number, one in enumerate(found):
        if number:
            console.print()
        console.print(one)


def note_tables(**found: rich.table.Table) -> None:
    """Note rich tables for ``--json`` and ``--csv`` without printing them."""
    for name, one in found.items():
        columns = [list(map(str, column.cells)) for column in one.columns]
        _note(name, [str(column.header) for column in one.columns], list(zip(*columns, strict=True)))


def refuse_export(why: str) -> None:
    """Raise ``UsageError`` if a command that will show no table is asked for it as data."""
    _refuse(_forms.get(), f"no table is shown here; {why}")


def _refuse(forms: Iterable[str], why: str) -> None:
    if options := " and ".join(f"--{form}" for form in forms):
        raise UsageError(f"{options}: {why}", code="GPC2029")


def exported(*forms: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--json`` and ``--csv``, or those of them that are named, to a command. They write the tables that it shows, also
    if it ends with an error after them. With ``-`` for stdout nothing else is written there."""
    wanted = forms or ("json", "csv")

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(*arguments: Any, **options: Any) -> Any:
            places = {form: path for form in wanted if (path := options.pop(f"{form}_of_tables")) is not None}
            shown: list[Table] = []
            token, asked = _shown.set(shown), _forms.set(tuple(places))
            alone = any(str(path) == "-" for path in places.values())
            try:
                with contextlib.redirect_stdout(io.StringIO()) if alone else contextlib.nullcontext():
                    ended = function(*arguments, **options)
            except BaseException:
                if shown:
                    _write_beside_an_error(places, shown)
                raise
            finally:
                _shown.reset(token)
                _forms.reset(asked)
            if not shown:
                _refuse(places, "no table was shown, so none is written")
            for form, path in places.items():
                _write_tables(form, path, shown)
            return ended

        for form in reversed(wanted):
            command = click.option(
                f"--{form}",
                f"{form}_of_tables",
                type=click.Path(path_type=Path, allow_dash=True),
                metavar="FILE",
                help=HELP[form],
            )(command)
        return command

    return add


def _note(name: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    shown = _shown.get()
    if shown is not None:
        columns = [title or "verdict" for title in header]
        unique = [f"{c} {columns[:k].count(c) + 1}" if c in columns[:k] else c for k, c in enumerate(columns)]
        shown.append(Table(name, tuple(unique), tuple(map(tuple, rows))))


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _value(cell: object) -> object:
    if isinstance(cell, Figure):
        cell = float(str(cell))
    elif isinstance(cell, str) and DECIMAL.fullmatch(cell):
        cell = int(cell) if cell.lstrip("-").isdigit() else float(cell)
    if cell == UNKNOWN or (isinstance(cell, float) and not math.isfinite(cell)):
        return None
    return cell


def _as_json(shown: Sequence[Table]) -> str:
    return json.dumps({one.name: one.records() for one in shown}, indent=1, allow_nan=False) + "\n"


def _as_csv(one: Table) -> str:
    """A table with numbers as numbers; cells that are unknown or not finite are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(one.columns)
    writer.writerows([_value(cell) for cell in row] for row in one.rows)
    return text.getvalue()


def _write_tables(form: str, path: Path, shown: Sequence[Table]) -> None:
    """All tables as one JSON document. A CSV file holds one table: the first is in ``path``, the others beside it."""
    if form == "json":
        _write(path, _as_json(shown))
        return
    first, *others = shown
    _write(path, _as_csv(first))
    if others and str(path) == "-":
        names = ", ".join(one.name for one in others)
        print(
            f"only the table {first.name} is on stdout; with --csv FILE there are files for: {names}", file=sys.stderr
        )
        return
    for one in others:
        place = path.with_stem(f"{path.stem}-{one.name.replace(' ', '-')}")
        _write(place, _as_csv(one))
        print(f"{one.name} -> {place}", file=sys.stderr)


def _write_beside_an_error(places: Mapping[str, Path], shown: Sequence[Table]) -> None:
    """Write the tables when the command ends with an error, which is the one to report."""
    for form, path in places.items():
        try:
            _write_tables(form, path, shown)
        except UsageError as error:
            print(f"warning: {error.message}", file=sys.stderr)


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        click.echo(text, nl=False)
    else:
        write(path, text)
