"""C projects whose kernels use tile registers (AMX): what they ask of the processor and of Linux."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

import gpucomp
from gpucomp.device.isa import TILES
from gpucomp.errors import UsageError
from gpucomp.export import recording
from gpucomp.export.processors import asked, checks, needed, uses_tiles
from gpucomp.export.project import export_c
from gpucomp.targets.cpu import host
from tests.export.built import COMPILERS, cmake, run
from tests.export.models import classifier
from tests.kernel.passes.test_run_time_zero_points import feed_forward
from tests.system_calls import has_tiles

TARGET = "cpu:sapphirerapids"
NEEDS_C = pytest.mark.skipif(
    sys.platform != "linux" or "sse4.1" not in host().features or not shutil.which("cmake") or not COMPILERS,
    reason="Linux on x86-64 with cmake and a C compiler is needed",
)
ANSWERS = [(0, True), (28, False), (1, False), (22, False)]  # of Linux: 0, ENOSPC, EPERM, EINVAL


def bytes_model() -> gpucomp.Executable:
    return gpucomp.compile(feed_forward(37), target=TARGET)


def exported(exe: gpucomp.Executable, folder: Path, proto: object) -> dict[str, str]:
    """The texts of a project, with spaces alone between words."""
    export_c(exe, folder, name="net", elsewhere=lambda: gpucomp.compile(proto, target="cpu"))
    return {name: " ".join((folder / name).read_text().split()) for name in ("net.c", "net.h", "README.md")}


def test_tile_registers_are_asked_for(tmp_path: Path) -> None:
    exe = bytes_model()
    texts = exported(exe, tmp_path, feed_forward(37))
    contents = exe.contents()

    assert uses_tiles(contents.plan, contents.sources)
    assert needed(contents.plan, contents.sources) is contents.plan
    assert "if (!has_instructions() || !has_tiles()) return NET_PROCESSOR;" in texts["net.c"]
    assert "amx-bf16, amx-int8, amx-tile" in texts["net.h"]
    assert "net_init asks Linux for tile registers" in texts["net.h"]
    assert "AT_MINSIGSTKSZ" in texts["README.md"]
    told = {check.words: (int(check.bits, 16), check.told) for check in checks(contents.plan)}
    assert told["leaf7[3]"][0] & (1 << 22 | 1 << 24 | 1 << 25) == 1 << 22 | 1 << 24 | 1 << 25
    assert told["saved"][0] == 0x600E6


def test_kernels_without_tiles_do_not_ask_for_them(tmp_path: Path) -> None:
    """Sums of floats for the same processor: it may be one whose system keeps tiles from it."""
    exe = gpucomp.compile(classifier(), target=TARGET)
    texts = exported(exe, tmp_path, classifier())
    contents = exe.contents()
    plan = needed(contents.plan, contents.sources)

    assert set(contents.plan.features) >= TILES
    assert not TILES & set(plan.features)
    assert set(plan.features) == set(contents.plan.features) - TILES
    assert "amx" not in asked(plan).told
    assert [check.bits for check in checks(plan) if check.words == "saved"] == ["0xe6"]
    assert "if (!has_instructions()) return NET_PROCESSOR;" in texts["net.c"]
    assert not any("amx" in text or "tiles" in text for text in texts.values())


@NEEDS_C
def test_a_project_with_tiles_runs_or_tells_that_there_are_none(tmp_path: Path) -> None:
    exported(bytes_model(), tmp_path, feed_forward(37))
    programs = cmake(tmp_path)

    if host().features >= gpucomp.targets.cpu.named(TARGET).features:
        assert "bit for bit" in run(programs / "selftest")
    else:
        with pytest.raises(AssertionError, match=f"lacks instructions of {TARGET}: export the model for a smaller one"):
            run(programs / "selftest")


@NEEDS_C
@pytest.mark.parametrize(("answer", "granted"), ANSWERS)
def test_the_system_is_asked_as_linux_documents(answer: int, granted: bool, tmp_path: Path) -> None:
    template = (Path(gpucomp.__file__).parent / "export" / "templates" / "model.c.j2").read_text()
    (function,) = re.findall(r"^static int has_tiles.*?^\}$", template, re.MULTILINE | re.DOTALL)

    assert has_tiles(function, answer, tmp_path) == granted


@NEEDS_C
@pytest.mark.parametrize(("answer", "granted"), ANSWERS)
def test_the_c_runtime_asks_the_system_likewise(answer: int, granted: bool, tmp_path: Path) -> None:
    source = (Path(gpucomp.__file__).parent / "native" / "src" / "system.c").read_text()
    function = re.findall(r"^static bool tiles_refused.*?^\}$", source, re.MULTILINE | re.DOTALL)[0]
    negated = "static bool has_tiles(void) { return !tiles_refused(); }"

    assert has_tiles(f"{function}\n{negated}", answer, tmp_path) == granted


def test_results_of_a_project_are_recorded_elsewhere_if_tiles_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor has them and the system keeps them from the process."""
    exe = bytes_model()
    monkeypatch.setattr(recording.processor, "missing", lambda features: [])
    monkeypatch.setattr(recording.processor, "tiles_refused", lambda: "the system refuses them")
    monkeypatch.setattr(recording.platform, "machine", lambda: "x86_64")

    with pytest.raises(UsageError, match="GPC2062"):
        recording.recorded(exe, exe.plan, None, [], 0)
    here = gpucomp.compile(feed_forward(37), target="cpu")
    assert not recording.recorded(exe, exe.plan, lambda: here, [], 0).exact
