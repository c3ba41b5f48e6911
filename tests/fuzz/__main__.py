"""Random models through the whole compiler, beside onnxruntime and ONNX's reference evaluator.

    python -m tests.fuzz [--target cpu --target opencl --target cuda:sm_80] [--minutes 10] [--models 1000] [--first 0]
                         [--any-size-of 4] [--workers 1] [--journal fuzz.jsonl] [--again] [--save DIR]

A model is its seed. Every fourth one, or as --any-size-of says, is also compiled for any size and run at several sizes, if it
was right at its own (``tests.fuzz.any_shape``; not for CUDA). Children draw, compile and run, many models each; one that ends
without a word (a crash) or keeps silent for --patience seconds of work (a hang) is a finding, and another takes over. What was
tried is in the journal, a line a model and target, and is not tried again; --again repeats what failed. --save writes what fails
as .onnx and .npz.
The exit status is 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.gpu.results import lines
from tests.fuzz.fleet import Fleet

if TYPE_CHECKING:
    from tests.fuzz.draft import Drawn

PATIENCE_S = 60.0  # of the processor, for one model on one target
MOST_SHOWN = 20
SHARE = 4  # one model in so many is compiled for any size too
Ended = Mapping[tuple[int, str], Mapping[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", help="repeatable; cuda:sm_80 is played on the CPU; default cpu")
    parser.add_argument("--minutes", type=float, default=10.0, help="after which no more are begun")
    parser.add_argument("--models", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument(
        "--any-size-of", type=int, default=SHARE, metavar="N", help="one model in N is for any size too; 0: none"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--patience", type=float, default=PATIENCE_S, metavar="S")
    parser.add_argument("--journal", type=Path, default=Path("fuzz.jsonl"))
    parser.add_argument("--again", action="store_true", help="repeat what failed, and nothing else")
    parser.add_argument("--save", type=Path, metavar="DIR")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    targets = options.target or ["cpu"]
    if options.child:
        return serve(targets, options.save, options.any_size_of)
    options.journal.parent.mkdir(parents=True, exist_ok=True)
    ended = journalled(options.journal)
    if options.again:
        seeds = sorted({seed for (seed, target), entry in ended.items() if entry["fault"] and target in targets})
    else:
        wanted = range(options.first, options.first + options.models)
        seeds = (seed for seed in wanted if any((seed, target) not in ended for target in targets))
    command = [sys.executable, "-m", "tests.fuzz", "--child", *(f"--target={target}" for target in targets)]
    command += [f"--any-size-of={options.any_size_of}"]
    command += [f"--save={options.save.absolute()}"] if options.save else []
    Fleet(iter(seeds), targets, command, options.journal, options.patience, options.minutes).run(options.workers)
    return report(journalled(options.journal), targets)


def journalled(path: Path) -> Ended:
    """The last word on each model and target."""
    return {(entry["seed"], entry["target"]): entry for entry in lines(path)}


def report(ended: Ended, targets: Sequence[str]) -> int:
    """Print what the journal holds; the exit status."""
    wrong = 0
    for target in targets:
        entries = [entry for (_, name), entry in ended.items() if name == target]
        faults = [entry for entry in entries if entry["fault"]]
        ops = Counter(op for entry in entries for op in entry.get("ops", ()))
        refusals = Counter(entry["refused"] for entry in entries if entry.get("refused"))
        undecided = Counter(text for entry in entries for text in entry.get("undecided", ()))
        print(
            f"{target}: {len(entries)} models of {sum(ops.values())} nodes of {len(ops)} operators: {len(faults)} wrong,"
            f" {sum(refusals.values())} refused; {sum(undecided.values())} nodes undecided"
        )
        for word, counts in (("refused", refusals), ("undecided", undecided)):
            for text, count in counts.most_common(MOST_SHOWN):
                print(f"  {word} {count}: {text[:200]}")
        print(end=told_of_any_size(entries))
        for entry in faults:
            print(f"  WRONG seed {entry['seed']}: {entry['fault'][:400]}")
        wrong += len(faults)
    return 1 if wrong else 0


def told_of_any_size(entries: Sequence[Mapping[str, Any]]) -> str:
    """What the models that were compiled for any size too came to."""
    own = [entry["any_size"] for entry in entries if entry.get("any_size")]
    refusals = Counter(found["refused"] for found in own if found["refused"])
    runs = [found["runs"] for found in own if not found["refused"]]
    head = (
        f"  for any size: {len(own)} models, {sum(runs)} runs, {runs.count(0)} for no sizes, {refusals.total()} refused"
    )
    lines = [f"  refused {count} for any size: {text[:200]}" for text, count in refusals.most_common(MOST_SHOWN)]
    return "\n".join([head, *lines, ""]) if own else ""


def serve(targets: Sequence[str], save: Path | None, share: int) -> int:
    """The child: a seed a line in, a line of JSON for the drawing and for each target out."""
    from tests.fuzz.check import write
    from tests.fuzz.generate import draw

    for line in sys.stdin:
        seed = int(line)
        drawn = draw(seed)
        say({"ops": drawn.operators, "undecided": drawn.undecided} if drawn else {})
        for target in targets:
            start = time.perf_counter()
            said = judged(drawn, seed, target, share) if drawn else {"fault": "", "refused": ""}
            spent = round(time.perf_counter() - start, 3)
            if drawn and save and said["fault"]:
                write(drawn, save / f"{seed}")  # before the answer: after the last one the child is killed
            say(said | {"s": spent})
    return 0


def judged(drawn: Drawn, seed: int, target: str, share: int) -> dict[str, Any]:
    """How one model ended on one target; one in ``share`` for any size too."""
    from tests.fuzz import any_shape
    from tests.fuzz.check import outcome

    found = outcome(drawn, target)
    said: dict[str, Any] = {"fault": found.fault, "refused": found.refused}
    if found.fault or found.refused or target.startswith("cuda") or not share or seed % share:
        return said
    free = any_shape.check(drawn, seed, target)
    if free is not None:
        said["fault"] = f"for any size: {free.fault}" if free.fault else ""
        said["any_size"] = {"runs": free.runs, "refused": free.refused}
    return said


def say(entry: Mapping[str, Any]) -> None:
    print(json.dumps(entry), flush=True)


if __name__ == "__main__":
    sys.exit(main())
