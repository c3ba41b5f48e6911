"""The launch geometry of a kernel: work-groups, work-items, and memory."""

from __future__ import annotations

from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Geometry:
    """Work-groups and work-items of a launch, x first. On the CPU ``groups[0]`` is the number of parallel tasks.

    Groups and bytes of global memory can be sizes that each run decides.
    """

    groups: tuple[int, int, int]
    items: tuple[int, int, int] = (1, 1, 1)
    dynamic_shared_bytes: int = 0
    workspace_bytes: int = 0  # scratch memory, needed only during the launch
    counter_bytes: int = 0  # zero before the first launch; each launch leaves it zero
