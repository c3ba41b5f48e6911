"""Kernels that tests render and run, in tables of names: one module for each module of tests/kernels_templates that has its own.

A table is a dictionary in capitals. Its values are kernels, or tuples that hold a kernel beside what is special about it: a
schedule, a target, sizes. What a program needs as well, as ``bench.gpu`` does, it asks ``kernels`` for.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from gpucomp.kernel import Kernel


def kernels() -> dict[str, Kernel]:
    """The kernels of all tables, by ``module-table-name``."""
    found: dict[str, Kernel] = {}
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        module = importlib.import_module(f"{__name__}.{name}")
        found |= {f"{name}-{case}": kernel for case, kernel in _tables(module).items()}
    return found


def _tables(module: ModuleType) -> dict[str, Kernel]:
    found: dict[str, Kernel] = {}
    for table, cases in vars(module).items():
        if not table.isupper() or not isinstance(cases, dict):
            continue
        for name, entry in cases.items():
            parts = entry if isinstance(entry, tuple) else (entry,)
            kernel = next((part for part in parts if isinstance(part, Kernel)), None)
            if kernel is not None:
                found.setdefault(f"{table.lower()}-{name}".replace(" ", "_"), kernel)
    return found
