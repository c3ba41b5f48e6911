"""Measures what tuning gains on a device of this machine: models are tuned within a budget, built many times and compared.

    python -m bench.tune_models --budget 10m --builds 20 resnet18 mobilenet_v2 bert_base
    python -m bench.tune_models --target opencl --budget 16m --builds 20 squeezenet1_1
    python -m bench.tune_models --budget 2m --builds 3 resnet18 --work build/try --report build/try/tune.md

Every model is tuned once by ``gpucomp tune``. Then, ``--builds`` times, a new process compiles it with and without the records,
without a cache, and runs both in turn: untuned, tuned, untuned. A build's ratio is the median of each tuned sample over an
untuned one beside it, so that a neighbour on the same cores slows both. Processor time is reported beside wall time. All
results are kept in ``--work``, and a stopped call continues from there.

The memory layout of a process changes a model's time by a percent for as long as the process lives, and more rounds do not
average that out. So both models are compiled twice in each build and run equally often, and the order of compilation
changes. The difference between the two untuned ones shows how far a ratio can be from 1 by chance.
"""

from __future__ import annotations

import json
import math
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpucomp
from bench.models import MODELS, build, inputs
from bench.options import add_shared, parser_of
from gpucomp import config
from gpucomp.cli.compare import relative_error
from gpucomp.cli.tune import seconds
from gpucomp.targets import resolve
from gpucomp.tuning import records
from gpucomp.tuning.engines import hashes
from gpucomp.tuning.measure import interval

DEFAULT = ("resnet18", "mobilenet_v2", "bert_base")
ROOT = Path(__file__).parent
CLOSE = 1.2  # the untuned latency must be within this factor of the tuned one
LIMIT = 1e-4  # relative L2 error of the tuned model against the untuned one
ROUNDS, SECONDS = 200, 8.0
PORTFOLIO = 8  # shipped trials of each kernel and engine


def tuned(name: str, target: str, work: Path, budget: float, reduced: bool) -> Path:
    """The records of a model, tuned for the rest of ``budget`` seconds; nothing is done if that is used up."""
    folder = work / name
    folder.mkdir(parents=True, exist_ok=True)
    model, report, spent = folder / "model.onnx", folder / "tuned.json", folder / "spent"
    if report.exists():
        return folder / "records"
    if not model.exists():
        model.write_bytes(build(name, reduced=reduced).SerializeToString(deterministic=True))
    before = sum(map(float, spent.read_text().split())) if spent.exists() else 0.0
    left = max(budget - before, 30.0)
    command = [sys.executable, "-m", "gpucomp", "tune", str(model), "--target", target, "--budget", f"{left:.0f}s"]
    command += ["--records", str(folder / "records"), "--json", str(report)]
    command += ["--resume"] if (folder / "records").exists() else []
    begin = time.monotonic()
    try:
        with (folder / "log").open("ab") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log)
    finally:
        with spent.open("a") as file:
            file.write(f"{time.monotonic() - begin:.1f}\n")
    return folder / "records"


def compared(name: str, target: str, place: Path, rounds: int, limit_s: float, turn: int = 0) -> dict[str, Any]:
    """One build of a model for ``target`` with and without the records in ``place``, run in turn: times and ratios, in wall
    time and processor time. ``turn`` decides which is compiled first; ``apart`` is the time of one untuned model over the
    other's.
    """
    model, made, compile_s = place.parent / "model.onnx", {}, {}
    with tempfile.TemporaryDirectory() as folder, config.using(records=None, cache=None):
        for has_picks in (turn % 2 == 1, turn % 2 == 0):
            begin = time.perf_counter()
            exe = gpucomp.compile(model, target=target, records=place if has_picks else None)
            compile_s[has_picks] = time.perf_counter() - begin
            path = Path(folder) / f"{has_picks}.gpuc"
            exe.save(path)
            made[has_picks] = exe.kernels, [gpucomp.load(path) for _ in range(2)]
    (default_kernels, plain), (kernels, picked) = made[False], made[True]
    feeds = inputs(name) if not (place.parent / "reduced").exists() else inputs(build(name, reduced=True))
    expected, actual = plain[0].run(feeds), picked[0].run(feeds)
    error = max(relative_error(actual[output], expected[output]) for output in expected)

    def sample(exe: gpucomp.Executable) -> tuple[float, float]:
        wall, processor = time.perf_counter(), time.process_time()
        exe.run(feeds)
        return time.perf_counter() - wall, time.process_time() - processor

    for exe in (plain[1], picked[1]):
        exe.run(feeds)
    rows: list[list[tuple[float, float]]] = []  # each equally often after the other: what ran last is in the caches
    before, begin = sample(plain[0]), time.perf_counter()
    while len(rows) < 8 or len(rows) % 4 or (len(rows) < rounds and time.perf_counter() - begin < limit_s):
        middle, after = sample(picked[len(rows) % 2]), sample(plain[1 - len(rows) % 2])
        rows.append([before, middle, after])
        before = after
    # over the mean of both a model would look faster than itself: one of two is slow more often than a given one; so over
    # the copy before or after it, by turns
    ratios = [[m[k] / (a, b)[n // 2 % 2][k] for n, (a, m, b) in enumerate(rows)] for k in range(2)]
    low, high = interval(ratios[0])
    apart = [a[0] / b[0] if number % 2 else b[0] / a[0] for number, (a, _, b) in enumerate(rows)]
    tiers = [kernel.tier for kernel in kernels]
    same = [k.schedule for k in default_kernels] == [k.schedule for k in kernels]
    return {
        "model": name,
        "untuned_ms": 1e3 * statistics.median(a[0] for a, _, _ in rows),
        "tuned_ms": 1e3 * statistics.median(m[0] for _, m, _ in rows),
        "least_untuned_ms": 1e3 * min(a[0] for a, _, _ in rows),
        "least_tuned_ms": 1e3 * min(m[0] for _, m, _ in rows),
        "ratio": statistics.median(ratios[0]),
        "low": low,
        "high": high,
        "apart": statistics.median(apart),
        "processor_ratio": statistics.median(ratios[1]),
        "rounds": len(rows),
        "error": error,
        "compile_s": [compile_s[False], compile_s[True]],
        "same": same,
        "tiers": {tier: tiers.count(tier) for tier in sorted(set(tiers))},
    }


def builds(name: str, target: str, place: Path, count: int, rounds: int, limit_s: float) -> list[dict[str, Any]]:
    """``count`` builds, each in a new process; builds that were measured before are read."""
    path = place.parent / "builds.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    found = [one for one in found if "apart" in one]  # without those of an older version of this comparison
    while len(found) < count:
        command = [sys.executable, "-m", "bench.tune_models", "--one", name, target, str(place), str(rounds)]
        command += [str(limit_s), str(len(found))]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found[-1]) + "\n")
        one = found[-1]
        print(f"{name} build {len(found)}: {one['untuned_ms']:.3f} ms untuned, {one['tuned_ms']:.3f} ms tuned, "
              f"{one['ratio']:.4f} ({one['low']:.4f} to {one['high']:.4f}), untuned beside itself {one['apart']:.4f}",
              file=sys.stderr)  # fmt: skip
    return found[:count]


def slower(found: Sequence[dict[str, Any]]) -> int:
    """The number of builds that tuning made slower: the whole interval of their ratio is above what two untuned models differ.

    That difference is the 95th percentile over all builds: how far above 1 a ratio gets by memory layout alone.
    """
    apart = sorted(max(one["apart"], 1 / one["apart"]) for one in found)
    return sum(one["low"] > apart[math.ceil(0.95 * len(apart)) - 1] for one in found)


def row(name: str, place: Path, found: Sequence[dict[str, Any]]) -> str:
    """A model's row of the table."""
    report = json.loads((place.parent / "tuned.json").read_text(encoding="utf-8"))
    ratios = sorted(one["ratio"] for one in found)
    ratio = statistics.median(ratios)
    apart = statistics.median(max(one["apart"], 1 / one["apart"]) for one in found) - 1
    worst = max(one["error"] for one in found)
    measured, _ = records.everything([place])  # a resumed search would report only its own trials
    trials = sum(record["kind"] == "trial" for record in measured)
    picks = {record["kernel"]: record for record in measured if record["kind"] == "pick"}
    changed = sum(not pick.get("default", False) for pick in picks.values())
    untuned, chosen = (statistics.median(one[f"{k}_ms"] for one in found) for k in ("untuned", "tuned"))
    cells = [
        name, f"{untuned:.3f}", f"{chosen:.3f}", f"{1 / ratio:.3f}", f"{1 / ratios[-1]:.3f} to {1 / ratios[0]:.3f}",
        f"{1 / statistics.median(one['processor_ratio'] for one in found):.3f}", f"{100 * apart:.1f} %",
        f"{slower(found)} of {len(found)}",
        "yes" if 1 / ratio <= CLOSE else "no", f"{changed} of {len(report['tasks'])}", str(trials), f"{worst:.1e}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


HEADER = (
    "| model | untuned ms | tuned ms | gain | least and most of the builds | gain in processor time | untuned beside itself |"
    f" builds that are slower | untuned within {CLOSE} of tuned | schedules changed | trials | rel. L2 error |"
)


def ship(folder: Path, target: str, work: Path, builds_of: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Write the records that can be shipped with the package; return the models whose picks they contain.

    Only models without a slower or wrong build are included: their picks, and the trials that a search on another device may
    start with.
    """
    good = [n for n, found in builds_of.items() if not slower(found) and all(one["error"] <= LIMIT for one in found)]
    found, _ = records.everything([work / name / "records" for name in good]) if good else ([], [])
    device = resolve(target)
    file = f"{device.kind}_{device.arch}.jsonl"
    (folder / records.TRIALS).mkdir(parents=True, exist_ok=True)
    found = records.pruned(found, hashes())  # each trial once, and none of old templates
    picks = [r for r in found if r["kind"] == "pick"]
    records.write(folder / file, records.merged(picks))
    records.write(folder / records.TRIALS / file, records.merged(records.portfolio(found, PORTFOLIO)))
    return good


def page(rows: Sequence[str], target: str, budget: float, count: int) -> str:
    device = resolve(target)
    return "\n".join(
        [
            f"# Tuned for `{target}`",
            "",
            f"Each model was tuned for {budget / 60:.3g} minutes and then built {count} times with and without its records.",
            "Each build ran in a process of its own, with the tuned and the untuned model in turn. The gain is the untuned time",
            "over the tuned time, as the median of all builds. Each process has two copies of both models; `untuned beside",
            "itself` is the median difference of two untuned copies, which differ only in their addresses. A build is slower if",
            "the whole 95 % interval of its ratio is above 1 and above the difference of two copies in 95 % of the builds.",
            "`python -m bench.tune_models` makes this page.",
            f"{device.identity or device.name}, {device.arch}; Linux {platform.release()}.",
            "",
            HEADER,
            "|---" * 12 + "|",
            *rows,
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("bench.tune_models", __doc__)
    parser.add_argument(
        "models",
        nargs="*",
        default=list(DEFAULT),
        metavar="MODEL",
        help="one of " + ", ".join(MODELS) + " (default: " + ", ".join(DEFAULT) + ")",
    )
    parser.add_argument("--target", default="cpu", metavar="TARGET", help="cpu, opencl[:NAME] or cuda[:ARCH]")
    parser.add_argument("--budget", default="10m", metavar="TIME", help="time to tune each model: 90s, 10m")
    parser.add_argument(
        "--builds", type=int, default=20, metavar="N", help="number of times that each model is built and compared"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="largest number of rounds of a build")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help="time limit for the rounds of a build, in seconds"
    )
    add_shared(parser, "--reduced")
    parser.add_argument(
        "--work",
        type=Path,
        metavar="DIR",
        help="keep all results here, in a folder for each target (default: build/tune_models)",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="the page to write (default: bench/results/tune_TARGET.md)"
    )
    parser.add_argument(
        "--ship", type=Path, metavar="DIR", help="also write the records for the package to this folder"
    )
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.models if name not in MODELS]:
        parser.error(f"{unknown[0]}: one of {', '.join(MODELS)} expected")
    target, label = given.target, given.target.replace(":", "_")
    work = (given.work or Path("build/tune_models")) / label
    report = given.report or ROOT / "results" / f"tune_{label}.md"
    budget, rows, wrong = seconds(given.budget), [], 0
    builds_of: dict[str, list[dict[str, Any]]] = {}
    for name in given.models:
        (work / name).mkdir(parents=True, exist_ok=True)
        if given.reduced:
            (work / name / "reduced").touch()
        place = tuned(name, target, work, budget, given.reduced)
        found = builds_of[name] = builds(name, target, place, given.builds, given.rounds, given.seconds)
        wrong += any(one["error"] > LIMIT for one in found)
        rows.append(row(name, place, found))
        print(rows[-1], flush=True)
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(page(rows, target, budget, given.builds), encoding="utf-8")
    if given.ship is not None:
        print(f"records of {', '.join(ship(given.ship, target, work, builds_of)) or 'no model'} -> {given.ship}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        model, device, place, most, limit, turn = sys.argv[2:]
        print(json.dumps(compared(model, device, Path(place), int(most), float(limit), int(turn))))
    else:
        sys.exit(main())
