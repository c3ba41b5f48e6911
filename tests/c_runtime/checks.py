"""What tools say of the C runtime: ``make check-native``.

    python -m tests.c_runtime.checks [--mutations N] [--write]

Changed files under AddressSanitizer and UBSan, contexts on several threads under ThreadSanitizer and under valgrind, and
clang-tidy. ``--write`` writes bench/results/c_checks.md. The exit status is 1 if one of them has found something.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import gpucomp
from bench import models
from testing.c_library import COMPILERS, CPU_SOURCES, NATIVE, build, folder
from tests.c_runtime.fuzz import small
from tests.c_runtime.models import any_size, fixed, generator

HERE = Path(__file__).parent
ROOT = NATIVE.parents[1]
RESULTS = ROOT / "bench" / "results" / "c_checks.md"
TIDY, VALGRIND, PLAIN_TARGET = "clang-tidy-19", "valgrind", "cpu:x86-64-v3"  # valgrind does not know AVX-512
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")
FOR_VALGRIND = ("digits", "int8", "lstm", "lstm_both_ways", "straight", "bert", "mobilenet_v2")
FAULT = 9


def answer(command: Sequence[str | Path], seconds: int) -> str:
    """What a program says before it fails, "" for one that succeeds and is silent."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    told = done.stdout + done.stderr
    return told or (f"it ended with {done.returncode}" if done.returncode else "")


def races(path: Path, threads: int = 4, runs: int = 12) -> str:
    """What ThreadSanitizer says of contexts on several threads."""
    compiler = COMPILERS[0]
    fences = ("-Wno-tsan",) if compiler == "gcc" else ()  # it does not follow them; a lock is behind each
    options = ("-fsanitize=thread", "-g", "-O1", *fences)
    program = build("contexts.threads", [HERE / "contexts.c", *CPU_SOURCES], *options, compiler=compiler)
    return answer([program, path, str(threads), str(runs)], 500)


def faults(path: Path, threads: int = 2, runs: int = 2) -> str:
    """What valgrind says of the same: wrong accesses, values that are not set, memory that is not freed."""
    program = build("contexts", [HERE / "contexts.c", *CPU_SOURCES], "-g", "-O1")
    tool = [VALGRIND, "--quiet", f"--error-exitcode={FAULT}", "--leak-check=full"]
    return answer([*tool, program, path, str(threads), str(runs)], 500)


def lint() -> str:
    """What clang-tidy says, which counts what it does not show on its standard error."""
    files = [*sorted((NATIVE / "src").glob("*.c")), *sorted((NATIVE / "tools").glob("*.c"))]
    command = [TIDY, "--quiet", *files, "--", "-std=c11", f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    return done.stdout or (done.stderr if done.returncode else "")


def changed(path: Path, seed: int, count: int) -> tuple[str, dict[str, int]]:
    """Open ``count`` changes of a file: what sanitizers say, and how many ended with each code."""
    files = [HERE / "mutate.c", HERE / "mutations.c", *CPU_SOURCES]
    program = build("mutate.cpu", files, f"-I{NATIVE / 'src'}", *SANITIZED)
    done = subprocess.run(
        [program, path, str(seed), str(count)], capture_output=True, text=True, timeout=3600, check=False
    )
    if done.returncode or done.stderr:
        return done.stderr or f"it ended with {done.returncode}", {}
    first, *rest = done.stdout.splitlines()
    return "", {"opened": int(first.split()[0]), **{line.split()[0]: int(line.split()[1]) for line in rest}}


class Check(NamedTuple):
    tool: str
    what: str
    found: str  # "" is nothing
    seconds: float

    def row(self) -> str:
        return f"| {self.tool} | {self.what} | {'found something' if self.found else 'nothing'} | {self.seconds:.0f} |"


def mutations(count: int) -> Iterator[Check]:
    """``count`` changed files, of models of each kind."""
    paths = {name: fixed(name)[1] for name in ("digits", "int8", "lstm")}
    paths |= {"any size": any_size()[1], "states of any size": generator()[1]}
    for number, (name, path) in enumerate(paths.items(), start=1):
        begin = time.monotonic()
        smaller = path.with_suffix(".small")
        smaller.write_bytes(small(path))
        told, codes = changed(smaller, number, count // len(paths))
        opened = codes.pop("opened", 0)
        what = (
            f"{count // len(paths):,} changes of {name}: {opened:,} opened, the others have one of {len(codes)} codes"
        )
        yield Check("AddressSanitizer, UBSan", what, told, time.monotonic() - begin)


def everything(count: int) -> Iterator[Check]:
    yield from mutations(count)
    whole = folder() / "mobilenet_v2.whole.gpuc"
    gpucomp.compile(models.build("mobilenet_v2"), target="cpu").save(whole)
    for name, path in {"mobilenet_v2": whole, "lstm": fixed("lstm")[1], "digits": fixed("digits")[1]}.items():
        begin = time.monotonic()
        told = races(path)
        yield Check("ThreadSanitizer", f"{name}: contexts on 4 threads", told, time.monotonic() - begin)
    for name in FOR_VALGRIND if shutil.which(VALGRIND) else ():
        begin = time.monotonic()
        told = faults(fixed(name, PLAIN_TARGET)[1])
        yield Check(VALGRIND, f"{name}: contexts on 2 threads", told, time.monotonic() - begin)
    if shutil.which(TIDY):
        begin = time.monotonic()
        yield Check(TIDY, "gpucomp/native, by its .clang-tidy", lint(), time.monotonic() - begin)


def page(rows: Sequence[Check], count: int) -> str:
    return "\n".join(
        [
            "# Checks of the C runtime",
            "",
            f"`python -m tests.c_runtime.checks --mutations {count} --write` (`make check-native`). Changed files have right",
            "digests and checksums; they are opened and a context is made. Contexts run and are ended on several threads, which",
            "also share one more, and open the file again.",
            "",
            "| tool | what | found | s |",
            "| --- | --- | --- | ---: |",
            *(row.row() for row in rows),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.c_runtime.checks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--mutations", type=int, default=100_000, metavar="N", help="number of changed files (100000)")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args(arguments)
    rows = []
    for check in everything(options.mutations):
        print(f"{check.row()}\n{check.found}".strip(), flush=True)
        rows.append(check)
    if options.write:
        RESULTS.write_text(page(rows, options.mutations), encoding="utf-8")
    return int(any(row.found for row in rows))


if __name__ == "__main__":
    sys.exit(main())
