"""Machine code that the processor cannot run is refused before it is called."""

import errno
from types import SimpleNamespace

import pytest

from gpucomp.device import processor
from gpucomp.errors import DeviceError
from gpucomp.targets import cpu


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(processor, "flags", lambda: frozenset({"avx", "avx2", "fma", "sse4_1"}))


@pytest.mark.usefixtures("small")
def test_missing_features_are_named():
    with pytest.raises(DeviceError, match=r"compiled for rocketlake, .* has no avx512f, avx512vnni: compile it here"):
        processor.require(("avx512vnni", "avx2", "avx512f"), "rocketlake")


@pytest.mark.usefixtures("small")
def test_features_that_are_there_are_no_fault():
    processor.require(("avx2", "fma", "sse4.1"), "haswell")


def test_a_system_that_names_no_features_is_trusted(monkeypatch):
    monkeypatch.setattr(processor, "flags", frozenset)

    processor.require(("avx512f",), "rocketlake")


def test_the_host_target_can_run_here():
    from gpucomp import targets

    target = targets.resolve("cpu")

    processor.require(target.features, target.arch)
    assert target.features


class System:
    """A C library whose one system call fails with ``error``, or succeeds where that is 0."""

    def __init__(self, error: int) -> None:
        self.error, self.asked = error, []

    def syscall(self, *arguments):
        self.asked.append(tuple(a.value for a in arguments))
        return -1 if self.error else 0


@pytest.fixture
def system(monkeypatch):
    def made(error, flags=frozenset({"amx_tile"})):
        found = System(error)
        monkeypatch.setattr(processor, "flags", lambda: flags)
        monkeypatch.setattr(processor.ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syscall=Call(found)))
        monkeypatch.setattr(processor.ctypes, "get_errno", lambda: error)
        processor.tiles_refused.cache_clear()
        return found

    yield made
    processor.tiles_refused.cache_clear()


class Call:
    restype = None

    def __init__(self, system):
        self.system = system

    def __call__(self, *arguments):
        return self.system.syscall(*arguments)


def test_tile_registers_are_asked_for_once(system):
    found = system(0)

    assert processor.tiles_refused() == ""
    assert processor.tiles_refused() == ""
    assert found.asked == [(158, 0x1023, 18)]


def test_a_system_that_refuses_tile_registers_says_why(system):
    system(errno.EPERM)

    assert processor.tiles_refused().startswith("the system refuses them: ")
    assert processor.tiles_refused().endswith("(EPERM)")
    with pytest.raises(DeviceError, match=r"compiled for tile registers \(AMX\), and the system refuses them"):
        processor.require(("amx-tile",), "sapphirerapids")


def test_signal_stacks_that_are_too_small_for_tiles_are_told(system):
    system(errno.ENOSPC)

    assert "signal stack (sigaltstack) is too small" in processor.tiles_refused()
    assert processor.tiles_refused().endswith("(ENOSPC)")


def test_a_processor_without_tile_registers_is_not_asked(system):
    found = system(0, frozenset({"avx2"}))

    assert "has none" in processor.tiles_refused()
    assert found.asked == []


@pytest.fixture
def asked_again():
    cpu._host.cache_clear()
    yield
    cpu._host.cache_clear()


@pytest.mark.usefixtures("asked_again")
def test_a_refusal_leaves_the_host_without_tiles(system):
    system(errno.ENOSYS, processor.flags() | {"amx_tile"})

    assert not [f for f in cpu.host().features if f.startswith("amx-")]


@pytest.mark.usefixtures("asked_again")
def test_what_the_system_hides_is_not_used(monkeypatch):
    hidden = {"avx2", "avx512f"}
    shown = processor.flags() - hidden
    monkeypatch.setattr(processor, "flags", lambda: shown)

    assert not hidden & cpu.host().features
