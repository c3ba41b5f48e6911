"""What tools say of the C runtime: data races, wrong accesses, suspicious lines, warnings of other compilers."""

import importlib.util
import platform
import shutil
import subprocess
import sys

import pytest

from testing.c_library import COMPILERS, CPU_SOURCES, NATIVE, SOURCES, WARNINGS, build
from tests.c_runtime import checks, fuzz
from tests.c_runtime.models import fixed

pytestmark = pytest.mark.skipif(not COMPILERS or sys.platform != "linux", reason="no C compiler, or no sanitizers")
ON_X86 = platform.machine() == "x86_64"


@pytest.mark.parametrize("name", ["mobilenet_v2", "lstm"])
def test_contexts_on_several_threads_have_no_races(name):
    assert checks.races(fixed(name)[1]) == ""


@pytest.mark.slow
def test_a_race_is_found(tmp_path):
    """A library whose job is written without its lock."""
    text = (NATIVE / "src/pool.c").read_text(encoding="utf-8")
    before, found, behind = text.partition("        pthread_mutex_lock(&pool->lock);\n        pool->job = job;")
    without = behind.replace("        pthread_mutex_unlock(&pool->lock);\n", "", 1)
    (tmp_path / "pool.c").write_text(f"{before}        pool->job = job;{without}")
    files = [checks.HERE / "contexts.c", tmp_path / "pool.c", *(p for p in CPU_SOURCES if p.name != "pool.c")]
    fences = ("-Wno-tsan",) if COMPILERS[0] == "gcc" else ()
    program = build("racing", files, f"-I{NATIVE / 'src'}", "-fsanitize=thread", "-g", "-O1", *fences)

    assert found
    assert "WARNING: ThreadSanitizer: data race" in checks.answer(
        [program, fixed("mobilenet_v2")[1], "4", "12"], seconds=200
    )


@pytest.mark.skipif(not shutil.which(checks.VALGRIND) or not ON_X86, reason="no valgrind, or one for another processor")
@pytest.mark.parametrize("name", ["int8", "lstm"])
def test_valgrind_has_nothing_to_say(name):
    assert checks.faults(fixed(name, checks.PLAIN_TARGET)[1]) == ""


@pytest.mark.skipif(not shutil.which(checks.TIDY), reason="no clang-tidy-19")
def test_clang_tidy_has_nothing_to_say():
    assert checks.lint() == ""


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="no zig")
def test_zig_has_nothing_to_warn_of(tmp_path):
    command = [sys.executable, "-m", "ziglang", "cc", *WARNINGS, "-Os", "-fPIC", "-shared", f"-I{NATIVE / 'include'}"]
    done = subprocess.run(
        [*command, *map(str, SOURCES), "-o", tmp_path / "zig.so", "-lm"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not fuzz.available(), reason="no clang-19 with libFuzzer")
def test_some_seconds_of_fuzzing(tmp_path):
    assert fuzz.main(1, tmp_path, ["-runs=3000", "-verbosity=0"]) == 0
