"""The kernels of the benchmark models at their exact shapes, each with every engine's default schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.compile_spaces import kernels
from bench.kernel_sweep.cases import CELLS, Case, Cell, features_of, problem_of, target_of, work
from bench.models import MODELS
from gpucomp.kernel import Attention, Contraction, Kernel
from gpucomp.kernels_templates.engines import FAMILIES, engines_of

MOST_WORK = 1 << 29  # multiply-adds of a kernel that runs at its exact shape: minutes on matrix units


def dtype_of(kernel: Kernel) -> str:
    """The dtype of the kernel's first input; or its arithmetic, if that may round."""
    math = kernel.body.math if isinstance(kernel.body, Contraction | Attention) else "strict"
    return kernel.params[0].dtype.name if math == "strict" else math


def layers(
    target: str, models: Sequence[str] = tuple(MODELS), most_work: int = MOST_WORK
) -> Iterator[tuple[str, Case]]:
    """Names and cases: the distinct kernels of each model, the smallest first, and those of its small version.

    Kernels that are too large to run on a CPU are left to the small version of the model, which has the same layers.
    """
    seen: set[tuple[str, str]] = set()
    subject = target_of(Cell(target, "loops", "f32"))
    for model in models:
        found = [k for small in (True, False) for k in kernels((model,), subject, small) if work(k) <= most_work]
        for kernel in sorted(found, key=work):
            for engine in CELLS[target]:
                cell, family = Cell(target, engine, dtype_of(kernel)), FAMILIES[engine]
                if family not in engines_of(kernel, features_of(cell)) or (engine, kernel.digest) in seen:
                    continue
                seen.add((engine, kernel.digest))
                problem = problem_of(engine, kernel)
                schedule = dict(family.default(problem, target_of(cell).limits).numbers)
                if not family.reasons(schedule, problem, target_of(cell).limits):
                    yield f"{model} {cell.name} {kernel.digest[:12]}", Case(cell, 0, kernel, schedule)
