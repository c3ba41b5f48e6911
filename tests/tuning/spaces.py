"""Synthetic search spaces: a tiled kernel's, in formulas, and tables of a few points."""

import itertools
import json

import numpy as np

from gpucomp.tuning.recorded import Recorded, Row, space_of
from gpucomp.tuning.samplers import named
from gpucomp.tuning.samplers.ask_tell import AskTell
from gpucomp.tuning.space import Candidates

EXTENT = 1536


def tiled(seed=0, failing=0.05):
    """A recorded space of 1,200 points: tiles that want to divide, a switch that matters to some, failures, noise."""
    rng = np.random.default_rng(seed)
    sizes = (8, 16, 24, 32, 48, 64, 96), (1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 8), (0, 1), (1, 4, 8)
    good_x, good_y = 2.0 ** rng.integers(5, 8), 2.0 ** rng.integers(1, 4)
    rows = []
    for x, y, work, cached, unroll in itertools.product(*sizes):
        if x * y > 384:
            continue
        time = 1 + 0.3 * abs(np.log2(x / good_x)) + 0.4 * abs(np.log2(y / good_y)) + 0.15 * abs(np.log2(work / 4))
        time *= 1.0 if EXTENT % (x * y * work) == 0 else 2.5
        time *= 0.7 if cached and work > 2 else 1.1
        time *= 1 + 0.05 * abs(np.log2(unroll) - 1) + 0.02 * rng.random()
        fails = x * work > 512 or rng.random() < failing
        values = {"tile_x": x, "tile_y": y, "work": work, "cached": cached, "unroll": unroll}
        rows.append(Row(values, None if fails else float(time), 0.25, "shared memory" if fails else ""))
    return space_of("tiled", "a formula", rows, (EXTENT,))


def table(*rows, names=None):
    values = np.array(rows, np.int64)
    return Candidates(names or [f"p{j}" for j in range(values.shape[1])], values)


def made(sampler, candidates, seed=0, prior=None):
    """A search of ``candidates``: rows to ask for and to tell."""
    points = named.points_of(candidates, sampler)
    return AskTell(points, lambda: named.sampler(sampler, points, seed, lambda number: prior))


def empty():
    return Candidates(("a", "b"), np.zeros((0, 2), np.int64))


def write_cache(path, recorded: Recorded, open_ended=False):
    """``recorded`` as a Kernel Tuner cache with the fields that matter."""
    names = list(recorded.candidates.names)
    entries = {}
    for schedule, seconds in zip(recorded.candidates.schedules(), recorded.seconds, strict=True):
        time = "RuntimeFailedConfig" if np.isnan(seconds) else seconds
        entries[",".join(map(str, schedule.values()))] = {**schedule, "time": time, "compile_time": 250.0}
    document = {
        "device_name": recorded.device,
        "kernel_name": "tiled",
        "problem_size": [EXTENT, 1],
        "tune_params_keys": names,
        "tune_params": {n: sorted(set(c.tolist())) for n, c in zip(names, recorded.candidates.values.T, strict=True)},
        "cache": entries,
    }
    text = json.dumps(document)
    path.write_text(text[:-2] + "," if open_ended else text)
    return path
