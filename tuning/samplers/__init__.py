"""Search strategies by name. Each sees a table of legal points and hands out row numbers that nobody had before."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol

from gpucomp.errors import UsageError, quote

if TYPE_CHECKING:
    from gpucomp.tuning.prior import Prior
    from gpucomp.tuning.space import Candidates


class Sampler(Protocol):
    """One search over ``Candidates``, deterministic by its seed and what it is told.

    ask(count)            up to ``count`` row numbers that were neither asked for nor told before; fewer only at the
                          end of the space. Several may be under way at once.
    tell(point, seconds)  what a point took, None when it failed: it does not compile, crashes, is wrong, hangs. A
                          result from a record may be told without having been asked for.
    """

    def ask(self, count: int) -> list[int]: ...

    def tell(self, point: int, seconds: float | None) -> None: ...


# name -> (module, class): imported when asked for, so that only tpe needs optuna
SAMPLERS = {
    "model": ("gpucomp.tuning.samplers.model", "ModelSampler"),
    "tpe": ("gpucomp.tuning.samplers.tpe", "TpeSampler"),
    "genetic": ("gpucomp.tuning.samplers.genetic", "GeneticSampler"),
    "random": ("gpucomp.tuning.samplers.random", "RandomSampler"),
    "grid": ("gpucomp.tuning.samplers.grid", "GridSampler"),
}
DEFAULT = "model"


def create(name: str, candidates: Candidates, seed: int = 0, prior: Prior | None = None) -> Sampler:
    """The sampler ``name`` over ``candidates``. Raises ``UsageError`` for a name that is none of ``SAMPLERS``."""
    if name not in SAMPLERS:
        raise UsageError(f"sampler {quote(name)}: one of {', '.join(SAMPLERS)} expected")
    module, kind = SAMPLERS[name]
    sampler: Sampler = getattr(importlib.import_module(module), kind)(candidates, seed, prior)
    return sampler
