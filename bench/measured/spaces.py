"""Configurations of other people's kernels as schedules of ours, and how well the model ranks them.

CLBlast's M is our n: its result is contiguous along M. ``MWG`` x ``NWG`` is the tile, ``MDIMC`` x ``NDIMC`` the work-items,
``KWG`` the depth. Only its configurations that keep both operands in local memory (``SA``, ``SB``) and whose work-items
have neighbouring elements (not ``STRM``, ``STRN``) are like ``contraction/simt``; of those that differ in nothing that we
have, the fastest counts. Where a work-item has 16 neighbouring columns or more, its neighbours' reads of local memory hit
the same banks; ours have runs of four columns, so such configurations are left out.

Tensile's I is our n: ``mt_j`` x ``mt_i`` is the tile, ``depth`` its depth, ``gsu`` the splits. A matrix instruction makes it
``contraction/amd`` with four waves, a thread tile ``contraction/simt``. If a tile does not fit twice into local memory, our
schedule has one stage.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.measured.kernels import kernel_of
from gpucomp.device.device import Device
from gpucomp.device.limits import Limits
from gpucomp.errors import UsageError, quote
from gpucomp.kernel.sizes import Sizes
from gpucomp.kernel_bench.formats import Row, Table, clblast_problem, device_in, tensile_device, tensile_problem
from gpucomp.kernel_bench.operations import Gemm
from gpucomp.kernels_templates.contraction.simt.space import SimtSchedule
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.schedule import rank
from gpucomp.schedule.analytic import demand
from gpucomp.schedule.model import predict
from gpucomp.schedule.space import WARP, Family, Schedule, too_many_registers
from gpucomp.targets.by_name import target_of

MOST_COLUMNS = 8  # neighbouring ones of a work-item of CLBlast's
ATOMIC = 0.25  # of a cache's bandwidth that atomic additions reach: a guess
BANKS = 32  # of a unit's local memory, each four bytes wide
BEST = 10  # configurations of which the fastest is taken, besides the first alone
PLAIN = {"asynchronous": 0, "fragments": 1, "lanes": 1, "slices": 1, "splits": 1}


@dataclass(frozen=True)
class Space:
    """One problem of a file: the engine, its schedules and their measured times; ``left_out`` have no schedule of ours."""

    layout: str
    device: str
    gemm: Gemm
    engine: str
    times: Mapping[tuple[tuple[str, int], ...], float]
    left_out: int

    def facts(self, device: Device) -> rank.Facts:
        """What the model knows of the schedules. Tensile's kernels keep what their formula says; ours, compiled, take more.

        Their local memory is Tensile's too: a unit holds as many of their work-groups as fit there.
        """
        family = FAMILIES[self.engine]
        values = np.array([[value for _, value in key] for key in self.times], np.int64)
        facts = rank.facts_of(family, family.problem(kernel_of(self.gemm)), values, shuffles=device.shuffles)
        if device.wave == WARP:
            return facts
        shared = np.array([tensile_bytes(self.engine, dict(key)) for key in self.times], float)
        waits = np.array([tensile_conflicts(self.engine, self.layout, dict(key)) for key in self.times], float)
        traffic, none = facts.numbers["shared_traffic"] + facts.numbers["steps"] * waits, np.zeros(len(values))
        theirs = {"registers": none, "uniform": none, "shared_bytes": shared, "shared_traffic": traffic}
        return replace(facts, numbers={**facts.numbers, **theirs})

    def extra_us(self, device: Device) -> np.ndarray:
        """What Tensile's split-K costs beside ours: a launch that clears the result, and sums that are added by atomics."""
        splits = np.array([dict(key)["splits"] for key in self.times])
        result = 4e-3 * self.gemm.batch * self.gemm.m * self.gemm.n
        atomics = splits * result / (device.l2_gbs * ATOMIC)
        return np.where(splits > 1, device.launch_us + result / device.dram_gbs + atomics, 0.0)


def spaces_of(table: Table) -> list[Space]:
    return _clblast(table) if "MWG" in table.columns else _tensile(table)


def _clblast(table: Table) -> list[Space]:
    gemm = clblast_problem(table)
    times: dict[tuple[tuple[str, int], ...], float] = {}
    for row in table.rows:
        schedule = _of_clblast(row)
        if schedule is not None:
            key = tuple(schedule.items())
            times[key] = min(times.get(key, np.inf), float(row["us"]))
    return _problem(
        "Ailk_Bjlk", device_in(table), gemm, "contraction/simt", [(dict(key), us) for key, us in times.items()]
    )


def _of_clblast(row: Row) -> dict[str, int] | None:
    asked = {name: int(float(row.get(name) or default)) for name, default in CLBLAST.items()}
    alike = asked["SA"] and asked["SB"] and not (asked["STRM"] or asked["STRN"] or asked["GEMMK"])
    alike = alike and asked["MWG"] <= MOST_COLUMNS * asked["MDIMC"]
    if not alike or asked["MWG"] % asked["MDIMC"] or asked["NWG"] % asked["NDIMC"]:
        return None
    return PLAIN | {
        "tile_m": asked["NWG"],
        "tile_n": asked["MWG"],
        "tile_k": asked["KWG"],
        "reg_m": asked["NWG"] // asked["NDIMC"],
        "reg_n": asked["MWG"] // asked["MDIMC"],
        "stages": 1,
    }


CLBLAST = {"MWG": 0, "NWG": 0, "KWG": 0, "MDIMC": 1, "NDIMC": 1, "SA": 1, "SB": 1, "STRM": 0, "STRN": 0, "GEMMK": 0}


def _tensile(table: Table) -> list[Space]:
    """By layout and problem."""
    problems: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in table.rows:
        problems[tuple(row[name] for name in ("layout", "m", "n", "k", "batch"))].append(row)
    spaces = []
    for (layout, *_), rows in problems.items():
        gemm, device, matrix = tensile_problem(rows[0]), tensile_device(table, rows[0]), bool(rows[0]["mi"])
        engine = "contraction/amd" if matrix else "contraction/simt"
        configured = [((_of_matrix if matrix else _of_threads)(row), float(row["us"])) for row in rows]
        spaces += _problem(layout, device, gemm, engine, configured)
    return spaces


def _of_matrix(row: Row) -> dict[str, int]:
    """Four waves, two by two unless a side of the tile is a single block."""
    block = int(row["mi"].split("x")[0])
    tile_m, tile_n = int(row["mt_j"]), int(row["mt_i"])
    waves_m, waves_n = (1, 4) if tile_m == block else (4, 1) if tile_n == block else (2, 2)
    groups = 64 // block
    return {
        "wave": 64,
        "block": block,
        "waves_m": waves_m,
        "waves_n": waves_n,
        "blocks_m": tile_m // (block * waves_m),
        "blocks_n": tile_n // (block * waves_n),
        "steps": int(row["depth"]) // (groups * 4),
        "stages": 2,
        "splits": int(row["gsu"]),
    }


def tensile_bytes(engine: str, schedule: Schedule) -> int:
    """The local memory of Tensile's kernel, by its ``SolutionStructs.py``, without padding.

    The second of two stages begins at a power of two. Sums of slices are added in the same memory: all of their tiles fit.
    """
    s = schedule
    if engine == "contraction/amd":
        tile_m, tile_n = (s["block"] * s[f"waves_{side}"] * s[f"blocks_{side}"] for side in "mn")
        slices, depth = 1, s["steps"] * (64 // s["block"]) * 4
    else:
        tile_m, tile_n, slices, depth = s["tile_m"], s["tile_n"], s["slices"], s["tile_k"]
    stage = 4 * depth * (tile_m + tile_n)
    staged = stage if s["stages"] == 1 else (1 << (stage - 1).bit_length()) + stage
    return max(staged, 4 * slices * tile_m * tile_n if slices > 1 else 0)


def tensile_conflicts(engine: str, layout: str, schedule: Schedule) -> float:
    """Bytes that local memory could move for Tensile's work-group while it waits for banks, for each tile of the depth.

    Operands that are contiguous along the depth are transposed: neighbouring work-items read vectors along it, and write each
    element to another row of local memory. Kernels of thread tiles have no padding there (``LdsPadA`` and ``TransposeLDS`` are 0
    in their logic files), so work-items of one column write to one bank. Kernels of matrix instructions have padding.
    """
    if engine != "contraction/simt":
        return 0.0
    s, operands = schedule, zip(layout.split("_"), (schedule["tile_n"], schedule["tile_m"]), strict=True)
    threads = s["tile_m"] // s["reg_m"] * (s["tile_n"] // s["reg_n"]) * s["slices"]
    extents = [extent for name, extent in operands if name[1] == "l"]
    return sum(4 * s["tile_k"] * extent * (_ways(s, extent, threads) - 1) for extent in extents)


def _ways(schedule: Schedule, extent: int, threads: int) -> int:
    """The most work-items, of those that write at the same time, that write to one bank.

    A vector is as wide as the thread tile and an even share of the tile allow.
    """
    depth = schedule["tile_k"]
    vector = min(math.gcd(schedule["reg_m"], schedule["reg_n"], 4), max(1, depth * extent // threads))
    along = max(1, depth // vector)  # work-items along the depth
    banks = Counter((vector * (item % along) * extent + item // along) % BANKS for item in range(min(threads, BANKS)))
    return max(banks.values())


def _of_threads(row: Row) -> dict[str, int]:
    reg_n, reg_m = map(int, row["tt"].split("_"))
    return PLAIN | {
        "tile_m": int(row["mt_j"]),
        "tile_n": int(row["mt_i"]),
        "tile_k": int(row["depth"]),
        "reg_m": reg_m,
        "reg_n": reg_n,
        "stages": 2,
        "slices": int(row["wg"].split("_")[2]),
        "splits": int(row["gsu"]),
    }


def _problem(
    layout: str, device: str, gemm: Gemm, engine: str, configured: Iterable[tuple[Schedule, float]]
) -> list[Space]:
    """The problem with the schedules that describe its configurations, in the order of the engine's space.

    Nothing if there are fewer than two.
    """
    target, family = target_of(device), FAMILIES[engine]
    if target is None:
        return []
    problem, times, left_out = family.problem(kernel_of(gemm)), dict[tuple[tuple[str, int], ...], float](), 0
    for schedule, us in configured:
        described = _described(schedule, family, problem, target.limits)
        if described is None:
            left_out += 1
            continue
        key = tuple((p.name, described[p.name]) for p in family.params)
        times[key] = min(times.get(key, np.inf), us)
    if len(times) < 2:
        return []
    ordered = sorted(times, key=lambda key: _place(family, key))
    return [Space(layout, device, gemm, engine, {key: times[key] for key in ordered}, left_out)]


def _described(schedule: Schedule, family: Family, problem: Sizes, limits: Limits) -> Schedule | None:
    """``schedule`` with as many stages as fit into local memory.

    ``None`` if none do, if a value is not in our space, or if sums and fragments do not fit into the registers. What else our
    kernel objects to, such as loads that its work-items cannot share evenly, says nothing of theirs.
    """
    if any(schedule[p.name] not in p.choices for p in family.params):
        return None
    assert family.work is not None
    for stages in range(schedule["stages"], 0, -1):
        s = family.schedule(dict(schedule, stages=stages))
        fits = family.work(s, problem).shared_bytes <= limits.shared_bytes
        if fits and not (isinstance(s, SimtSchedule) and any(_too_many_registers(s, family, problem, limits))):
            return dict(schedule, stages=stages)
    return None


def _too_many_registers(s: SimtSchedule, family: Family, problem: Sizes, limits: Limits) -> Iterator[str]:
    """With matrix instructions sums have registers of their own, so this is asked of other kernels only."""
    assert family.registers is not None
    return too_many_registers(limits, math.prod(family.geometry(s, problem).items), family.registers(s, problem))


def _place(family: Family, key: Sequence[tuple[str, int]]) -> list[int]:
    return [p.choices.index(value) for p, (_, value) in zip(family.params, key, strict=True)]


def predicted(space: Space) -> np.ndarray:
    """The model's times of the space's schedules, in microseconds."""
    target = target_of(space.device)
    if target is None or target.device is None:
        raise UsageError(f"nothing is known of {quote(space.device)}", code="GPC2001")
    wanted, launch = demand(kernel_of(space.gemm), target.device), space.facts(target.device).launch()
    us = predict(wanted, target.device, launch).total_us
    return np.asarray(us, float) + space.extra_us(target.device)
