"""The flow graph of one kernel's machine code: basic blocks, dominators, natural loops, the shortest way to an instruction.

A natural loop is that of a back edge, an edge to a block that dominates its source (Aho, Lam, Sethi, Ullman: Compilers, 9.6).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_MATH_OF_A_LOOP = 0.5  # share of a loop's math that a loop inside it has at least, if that one is the main loop


@dataclass(frozen=True, slots=True)
class Control:
    """The control code of a SASS instruction: what the assembler tells the scheduler.

    stall           cycles before the next instruction of the warp may issue
    yields          whether the scheduler had better go on with another warp
    write, read     the scoreboard that is released when the result is written, or the operands are read; 7: none
    waits           mask of the six scoreboards that have to be released before
    reuse           mask of the operands that stay in the reuse cache
    """

    stall: int
    yields: bool
    write: int
    read: int
    waits: int
    reuse: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """``name`` has its modifiers, ``text`` its operands too. ``targets`` are labels that a jump goes to.

    jumps        what follows is not, or not always, the next instruction
    goes_on      the next instruction may follow
    """

    name: str
    text: str
    predicate: str = ""
    targets: tuple[str, ...] = ()
    jumps: bool = False
    goes_on: bool = True
    control: Control | None = None

    @property
    def opcode(self) -> str:
        """The name before its first dot."""
        return self.name.partition(".")[0]


@dataclass(frozen=True)
class Listing:
    """The machine code of one kernel, and the positions of its labels."""

    instructions: Sequence[Instruction]
    labels: Mapping[str, int] = field(default_factory=dict)


class Block(NamedTuple):
    """Instructions ``first`` to ``last``, of which only the last one may jump; ``after``: numbers of blocks."""

    first: int
    last: int
    after: list[int]


def blocks(listing: Listing) -> list[Block]:
    """The basic blocks, in order. Where a computed jump goes to is not known: it ends the graph."""
    found, labels = listing.instructions, listing.labels
    heads = {0, *labels.values(), *(at + 1 for at, one in enumerate(found) if one.jumps)}
    starts = sorted(at for at in heads if at < len(found))
    number = {start: k for k, start in enumerate(starts)}
    result = []
    for k, start in enumerate(starts):
        last = (starts[k + 1] if k + 1 < len(starts) else len(found)) - 1
        one = found[last]
        after = [number[labels[name]] for name in one.targets if labels.get(name) in number]
        if one.goes_on and k + 1 < len(starts):
            after.append(k + 1)
        result.append(Block(start, last, after))
    return result


def dominators(graph: Sequence[Block]) -> list[int]:
    """For each block a mask of the blocks that are on every way from the entry to it; 0 for what no way reaches."""
    before: list[list[int]] = [[] for _ in graph]
    seen, waiting = {0}, [0]
    while waiting:
        at = waiting.pop()
        for to in graph[at].after:
            before[to].append(at)
            if to not in seen:
                seen.add(to)
                waiting.append(to)
    everything = (1 << len(graph)) - 1
    found = [everything if k in seen else 0 for k in range(len(graph))]
    found[0] = 1
    changed = True
    while changed:
        changed = False
        for k in sorted(seen - {0}):
            meet = everything
            for source in before[k]:
                meet &= found[source]
            if (meet := meet | 1 << k) != found[k]:
                found[k], changed = meet, True
    return found


def loops(graph: Sequence[Block]) -> Iterator[set[int]]:
    """The blocks of each natural loop; loops with the same first block are one."""
    over = dominators(graph)
    before: list[list[int]] = [[] for _ in graph]
    for k, block in enumerate(graph):
        for to in block.after:
            if over[k]:
                before[to].append(k)
    found: dict[int, set[int]] = {}
    for k, block in enumerate(graph):
        for head in block.after:
            if not over[k] >> head & 1:
                continue
            body, waiting = found.setdefault(head, {head}), [k]
            while waiting:
                at = waiting.pop()
                if at not in body:
                    body.add(at)
                    waiting += before[at]
    yield from found.values()


def main_loop(listing: Listing, is_math: Callable[[Instruction], bool]) -> list[Instruction] | None:
    """The instructions of the innermost loop with the most math; ``None`` if no loop has any.

    Each is there once, whether or not a branch or a predicate skips it. A loop around it counts instead if no loop inside has
    half of its math.
    """
    graph = blocks(listing)
    found = []
    for body in loops(graph):
        inside = [one for k in sorted(body) for one in listing.instructions[graph[k].first : graph[k].last + 1]]
        found.append((sum(map(is_math, inside)), body, inside))
    innermost = [
        (math, inside)
        for math, body, inside in found
        if math and not any(other < body and most >= MOST_MATH_OF_A_LOOP * math for most, other, _ in found)
    ]
    return max(innermost, key=lambda one: one[0])[1] if innermost else None


class Way(NamedTuple):
    """Instructions on a way, without the one that it leads to, and their cost."""

    instructions: int
    cost: int


def shortest(listing: Listing, cost: Callable[[Instruction], int], stop: Callable[[Instruction], bool]) -> Way | None:
    """The cheapest way from the entry to a ``stop``; ``None`` if there is none (Dijkstra over the blocks)."""
    graph = blocks(listing)
    queue, done = [(0, 0, 0)], set[int]()
    while queue:
        spent, passed, k = heapq.heappop(queue)
        if k in done:
            continue
        done.add(k)
        for one in listing.instructions[graph[k].first : graph[k].last + 1]:
            if stop(one):
                return Way(passed, spent)
            passed, spent = passed + 1, spent + cost(one)
        for to in graph[k].after:
            heapq.heappush(queue, (spent, passed, to))
    return None
