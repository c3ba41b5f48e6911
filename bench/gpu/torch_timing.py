"""Times functions in torch: captured in graphs, replayed, timed by the device's events; buffers rotate to be cold."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gpucomp.kernel_bench.torch_kernels import captured

LEAST_CALLS = 20


@contextmanager
def rounding(torch: Any, allowed: bool) -> Iterator[None]:
    """A context in which f32 may be rounded to tf32 if ``allowed``, and cuDNN searches for its fastest algorithm."""
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    cuda.allow_tf32 = cudnn.allow_tf32 = allowed
    cudnn.benchmark = True
    try:
        yield
    finally:
        cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


def by_the_host(torch: Any, call: Callable[[], object]) -> Callable[[], float]:
    """The same by this machine's clock, for a dry run without a device."""

    def run() -> float:
        begin = time.perf_counter()
        with torch.no_grad():
            call()
        return 1e3 * (time.perf_counter() - begin)

    return run


def fastest(torch: Any, libraries: Sequence[str], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """``measure()`` with each of torch's libraries for products: that with the least ``torch_warm_us``, and its name.

    Without ``libraries``, or with a torch that has no such choice, it is called once.
    """
    choose = getattr(torch.backends.cuda, "preferred_blas_library", None)
    if not libraries or choose is None:
        return measure()
    before, found = choose(), []
    try:
        for name in libraries:
            choose(name)
            found.append(measure() | {"torch_products": name})
    finally:
        choose(before)
    return min(found, key=lambda times: float(times["torch_warm_us"]))


def function_times(
    torch: Any, functions: Sequence[Any], replays: int, compiled: bool, *, fake: bool = False
) -> dict[str, Any]:
    """Microseconds of a call. ``functions`` are copies with their own arguments and constants, which rotate to be cold. If
    ``compiled``, the first one is also timed with torch.compile, warm only, because it is compiled for its constants.
    """
    clock = by_the_host if fake else captured
    calls = 1 if fake else LEAST_CALLS
    first = functions[0]
    plans: dict[str, list[tuple[Any, Any]]] = {
        "torch_warm": [(first, first.arguments)] * calls,
        "torch_cold": [(f, f.arguments) for f in functions] * -(-calls // len(functions)),
    }
    if compiled:
        made = torch.compile(lambda *xs: first(*xs), mode="max-autotune-no-cudagraphs")
        plans["torch_compiled_warm"] = [(made, first.arguments)] * calls
    found: dict[str, Any] = {}
    for name, plan in plans.items():
        replay = clock(torch, _all(plan))
        samples = [round(1e3 * replay() / len(plan), 4) for _ in range(3 if fake else replays)]
        found[f"{name}_us"] = statistics.median(samples)
        found[f"{name}_samples_us"] = samples
    return found


def _all(plan: Sequence[tuple[Any, Any]]) -> Callable[[], object]:
    def run() -> None:
        for function, arguments in plan:
            function(*arguments)

    return run
