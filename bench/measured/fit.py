"""Fits the few numbers per architecture that the analytic model cannot take from data sheets (``device.Losses``).

    python -m bench.measured.fit FOLDER --fit FILE:DEVICE ... --test FILE:DEVICE ... [--numbers fragments exposed lone]

The numbers are fitted on some files or devices and tried on others. For problems the loss is the mean of |ln ratio|, at most
1 each. For configurations it is the mean over problems of a sum: the logarithm of top-1 over the optimum; the mean of |ln ratio|
of the configurations within twice the optimum after the median ratio of all is taken off, so that order weighs more than speed;
and a fifth of the mean of |ln ratio| of all, so that speed is not free.

All devices get the same numbers, and the search starts at those of the first device of --fit, also for the others. A number of
``Losses`` is meant so; one of ``Device`` (``launch_us``) says something only if the devices may share it. The search changes one
number at a time by a factor that shrinks, within ``limits``. It is deterministic.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from bench.measured.agreement import spearman
from bench.measured.kernels import kernel_of
from bench.measured.spaces import Space, spaces_of
from bench.options import parser_of
from gpucomp.device.device import FIGURES, Device, Losses
from gpucomp.errors import ScheduleError
from gpucomp.kernel_bench.formats import Measured, format_of, load, sampled
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import Demand, demand
from gpucomp.schedule.model import predict
from gpucomp.targets.by_name import target_of

KEPT = 150  # schedules of a problem and an engine that stay in the running when numbers change
ROUNDS = 3
STEPS = (1.5, 1.2, 1.07)  # factors by which a number is changed, in turn
Numbers = Mapping[str, float]
NAMES = tuple(f.name for f in fields(Losses))
# of ``Device``. Launches of libraries wait, so no row says anything of those that do not
OWN = tuple(name for name in FIGURES if name not in ("units", "l2_bytes", "waits_us"))
PARTS = ("efficiency", "matrix", "exposed", "matrix_exposed", "lone", "by_warp_share")


@dataclass(frozen=True)
class Block:
    """Schedules of one engine kind for several problems: the facts, each problem's demand, and whose they are."""

    facts: rank.Facts
    wanted: Demand  # with a column for each figure
    owner: np.ndarray

    def us(self, device: Device) -> np.ndarray:
        return np.asarray(predict(self.wanted, device, self.facts.launch()).total_us, float)


@dataclass
class Problems:
    """Measured problems of one device."""

    name: str
    device: Device
    us: np.ndarray
    blocks: list[Block]

    def predicted(self, device: Device) -> np.ndarray:
        best = np.full(len(self.us), np.inf)
        for block in self.blocks:
            np.minimum.at(best, block.owner, block.us(device))
        return best

    def loss(self, device: Device) -> float:
        ratio = self.predicted(device) / self.us
        return float(np.minimum(np.abs(np.log(ratio[np.isfinite(ratio)])), 1).mean())

    def told(self, device: Device) -> str:
        found = self.predicted(device)
        ratio = found / self.us
        p10, p50, p90 = np.percentile(ratio, (10, 50, 90))
        spread = np.median(np.abs(np.log(ratio)))
        return f"{len(ratio)} problems, {p50:.2f} [{p10:.2f} to {p90:.2f}], spread {spread:.3f}, {spearman(found, self.us):.3f}"


@dataclass
class Configurations:
    """Measured configurations of one kernel on one device."""

    name: str
    device: Device
    us: np.ndarray
    block: Block
    extra: np.ndarray  # what the space adds to the model's times, in microseconds

    def loss(self, device: Device) -> float:
        found = self.block.us(device) + self.extra
        losses = []
        for problem in range(self.block.owner.max() + 1):
            at = np.flatnonzero((self.block.owner == problem) & np.isfinite(found))
            ratio, best = np.log(found[at] / self.us[at]), self.us[at].min()
            near = self.us[at] < 2 * best
            first = self.us[at][np.argmin(found[at])] / best
            losses.append(np.log(first) + np.abs(ratio - np.median(ratio))[near].mean() + 0.2 * np.abs(ratio).mean())
        return float(np.mean(losses))

    def told(self, device: Device) -> str:
        found, rows = self.block.us(device) + self.extra, []
        for problem in range(self.block.owner.max() + 1):
            at = self.block.owner == problem
            order, times = np.argsort(found[at], kind="stable"), self.us[at]
            rows.append(
                (spearman(found[at], times), times[order[0]] / times.min(), times[order[:10]].min() / times.min())
            )
        orders, firsts, tens = np.array(rows).T
        means = (np.exp(np.log(column).mean()) for column in (firsts, tens))
        spread = np.median(np.abs(np.log(found / self.us)))
        return f"{len(rows)} problems, spread {spread:.3f}, Spearman {np.median(orders):.3f}, " + ", ".join(
            f"{name} {mean:.3f}" for name, mean in zip(("top-1", "top-10"), means, strict=True)
        )


def problems_of(name: str, rows: Sequence[Measured]) -> Problems:
    """The schedules of each row's kernel that the model ranks first, for each engine."""
    target = target_of(rows[0].device)
    assert target is not None
    assert target.device is not None
    parts: list[tuple[rank.Facts, Demand, int]] = []
    times: list[float] = []
    for row in rows:
        kernel = kernel_of(row.spec)
        wanted, kept = demand(kernel, target.device), len(parts)
        for family in engines_of(kernel, target.features):
            if not rank.can_rank(family):
                continue
            try:
                found = rank.ranking(family, family.problem(kernel), target.limits, target.device, wanted)
            except ScheduleError:
                continue
            if not len(found):
                continue
            leading = np.argsort(found.us, kind="stable")
            picked = np.concatenate([leading[:KEPT], leading[KEPT :: max(1, len(leading) // KEPT)]])
            facts = rank.facts_of(family, found.problem, found.values[picked], shuffles=target.device.shuffles)
            parts.append((facts, wanted, len(times)))
        rank.ranking.cache_clear()
        if len(parts) > kept:
            times.append(row.us)
    return Problems(name, target.device, np.array(times), _blocks(parts))


def _blocks(parts: Sequence[tuple[rank.Facts, Demand, int]]) -> list[Block]:
    """``parts`` whose schedules share their kinds, together."""
    kinds: dict[rank.Kinds, list[tuple[rank.Facts, Demand, int]]] = {}
    for part in parts:
        kinds.setdefault(part[0].kinds, []).append(part)
    blocks = []
    for shared, alike in kinds.items():
        numbers = {name: np.concatenate([f.numbers[name] for f, _, _ in alike]) for name in alike[0][0].numbers}
        known = np.concatenate([f.known for f, _, _ in alike])
        figures = {
            one.name: np.concatenate([np.full(len(f.known), getattr(w, one.name)) for f, w, _ in alike])
            for one in fields(Demand)
        }
        owner = np.concatenate([np.full(len(f.known), number) for f, _, number in alike])
        blocks.append(Block(rank.Facts(numbers, shared, known), Demand(**figures), owner))
    return blocks


def configurations_of(name: str, spaces: Sequence[Space]) -> Configurations:
    target = target_of(spaces[0].device)
    assert target is not None
    assert target.device is not None
    parts, times, extra = [], list[float](), list[np.ndarray]()
    for number, space in enumerate(spaces):
        parts.append((space.facts(target.device), demand(kernel_of(space.gemm), target.device), number))
        times += space.times.values()
        extra.append(space.extra_us(target.device))
    (block,) = _blocks(parts)
    return Configurations(name, target.device, np.array(times), block, np.concatenate(extra))


def collected(folder: Path, chosen: str, most: int) -> Problems | Configurations:
    """What ``FILE:DEVICE`` names: the rows of a device in a file, or a file of configurations (``:LAYOUT`` of it)."""
    name, _, part = chosen.partition(":")
    (path,) = folder.glob(f"{name}*")
    table = load(path)
    form = format_of(table)
    assert form is not None
    if form.read is None:
        return configurations_of(chosen, [space for space in spaces_of(table) if part in space.layout])
    rows = [row for row in form.read(table) if part in row.device and row.us > 0]
    return problems_of(chosen, sampled(rows, most))


def changed(device: Device, numbers: Numbers) -> Device:
    """``device`` with other losses, and with other figures where a name is one of its own fields."""
    own = {name: value for name, value in numbers.items() if name not in NAMES}
    losses = {name: value for name, value in numbers.items() if name not in own}
    return replace(device, **own, losses=replace(device.losses, **losses))  # type: ignore[arg-type]


def loss(data: Sequence[Problems | Configurations], numbers: Numbers) -> float:
    return sum(one.loss(changed(one.device, numbers)) for one in data) / len(data)


def fitted(data: Sequence[Problems | Configurations], start: Numbers) -> dict[str, float]:
    """The numbers with the least loss that single changes reach."""
    found, least = dict(start), loss(data, start)
    for step in STEPS:
        for _ in range(ROUNDS):
            before = least
            for name in start:
                for factor in (step, 1 / step):
                    tried = found | {name: found[name] * factor}
                    low, high = limits(name, start[name])
                    while low <= tried[name] <= high and (now := loss(data, tried)) < least - 1e-5:
                        found, least = tried, now
                        tried = found | {name: found[name] * factor}
            if before - least < 1e-4:
                break
    return found


def limits(name: str, start: float) -> tuple[float, float]:
    """Between which values a number is sought that begins with ``start``.

    A part is at most all. A quarter of a warp is served in a cycle, so that lanes' reads of operands take at least the cycles
    that engines count, and at most twice as many. Nothing here knows the peaks of data sheets: clocks and bandwidths may rise
    above them, up to four times what they began with; so may latencies.
    """
    if name in PARTS:
        return 0.0, 1.0
    return (1.0, 2.0) if name == "fragments" else (start / 4, start * 4)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.measured.fit", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the files of measurements")
    parser.add_argument("--fit", nargs="+", required=True, metavar="FILE:DEVICE", help="what the numbers are fitted to")
    parser.add_argument("--test", nargs="*", default=[], metavar="FILE:DEVICE", help="what they are tried on")
    parser.add_argument(
        "--numbers",
        nargs="+",
        default=list(NAMES),
        choices=(*NAMES, *OWN),
        metavar="NAME",
        help=f"what is fitted: {', '.join((*NAMES, *OWN))}",
    )
    parser.add_argument("--problems", type=int, default=120, metavar="N", help="most problems of a file")
    options = parser.parse_args(arguments)
    data = [collected(options.folder, name, options.problems) for name in options.fit]
    first = data[0].device
    start = {name: getattr(first.losses if name in NAMES else first, name) for name in options.numbers}
    found = fitted(data, {name: max(1e-3, value) for name, value in start.items()})
    print(" ".join(f"{name}={start[name]:.3g}->{value:.3g}" for name, value in found.items()))
    tests = [collected(options.folder, name, options.problems) for name in options.test]
    for kind, ones in (("fit", data), ("test", tests)):
        for one in ones:
            print(f"{kind} {one.name}: {one.told(one.device)}")
            print(f"{' ' * len(kind)} {one.name}: {one.told(changed(one.device, found))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
