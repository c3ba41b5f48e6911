"""Every table for people is one for programs too."""

import ast
import csv
import io
import json
import re
from pathlib import Path

import pytest

from gpucomp.cli import tables


@pytest.fixture
def model(command, compiled):
    command("compile", "model.onnx", "-o", "m.gpuc")


def test_a_table_is_json_with_numbers_as_numbers(command, model, tmp_path):
    ran = command("inspect", "m.gpuc", "--kernels", "--json", "t.json")

    found = json.loads((tmp_path / "t.json").read_text())["kernels"]
    assert [row["#"] for row in found] == [1, 2]
    assert found[0]["kernel"] == "mul 3x5"
    assert found[1]["tier"] == "default"
    assert ran.out.splitlines()[0].split()[:2] == ["#", "kernel"]


def test_a_table_is_csv(command, model, tmp_path):
    command("inspect", "m.gpuc", "--kernels", "--csv", "t.csv")

    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert [row["#"] for row in rows] == ["1", "2"]
    assert rows[0]["why it ends there"] == "its result is read twice"


@pytest.mark.parametrize("form", ["json", "csv"])
def test_nothing_else_is_on_stdout_beside_data(command, model, form):
    ran = command("inspect", "m.gpuc", "--kernels", f"--{form}", "-")

    read = json.loads if form == "json" else lambda text: list(csv.reader(io.StringIO(text)))
    assert ran.code == 0
    assert read(ran.out)
    assert "arena" not in ran.out


def test_tables_are_written_when_the_command_ends_with_an_error_behind_them(command, compiled, monkeypatch, tmp_path):
    from gpucomp.cli import compare
    from tests.cli.conftest import X

    monkeypatch.setattr(compare, "onnxruntime_outputs", lambda model, inputs: {"y": X, "z": X})
    options = ("--input", "x.npy", "--compare", "onnxruntime", "--tolerance", "0.01")
    hidden = command("run", "model.onnx", *options, "--csv", "x.npy/t.csv", "--json", "u.json")
    assert hidden.code == 6
    assert [line.split(":")[0] for line in hidden.err.splitlines()] == ["warning", "error GPC6001"]
    assert (tmp_path / "u.json").exists()

    ran = command("run", "model.onnx", *options, "--json", "t.json")

    assert ran.code == 6
    rows = json.loads((tmp_path / "t.json").read_text())["outputs"]
    assert [list(row.values())[-1] for row in rows] == ["WRONG", "ok"]
    assert rows[1]["largest"] == 0.0


def test_a_command_that_fails_before_its_table_leaves_files_alone(command, tmp_path):
    (tmp_path / "t.json").write_text("earlier")

    ran = command("inspect", "gone.onnx", "--kernels", "--json", "t.json", "--csv", "new.csv")

    assert (ran.code, ran.error.split(":")[0]) == (3, "error GPC3001")
    assert (tmp_path / "t.json").read_text() == "earlier"
    assert not (tmp_path / "new.csv").exists()


def test_a_profile_is_two_tables(command, compiled, tmp_path):
    command("bench", "model.onnx", "--duration", "0", "--profile", "--csv", "t.csv")

    texts = [(tmp_path / name).read_text() for name in ("t.csv", "t-families.csv")]
    kernels, families = [list(csv.DictReader(text.splitlines())) for text in texts]
    assert [float(row["% of run"]) for row in kernels] == [33.3, 66.7]
    assert [row["% of peak"] for row in kernels] == ["40.0", ""]  # unknown
    assert list(families[0])[:3] == ["family", "launches", "ms"]


def test_only_the_first_table_is_csv_on_stdout(command, compiled):
    ran = command("bench", "model.onnx", "--duration", "0", "--profile", "--csv", "-")

    assert len(list(csv.DictReader(io.StringIO(ran.out)))) == 2
    assert ran.error == "only the table kernels is on stdout; with --csv FILE there are files for: families"


def test_a_profile_is_tables_also_beside_samples_on_stdout(command, compiled, tmp_path):
    ran = command("bench", "model.onnx", "--duration", "0", "--profile", "--json", "-", "--csv", "t.csv")

    assert json.loads(ran.out)["samples_ms"]
    assert (tmp_path / "t.csv").read_text().startswith("#,kernel,")
    assert (tmp_path / "t-families.csv").read_text().startswith("family,launches,")


@pytest.mark.parametrize("arguments", [("bench", "model.onnx"), ("run", "model.onnx"), ("inspect", "m.gpuc")])
def test_tables_of_a_command_without_one_are_refused(command, compiled, model, tmp_path, arguments):
    ran = command(*arguments, "--csv", "t.csv")

    assert (ran.code, ran.error.split(":")[:2]) == (2, ["error GPC2029", " --csv"])
    assert not (tmp_path / "t.csv").exists()
    assert len(compiled) == 1  # by the fixture: a refused command does nothing


def test_a_place_that_cannot_be_written_is_told(command, model):
    ran = command("inspect", "m.gpuc", "--kernels", "--csv", "x.npy/t.csv")

    assert (ran.code, ran.error.split(":")[0]) == (2, "error GPC2005")


def test_one_helper_writes_what_a_user_asked_for():
    root = Path(tables.__file__).parents[1]
    repeated = re.compile(r"cannot write \{quote\(\w+\)\}: \{error")
    sources = [path for folder in ("cli", "report") for path in (root / folder).glob("*.py")]

    assert [path.name for path in sources if repeated.search(path.read_text(encoding="utf-8"))] == []
    assert repeated.search((root / "files.py").read_text(encoding="utf-8"))


def test_columns_of_one_name_are_told_apart_and_unknown_cells_are_null():
    one = tables.Table("t", ("a", "a 2"), (("-", "1.5"),))

    assert one.records() == [{"a": None, "a 2": 1.5}]
    assert tables._as_csv(one) == "a,a 2\n,1.5\n"


@pytest.mark.parametrize("text", ["1_2", "nan", "inf", "Infinity", " 1", "007", "12e45", "+1", "1.", "\u0663"])
def test_a_name_that_python_reads_as_a_number_stays_a_name(text):
    assert tables.Table("t", ("a",), ((text,),)).records() == [{"a": text}]


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_what_is_not_finite_is_null(value):
    one = tables.Table("t", ("a", "b", "c"), ((value, tables.Figure(value, ".3e"), tables.Figure(-2e-5, ".3e")),))

    assert json.loads(tables._as_json([one])) == {"t": [{"a": None, "b": None, "c": -2e-5}]}


def test_outputs_that_are_infinitely_far_off_are_json(command, compiled, monkeypatch, tmp_path):
    from gpucomp.cli import compare
    from tests.cli.conftest import X

    monkeypatch.setattr(compare, "onnxruntime_outputs", lambda model, inputs: {"y": X - float("inf"), "z": X})

    command(
        "run", "model.onnx", "--input", "x.npy", "--compare", "onnxruntime", "--tolerance", "0.01", "--json", "t.json"
    )

    def refused(text):
        raise AssertionError(text)

    rows = json.loads((tmp_path / "t.json").read_text(), parse_constant=refused)["outputs"]
    assert rows[0]["largest"] is None


def showing_tables(sources):
    """The functions that show tables, also by others that they name, as (module, name); ``sources`` are texts by module."""
    named, found = {}, {("tables", "table"), ("tables", "print_tables")}
    for module, text in sources.items():
        tree = ast.parse(text)
        imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
        of = {a.asname or a.name: (n.module.rpartition(".")[2], a.name) for n in imports for a in n.names}
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            nodes = [node for part in function.body for node in ast.walk(part)]
            names = {of.get(n.id, (module, n.id)) for n in nodes if isinstance(n, ast.Name)}
            members = [
                (n.value.id, n.attr) for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
            ]
            named[module, function.name] = names | {(of.get(owner, (None, owner))[1], name) for owner, name in members}
    while more := {key for key, names in named.items() if names & found} - found:
        found |= more
    return found


def commands(group):
    for command in group.commands.values():
        yield from commands(command) if hasattr(command, "commands") else [command]


def test_what_shows_tables_is_found_through_other_functions():
    sources = {
        "a": "from gpucomp.cli.tables import table as t\ndef shown(): return t()\ndef other(table): return 1",
        "b": "def command():\n from gpucomp.cli import a as c\n return _by()\ndef _by(): return {0: c.shown}[0]()",
    }

    assert {key for key in showing_tables(sources) if key[0] != "tables"} == {
        ("a", "shown"), ("b", "_by"), ("b", "command")
    }  # fmt: skip


def test_every_command_with_a_table_exports_it():
    """A command that shows tables and does not say so is found by its source."""
    from gpucomp.cli.commands import gpucomp

    folder = Path(tables.__file__).parent
    showing = showing_tables({path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")})
    found = set()
    for command in commands(gpucomp):
        options = {option for p in command.params for option in p.opts}
        function = command.callback
        if (function.__module__.rpartition(".")[2], function.__name__) in showing:
            found.add(command.name)
            assert {"--json", "--csv"} <= options, command.name
        else:
            assert "--csv" not in options, command.name
    assert found >= {"run", "compare", "bench", "inspect", "tune", "replay", "show", "diff"}


def test_no_difference_is_a_table_without_rows(command, tmp_path):
    (tmp_path / "a.jsonl").write_text("")

    ran = command("records", "diff", "a.jsonl", "a.jsonl", "--csv", "t.csv")

    assert (ran.code, ran.out) == (0, "no difference\n"), ran.err
    assert (tmp_path / "t.csv").read_text() == "kernel,device,trials,after,pick,after 2\n"
