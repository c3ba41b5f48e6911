"""A program for every size in a range: machine code and weights once, and a plan for each set of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpucomp.artifact.open_plan import OpenPlan
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.lanes import Lane, Lanes


class OpenProgram:
    """``open_plan`` with what its kernels need, as for ``Executable``."""

    def __init__(
        self,
        open_plan: OpenPlan,
        sources: Mapping[str, str],
        binaries: Mapping[str, bytes],
        weights: Mapping[str, np.ndarray],
        example: Mapping[str, int],
    ) -> None:
        """``example`` has the sizes for which everything was decided that decides only speed."""
        self.open_plan, self.example = open_plan, example
        self.sources, self.binaries = sources, binaries
        self.lanes = Lanes(weights, open_plan.plan.kind)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The weights, where the first opened program keeps them."""
        return self.lanes.weights

    def at(self, sizes: Mapping[str, int]) -> Executable | None:
        """The executable for ``sizes``, ready in well under a millisecond; ``None`` if the plan is not for these sizes."""
        sized = self.open_plan.at(sizes)
        if sized is None:
            return None
        return Executable(sized, self.sources, self.binaries, self.weights, lanes=self.lanes, example=self.example)

    def opened(self, lane: Lane, sizes: Mapping[str, int]) -> Any:
        """A program for ``sizes`` that nobody else uses; ``None`` if the plan is not for these sizes."""
        exe = self.at(sizes)
        if exe is None:
            return None
        program: Any = exe._opened(lane)
        # the first one in a lane is what others are made of
        return program.resized(exe._plan) if program is lane.first else program
