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

TARGET = "cpu:sapphirerapids"
NEEDS_C = pytest.mark.skipif(
    sys.platform != "linux" or "sse4.1" not in host().features or not shutil.which("cmake") or not COMPILERS,
    reason="Linux on x86-64 with cmake and a C compiler is needed",
)
# what has_tiles of a project says, under a filter that answers its system call with what the first argument is, an error or 0,
# and another one than the documented with EPERM
ASKS = """
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

HAS_TILES

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define UNLESS(value, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped)

int main(int count, char **words)
{
    unsigned answer = SECCOMP_RET_ERRNO | (unsigned)(count > 1 ? atoi(words[1]) : 0);
    struct sock_filter rules[] = {
        LOAD(nr), UNLESS(158, 6), LOAD(args[0]), UNLESS(0x1023, 3), LOAD(args[1]), UNLESS(18, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        printf("no filter\\n");
        return 0;
    }
    printf("%d\\n", has_tiles());
    return 0;
}
"""


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
@pytest.mark.parametrize(("answer", "has_tiles"), [(0, "1"), (28, "0"), (1, "0"), (22, "0")])
def test_the_system_is_asked_as_linux_documents(answer: int, has_tiles: str, tmp_path: Path) -> None:
    exported(bytes_model(), tmp_path / "net", feed_forward(37))
    (function,) = re.findall(r"^static int has_tiles.*?^\}$", (tmp_path / "net" / "net.c").read_text(), re.M | re.S)
    (tmp_path / "asks.c").write_text(ASKS.replace("HAS_TILES", function))
    run(COMPILERS[0], "-O2", "-Wall", "-Werror", tmp_path / "asks.c", "-o", tmp_path / "asks")

    found = run(tmp_path / "asks", answer).strip()

    if found == "no filter":
        pytest.skip("this system takes no seccomp filter")
    assert found == has_tiles


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
