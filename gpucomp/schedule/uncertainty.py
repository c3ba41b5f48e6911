"""How far measured times are from the analytic model's: an interval around a prediction.

The ratios are those of published measurements of libraries' kernels, pooled by vendor and by what takes the time, as
``python -m bench.measured FOLDER --intervals`` prints them; ``bench/results/measured.md`` says which files and devices. Four of
five measurements are within, of devices that were left out when the ends were taken 0.7 to 0.8 of NVIDIA's and 0.6 to 0.8 of
AMD's. A library's kernel is another than ours, so the interval has what such kernels differ by in it too.

Two kernels that do the same work are mispredicted alike, so of a choice between two the intervals say little. ``SCHEDULES``,
``CLEAR`` and ``clearly_faster`` are of such choices; their numbers are from measured configurations of one kernel each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from gpucomp.device.device import Device
from gpucomp.device.target import Target
from gpucomp.schedule.model import Terms
from gpucomp.schedule.space import WARP

MATRIX = frozenset(
    f"contraction/{name}" for name in ("amd", "mma", "separable_mma", "stem_mma", "tcgen05", "wgmma")
)  # engines whose products are matrix units'
# predicted over measured, the 10th and the 90th percentile: by the vendor, and by what takes the time, as ``kind_of`` has it
RATIOS: Mapping[tuple[str, str], tuple[float, float]] = {
    ("nvidia", "attention"): (0.25, 0.77),  # H100, L40S; operators with about 10 us before they compute anything
    ("nvidia", "lanes"): (0.57, 1.72),  # A100 PCIe, P100, P4, T4, V100: f32 of PyTorch, many small ones batched
    ("nvidia", "launch"): (0.79, 1.11),  # A100, H100, L40S, in CUDA graphs
    ("nvidia", "matrix"): (0.86, 1.15),  # A100, H100, L40S: f16 and bf16 of cuBLAS
    ("nvidia", "memory"): (0.61, 0.99),  # all of them
    ("amd", "lanes"): (0.25, 1.15),  # MI50: MIOpen and rocBLAS, whatever solver was fastest
    ("amd", "launch"): (0.15, 0.61),  # MI50, MI100, where logs begin
    ("amd", "matrix"): (0.64, 1.27),  # MI100
    ("amd", "memory"): (0.42, 1.24),  # MI50, MI100
}
# ``python -m bench.measured FOLDER --order`` prints the numbers below: simt on a 2080 Ti, a 3060 and an MI50, amd on an MI100.
# The deviation of ln(measured / predicted) among the schedules of one kernel, around their median: 0.27, 0.21, 0.21 and 0.25.
# Errors that all share cancel, so it says nothing of RATIOS
SCHEDULES = 0.24
# By what takes the time, the launch not counted: the predicted gain from which four of five pairs of a kernel's schedules are
# in the predicted order. Of attention nothing is published
CLEAR: Mapping[str, float] = {"lanes": 1.34, "matrix": 1.21, "memory": 1.27, "attention": 1.34}
# The same for the model's first beside an engine's default. Of these engines, on AMD's devices with waves of 64, it was not
# slower in 43 of 48 problems, whatever gain was predicted. 1.05 chooses 1.065 and 1.090 times the optimum, where 1 has 1.051 and
# 1.082, and 1.1 has 1.090 twice: a margin is worth little there. Other defaults are from short lists that have proved good in
# other compilers, and of them little is published
FIRST_OF_MEASURED, FIRST = 1.05, 1.1
MEASURED = frozenset({"contraction/simt", "contraction/amd"})
Interval = tuple[float, float]


def kind_of(engine: str, terms: Terms) -> str:
    """What takes a kernel's time: ``attention``, the ``launch``, ``memory``, ``matrix`` units or arithmetic by ``lanes``."""
    if engine.startswith("attention"):
        return "attention"
    if terms.limiter in ("launch", "memory"):
        return terms.limiter
    return "matrix" if engine in MATRIX else "lanes"


def vendor_of(target: Target) -> str:
    """Whose GPU it is, as ``RATIOS`` has it; "" if nothing is published of its kind."""
    if target.kind == "cuda":
        return "nvidia"
    return "amd" if target.kind == "hip" or "amd" in target.features else ""


def interval(engine: str, terms: Terms, target: Target) -> Interval | None:
    """The least and the largest microseconds that four of five measurements are within; ``None`` if nothing is known.

    It need not have the prediction in it: attention, for example, is predicted too fast. No measurement is of launches that
    begin early, so the upper end is as if they did not.
    """
    ratios = RATIOS.get((vendor_of(target), kind_of(engine, terms)))
    if ratios is None:
        return None
    low, high = ratios
    return float(terms.total_us) / high, float(terms.total_us + terms.early_us) / low


class Predicted(Protocol):
    """A kernel's engine, and the model's terms."""

    @property
    def engine(self) -> str: ...

    @property
    def terms(self) -> Terms: ...


def clearly_faster(these: Sequence[Predicted], those: Sequence[Predicted], gain: float | None = None) -> bool:
    """Whether ``these`` kernels are predicted to be faster than ``those``, by more than the model may err between the two.

    ``gain`` is how many times as fast is clear; without it, the mean of ``CLEAR`` for ``these``, by their times. The launches of
    ``these`` do not count: that there are so many is certain.
    """
    launches = sum(float(one.terms.launch_us) for one in these)
    spent = [float(one.terms.total_us) - float(one.terms.launch_us) for one in these]
    others = sum(float(one.terms.total_us) for one in those)
    if not math.isfinite(sum(spent)):
        return False
    if gain is not None:
        wanted = gain * sum(spent)
    else:
        kinds = [kind_of(one.engine, replace(one.terms, launch_us=0.0)) for one in these]
        wanted = sum(CLEAR[kind] * us for kind, us in zip(kinds, spent, strict=True))
    return launches + wanted <= others < math.inf


def gain_over_default(engine: str, device: Device) -> float:
    """From which predicted gain on the model's first schedule, of ``engine``, is clearly faster than a default."""
    return FIRST_OF_MEASURED if device.wave > WARP and engine in MEASURED else FIRST


def together(intervals: Iterable[Interval | None]) -> Interval | None:
    """That of kernels one after the other, as if all of them erred alike; ``None`` if one has none."""
    known = list(intervals)
    if not known or None in known:
        return None
    return sum(one[0] for one in known if one), sum(one[1] for one in known if one)


def told(found: Interval | None, form: str = ".2f") -> str:
    """An interval in words, with a space before it; "" for none."""
    return "" if found is None else f" ({found[0]:{form}} to {found[1]:{form}})"
