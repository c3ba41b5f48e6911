"""Runs ONNX's conformance suite through the C runtime on the processor, without Python's.

    python -m bench.conformance.c_runtime [--only REGEX] [--jobs N] [--write]

Every case is compiled for cpu, saved, opened by libgpucomp_rt and run there; the results are compared as in
``bench.conformance``. Cases run in processes of their own workers, so that one that crashes is a wrong case and no more.
``--write`` writes bench/results/c_conformance.md. The exit status is 1 if a case is wrong.
"""

from __future__ import annotations

import multiprocessing
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import onnx

from bench.conformance.cases import Case, cases, light_cases, verdict
from bench.conformance.table import counts
from bench.options import parser_of
from gpucomp import compiler
from gpucomp.backend import Backend
from gpucomp.errors import UnsupportedError
from gpucomp.runtime.inputs import flattened, gathered
from testing.c_library import Model, Native, NativeError, folder, shared

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results" / "c_conformance.md"
REFUSED_BY_PYTHON = "not compiled: "
THREADS = 2


class Said(NamedTuple):
    """The verdict on a case, as of ``verdict``, and how many kernels its runs launched."""

    case: str
    verdict: str
    launches: int


def opened(
    library: Native,
    launched: list[int],
    model: onnx.ModelProto,
    shapes: Mapping[str, Any],
    constants: Mapping[str, Any],
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """``model`` compiled for the processor, saved, and opened by the library. Raises ``UnsupportedError`` where it refuses."""
    try:
        exe = compiler.compile(model, target="cpu", shapes=shapes, constants=constants)
    except UnsupportedError as error:
        raise UnsupportedError(REFUSED_BY_PYTHON + ("; ".join(error.problems) or error.message)) from error
    path = folder() / "case.gpuc"
    exe.save(path)
    try:
        context = Model(path, library).context(threads=THREADS)
        launched.append(context.model.info.launches)
    except NativeError as error:
        raise UnsupportedError(str(error).replace(repr(str(path)), "the file")) from error

    def run(feed: Mapping[str, Any]) -> Mapping[str, Any]:
        given: Any = flattened(feed, exe.plan.input_containers)
        return gathered(context.run(given), exe.plan.output_containers)

    return run


def say(case: Case, library: Native) -> Said:
    """The verdict on a case; an error of the library in a run is a wrong case."""
    launched: list[int] = []

    class CRuntime(Backend):
        @staticmethod
        def compile(
            model: onnx.ModelProto, _: str, shapes: Mapping[str, Any], constants: Mapping[str, Any]
        ) -> Callable[..., Any]:
            return opened(library, launched, model, shapes, constants)

    try:
        said = verdict(case, CRuntime)
    except NativeError as error:
        said = f"wrong: {error}"
    return Said(case.name, said, sum(launched))


def _work(names: Sequence[str], path: Path, to: Connection) -> None:
    """Say the verdict on each of ``names``."""
    library = Native(path)
    for name in names:
        to.send(say(cases().get(name) or light_cases()[name], library))
    to.close()


class Worker:
    """A process that says verdicts. One that dies takes a case with it; another goes on with the others."""

    def __init__(self, names: Sequence[str], library: Path) -> None:
        self.left, self.library = list(names), library
        self._start()

    def _start(self) -> None:
        self.answers, to = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("spawn").Process(target=_work, args=(self.left, self.library, to))
        self.process.start()
        to.close()

    def answer(self) -> Said:
        """The next verdict, once ``answers`` has one."""
        said: Said
        try:
            said = self.answers.recv()
        except EOFError:
            self.process.join()
            said = Said(self.left.pop(0), f"wrong: the process ended with {self.process.exitcode}", 0)
            if self.left:
                self._start()
            return said
        self.left.remove(said.case)
        return said


def verdicts(chosen: Sequence[str], jobs: int, library: Path) -> Iterator[Said]:
    """The verdict on each case, as they come."""
    workers = [Worker(chosen[k::jobs], library) for k in range(jobs) if chosen[k::jobs]]
    while workers := [worker for worker in workers if worker.left]:
        ready = wait([worker.answers for worker in workers])
        yield from (worker.answer() for worker in workers if worker.answers in ready)


def reason(said: str) -> str:
    """A verdict without what only one case has: the names of its tensors and its numbers."""
    return re.sub(r"(node|runs:) '.*?'", r"\1 ...", said.removeprefix("unsupported: "))


def page(said: Sequence[Said]) -> str:
    results = {one.case: one.verdict for one in said}
    found, refused = counts(results), Counter[str]()
    constant = sum(not one.launches and not one.verdict for one in said)
    examples: dict[str, list[str]] = {}
    for name, text in sorted(results.items()):
        if text.startswith("unsupported"):
            refused[reason(text)] += 1
            examples.setdefault(reason(text), []).append(name)
    others = [f"- `{name}`: {text}" for name, text in sorted(results.items()) if text.startswith("wrong")]
    rows = [
        f"| {number} | {text} | {', '.join(f'`{name}`' for name in examples[text][:3])} |"
        for text, number in sorted(refused.items(), key=lambda item: (-item[1], item[0]))
    ]
    return "\n".join(
        [
            "# ONNX's suite through the C runtime",
            "",
            f"`python -m bench.conformance.c_runtime --write`, onnx {onnx.__version__}: each case is compiled for `cpu`,",
            f"saved as a `.gpuc` file, opened by `libgpucomp_rt` and run there with {THREADS} threads. The tolerances are the",
            f"suite's. Inputs whose values decide shapes are constants, as in Python: {constant} of the right cases launch no",
            "kernel at all.",
            "",
            "| cases | right | coarse expectation | refused | wrong |",
            "| ---: | ---: | ---: | ---: | ---: |",
            f"| {len(results)} | {found['passed']} | {found['coarse']} | {found['unsupported']} | {found['wrong']} |",
            "",
            "## Refused",
            "",
            "By the sentence that the library says when it opens the file.",
            "",
            "| cases | sentence | for example |",
            "| ---: | --- | --- |",
            *rows,
            "",
            "## Not equal",
            "",
            "[Doubtful expectations](../../docs/conformance.md#doubtful-expectations) are among these, and fail in Python too.",
            "",
            *(others or ["None."]),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.conformance.c_runtime", __doc__)
    parser.add_argument("--only", default="", metavar="REGEX", help="run only cases whose names match")
    parser.add_argument("--no-light", action="store_true", help="leave out the nine real networks")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="number of processes")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args(arguments)
    every = cases() | ({} if options.no_light else light_cases())
    chosen = [name for name in every if re.search(options.only, name)]
    said: list[Said] = []
    told = time.monotonic()
    for one in verdicts(chosen, options.jobs, shared()):
        said.append(one)
        if one.verdict.startswith("wrong"):
            print(f"{one.case}: {one.verdict}", flush=True)
        if time.monotonic() - told > 20:
            told = time.monotonic()
            print(f"{len(said)} of {len(chosen)} cases", file=sys.stderr, flush=True)
    if options.write:
        RESULTS.write_text(page(said), encoding="utf-8")
    found = counts({one.case: one.verdict for one in said})
    print(
        f"{len(said)} cases, {found['passed']} right, {found['coarse']} with coarse expectations, "
        f"{found['unsupported']} refused, {found['wrong']} wrong"
    )
    return int(found["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
