"""Times of functions in torch: captured in graphs, replayed, by the device's events; buffers rotate to be cold."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

WARMUPS = 3
LEAST_CALLS = 20


@contextmanager
def rounding(torch: Any, allowed: bool) -> Iterator[None]:
    """Whether f32 may be rounded to tf32 within; cuDNN looks for its fastest algorithm."""
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    cuda.allow_tf32 = cudnn.allow_tf32 = allowed
    cudnn.benchmark = True
    try:
        yield
    finally:
        cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


def captured(torch: Any, call: Callable[[], object]) -> Callable[[], float]:
    """Milliseconds of one replay of a graph of what ``call`` launches, each time it is called."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(WARMUPS):
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def replay() -> float:
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    replay()
    return replay


def by_the_host(torch: Any, call: Callable[[], object]) -> Callable[[], float]:
    """Milliseconds by this machine's clock: where there is no device, so that a dry run comes along here."""

    def run() -> float:
        begin = time.perf_counter()
        with torch.no_grad():
            call()
        return 1e3 * (time.perf_counter() - begin)

    return run


def function_times(
    torch: Any, function: Any, sets: int, replays: int, compiled: bool, *, fake: bool = False
) -> dict[str, Any]:
    """Warm and cold microseconds of ``function``, eager and, where ``compiled``, by torch.compile as well."""
    clock = by_the_host if fake else captured
    calls = 1 if fake else LEAST_CALLS
    copies = [function.arguments, *([a.clone() for a in function.arguments] for _ in range(sets - 1))]
    found: dict[str, Any] = {}
    kinds: list[tuple[str, Any]] = [("torch", function)]
    if compiled:
        kinds.append(("torch_compiled", torch.compile(lambda *xs: function(*xs), mode="max-autotune-no-cudagraphs")))
    for name, call in kinds:
        for state, rotation in (("warm", copies[:1] * calls), ("cold", _long_enough(copies, calls))):
            replay = clock(torch, _all(call, rotation))
            samples = [round(1e3 * replay() / len(rotation), 4) for _ in range(3 if fake else replays)]
            found[f"{name}_{state}_us"] = statistics.median(samples)
            found[f"{name}_{state}_samples_us"] = samples
    return found


def _long_enough(copies: Sequence[Any], calls: int) -> list[Any]:
    """Whole turns through the copies, ``calls`` at least."""
    return list(copies) * -(-calls // len(copies))


def _all(call: Any, rotation: Sequence[Any]) -> Callable[[], object]:
    def run() -> None:
        for arguments in rotation:
            call(*arguments)

    return run
