"""Runs Kernel Tuner's strategies on recorded spaces, in its simulation mode. Needs the environment with Kernel Tuner.

    python bench/tuning_lab_kernel_tuner.py --seeds 20 --trials 200 --output curves.json FILE.json.gz ...

This imports nothing of gpucomp: bench.tuning_lab makes the environment, calls this and reads the result, a list of
{"file", "strategy", "seed", "best"}. ``best[k]`` is the smallest time after ``k + 1`` different configurations, in the unit of
the file, or null as long as none ran. Configurations that failed on the device are legal and cost a trial, as for gpucomp's
samplers. A strategy that ends before its budget keeps its best. One that fails is left
out: some need a neighbour of each point, which a sparse space lacks.
"""

import argparse
import contextlib
import gzip
import io
import json
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from kernel_tuner import tune_kernel, util
from kernel_tuner.interface import strategy_map

# brute_force does not search; nsga2 and nsga3 are for several objectives; skopt and pyatf need packages of their own
LEFT_OUT = ("brute_force", "nsga2", "nsga3", "skopt", "pyatf_strategies")


def slim(path: Path, folder: Path) -> Path:
    """The same cache without the samples behind each time, which only slow down reading."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        cache = json.load(stream)
    keep = (*cache["tune_params_keys"], "time", "compile_time", "benchmark_time", "verification_time", "framework_time")
    for key, entry in cache["cache"].items():
        cache["cache"][key] = {name: entry[name] for name in keep if name in entry} | {"strategy_time": 0}
    target = folder / path.name.removesuffix(".gz")
    target.write_text(json.dumps(cache), encoding="utf-8")
    return target


def search(cache: dict, path: Path, strategy: str, seed: int, trials: int) -> list[float | None]:
    random.seed(seed)
    np.random.seed(seed)
    names = cache["tune_params_keys"]
    legal = {tuple(entry[n] for n in names) for entry in cache["cache"].values()}
    arguments = util.infer_args_from_cache(cache)
    results, _ = tune_kernel(
        **arguments,
        lang="CUDA",
        restrictions=[util.FunctionConstraint(lambda *values: values in legal)],
        strategy=strategy,
        strategy_options={"max_fevals": trials},
        cache=str(path),
        simulation_mode=True,
        quiet=True,
    )
    best: list[float | None] = []
    seen: set[tuple] = set()
    for result in results:
        key = tuple(result[n] for n in names)
        if key in seen:
            continue
        seen.add(key)
        found = result["time"] if isinstance(result["time"], float) else None
        last = best[-1] if best else None
        best.append(last if found is None else found if last is None else min(last, found))
    best = best[:trials]
    return best + [best[-1] if best else None] * (trials - len(best))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a recorded space, as a Kernel Tuner cache")
    parser.add_argument(
        "--seeds",
        type=int,
        default=20,
        metavar="N",
        help="number of searches for each space and strategy (default: 20)",
    )
    parser.add_argument(
        "--trials", type=int, default=200, metavar="N", help="number of measurements of each search (default: 200)"
    )
    parser.add_argument(
        "--strategies", nargs="*", metavar="NAME", help="only these strategies (default: all that search one objective)"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the JSON file of curves to write")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    strategies = options.strategies or [name for name in strategy_map if name not in LEFT_OUT]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    read = util.read_cache
    with tempfile.TemporaryDirectory() as folder:
        for file in options.files:
            path = slim(file, Path(folder))
            cache = read(str(path), open_cache=False)
            util.read_cache = lambda *_, cache=cache, **__: cache  # parsed once, not once for each run
            for strategy in strategies:
                start, found = time.perf_counter(), []
                try:
                    for seed in range(options.seeds):
                        with contextlib.redirect_stdout(io.StringIO()):
                            best = search(cache, path, strategy, seed, options.trials)
                        found.append({"file": file.name, "strategy": strategy, "seed": seed, "best": best})
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    print(f"{file.name} {strategy}: left out, it failed: {error!r}", file=sys.stderr, flush=True)
                    continue
                rows += found
                seconds = time.perf_counter() - start
                print(
                    f"{file.name} {strategy}: {options.seeds} searches in {seconds:.1f} s", file=sys.stderr, flush=True
                )
                partial = options.output.with_suffix(".part")
                partial.write_text(json.dumps(rows), encoding="utf-8")
                os.replace(partial, options.output)


if __name__ == "__main__":
    main()
