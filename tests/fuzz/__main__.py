"""Random models through the whole compiler, beside onnxruntime and ONNX's reference evaluator.

    python -m tests.fuzz [--target cpu --target opencl --target cuda:sm_80] [--minutes 10] [--models 1000] [--first 0]
                         [--workers 1] [--journal fuzz.jsonl] [--again] [--save DIR]

A model is its seed. Children draw, compile and run, many models each; one that ends without a word (a crash) or keeps
silent for --patience seconds of work (a hang) is a finding, and another takes over. What was tried is in the journal, a line a
model and target, and is not tried again; --again repeats what failed. --save writes what fails as .onnx and .npz.
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
from typing import Any

from bench.gpu.results import lines
from tests.fuzz.fleet import Fleet

PATIENCE_S = 60.0  # of the processor, for one model on one target
MOST_SHOWN = 20
Ended = Mapping[tuple[int, str], Mapping[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", help="repeatable; cuda:sm_80 is played on the CPU; default cpu")
    parser.add_argument("--minutes", type=float, default=10.0, help="after which no more are begun")
    parser.add_argument("--models", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--patience", type=float, default=PATIENCE_S, metavar="S")
    parser.add_argument("--journal", type=Path, default=Path("fuzz.jsonl"))
    parser.add_argument("--again", action="store_true", help="repeat what failed, and nothing else")
    parser.add_argument("--save", type=Path, metavar="DIR")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    targets = options.target or ["cpu"]
    if options.child:
        return serve(targets, options.save)
    options.journal.parent.mkdir(parents=True, exist_ok=True)
    ended = journalled(options.journal)
    if options.again:
        seeds = sorted({seed for (seed, target), entry in ended.items() if entry["fault"] and target in targets})
    else:
        wanted = range(options.first, options.first + options.models)
        seeds = (seed for seed in wanted if any((seed, target) not in ended for target in targets))
    command = [sys.executable, "-m", "tests.fuzz", "--child", *(f"--target={target}" for target in targets)]
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
        for entry in faults:
            print(f"  WRONG seed {entry['seed']}: {entry['fault'][:400]}")
        wrong += len(faults)
    return 1 if wrong else 0


def serve(targets: Sequence[str], save: Path | None) -> int:
    """The child: a seed a line in, a line of JSON for the drawing and for each target out."""
    from tests.fuzz.check import outcome, write
    from tests.fuzz.generate import draw

    for line in sys.stdin:
        drawn = draw(int(line))
        say({"ops": drawn.operators, "undecided": drawn.undecided} if drawn else {})
        for target in targets:
            start = time.perf_counter()
            found = outcome(drawn, target) if drawn else None
            said = {"fault": found.fault, "refused": found.refused} if found else {"fault": "", "refused": ""}
            spent = round(time.perf_counter() - start, 3)
            if drawn and save and said["fault"]:
                write(drawn, save / f"{int(line)}")  # before the answer: after the last one the child is killed
            say(said | {"s": spent})
    return 0


def say(entry: Mapping[str, Any]) -> None:
    print(json.dumps(entry), flush=True)


if __name__ == "__main__":
    sys.exit(main())
