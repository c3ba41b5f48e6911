"""Reads launch.json and data.npz beside it, and prints how far a kernel's outputs are from the expected ones.

Needs numpy (and ml_dtypes if a buffer is bf16 or smaller), but no gpucomp.
"""

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

HERE = Path(__file__).resolve().parent
TOLERANCE = json.loads((HERE / "launch.json").read_text())["tolerance"]


def plain(name: str) -> Any:
    """The numpy type of a buffer's elements."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def load() -> tuple[Any, list[np.ndarray], dict[int, np.ndarray]]:
    """The launches, and every buffer by number: given arrays, weights, and all others filled with 0xFD bytes."""
    described = json.loads((HERE / "launch.json").read_text())
    with np.load(HERE / "data.npz", allow_pickle=False) as data:
        buffers = []
        for k, buffer in enumerate(described["buffers"]):
            dtype, shape = plain(buffer["dtype"]), tuple(buffer["shape"])
            size = max(1, int(np.prod(shape)) * dtype.itemsize)
            room = np.full(size, 0 if buffer["kind"] == "counter" else 0xFD, np.uint8)
            if f"given{k}" in data:
                room[:] = data[f"given{k}"]
            buffers.append(room)
        expected = {k: data[f"expected{k}"] for k in range(len(buffers)) if f"expected{k}" in data}
    return described, buffers, expected


def judge(described: Any, buffers: list[np.ndarray], expected: dict[int, np.ndarray]) -> NoReturn:
    """Print how far every output is off; exit with 6 if it is farther than gpucomp allows:
    rms(found - right) <= relative * rms(right) + absolute."""
    bad = False
    for k, wanted in expected.items():
        buffer = described["buffers"][k]
        dtype = plain(buffer["dtype"])
        found, right = (a.view(dtype).astype(np.float64) for a in (buffers[k][: wanted.size], wanted))
        gap, norm = np.linalg.norm(found - right), np.linalg.norm(right)
        root = np.sqrt(max(right.size, 1))
        fine = bool(gap <= TOLERANCE["relative"] * norm + TOLERANCE["absolute"] * root)
        bad |= not fine
        print(f"{buffer['name']}: relative L2 error {gap / norm if norm else gap:.3e} {'ok' if fine else 'WRONG'}")
        for place in np.flatnonzero(found != right)[:4]:
            print(f"  element {place}: {found[place]:.9g}, {right[place]:.9g} expected")
    sys.exit(6 if bad else 0)
