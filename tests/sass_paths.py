"""Paths through machine code, as nvdisasm lists it."""

from __future__ import annotations

import re
from typing import NamedTuple

SECTION = re.compile(r"^\.text\.(\w+):$", re.MULTILINE)
LABEL = re.compile(r"^(\.L_x_\d+):")
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@(!?U?P\w+)\s+)?(([A-Z][A-Z0-9_]*)[^;]*);")
TARGET = re.compile(r"`\((\.L_x_\d+)\)")
ENDS = frozenset({"EXIT", "BRA", "RET"})  # without a predicate nothing goes on behind them
COMPUTED = frozenset({"BRX", "BRXU", "JMX", "JMP"})  # jumps that do not say where to


class Instruction(NamedTuple):
    opcode: str
    text: str
    conditional: bool
    targets: list[str]


USES = ("FFMA", "FADD", "FMUL", "HFMA2", "HADD2", "PRMT", "SHFL", "MUFU", "STS", "STG")  # of what was loaded


def kernels(listing: str) -> dict[str, str]:
    """The listing of each kernel, by its name."""
    _, *parts = SECTION.split(listing)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def before(listing: str, stop: str) -> list[str]:
    """The instructions of one kernel's listing that some path from its entry reaches without passing a ``stop``.

    More paths than there are: both ways at each predicate, and on from a call as well as into it.
    """
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in listing.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(found)
        elif match := INSTRUCTION.match(line):
            predicate, text, opcode = match.groups()
            found.append(Instruction(opcode, text.strip(), predicate is not None, TARGET.findall(text)))
    assert not COMPUTED & {i.opcode for i in found}
    for i in found:
        if i.opcode == "BSSY":  # names where threads meet again, and does not go there: that is the BSYNC's part
            assert found[labels[i.targets.pop()] - 1].opcode == "BSYNC"
    seen: set[int] = set()
    paths = [0]
    while paths:
        at = paths.pop()
        if at in seen or at >= len(found) or found[at].opcode == stop:
            continue
        seen.add(at)
        paths += [labels[name] for name in found[at].targets]
        if found[at].conditional or found[at].opcode not in ENDS:
            paths.append(at + 1)
    return [found[at].text for at in sorted(seen)]


def loads_together(listing: str) -> int:
    """The most global loads that one kernel's listing asks for one after the other, before anything is done with numbers."""
    longest = run = 0
    for line in listing.splitlines():
        match = INSTRUCTION.match(line)
        opcode = match[3] if match else ""
        run = run + 1 if opcode == "LDG" else 0 if opcode in USES else run
        longest = max(longest, run)
    return longest
