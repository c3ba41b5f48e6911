"""Small plans made by hand, for tests of the programs that run them."""

from __future__ import annotations

import numpy as np

from gpucomp.artifact.plan import COUNTER, INPUT, OUTPUT, TEMP, WEIGHT, Buffer, CompiledKernel, Launch, Plan
from gpucomp.device.target import Target
from gpucomp.kernels_templates.contraction.simt.space import PLAIN
from gpucomp.kernels_templates.render import render
from testing.kernels import add_relu, matmul
from testing.template_cases import default

ROWS, COLUMNS = 5, 7
BIAS = np.linspace(-1, 1, COLUMNS).astype(np.float32)


def two_layers(target: Target, *, host: bool = False) -> tuple[Plan, dict[str, str], dict[str, np.ndarray]]:
    """relu and sum of (x + bias), twice over; with ``host`` a numpy Relu between the layers. Plan, sources, weights."""
    source = render(add_relu(ROWS, COLUMNS), default(add_relu(ROWS, COLUMNS), target.limits), target, "k0")
    size, shape = 4 * ROWS * COLUMNS, (ROWS, COLUMNS)
    step = -(-size // target.alignment) * target.alignment
    buffers = (
        Buffer(INPUT, "x", "f32", shape, size),
        Buffer(WEIGHT, "w0", "f32", (COLUMNS,), 4 * COLUMNS),
        Buffer(TEMP, "t0", "f32", shape, size, 0),
        Buffer(TEMP, "t1", "f32", shape, size, step),
        Buffer(OUTPUT, "y", "f32", shape, size),
        Buffer(OUTPUT, "z", "f32", shape, size),
        Buffer(COUNTER, "c0", "i8", (4,), 4),
        Buffer(TEMP, "t2", "f32", shape, size, 2 * step),
        Buffer(OUTPUT, "nothing", "f32", (0, 3), 0),
    )
    kernel = CompiledKernel("k0", target.language, "k0.src", "k0.bin", source.geometry.groups, source.geometry.items)
    launches = [Launch(0, (0, 1, 2, 3), "first", inputs=2), Launch(0, (3, 1, 4, 5), "second", inputs=2)]
    if host:
        launches.insert(1, Launch(-1, (3, 7), "between", inputs=1, host="Relu"))
        launches[2] = Launch(0, (7, 1, 4, 5), "second", inputs=2)
    names = ("y", "z", "nothing", "x")
    ends = (0,), (4, 5, 8, 0), names
    plan = Plan(target.name, target.kind, target.arch, buffers, (kernel,), tuple(launches), *ends, 3 * step)
    return plan, {"k0.src": source.text}, {"w0": BIAS}


def split_products(target: Target) -> tuple[Plan, dict[str, str], dict[str, np.ndarray]]:
    """y = relu(x @ w0 + w1) and its double z, m n k = 19 11 53, in four splits that count who comes last. Plan, sources,
    weights, which are small integers: sums of such are exact."""
    m, n, k = 19, 11, 53
    schedule = {**PLAIN, "tile_m": 16, "tile_n": 16, "tile_k": 8, "reg_m": 2, "reg_n": 2, "stages": 1, "splits": 4}
    source = render(matmul(m, n, k), schedule, target, "k0")
    geometry = source.geometry
    assert geometry.counter_bytes > 0
    scratch = geometry.workspace_bytes
    buffers = (
        Buffer(INPUT, "x", "f32", (m, k), 4 * m * k),
        Buffer(WEIGHT, "w0", "f32", (k, n), 4 * k * n),
        Buffer(WEIGHT, "w1", "f32", (n,), 4 * n),
        Buffer(OUTPUT, "y", "f32", (m, n), 4 * m * n),
        Buffer(OUTPUT, "z", "f32", (m, n), 4 * m * n),
        Buffer(TEMP, "s0", "i8", (scratch,), scratch, 0),
        Buffer(COUNTER, "c0", "i8", (geometry.counter_bytes,), geometry.counter_bytes),
    )
    kernel = CompiledKernel("k0", target.language, "k0.src", "k0.bin", geometry.groups, geometry.items)
    launch = Launch(0, tuple(range(7)), "product", inputs=3)
    ends = (0,), (3, 4), ("y", "z")
    plan = Plan(target.name, target.kind, target.arch, buffers, (kernel,), (launch,), *ends, scratch)
    drawn = np.random.default_rng(7).integers(-9, 10, (k + 1, n)).astype(np.float32)
    return plan, {"k0.src": source.text}, {"w0": drawn[:k], "w1": drawn[k]}


def answer(x: np.ndarray, *, host: bool = False) -> dict[str, np.ndarray]:
    """What ``two_layers`` computes."""
    hidden = x + BIAS
    total = (np.maximum(hidden, 0) if host else hidden) + BIAS
    return {"y": np.maximum(total, 0), "z": total, "nothing": np.zeros((0, 3), np.float32), "x": x}
