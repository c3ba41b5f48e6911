"""Runs passes over graphs and kernels. Timing, checks, diffs and dumps are here and not in the rewrites."""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from pathlib import Path
from typing import Generic, TypeVar

from gpucomp import config
from gpucomp.errors import VerifyError
from gpucomp.ir.printer import Namer
from gpucomp.lazy_dataclass import dataclass

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What one pass did: its time, whether it changed the program, the number of ``unit`` before and after, fired rules."""

    name: str
    ms: float
    changed: bool
    before: int
    after: int
    fired: Mapping[str, int] = field(default_factory=dict)
    unit: str = "nodes"


@contextmanager
def _no_rules() -> Iterator[Mapping[str, int]]:
    yield {}


@dataclass(frozen=True, slots=True)
class Form(Generic[P]):
    """How to print, check and count programs of one kind (graphs or kernels).

    ``text`` takes the names of values from a ``Namer``. Names of dumped files begin with ``prefix``.
    """

    unit: str
    text: Callable[[P, Namer], str]
    check: Callable[[P], None]
    size: Callable[[P], int]
    start: str  # the program's name before the first pass
    prefix: str = ""
    rules: Callable[[], AbstractContextManager[Mapping[str, int]]] = _no_rules

    def diff(self, before: P, after: P, name: str) -> str:
        """A unified diff of two programs printed with shared names."""
        namer = Namer()
        old, new = (self.text(p, namer).splitlines(keepends=True) for p in (before, after))
        return "".join(difflib.unified_diff(old, new, f"before {name}", f"after {name}"))


def run_passes(
    program: P,
    passes: Sequence[tuple[str, Callable[[P], P]]],
    form: Form[P],
    observer: Callable[[PassRecord], None] | None = None,
    watch: Callable[[str, P], None] | None = None,
) -> P:
    """Run ``passes`` in order and return the result. A pass that changes nothing returns the same object.

    ``observer`` is called with a record after each pass. ``watch`` is called with the pass's name and the program after
    each pass, and with ``form.start`` and the program before the first.

    If ``GPUCOMP_VERIFY`` asks for checks, raises ``VerifyError`` that names the pass and its predecessors.
    """
    settings = config.current()
    size = form.size(program)
    dump = _Dump(settings.dump, form)
    dump.start(program)
    if watch is not None:
        watch(form.start, program)
    done: list[str] = []
    for step, (name, run) in enumerate(passes, start=1):
        before, start = program, time.perf_counter()
        with form.rules() as fired:
            program = run(before)
        ms = 1e3 * (time.perf_counter() - start)
        if settings.verify:
            _verify(program, form, name, done)
        done.append(name)
        changed = program is not before
        size_before, size = size, form.size(program) if changed else size
        record = PassRecord(name, ms, changed, size_before, size, dict(fired), form.unit)
        dump.after(step, name, before, program)
        if settings.debug:
            print(format_record(step, record, rules=settings.debug >= 2), file=sys.stderr)
        if settings.debug >= 3 and changed:
            print(form.diff(before, program, name), end="", file=sys.stderr)
        if observer is not None:
            observer(record)
        if watch is not None:
            watch(name, program)
    return program


def format_record(step: int, record: PassRecord, *, rules: bool = False) -> str:
    """``01 canonicalize             0.16 ms     7 ->    4 nodes``; with ``rules``, also one line per fired rule."""
    mark = f"{record.before:6} -> {record.after:5} {record.unit}" if record.changed else ""
    lines = [f"{step:02} {record.name:20} {record.ms:8.2f} ms {mark}".rstrip()]
    if rules:
        lines += [f"   {count:6} {name}" for name, count in sorted(record.fired.items())]
    return "\n".join(lines)


def _verify(program: P, form: Form[P], name: str, done: Sequence[str]) -> None:
    try:
        form.check(program)
    except VerifyError as error:
        path = f" (which ran after {', '.join(done)})" if done else ""
        raise VerifyError(f"after pass {name!r}{path}: {error.message}") from error


@dataclass(frozen=True, slots=True)
class _Dump(Generic[P]):
    """Writes programs to the folder that ``GPUCOMP_DUMP`` names; does nothing when it names none."""

    folder: Path | None
    form: Form[P]

    def start(self, program: P) -> None:
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(f"00-{self.form.start}.txt", self.form.text(program, Namer()))

    def after(self, step: int, name: str, before: P, program: P) -> None:
        if self.folder is not None:
            self._write(f"{step:02}-{name}.txt", self.form.text(program, Namer()))
            if program is not before:
                self._write(f"{step:02}-{name}.diff", self.form.diff(before, program, name))

    def _write(self, name: str, text: str) -> None:
        assert self.folder is not None
        (self.folder / f"{self.form.prefix}{name}").write_text(text, encoding="utf-8")
