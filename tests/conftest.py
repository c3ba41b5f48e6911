"""Fixtures that every test may use: golden files, and a compiled-kernel cache that no test shares with the user."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpucomp import config
from gpucomp.targets import cpu
from tests import wanting

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing")
    parser.addoption("--processor", metavar="NAME", help="cpu is cpu:NAME in all tests: x86-64-v2, ...")


def pytest_configure(config: pytest.Config) -> None:
    if name := config.getoption("--processor"):
        host = cpu.host()
        there = dataclasses.replace(cpu.named(f"cpu:{name}"), identity=host.identity)
        if not there.features < host.features:
            pytest.exit(f"this processor is {name}, or does not run its code", returncode=0)
        cpu._host = functools.cache(lambda: there)  # type: ignore[assignment]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Tests of a file with fixtures of its own run in one worker: what these build is built once."""
    if config.getvalue("dist") != "load":
        return None  # another --dist was asked for
    from xdist.scheduler import LoadScopeScheduling

    class ByFixtures(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return path if _has_module_fixtures(path) else nodeid

        def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
            """Forgets what is done, which xdist counts again after every test: a square of tens of thousands."""
            for scope in [scope for scope, tests in workload.items() if all(tests.values())]:
                del workload[scope]
            return super()._pending_of(workload)

    return ByFixtures(config, log)


@functools.cache
def _has_module_fixtures(path: str) -> bool:
    return 'scope="module"' in (Path(__file__).parents[1] / path).read_text(encoding="utf-8")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Behind everything else, in one line: what was skipped for want of a package, and the command that installs it."""
    yield
    skipped = (report.longrepr for report in terminalreporter.stats.get("skipped", []))
    if text := wanting.line(where[2] for where in skipped if isinstance(where, tuple)):
        terminalreporter.write_line(text, yellow=True)


@pytest.fixture(scope="session", autouse=True)
def checked_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The IR is verified after every pass of every test, and compiled kernels are kept for this run alone.

    Schedules are those of an untuned machine: what is shipped was measured on some and not on others.
    """
    with config.using(verify=True, cache=tmp_path_factory.mktemp("cache"), records=None):
        yield


_first_states: dict[str, dict[str, Any]] = {}


@pytest.fixture(autouse=True)
def numbers_of_its_own(request: pytest.FixtureRequest) -> None:
    """A test draws the same numbers whichever tests ran before it: the generators of its module start again."""
    generators = {n: g for n, g in vars(request.module).items() if isinstance(g, np.random.Generator)}
    first = _first_states.setdefault(request.module.__name__, {n: g.bit_generator.state for n, g in generators.items()})
    for name, generator in generators.items():
        generator.bit_generator.state = first[name]


@pytest.fixture(autouse=True)
def without_a_gpu() -> Iterator[None]:
    """A test that had a device of the fake driver leaves none behind."""
    yield
    if "tests.fake_driver.driver" in sys.modules:
        sys.modules["tests.fake_driver.driver"].FakeDriver.no_device()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(text, name)``: the text is that of ``tests/golden/<name>``; ``--update-golden`` writes it."""

    def compare(text: str, name: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {path.name}: run with --update-golden and read what it wrote"
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: --update-golden, if it is meant"

    return compare
