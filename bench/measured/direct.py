"""Convolutions of MIOpen's find-db by a direct solver, as our kernels are: best published time beside the prediction.

A row counts if its fastest solver is neither Winograd's nor a Fourier transform, which multiply less, and takes long enough that
the launch does not matter. Problems that the database has in two types tell how the types compare, whatever a solver is worth:
the published ratio of their times beside the predicted one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from statistics import median
from typing import Any

from bench.measured.agreement import File, file_of
from bench.measured.kernels import TYPES
from bench.measured.predict import Wanted
from gpucomp.kernel_bench.formats import Measured, Table, conv_of, device_of, fastest, sampled
from gpucomp.kernel_bench.operations import Conv
from gpucomp.targets.by_name import target_of

LEAST = 50.0  # us
INDIRECT = ("winograd", "fft")  # parts of solvers' names
TOLD = 10  # least problems of one solver that have a row of their own


@dataclass(frozen=True)
class Pair:
    """Problems of a device that are published in two types: medians of the first type's time over the second's.

    ``slower`` is the part of the problems whose first type takes longer. With ``solver``, only those that it is fastest for
    in both types.
    """

    device: str
    types: str
    solver: str
    problems: int
    published: float
    predicted: float
    slower: float


@dataclass
class Direct:
    """The direct convolutions of a file: by device and type the rows, the rows that are used, and each one's solver."""

    file: str
    rows: dict[tuple[str, str], list[Measured]] = field(default_factory=lambda: defaultdict(list))
    used: dict[tuple[str, str], list[Measured]] = field(default_factory=dict)
    solvers: dict[Measured, str] = field(default_factory=dict)
    twins: dict[tuple[str, str, str], list[tuple[Measured, Measured]]] = field(default_factory=dict)

    def wanted(self) -> Iterator[Wanted]:
        rows = (row for used in self.used.values() for row in used)
        twins = (row for pairs in self.twins.values() for pair in pairs for row in pair)
        return ((row.device, row.spec) for found in (rows, twins) for row in found)


def direct_of(table: Table, most: int) -> Direct | None:
    """The direct convolutions of a table with solvers, at most ``most`` of a device and type, and of a pair of types."""
    if "solvers_ms" not in table.columns:
        return None
    found = Direct(table.name)
    for row in table.rows:
        spec, (solver, us) = conv_of(table, row), fastest(row)
        device = device_of(table, row)
        known = spec is not None and spec.dtype in TYPES and target_of(device) is not None
        if spec is not None and known and us >= LEAST and not any(part in solver.lower() for part in INDIRECT):
            measured = Measured(device, "conv", spec.dtype, spec, us)
            found.rows[device, spec.dtype].append(measured)
            found.solvers[measured] = solver
    for (device, dtype), rows in sorted(found.rows.items()):
        found.used[device, dtype] = sampled(rows, most)
    for (device, a), (other, b) in combinations(sorted(found.rows), 2):
        if device == other and (pairs := _twins(found.rows[device, a], found.rows[device, b])):
            chosen = set(sampled([first for first, _ in pairs], most))
            found.twins[device, a, b] = [pair for pair in pairs if pair[0] in chosen]
    return found


def _twins(rows: Sequence[Measured], others: Sequence[Measured]) -> list[tuple[Measured, Measured]]:
    """The rows of the same problem."""
    known = {_problem(row): row for row in others}
    pairs = ((row, known.get(_problem(row))) for row in rows)
    return [(row, other) for row, other in pairs if other is not None]


def _problem(row: Measured) -> Conv:
    """A row's convolution without its type."""
    assert isinstance(row.spec, Conv)
    return replace(row.spec, dtype="")


def agreements(direct: Direct, times: Mapping[Wanted, float]) -> Iterator[File]:
    """Of each device and type, and of each solver that is the fastest for enough of the problems used."""

    def agreement(dtype: str, rows: Iterable[Measured]) -> File:
        known = [row for row in rows if times[row.device, row.spec] > 0]
        predicted = [times[row.device, row.spec] for row in known]
        return file_of(direct.file, known[0].device, dtype, predicted, [row.us for row in known])

    for (_, dtype), used in direct.used.items():
        yield agreement(dtype, used)
        for solver, count in Counter(direct.solvers[row] for row in used).most_common():
            if count >= TOLD:
                yield agreement(f"{dtype} {solver}", (row for row in used if direct.solvers[row] == solver))


def pairs_of(direct: Direct, times: Mapping[Wanted, float]) -> Iterator[Pair]:
    """Each pair of types over all of its problems, and over those of one solver."""
    for (device, a, b), twins in direct.twins.items():
        groups = {"": twins}
        for pair in twins:
            names = {direct.solvers[row] for row in pair}
            if len(names) == 1:
                groups.setdefault(names.pop(), []).append(pair)
        for solver, group in groups.items():
            ratios = [(x.us / y.us, times[device, x.spec] / times[device, y.spec]) for x, y in group]
            if len(ratios) >= TOLD:
                published, predicted = (round(median(column), 2) for column in zip(*ratios, strict=True))
                slower = round(sum(ratio > 1 for ratio, _ in ratios) / len(ratios), 2)
                yield Pair(device, f"{a} / {b}", solver, len(ratios), published, predicted, slower)


def tables(direct: Direct, times: Mapping[Wanted, float]) -> list[str]:
    lines = [
        "",
        f"Direct convolutions of {direct.file.split('.')[0]} of at least {LEAST:.0f} us:",
        "",
        "| device | dtype and solver | problems | of rows | predicted / published | p10 to p90 | spread | Spearman |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in agreements(direct, times):
        rows = len(direct.rows.get((one.device, one.dtype), ())) or ""
        ends = f"{one.ratio['p10']:.2f} to {one.ratio['p90']:.2f}"
        figures = f"{one.ratio['p50']:.2f} | {ends} | {one.spread:.3f} | {one.spearman:.3f}"
        lines.append(f"| {one.device} | {one.dtype} | {one.problems} | {rows} | {figures} |")
    lines += [
        "",
        "| device | types | fastest in both | problems | published ratio | predicted ratio | first one slower |",
        "|---|---|---|---|---|---|---|",
    ]
    for pair in pairs_of(direct, times):
        figures = f"{pair.problems} | {pair.published:.2f} | {pair.predicted:.2f} | {pair.slower:.0%}"
        lines.append(f"| {pair.device} | {pair.types} | {pair.solver or 'any'} | {figures} |")
    return lines


def as_json(direct: Direct, times: Mapping[Wanted, float]) -> dict[str, Any]:
    return {
        "file": direct.file,
        "agreements": [asdict(one) for one in agreements(direct, times)],
        "pairs": [asdict(one) for one in pairs_of(direct, times)],
    }
