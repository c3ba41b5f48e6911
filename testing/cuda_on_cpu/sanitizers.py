"""Parses the reports of ThreadSanitizer, AddressSanitizer and the alignment check. Nothing is run here."""

import re
from dataclasses import dataclass

# "    #1 gc_unit_0_k_gemm k_gemm.cu:12 (kernels-...)"; only kernel sources end in .cu
FRAME = re.compile(r"^\s+#\d+ .*?(?P<file>[\w./-]+\.cu):(?P<line>\d+)", re.MULTILINE)
ACCESS = re.compile(
    r"^  (?:Previous )?(?P<what>(?:atomic )?(?:read|write)) of size (?P<size>\d+)"
    r" at \S+ by (?:thread )?(?P<who>.*?):",
    re.MULTILINE | re.IGNORECASE,
)
RACE = "WARNING: ThreadSanitizer: data race"
THREAD = re.compile(r"^  Thread (?P<number>T\d+) '(?P<name>CUDA thread \([\d, ]+\)|the async proxy)'", re.MULTILINE)
LOCATION = re.compile(r"^  Location is global '(?:.*::)?(?P<name>\w+)'", re.MULTILINE)


@dataclass(frozen=True)
class Access:
    """One side of a race: "read" or "write", its bytes, the line of the CUDA source, the thread."""

    what: str
    size: int
    line: int | None
    thread: str

    def __str__(self) -> str:
        return f"{self.what} of {self.size} bytes in line {self.line} by {self.thread}"


@dataclass(frozen=True)
class Race:
    """Two accesses to the same place, at least one of them a write, without a barrier between them."""

    first: Access
    second: Access
    variable: str | None  # a __shared__ array; None for memory without a known name

    def __str__(self) -> str:
        return f"{self.variable or 'unnamed memory'}: {self.first} against {self.second}"


def races(log: str) -> tuple[Race, ...]:
    """The data races in ThreadSanitizer's output."""
    return tuple(_race(report) for report in log.split(RACE)[1:])


def _race(report: str) -> Race:
    heads = list(ACCESS.finditer(report))
    if len(heads) != 2:
        raise ValueError(f"a ThreadSanitizer report with {len(heads)} accesses:\n{report}")
    names = {match["number"]: match["name"] for match in THREAD.finditer(report)}
    first, second = (_access(head, report[head.end() :], names) for head in heads)
    location = LOCATION.search(report)
    return Race(first, second, location["name"] if location else None)


def _access(head: re.Match[str], after: str, names: dict[str, str]) -> Access:
    frame = FRAME.search(after.split("\n\n")[0])
    return Access(
        what=head["what"].lower(),
        size=int(head["size"]),
        line=int(frame["line"]) if frame else None,
        thread=names.get(head["who"], head["who"]),
    )


def memory_error(log: str) -> str | None:
    """One line on the error that AddressSanitizer reported, or None."""
    error = re.search(r"ERROR: AddressSanitizer: (?P<what>.*?)(?: on (?:unknown )?address.*)?$", log, re.MULTILINE)
    if not error:
        return None
    access = re.search(r"^(READ|WRITE) of size (\d+)", log, re.MULTILINE)
    frame = FRAME.search(log)
    place = re.search(r"is located (\d+ bytes .*? of \d+-byte region|\d+ bytes .*? of global variable '[^']*')", log)
    return ", ".join(
        part
        for part in (
            error["what"],
            f"{access[1].lower()} of {access[2]} bytes" if access else "",
            f"in line {frame['line']}" if frame else "",
            place[1] if place else "",
        )
        if part
    )


def misaligned_access(log: str) -> str | None:
    """One line on a vector access that would trap on a device, or None."""
    error = re.search(
        r"(?P<line>\d+):\d+: runtime error: (?P<what>\w+ .*?misaligned address) \S+ (?P<type>for type .*)$",
        log,
        re.MULTILINE,
    )
    return error and f"{error['what']} {error['type']}, in line {error['line']}"
