"""Holds the analytic model against published measurements of GPUs.

    python -m bench.measured FOLDER [--json FILE] [--problems 80] [--jobs 2] [--markdown FILE]
                             [--direct | --intervals | --layers | --order]

FOLDER has files of comma-separated values, compressed or not; their columns say what they hold, see
``gpucomp.kernel_bench.formats``.
For each file, device and data type: how many problems were predicted of how many rows, the ratio of predicted over measured
time, the median of its absolute logarithm and Spearman's coefficient. A problem's time is that of the schedule that the model
ranks first over all engines. For files that have many configurations of one kernel (``bench.measured.spaces``) also the
measured time of the configuration that the model ranks first, and of the best of its first ten, over the optimum.

At most --problems of the rows of each file, device and data type are used, the same ones in each run: evenly spread over
operators and times. Times that are mostly the launch of an eager call, or that are rounded, are left out, and so are devices
of which ``gpucomp.device.catalogue`` knows nothing. --json - writes to standard output, and the tables to standard error.

--intervals prints how far predictions are off by vendor and by what takes the time, the numbers of
``gpucomp.schedule.uncertainty``, and how many measurements of a device are between the ends that the other devices' have.

--order prints how far the predictions of one kernel's configurations are off, from which predicted gain on four of five are in
the predicted order, and how the model's first choice does beside the engine's default (``bench.measured.order``).

--direct compares only MIOpen's find-db, and only convolutions by direct solvers (``bench.measured.direct``).
--layers compares the layers of ResNet-50 in MIOpen's find-db, one by one, with what HIP's kernels are predicted to take.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.measured import direct, intervals, layers, order
from bench.measured.agreement import File, Ranked, as_json, file_of, ranked_of, ranking
from bench.measured.predict import Wanted, answers, predicted_kind, predictions
from bench.measured.spaces import Space, predicted, spaces_of
from bench.options import parser_of
from gpucomp.errors import UsageError
from gpucomp.kernel_bench.formats import Measured, Table, format_of, load, sampled
from gpucomp.targets.by_name import target_of

SUFFIXES = (".csv", ".csv.gz")
TOLD = 10  # least problems of one operator that have a row of their own in the tables


@dataclass
class Group:
    """The rows of a file on one device and of one data type: all of them, those that count, and those that are used."""

    file: str
    device: str
    dtype: str
    rows: int
    counted: int
    used: list[Measured]


@dataclass
class Findings:
    files: list[File] = field(default_factory=list)
    operators: list[File] = field(default_factory=list)  # as ``files``, for each operator; in the tables only
    spaces: list[Ranked] = field(default_factory=list)
    rows: dict[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)  # of ``Group``: all, counted
    notes: list[str] = field(default_factory=list)


def groups_of(table: Table, most: int, notes: list[str]) -> Iterator[Group]:
    """The groups of a file. What is left out is told in ``notes``."""
    form = format_of(table)
    assert form is not None
    assert form.read is not None
    found: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for row in form.read(table):
        found[row.device, row.dtype].append(row)
    for (device, dtype), rows in found.items():
        if target_of(device) is None:
            notes.append(f"{table.name}: {len(rows)} rows of {device}, of which nothing is known")
            continue
        counted = [row for row in rows if row.us > 0]
        if counted:
            yield Group(table.name, device, dtype, len(rows), len(counted), sampled(counted, most))
    taken = sum(map(len, found.values()))
    if taken < len(table.rows):
        notes.append(f"{table.name}: {len(table.rows) - taken} rows of operators that have no kernel here")


def paths_in(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.name.endswith(SUFFIXES))


def study(folder: Path, most: int, jobs: int) -> Findings:
    findings, groups = Findings(), list[Group]()
    for path in paths_in(folder):
        try:
            groups += _read(findings, path, most)
        except (UsageError, KeyError, ValueError, OSError, EOFError) as error:
            findings.notes.append(f"{path.name}: {error}")
    found = predictions(((row.device, row.spec) for group in groups for row in group.used), jobs)
    for group in groups:
        _add_group(findings, group, found)
    return findings


def study_of_intervals(folder: Path, most: int, jobs: int) -> tuple[str, dict[str, Any]]:
    """The table of intervals, and what goes to JSON. Spaces of configurations are left out: these are not the fastest ones."""
    rows = [
        row
        for path in paths_in(folder)
        if (form := format_of(table := load(path))) is not None and form.read is not None
        for group in groups_of(table, most, [])
        for row in group.used
    ]
    found = list(intervals.pooled(rows, answers(predicted_kind, ((row.device, row.spec) for row in rows), jobs)))
    return intervals.tables(found), {"intervals": [asdict(one) for one in found]}


def study_of_order(folder: Path, most: int, jobs: int) -> tuple[str, dict[str, Any]]:
    """The tables of all spaces of configurations, and what goes to JSON. ``most`` and ``jobs`` do not matter."""
    loaded = [(path.name.split(".")[0], load(path)) for path in paths_in(folder)]
    files = [(name, spaces_of(t)) for name, t in loaded if (form := format_of(t)) is not None and form.read is None]
    found = [one for name, spaces in files for one in order.orders(name, spaces)]
    defaults = [order.default_of(name, spaces) for name, spaces in files if spaces]
    return order.tables(found, defaults), {"order": [asdict(one) for one in (*found, *defaults)]}


def study_of_direct(folder: Path, most: int, jobs: int) -> tuple[str, dict[str, Any]]:
    """The tables of all files with MIOpen's solvers, and what goes to JSON."""
    found = [one for path in paths_in(folder) if (one := direct.direct_of(load(path), most)) is not None]
    times = predictions((wanted for one in found for wanted in one.wanted()), jobs)
    lines = [line for one in found for line in direct.tables(one, times)]
    return "\n".join(lines[1:]), {"direct": [direct.as_json(one, times) for one in found]}


def study_of_layers(folder: Path, most: int, jobs: int) -> tuple[str, dict[str, Any]]:
    """The layers of ``layers.MODEL`` in all files with MIOpen's solvers, and what goes to JSON."""
    from bench.models import build

    wanted = layers.layers_of(build(layers.MODEL))
    rows = [row for path in paths_in(folder) for row in layers.published(load(path), wanted, layers.BATCH)]
    times = layers.predictions(rows, jobs)
    found = [asdict(row) | {"predicted_us": times[row.device, row.spec]} for row in rows]
    return "\n".join(layers.lines(wanted, rows, times, layers.BATCH)), {"layers": found}


def _read(findings: Findings, path: Path, most: int) -> list[Group]:
    """The groups of a file. Spaces of configurations are added to ``findings`` at once."""
    table = load(path)
    form = format_of(table)
    if form is None:
        findings.notes.append(f"{table.name}: columns of no known format")
    elif form.read is None:
        _add_spaces(findings, table.name, spaces_of(table))
    else:
        return list(groups_of(table, most, findings.notes))
    return []


def _add_group(findings: Findings, group: Group, found: dict[Wanted, float]) -> None:
    known = [row for row in group.used if found[row.device, row.spec] > 0]
    if len(known) < len(group.used):
        findings.notes.append(f"{group.file}: {len(group.used) - len(known)} kernels of {group.device} have no engine")
    if not known:
        return
    findings.rows[group.file, group.device, group.dtype] = group.rows, group.counted
    findings.files.append(_agreement(group, group.dtype, known, found))
    operators = Counter(row.operator for row in known)
    if len(operators) > 1:
        for operator in operators:
            part = [row for row in known if row.operator == operator]
            findings.operators.append(_agreement(group, f"{group.dtype} {operator}", part, found))


def _agreement(group: Group, dtype: str, rows: Sequence[Measured], found: dict[Wanted, float]) -> File:
    times = [found[row.device, row.spec] for row in rows]
    return file_of(group.file, group.device, dtype, times, [row.us for row in rows])


def _add_spaces(findings: Findings, name: str, spaces: Sequence[Space]) -> None:
    if not spaces:
        findings.notes.append(f"{name}: no configuration that an engine here has")
        return
    layouts: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    predicted_us, measured_us = list[float](), list[float]()
    for space in spaces:
        times, measured = predicted(space), list(space.times.values())
        layouts[space.layout].append(ranking(times, measured))
        predicted_us += times.tolist()
        measured_us += measured
    device, left_out = spaces[0].device, sum(space.left_out for space in spaces)
    findings.spaces += [ranked_of(name, layout, found) for layout, found in layouts.items()]
    findings.files.append(file_of(name, device, spaces[0].gemm.dtype, predicted_us, measured_us))
    if left_out:
        findings.notes.append(f"{name}: {left_out} configurations have no schedule here")


def tables(findings: Findings) -> str:
    lines = ["| file | device | dtype | problems | of rows | predicted / measured | p10 to p90 | spread | Spearman |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for one in (*findings.files, *(part for part in findings.operators if part.problems >= TOLD)):
        rows, counted = findings.rows.get((one.file, one.device, one.dtype), (0, 0))
        of = f"{counted} of {rows}" if 0 < counted < rows else str(rows or "")
        ends = f"{one.ratio['p10']:.2f} to {one.ratio['p90']:.2f}"
        lines.append(
            f"| {one.file.split('.')[0]} | {one.device} | {one.dtype} | {one.problems} | {of} | {one.ratio['p50']:.2f} | "
            f"{ends} | {one.spread:.3f} | {one.spearman:.3f} |"
        )
    if findings.spaces:
        lines += [
            "",
            "| space | layout | problems | Spearman | top-1 / optimum | top-10 / optimum |",
            "|---|---|---|---|---|---|",
        ]
    for space in findings.spaces:
        name = space.file.split(".")[0]
        found = f"{space.spearman:.3f} | {space.top1:.3f} | {space.top10:.3f}"
        lines.append(f"| {name} | {space.layout} | {space.problems} | {found} |")
    if findings.notes:
        lines += ["", "Left out:", "", *(f"- {note}" for note in findings.notes)]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.measured", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder with the files")
    parser.add_argument("--json", metavar="FILE", help="also write the results as JSON; - is standard output")
    parser.add_argument(
        "--problems", type=int, default=80, metavar="N", help="most rows of a file, device and data type"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="number of processes")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables to this file")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--direct", action="store_true", help="only direct convolutions of MIOpen's find-db")
    only.add_argument("--layers", action="store_true", help="only the layers of ResNet-50 in MIOpen's find-db")
    only.add_argument("--intervals", action="store_true", help="only how far predictions are off, by kind of kernel")
    only.add_argument(
        "--order", action="store_true", help="only how sure the order of predictions is, of one kernel's schedules"
    )
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"no folder {options.folder}")
    most = max(2, options.problems)
    alone = {
        "direct": study_of_direct,
        "intervals": study_of_intervals,
        "layers": study_of_layers,
        "order": study_of_order,
    }
    study_of = next((alone[name] for name in alone if getattr(options, name)), None)
    if study_of is not None:
        text, results = study_of(options.folder, most, options.jobs)
    else:
        findings = study(options.folder, most, options.jobs)
        text, results = tables(findings), as_json(findings.files, findings.spaces)
    print(text, file=sys.stderr if options.json == "-" else sys.stdout)
    if options.json:
        found = json.dumps(results, indent=1)
        if options.json == "-":
            print(found)
        else:
            Path(options.json).write_text(found + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
