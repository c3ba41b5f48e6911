"""The kernels that ``correct`` computes: those of the tests' tables, with constant weights and with each precision's math.

The tables stand in test modules, which import more than tables need: what checks them, and devices to run them on. None
of that is needed here, and a machine with a GPU has little of it, so stand-ins take its place wherever this runs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from bench.gpu import checks
from bench.gpu.work import ERRORS
from gpucomp.device.target import Target
from gpucomp.ir.types import F32
from gpucomp.kernel import Blocks, Contraction, Kernel
from gpucomp.kernels_templates.engines import engines_of
from gpucomp.schedule.space import Family
from gpucomp.targets import opencl
from testing import template_cases

LARGEST = 1 << 22  # elements that numpy multiplies for one kernel
ROOT = Path(__file__).parents[2]
TESTS, TESTING = ROOT / "tests", ROOT / "testing"
TABLES = "kernels_templates/test_*.py"
NEEDLESS = frozenset({"pytest", "hypothesis", "pyopencl", "unicorn", "sklearn", "onnxruntime"})


@dataclass(frozen=True)
class Cases:
    """``kernels`` by ``module-table-name``; ``lost`` says why a module of the tests could not be read."""

    kernels: dict[str, Kernel]
    lost: dict[str, str]


@cache
def cases() -> Cases:
    """The distinct kernels that have something to compute."""
    found, lost = dict(template_cases.CASES), {}
    with stand_ins():
        for path in sorted(TESTS.glob(TABLES)):
            name = path.stem.removeprefix("test_")
            try:
                tables = _tables(path)
            except (ImportError, *ERRORS) as error:
                lost[name] = f"{path.name}: {type(error).__name__}: {error}"
                continue
            for case, kernel in tables.items():
                found.setdefault(f"{name}-{case}", kernel)
    live = {n: k for n, k in found.items() if not template_cases.is_empty(k) and checks.cost(k) <= LARGEST}
    live |= {n: k for name, kernel in live.items() for n, k in _variants(name, kernel)}
    distinct: dict[str, str] = {}
    for name, kernel in live.items():
        distinct.setdefault(kernel.digest, name)
    return Cases({name: live[name] for name in distinct.values()}, lost)


def engines_on(kernel: Kernel, target: Target) -> tuple[Family, ...]:
    """The engines that can compute ``kernel`` on ``target``; none for what only OpenCL targets are given."""
    if isinstance(kernel.body, Blocks) and target.kind == "cuda":
        return ()
    return engines_of(kernel, target.features)


class _StandIn(ModuleType):
    """A module that has everything, and packages below it."""

    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock(name=f"{self.__name__}.{name}")


class _Finder:
    """Finds, and loads, a stand-in for every module of the packages that are not needed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in NEEDLESS else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def stand_ins() -> Iterator[None]:
    """Modules of the tests import stand-ins in the block, and are imported anew behind it: they hold what is none.

    A module that asks for an OpenCL device is told of one that does not exist: a driver that was opened here would hang
    in the processes that are forked from this one.
    """
    finder, before = _Finder(), dict(sys.modules)
    for name in [n for n in before if n.partition(".")[0] in NEEDLESS]:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        with mock.patch.multiple(opencl, devices=lambda: (), device_of=lambda target: mock.Mock()):
            yield
    finally:
        sys.meta_path.remove(finder)
        for name, module in list(sys.modules.items()):
            if name not in before and (isinstance(module, _StandIn) or _is_of_tests(module)):
                del sys.modules[name]
                package, _, attribute = name.rpartition(".")
                if package in sys.modules:  # `from package import module` would find it there
                    vars(sys.modules[package]).pop(attribute, None)
        sys.modules.update({name: module for name, module in before.items() if name.partition(".")[0] in NEEDLESS})


def _is_of_tests(module: ModuleType) -> bool:
    place = getattr(module, "__file__", None)
    return place is not None and any(Path(place).is_relative_to(folder) for folder in (TESTS, TESTING))


def _tables(path: Path) -> dict[str, Kernel]:
    """The kernels in the tables of a test module. Raises what its execution raises."""
    spec = importlib.util.spec_from_file_location(f"cases_of_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Kernel] = {}
    for table, value in vars(module).items():
        if not table.isupper() or not isinstance(value, dict):
            continue
        for name, entry in value.items():
            parts = entry if isinstance(entry, tuple) else (entry,)
            kernel = next((part for part in parts if isinstance(part, Kernel)), None)
            if kernel is not None:
                found.setdefault(f"{table.lower()}-{name}".replace(" ", "_"), kernel)
    return found


def _variants(name: str, kernel: Kernel) -> Iterator[tuple[str, Kernel]]:
    """A contraction with constant weights, and with the arithmetic of each precision."""
    body = kernel.body
    if not isinstance(body, Contraction):
        return
    if not kernel.constants and kernel.inputs > 1:
        yield f"{name}-constant", replace(kernel, constants=frozenset({1}))
    if body.acc.dtype is F32 and body.math == "strict" and all(t.dtype is F32 for t in kernel.params):
        for math_ in ("tf32", "3xtf32"):
            yield f"{name}-{math_}", replace(kernel, body=replace(body, math=math_))
