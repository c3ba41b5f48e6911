"""How sure the order of two predictions is: of two schedules of one kernel, and of the model's first and an engine's default.

Where measured schedules have the predicted gain g, the share that is in the predicted order is taken to be Phi(ln g / s),
with s the deviation of the error of such a gain. The gain from which four of five are in order is the one that
``gpucomp.schedule.uncertainty`` calls clear.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from bench.measured.kernels import kernel_of
from bench.measured.spaces import Space, predicted
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.schedule.analytic import demand
from gpucomp.schedule.model import predict
from gpucomp.schedule.uncertainty import kind_of
from gpucomp.targets.by_name import target_of
from gpucomp.tuning.samplers.model import normal_cdf

SURE = 0.8  # the share of pairs in order from which a gain is clear
LARGEST = 3.0  # predicted gains that pairs are taken up to
DEVIATIONS = np.geomspace(0.01, 3.0, 400)  # that s is sought among
MARGINS = (1.0, 1.05, 1.1, 1.2, 1.4)


@dataclass(frozen=True)
class Order:
    """Of a file's schedules whose time is of one kind.

    error  the deviation of ln(measured / predicted) around its median in each problem
    clear  the predicted gain from which four of five pairs are in order
    """

    file: str
    kind: str
    schedules: int
    pairs: int
    error: float
    clear: float


@dataclass(frozen=True)
class Default:
    """Of a file's problems: times over the optimum, geometric means.

    right    of how many problems the schedule that the model ranks first is at least as fast as the default
    chosen   by a margin: what is chosen over the optimum, if the first is taken from this predicted gain over the default on
    """

    file: str
    problems: int
    exact: int
    default: float
    first: float
    right: int
    chosen: dict[str, float]


def kinds_of(space: Space) -> list[str]:
    """What takes each schedule's time, its launch not counted: all have one."""
    target = target_of(space.device)
    assert target is not None
    assert target.device is not None
    terms = predict(demand(kernel_of(space.gemm), target.device), target.device, space.facts(target.device).launch())
    return [kind_of(space.engine, replace(terms.row(k), launch_us=0.0)) for k in range(len(space.times))]


def orders(file: str, spaces: Sequence[Space]) -> Iterator[Order]:
    errors: dict[str, list[np.ndarray]] = defaultdict(list)
    gains: dict[str, list[np.ndarray]] = defaultdict(list)
    right: dict[str, list[np.ndarray]] = defaultdict(list)
    for space in spaces:
        us, measured, kinds = predicted(space), np.array(list(space.times.values())), np.array(kinds_of(space))
        runs = np.isfinite(us)
        logs = np.log(np.stack([us[runs], measured[runs]]))
        off = logs[1] - logs[0]
        for kind in sorted(set(kinds[runs])):
            own = kinds[runs] == kind
            errors[kind].append((off - np.median(off))[own])
            i, j = np.triu_indices(int(own.sum()), 1)
            gain, actual = logs[:, own][:, j] - logs[:, own][:, i]
            actual, gain = np.where(gain < 0, -actual, actual), np.abs(gain)
            kept = (gain > 0) & (gain < np.log(LARGEST))
            gains[kind].append(gain[kept])
            right[kind].append(actual[kept] > 0)
    for kind, own_errors in errors.items():
        gain, ordered = np.concatenate(gains[kind]), np.concatenate(right[kind])
        error = np.concatenate(own_errors)
        if len(gain):
            clear = float(np.exp(NormalDist().inv_cdf(SURE) * deviation(gain, ordered)))
            yield Order(file, str(kind), len(error), len(gain), float(error.std()), clear)


def deviation(gain: np.ndarray, ordered: np.ndarray) -> float:
    """The most likely s: ``gain`` are logarithms of predicted gains, ``ordered`` whether the measured ones have their sign."""
    signed = np.where(ordered, gain, -gain)
    losses = [-np.log(np.maximum(normal_cdf(signed / s), 1e-12)).sum() for s in DEVIATIONS]
    return float(DEVIATIONS[int(np.argmin(losses))])


def default_of(file: str, spaces: Sequence[Space]) -> Default:
    """The default is stood for by the configuration that differs least from it, in powers of two."""
    rows = []
    for space in spaces:
        target, family = target_of(space.device), FAMILIES[space.engine]
        assert target is not None
        own = family.default(family.problem(kernel_of(space.gemm)), target.limits).numbers
        apart = [sum(abs(np.log2(max(v, 0.5) / max(own[name], 0.5))) for name, v in key) for key in space.times]
        us, measured = predicted(space), np.array(list(space.times.values()))
        start, first = int(np.argmin(apart)), int(np.argmin(us))
        rows.append((us[start] / us[first], *(measured[[start, first]] / measured.min()), min(apart) == 0))
    gain, start, first, exact = np.array(rows).T
    chosen = {str(m): _mean(np.where(gain >= m, first, start)) for m in MARGINS}
    right = int((first <= start).sum())
    return Default(file, len(rows), int(exact.sum()), _mean(start), _mean(first), right, chosen)


def _mean(ratios: np.ndarray) -> float:
    return float(np.exp(np.log(ratios).mean()))


def tables(found: Sequence[Order], defaults: Sequence[Default]) -> str:
    lines = ["| space | time of | schedules | error | pairs | four of five in order from |", "|" + "---|" * 6]
    for one in found:
        lines.append(f"| {one.file} | {one.kind} | {one.schedules} | {one.error:.2f} | {one.pairs} | {one.clear:.2f} |")
    head = " | ".join(f"first from {m:g}" for m in MARGINS)
    lines += [
        "",
        f"| space | problems | with the default | default / optimum | first not slower | {head} |",
        "|" + "---|" * 10,
    ]
    for one in defaults:
        chosen = " | ".join(f"{ratio:.3f}" for ratio in one.chosen.values())
        lines.append(f"| {one.file} | {one.problems} | {one.exact} | {one.default:.3f} | {one.right} | {chosen} |")
    return "\n".join(lines)
