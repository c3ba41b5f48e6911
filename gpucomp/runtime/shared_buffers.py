"""Shares whole buffers between temporaries by lifetime, for devices that cannot use parts of one arena. Only a plan is needed.

Some drivers fail with sub-buffers, and an arena may be larger than the largest allocation. A temporary that the plan
places on another one, in place, stays on it; the plan's offsets show this.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpucomp.artifact.plan import TEMP, Plan
from gpucomp.errors import ArtifactError
from gpucomp.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Shared:
    """``sizes`` in bytes of the buffers to allocate; ``of`` maps each temporary that has elements to its buffer."""

    sizes: tuple[int, ...]
    of: dict[int, int]


@dataclass
class _Place:
    """Temporaries placed on each other, and the launches from their first to their last use."""

    members: list[int]
    nbytes: int
    first: int
    last: int

    def lives_with(self, other: _Place) -> bool:
        return self.first <= other.last and other.first <= self.last


def share(plan: Plan) -> Shared:
    """Buffers for ``plan``'s temporaries. Two that live in the same launch share one only if the plan places them in place.

    Greedy by size, as TensorFlow Lite shares objects (Pisarchyk and Lee, arXiv 2001.03288): the largest first, each into the
    smallest buffer that is free during its life. Raises ``ArtifactError`` for a plan that places one inside another.
    """
    sizes: list[int] = []
    held: list[list[_Place]] = []
    of: dict[int, int] = {}
    for place in sorted(_places(plan), key=lambda p: (-p.nbytes, p.first)):
        free = [k for k, others in enumerate(held) if not any(place.lives_with(other) for other in others)]
        if free:
            chosen = min(free, key=lambda k: sizes[k])
        else:
            chosen = len(sizes)
            sizes.append(place.nbytes)
            held.append([])
        held[chosen].append(place)
        of |= dict.fromkeys(place.members, chosen)
    return Shared(tuple(sizes), of)


def _places(plan: Plan) -> list[_Place]:
    lives: dict[int, tuple[int, int]] = {}
    for number, launch in enumerate(plan.launches):
        for position in launch.args:
            lives[position] = (lives.get(position, (number, 0))[0], number)
    for repeat in plan.repeats:
        inside = {a for launch in plan.launches[repeat.first : repeat.last] for a in launch.args}
        for position in inside:
            first, last = lives[position]
            if first < repeat.first or last >= repeat.last:  # also used outside: then every step needs it
                lives[position] = min(first, repeat.first), max(last, repeat.last - 1)
    lives |= {position: (lives.get(position, (0, 0))[0], len(plan.launches)) for position in plan.outputs}
    places: list[_Place] = []
    temporaries = [k for k, b in enumerate(plan.buffers) if b.kind == TEMP and b.nbytes and k in lives]
    for position in sorted(temporaries, key=lambda k: lives[k]):
        own = _Place([position], plan.buffers[position].nbytes, *lives[position])
        for other in [p for p in places if any(_on_each_other(plan, lives, k, position) for k in p.members)]:
            places.remove(other)
            own = _joined(own, other)
        places.append(own)
    return places


def _joined(one: _Place, other: _Place) -> _Place:
    return _Place(
        [*other.members, *one.members],
        max(one.nbytes, other.nbytes),
        min(one.first, other.first),
        max(one.last, other.last),
    )


def _on_each_other(plan: Plan, lives: Mapping[int, tuple[int, int]], one: int, other: int) -> bool:
    """Whether two buffers have the same place in the arena while both live."""
    a, b = plan.buffers[one], plan.buffers[other]
    together = lives[one][0] <= lives[other][1] and lives[other][0] <= lives[one][1]
    if not together or a.offset >= b.offset + b.nbytes or b.offset >= a.offset + a.nbytes:
        return False
    if a.offset != b.offset:
        raise ArtifactError(
            f"buffer {b.name} begins inside {a.name}, which needs sub-buffers: this device has none",
            code="GPC7004",
        )
    return True
