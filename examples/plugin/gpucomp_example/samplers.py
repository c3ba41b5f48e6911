"""A sampler: hill climbing from the best point so far."""

from optuna import Study
from optuna.trial import FrozenTrial

from gpucomp.tuning.samplers.base import PointSampler


class HillClimb(PointSampler):
    """A random untried neighbour of the best point, which differs in one parameter; any untried point if there is none."""

    best: tuple[float, int] | None = None

    def tell(self, point: int, value: float | None) -> None:
        super().tell(point, value)
        if value is not None and (self.best is None or value < self.best[0]):
            self.best = value, point

    def propose(self, study: Study, trial: FrozenTrial) -> int:
        neighbours = self._neighbours(self.best[1]) if self.best else []
        return int(self.rng.choice(neighbours)) if neighbours else self.ledger.draw()

    def _neighbours(self, point: int) -> list[int]:
        here = self.points.params(point)
        changed = (
            self.points.row({**here, name: value})
            for name, distribution in self.points.distributions.items()
            for value in getattr(distribution, "choices", ())
            if value != here[name]
        )
        return [row for row in changed if row is not None and not self.ledger.taken[row]]
