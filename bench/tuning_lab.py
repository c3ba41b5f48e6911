"""Compares gpucomp's samplers, optuna's TPE and Kernel Tuner's strategies on recorded spaces.

    python -m bench.tuning_lab --environment ENV --output bench/results FILE.json.gz ...

With 20 seeds this takes more than an hour for each file. With --seeds 2 --altered-seeds 0 it takes five to ten minutes on an idle
machine, most of it for Kernel Tuner's strategies.

Every search has the same budget of different configurations; a failing configuration costs as much as another. Kernel Tuner
runs in its simulation mode in an environment of its own, which is installed from the network and removed at the end; with
--environment it is kept. The results are tuning_lab.md, .json and .svg. --kernel-tuner FILE reads the curves of an earlier run
of bench/tuning_lab_kernel_tuner.py instead. Altered versions of the files are searched too, and so are --own FILE ..., spaces
that were measured here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import cast

import numpy as np

from bench import tuning_lab_held_out
from bench.options import parser_of
from bench.tuning_lab_held_out import ALTERATIONS, RECORDED, altered, differs
from gpucomp.errors import several
from gpucomp.tuning import samplers
from gpucomp.tuning.prior import Prior
from gpucomp.tuning.recorded import Recorded, read
from gpucomp.tuning.replay import BUDGETS, Search, interval, search
from gpucomp.tuning.samplers import DEFAULT, named

HERE = Path(__file__).parent
KERNEL_TUNER = "kernel_tuner>=1.5"
SHOWN = ("model", "tpe", "genetic", "random")  # lines of the plot, beside Kernel Tuner's best strategy
NEAR = 0.97  # share of the optimum that a search with records is expected to reach
HARD = 0.97  # an altered space in which random search reaches more after 100 trials says nothing
TOLD_S = 20.0  # between two lines about the searches of one sampler
TRANSFER = BUDGETS[:3]  # trials of a search that starts from records
COLOURS = ("#1b6ac9", "#d1495b", "#3f9b4b", "#888888", "#b07d12")

Curves = dict[str, dict[str, np.ndarray]]  # engine -> file -> fraction of the optimum [seeds, trials]


def environment(folder: Path) -> Path:
    """The interpreter of an environment with Kernel Tuner."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", KERNEL_TUNER], check=True)
    return python


def kernel_tuner(files: Sequence[Path], seeds: int, trials: int, folder: Path | None, curves: Path) -> None:
    """Write the curves of Kernel Tuner's strategies. ``folder`` keeps its environment; without one it is removed."""
    with tempfile.TemporaryDirectory(prefix="gpucomp-kernel-tuner-") as temporary:
        said("Kernel Tuner: preparing its environment")
        python = environment(folder or Path(temporary) / "environment")
        command = [python, HERE / "tuning_lab_kernel_tuner.py", "--seeds", seeds, "--trials", trials]
        subprocess.run([str(part) for part in (*command, "--output", curves, *files)], check=True)


def said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def read_kernel_tuner(path: Path, spaces: Mapping[str, Recorded], trials: int) -> Curves:
    collected: dict[str, dict[str, list[list[float]]]] = {}
    for row in json.loads(path.read_text(encoding="utf-8")):
        if (space := spaces.get(row["file"])) is not None:
            fractions = [space.optimum / t if t else 0.0 for t in row["best"][:trials]]
            collected.setdefault(f"kernel tuner {row['strategy']}", {}).setdefault(row["file"], []).append(fractions)
    complete = {
        name: own for name, own in collected.items() if len(own) == len(spaces)
    }  # tables have a mean over all files
    return {name: {f: np.array(v) for f, v in own.items()} for name, own in complete.items()}


def fingerprint(paths: Iterable[Path], *words: object) -> str:
    """A hash of the contents of files and of ``words``: everything that a search's curves depend on."""
    found = hashlib.sha256(repr(words).encode())
    for path in paths:
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def searchers() -> list[Path]:
    """The source files that decide how a search goes: all of the tuner's."""
    return sorted(Path(samplers.__file__).parent.parent.rglob("*.py"))


class Cache:
    """Curves of earlier searches by name, so that an interrupted run continues.

    contents  the content of each space's file. If it, the tuner's sources or the seeds change, the search is repeated
    """

    def __init__(self, folder: Path | None, contents: Mapping[str, str], sources: Sequence[Path] | None = None) -> None:
        self.folder, self.contents = folder, contents
        self.sources = fingerprint(searchers() if sources is None else sources)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def curves(
        self, key: str, run: Callable[[int], Search], seeds: int, files: Sequence[str]
    ) -> tuple[np.ndarray, float]:
        """Fractions of the optimum [seeds, trials], and the sampler's milliseconds for a trial."""
        mark = fingerprint((), seeds, self.sources, [self.contents[file] for file in files])
        path = None if self.folder is None else self.folder / f"{key}-{mark}.npz"
        if path is not None and path.exists():
            with np.load(path, allow_pickle=False) as found:
                return found["curves"], float(found["ms"])
        searches, told = [], time.monotonic()
        for seed in range(seeds):
            searches.append(run(seed))
            if time.monotonic() - told > TOLD_S:
                told = time.monotonic()
                said(f"{key}: {seed + 1} of {seeds} searches")
        curves = np.array([found.fractions for found in searches])
        ms = 1e3 * sum(found.sampler_s for found in searches) / curves.size
        said(f"{key}: {curves[:, min(99, curves.shape[1] - 1)].mean():.3f} after 100")
        if path is not None:
            with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
                np.savez(file, curves=curves, ms=ms)
            os.replace(file.name, path)
        return curves, ms


def transfer(spaces: Sequence[Recorded], seeds: int, cache: Cache) -> list[dict[str, object]]:
    """The default search with the records of another device for the same kernel, for every pair of devices."""
    rows: list[dict[str, object]] = []
    for space in spaces:
        for other in spaces:
            if other is space or other.candidates.names != space.candidates.names:
                continue
            prior = Prior.from_records(space.candidates, [other.results_for(space)])
            run = functools.partial(one, space, DEFAULT, TRANSFER[-1], prior)
            curves, _ = cache.curves(f"transfer-{space.name}-{other.name}", run, seeds, (space.name, other.name))
            reached = {str(b): round(float(curves[:, b - 1].mean()), 5) for b in TRANSFER}
            good = np.flatnonzero(space.seconds <= space.optimum / NEAR)
            ranks = prior.logarithms.mean(1).argsort(kind="stable").argsort(kind="stable")
            hint = {"near": len(good), "rank": int(ranks[good].min()) + 1}
            rows.append({"file": space.name, "prior": other.name, **reached, **hint})
    return rows


def held_out(
    spaces: Sequence[Recorded], own: Sequence[Recorded], engines: Sequence[str], seeds: int, cache: Cache
) -> list[dict[str, object]]:
    """Searches of altered and of other spaces: one row for each alteration (the mean over the spaces) and for each other space.

    A space that an alteration would not change is left out of its mean. Each mean has its 95% interval over the seeds.
    """
    mark = fingerprint([Path(tuning_lab_held_out.__file__)])
    rows: list[dict[str, object]] = []
    groups = [(name, name, spaces) for name in ALTERATIONS if seeds and spaces and name != RECORDED]
    groups += [(s.device.partition(": ")[2] or s.device, RECORDED, [s]) for s in own]
    for title, alteration, group in groups:
        for engine in engines:
            found = []
            for space in group:
                if not differs(space, alteration):
                    continue
                run = functools.partial(one_altered, space, alteration, engine)
                key = f"{engine}-{alteration}-{space.name}-{mark}".replace(" ", "_")
                found.append(cache.curves(key, run, seeds, (space.name,))[0])
            if not found:
                continue
            means = np.mean(found, axis=0)  # [seeds, trials]
            reached: dict[str, object] = {str(b): round(float(means[:, b - 1].mean()), 5) for b in BUDGETS}
            reached |= {f"interval at {b}": [round(end, 5) for end in interval(means[:, b - 1])] for b in BUDGETS}
            least = round(min(float(c[:, 99].mean()) for c in found), 5)
            rows.append({"spaces": title, "sampler": engine, **reached, "least at 100": least})
    return rows


def one_altered(space: Recorded, alteration: str, sampler: str, seed: int) -> Search:
    return search(altered(space, alteration, seed), sampler, trials=BUDGETS[-1], seed=seed)


def one(space: Recorded, sampler: str, trials: int, prior: Prior | None, seed: int) -> Search:
    return search(space, sampler, trials=trials, seed=seed, prior=prior)


def table(curves: Curves, files: Sequence[str]) -> list[str]:
    """Rows of a Markdown table, best first: means over files and seeds, then each file after 100 trials."""
    lines = [
        f"| search | {' | '.join(str(b) for b in BUDGETS)} | {' | '.join(f'{name(f)} @100' for f in files)} |",
        f"|---|{'---|' * (len(BUDGETS) + len(files))}",
    ]
    for engine in sorted(curves, key=lambda e: -mean(curves[e], files, 100)):
        own = curves[engine]
        cells = [f"{mean(own, files, b):.3f}" for b in BUDGETS]
        for file in files:
            low, high = interval(own[file][:, 99])
            cells.append(f"{own[file][:, 99].mean():.3f} ({low:.2f}-{high:.2f})")
        lines.append(f"| {engine} | {' | '.join(cells)} |")
    return lines


HELD_OUT = (
    "These spaces are not new: they are altered versions of the files above, on which the samplers were developed, if random",
    f"search stays below {HARD} after 100 trials there; and random parts of the spaces of kernels that were measured here",
    "(bench/tuning_lab_record.py). They show what a search relies on, not how well it works elsewhere. Each seed gives another",
    "alteration (bench/tuning_lab_held_out.py); a file in which nothing can be altered is left out. `random` and `genetic` do",
    "not use the meaning of values, so new names change their results only by chance. In `values scrambled` no values are",
    "neighbours any more; `more failures` are a tenth of all points, and a tenth where two parameters are large. In brackets",
    "are 95% bootstrap intervals over the seeds, which are too narrow for few seeds.",
)


def held_out_table(rows: Sequence[Mapping[str, object]], seeds: int) -> list[str]:
    """Rows of a Markdown table: for each kind of space, the results of each sampler, and its worst file."""
    head = [str(b) for b in BUDGETS]
    lines = [
        f"| spaces ({seeds} seeds) | search | {' | '.join(head)} | least of a file @100 |",
        "|---" * (len(head) + 3) + "|",
    ]
    for row in rows:
        intervals = [cast(Sequence[float], row[f"interval at {b}"]) for b in head]
        cells = [f"{row[b]:.3f} ({low:.2f}-{high:.2f})" for b, (low, high) in zip(head, intervals, strict=True)]
        lines.append(f"| {row['spaces']} | {row['sampler']} | {' | '.join(cells)} | {row['least at 100']:.3f} |")
    return lines


def mean(own: Mapping[str, np.ndarray], files: Sequence[str], budget: int) -> float:
    return float(np.mean([own[f][:, budget - 1].mean() for f in files]))


def name(file: str) -> str:
    return file.split(".")[0].replace("_milo", "")


def plot(curves: Curves, files: Sequence[str]) -> str:
    """Fraction of the optimum over trials, one panel for each file: means, with 95% intervals as bands."""
    strategies = [e for e in curves if e.startswith("kernel tuner")]
    best = sorted(strategies, key=lambda e: -mean(curves[e], files, 100))[:1]
    engines = [e for e in SHOWN if e in curves] + best
    width, height, left, top = 300, 200, 44, 30
    parts = []
    for column, file in enumerate(files):
        x0, y0 = left + column * (width + left), top
        trials = curves[engines[0]][file].shape[1]
        parts.append(f'<text x="{x0}" y="{y0 - 10}" font-weight="bold">{name(file)}</text>')
        for share in (0, 0.25, 0.5, 0.75, 1):
            y = y0 + height * (1 - share)
            parts.append(f'<line x1="{x0}" x2="{x0 + width}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
            parts.append(f'<text x="{x0 - 6}" y="{y + 4:.0f}" text-anchor="end">{share:g}</text>')
        for trial in (1, 50, 100, 150, 200):
            x = x0 + width * (trial - 1) / max(trials - 1, 1)
            parts.append(f'<text x="{x:.0f}" y="{y0 + height + 16}" text-anchor="middle">{trial}</text>')
        for engine, colour in zip(engines, COLOURS, strict=False):
            samples = curves[engine][file]
            bands = np.array([interval(samples[:, k]) for k in range(0, trials, 4)])
            xs = [x0 + width * k / max(trials - 1, 1) for k in range(0, trials, 4)]
            low = [f"{x:.1f},{y0 + height * (1 - v):.1f}" for x, v in zip(xs, bands[:, 0], strict=True)]
            high = [f"{x:.1f},{y0 + height * (1 - v):.1f}" for x, v in zip(xs, bands[:, 1], strict=True)]
            line = [f"{x:.1f},{y0 + height * (1 - v):.1f}" for x, v in zip(xs, samples.mean(0)[::4], strict=True)]
            parts.append(f'<polygon points="{" ".join(low + high[::-1])}" fill="{colour}" opacity="0.15"/>')
            parts.append(f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    for row, (engine, colour) in enumerate(zip(engines, COLOURS, strict=False)):
        parts.append(f'<text x="{left + 190 * row}" y="{top + height + 44}" fill="{colour}">{engine}</text>')
    size = f'width="{left + len(files) * (width + left)}" height="{top + height + 60}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def main() -> None:
    parser = parser_of("bench.tuning_lab", __doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a recorded space, as a Kernel Tuner cache")
    parser.add_argument(
        "--seeds", type=int, default=20, metavar="N", help="number of searches for each space and sampler"
    )
    parser.add_argument(
        "--environment",
        type=Path,
        metavar="DIR",
        help="keep the virtual environment with Kernel Tuner here; made if it is missing (default: a temporary folder)",
    )
    parser.add_argument(
        "--kernel-tuner", type=Path, metavar="FILE", help="read Kernel Tuner's curves from this file of an earlier run"
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="folder that keeps the curves between runs")
    parser.add_argument("--only-searches", action="store_true", help="fill the cache and write no report")
    parser.add_argument(
        "--own",
        nargs="*",
        type=Path,
        default=[],
        metavar="FILE",
        help="also search these spaces, which were measured on this machine",
    )
    parser.add_argument(
        "--altered-seeds",
        type=int,
        default=5,
        metavar="N",
        help="number of searches for each altered space and each --own; 0: none",
    )
    parser.add_argument("--samplers", default="model,tpe,genetic,random", metavar="A,B", help="samplers to compare")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("tuning-lab"),
        metavar="DIR",
        help="folder of the report; made if it is missing",
    )
    options = parser.parse_args()
    names = options.samplers.split(",")
    for name in names:
        named.check(name)
    trials = BUDGETS[-1]
    said(
        f"{several(len(names), 'sampler')} on {several(len(options.files), 'file')}, each with {several(options.seeds, 'seed')}"
    )
    spaces = {file.name: read(file)[0] for file in options.files}
    own = {file.name: read(file)[0] for file in options.own if options.altered_seeds}
    curves: Curves = {engine: {} for engine in names}
    cost: dict[str, list[float]] = {}
    cache = Cache(
        options.cache,
        {(spaces | own)[path.name].name: fingerprint([path]) for path in (*options.files, *options.own)},
    )
    for engine in names:
        for file, space in spaces.items():
            run = functools.partial(one, space, engine, trials, None)
            curves[engine][file], ms = cache.curves(f"{engine}-{file}", run, options.seeds, (space.name,))
            cost.setdefault(engine, []).append(ms)
    pairs = [] if DEFAULT not in names else transfer(list(spaces.values()), options.seeds, cache)
    hard = [s for f, s in spaces.items() if "random" not in curves or mean(curves["random"], [f], 100) < HARD]
    rows = held_out(hard, list(own.values()), names, options.altered_seeds, cache)
    if options.only_searches:
        return
    options.output.mkdir(parents=True, exist_ok=True)
    answers = options.kernel_tuner or options.output / "tuning_lab_kernel_tuner.json"
    if options.kernel_tuner is None:
        kernel_tuner(options.files, options.seeds, trials, options.environment, answers)
    curves |= read_kernel_tuner(answers, spaces, trials)
    write(options.output, curves, list(spaces), pairs, rows, cost, (options.seeds, options.altered_seeds))
    said(f"-> {options.output / 'tuning_lab.md'}")


def write(
    output: Path,
    curves: Curves,
    files: Sequence[str],
    pairs: Sequence[Mapping[str, object]],
    others: Sequence[Mapping[str, object]],
    cost: Mapping[str, Sequence[float]],
    all_seeds: tuple[int, int],
) -> None:
    seeds, altered_seeds = all_seeds
    text = [
        "# Searches of recorded spaces under equal budgets",
        "",
        "Fraction of the optimum (best time of the file over best time found) after so many different measurements: the",
        f"mean of {seeds} seeds and {len(files)} files, with 95% bootstrap intervals in brackets. `python -m bench.tuning_lab`",
        "makes this page; the curves are in tuning_lab.svg. Times are as recorded, without noise. A configuration that",
        "failed on the device costs a trial. Kernel Tuner runs in its simulation mode, with its strategies' own settings.",
        "Brute force, the two strategies for several objectives, and skopt and pyatf, which need other packages, are left out.",
        f"The files are from the Auto-Tuning Association's benchmark hub (MIT). {KERNEL_TUNER}, optuna {version('optuna')}.",
        "The samplers of gpucomp were developed on these very files.",
        f"The tuner's sources (`searchers` in bench/tuning_lab.py) were those of fingerprint {fingerprint(searchers())}.",
        "",
        *table(curves, files),
        "",
        "Processor time of the sampler: "
        + ", ".join(f"{e} {np.mean(ms):.1f} ms" for e, ms in cost.items())
        + " per trial.",
        "",
        "## With the records of one other device",
        "",
        f"`near` is the number of configurations within {NEAR:.0%} of the optimum; `first` is the best of their ranks by the",
        "other device's times. If only one is near and a thousand rank before it, the records tell little. The decision to try",
        "each combination of switches once (`Prior.fastest_by_switches`) was based on the switches of these kernels, caches and",
        "padding, so the table does not show how well it works for others. `without` is the same search without records.",
        "tuning_lab_devices.md has pairs of more devices, which were made from these.",
        "",
        f"| file | records of | {' | '.join([*map(str, TRANSFER), *(f'{b} without' for b in TRANSFER)])} | near | first |",
        f"|---|---|{'---|' * (2 * len(TRANSFER) + 2)}",
    ]
    both: list[list[float]] = []
    for row in pairs:
        reached = [float(str(row[str(b)])) for b in TRANSFER]
        reached += [mean(curves[DEFAULT], [str(row["file"])], b) for b in TRANSFER]
        both.append(reached)
        cells = " | ".join(f"{r:.3f}" for r in reached)
        text.append(
            f"| {name(str(row['file']))} | {name(str(row['prior']))} | {cells} | {row['near']} | {row['rank']} |"
        )
    if pairs:
        means = " | ".join(f"{m:.3f}" for m in np.mean(both, axis=0))
        text.append(f"| mean | | {means} | | |")
    if others:
        text += [
            "",
            "## The same spaces altered, and others",
            "",
            *HELD_OUT,
            "",
            *held_out_table(others, altered_seeds),
        ]
    (output / "tuning_lab.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    summary = {
        engine: {
            file: {str(b): round(float(own[file][:, b - 1].mean()), 5) for b in BUDGETS}
            for file in files
            if file in own
        }
        for engine, own in curves.items()
    }
    document = {
        "seeds": seeds,
        "sources": fingerprint(searchers()),
        "fraction_of_optimum": summary,
        "transfer": list(pairs),
        "held_out": list(others),
    }
    (output / "tuning_lab.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (output / "tuning_lab.svg").write_text(plot(curves, files), encoding="utf-8")


if __name__ == "__main__":
    main()
