"""What published measurements say of how far a prediction is off: the numbers of ``gpucomp.schedule.uncertainty``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.measured.predict import Wanted
from gpucomp.kernel_bench.formats import Measured
from gpucomp.schedule.uncertainty import vendor_of
from gpucomp.targets.by_name import target_of

ENDS = (10, 90)  # percentiles: four of five are between
FEWEST = 10  # measurements that ends are taken from


@dataclass(frozen=True)
class Pooled:
    """Ratios of predicted over measured times of one vendor and kind.

    devices  how many
    ratio    the 10th, 50th and 90th percentile of all
    covered  the share that is between the ends that the other devices' measurements have; NaN if there are too few of these
    """

    vendor: str
    kind: str
    problems: int
    devices: int
    ratio: tuple[float, float, float]
    covered: float


def pooled(rows: Sequence[Measured], found: Mapping[Wanted, tuple[float, str]]) -> Iterator[Pooled]:
    """``found`` has each kernel's time and kind; a time of 0 is not known."""
    ratios: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        us, kind = found[row.device, row.spec]
        target = target_of(row.device)
        if us > 0 and target is not None:
            ratios[vendor_of(target), kind][row.device].append(us / row.us)
    for (vendor, kind), of in sorted(ratios.items()):
        whole = np.concatenate([*map(np.asarray, of.values())])
        low, middle, high = (float(q) for q in np.percentile(whole, (ENDS[0], 50, ENDS[1])))
        yield Pooled(vendor, kind, len(whole), len(of), (low, middle, high), _covered(of))


def _covered(of: Mapping[str, Sequence[float]]) -> float:
    inside = counted = 0
    for device, own in of.items():
        others = [ratio for other, ratios in of.items() if other != device for ratio in ratios]
        if len(others) >= FEWEST:
            low, high = np.percentile(others, ENDS)
            inside += sum(low <= ratio <= high for ratio in own)
            counted += len(own)
    return inside / counted if counted else float("nan")


def tables(found: Sequence[Pooled]) -> str:
    lines = ["| vendor | time of | problems | devices | p10 | p50 | p90 | other devices' ends have |", "|" + "---|" * 8]
    for one in found:
        ends = " | ".join(f"{ratio:.2f}" for ratio in one.ratio)
        lines.append(f"| {one.vendor} | {one.kind} | {one.problems} | {one.devices} | {ends} | {one.covered:.2f} |")
    return "\n".join(lines)
