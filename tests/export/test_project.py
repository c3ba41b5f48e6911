"""An exported C project gives the bits of ``Executable.run``, and asks nothing of the system but memory functions."""

import ctypes
import errno
import re
import shutil
import sys
import threading
import time

import numpy as np
import pytest

from gpucomp.codegen.llvm.ir.launch_list import RUNNER
from gpucomp.export import layout, refusals
from gpucomp.runtime.inputs import random_inputs
from gpucomp.runtime.native import address_of, aligned
from tests.export.built import COMPILERS, SHARE, WARNINGS, WORK, Project, Share, cmake, run, table
from tests.export.models import MODELS, classifier, convolution, large, recurrent

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the machine code is ELF"),
    pytest.mark.skipif(not COMPILERS, reason="no C compiler is installed"),
]
NEEDS_CMAKE = pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
FROM_LIBC = {"memcpy", "memset", "memcmp"}


@pytest.fixture(scope="module")
def projects(tmp_path_factory):
    """Each model once, by name, with all launches shared that can be: the models are small."""
    made = {}

    def project(name):
        if name not in made:
            with pytest.MonkeyPatch.context() as patches:
                patches.setattr(layout, "SHARED_NS", 0.0)
                made[name] = Project(MODELS[name](), tmp_path_factory.mktemp(name), name)
        return made[name]

    return project


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].tobytes() == np.ascontiguousarray(array).tobytes(), name


@pytest.mark.parametrize("name", MODELS)
def test_the_results_are_those_of_the_executable_bit_for_bit(name, libraries):
    library = libraries(name)
    arena = library.ready()

    for seed in range(3):
        inputs = random_inputs(library.project.exe.inputs, seed)
        assert_same(library.run(arena, inputs), library.project.exe.run(inputs))


def in_pieces(pool, work, job, tasks):
    """A caller's own way to share: each task alone, from the last to the first."""
    for task in reversed(range(tasks)):
        WORK(work)(job, task, task + 1)


@pytest.mark.parametrize("name", MODELS)
def test_the_caller_may_divide_the_work(name, libraries):
    library = libraries(name)
    inputs = random_inputs(library.project.exe.inputs, 5)

    found = library.run(library.ready(), inputs, Share(None, SHARE(in_pieces)))

    assert_same(found, library.project.exe.run(inputs))


@pytest.mark.parametrize("name", ["classifier", "transformer", "recurrent"])
def test_work_is_divided(name, libraries):
    library = libraries(name)
    divided = []

    def noted(pool, work, job, tasks):
        divided.append(tasks)
        WORK(work)(job, 0, tasks)

    library.run(library.ready(), random_inputs(library.project.exe.inputs), Share(None, SHARE(noted)))

    assert divided
    assert min(divided) > 1


@pytest.mark.parametrize("name", MODELS)
def test_threads_run_side_by_side_in_arenas_of_their_own(name, libraries):
    library = libraries(name)
    inputs = [random_inputs(library.project.exe.inputs, seed) for seed in range(4)]
    expected = [library.project.exe.run(one) for one in inputs]
    wrong = []

    def work(number):
        arena = library.ready()
        for _ in range(50):
            found = library.run(arena, inputs[number])
            wrong.extend(n for n, array in expected[number].items() if found[n].tobytes() != array.tobytes())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_the_system_is_asked_for_nothing_but_functions_on_memory(projects):
    for name in MODELS:
        project = projects(name)
        for compiler in COMPILERS:
            parts = project.compiled("-O2", compiler=compiler)
            listed = run("nm", *parts)
            needed = {line.split()[-1] for line in listed.splitlines() if " U " in line}
            defined = {line.split()[-1] for line in listed.splitlines() if re.search(r" [TRDBC] ", line)}
            assert needed - defined <= FROM_LIBC | {"_GLOBAL_OFFSET_TABLE_"}, name
            assert all(symbol.startswith(f"{name}_") for symbol in defined), defined
            sections = [line.split() for line in run("size", "-A", *parts).splitlines()]
            variables = [int(row[1]) for row in sections if row and row[0].split(".")[1:2] in (["data"], ["bss"])]
            constant = [int(row[1]) for row in sections if row and row[0].startswith(".data.rel.ro")]
            assert sum(variables) == sum(constant), name


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_header_of_a_c_library_is_needed(compiler, projects):
    """Those that C11 wants of a compiler without a library are enough."""
    project = projects("classifier")
    own = run(compiler, "-print-file-name=include", cwd=project.folder).strip()

    project.compiled("-ffreestanding", "-nostdinc", "-isystem", own, compiler=compiler)


def test_the_native_runner_of_python_is_not_in_it(projects):
    assert "@gc_run" in RUNNER
    listed = run("nm", projects("classifier").folder / "classifier_kernels.o")
    assert "gc_" not in listed
    assert "classifier_kernel_0" in listed


@NEEDS_CMAKE
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_newcomer_builds_and_tests_it(name, compiler, projects):
    folder = projects(name).folder

    programs = cmake(folder, f"-DCMAKE_C_COMPILER={compiler}", build=f"build-{compiler}")

    assert "bit for bit" in run(programs / "selftest")
    assert (programs / "example").exists()
    assert "1/1" in run("ctest", "--test-dir", programs)


@NEEDS_CMAKE
@pytest.mark.parametrize("options", [(), ("-DCMAKE_INSTALL_PREFIX=/usr", "-DCMAKE_INSTALL_LIBDIR=lib/of/machine")])
def test_it_is_installed_and_found_by_pkg_config(options, projects, tmp_path):
    if not shutil.which("pkg-config"):
        pytest.skip("pkg-config is not installed")
    project = projects("classifier")
    programs = cmake(project.folder, "-DCLASSIFIER_POOL=ON", *options, build=f"build-{len(options)}-installed")
    run("cmake", "--install", programs, "--prefix", tmp_path / "there")
    for place in ("there", "moved"):
        (tmp_path / "there").rename(tmp_path / place)
        found = list((tmp_path / place).rglob("classifier.pc"))
        assert len(found) == 1

        words = run("pkg-config", "--cflags", "--libs", found[0]).split()

        assert "-lclassifier" in words
        assert "-pthread" in words
        shutil.copy(project.folder / "example.c", tmp_path)  # away from the project's own headers
        run("gcc", "example.c", *words, "-o", "example", cwd=tmp_path)
        (tmp_path / place).rename(tmp_path / "there")


PARENT = """
cmake_minimum_required(VERSION 3.13)
project(parent LANGUAGES C ASM)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
enable_testing()
add_subdirectory(ONE one)
add_subdirectory(OTHER other)
add_executable(program main.c)
target_link_libraries(program PRIVATE classifier recurrent)
file(WRITE ${CMAKE_BINARY_DIR}/type "(${CMAKE_BUILD_TYPE})")
"""


@NEEDS_CMAKE
def test_two_models_are_in_one_project_of_cmake(projects, tmp_path):
    one, other = projects("classifier"), projects("recurrent")
    parent = PARENT.replace("ONE", str(one.folder)).replace("OTHER", str(other.folder))
    (tmp_path / "CMakeLists.txt").write_text(parent)
    (tmp_path / "main.c").write_text(
        '#include "classifier.h"\n#include "recurrent.h"\n'
        "int main(void) { return classifier_arena_size() && recurrent_arena_size() ? 0 : 1; }\n"
    )
    options = [f"-D{name}_{part}=ON" for name in ("CLASSIFIER", "RECURRENT") for part in ("TESTS", "POOL")]

    small, whole = cmake(tmp_path), cmake(tmp_path, *options, build="whole")

    run(small / "program")
    assert not list(small.rglob("*selftest"))
    assert (small / "type").read_text() == "()"
    assert "2/2" in run("ctest", "--test-dir", whole)
    assert "bit for bit" in run(whole / "recurrent_selftest")


@NEEDS_CMAKE
@pytest.mark.parametrize("name", MODELS)
def test_no_access_outside_of_memory_and_nothing_undefined(name, projects):
    programs = cmake(
        projects(name).folder,
        f"-D{name.upper()}_POOL=ON",
        "-DCMAKE_BUILD_TYPE=Debug",
        build="build-asan",
        flags="-fsanitize=address,undefined -fno-sanitize-recover=all",
    )

    assert "bit for bit" in run(programs / "selftest")
    assert "bit for bit" in run(programs / "selftest", "--threads", "3")


@NEEDS_CMAKE
@pytest.mark.parametrize("name", ["classifier", "recurrent"])
def test_the_pool_has_no_races(name, projects):
    options = (f"-D{name.upper()}_POOL=ON", "-DCMAKE_BUILD_TYPE=Debug")
    programs = cmake(projects(name).folder, *options, build="build-tsan", flags="-fsanitize=thread")

    assert "bit for bit" in run(programs / "selftest", "--threads", "4", "--time", "200")


def test_code_beside_the_kernels_is_small(projects):
    """At most 40 KB, as the arm and x86 images of a microcontroller's program are counted: text and constants."""
    for name in MODELS:
        parts = projects(name).compiled("-Os", files=("gpucomp_pool.c",))
        rows = [line.split() for line in run("size", *parts).splitlines()[1:]]
        ours = [sum(map(int, row[:3])) for row in rows if "weights" not in row[-1] and "kernels" not in row[-1]]
        assert len(ours) == 2
        assert sum(ours) < 40_000, name


def test_the_arena_is_as_large_as_the_header_says(libraries):
    for name in MODELS:
        library = libraries(name)
        text = (library.project.folder / f"{name}.h").read_text()
        assert f"The bytes of an arena: {library.size()} where" in text


def test_nothing_behind_the_arena_is_written(libraries):
    for name in MODELS:
        library = libraries(name)
        arena = library.arena(extra=256)
        assert library.c_init(address_of(arena), library.size(), address_of(library.weights)) == 0
        library.run(arena, random_inputs(library.project.exe.inputs, 1))
        assert (arena[library.size() :] == 0xA5).all(), name


@pytest.fixture
def pool(libraries):
    """``gpucomp_pool`` of three threads: its share, and the functions of the library that has it."""
    c = libraries("classifier").c
    c.gpucomp_pool_size.restype = ctypes.c_size_t
    c.gpucomp_pool_begin.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint]
    c.gpucomp_pool_share.restype, c.gpucomp_pool_share.argtypes = Share, [ctypes.c_void_p]
    c.gpucomp_pool_end.restype, c.gpucomp_pool_end.argtypes = None, [ctypes.c_void_p]
    memory = aligned((c.gpucomp_pool_size(),), np.dtype(np.uint8))
    assert c.gpucomp_pool_begin(address_of(memory), len(memory), 3) == 0
    yield c.gpucomp_pool_share(address_of(memory)), c
    c.gpucomp_pool_end(address_of(memory))


def test_one_pool_serves_several_models_at_a_time(pool, libraries):
    """A run that finds it busy does its work alone."""
    share, _ = pool
    wrong = []

    def work(library):
        inputs = random_inputs(library.project.exe.inputs, 4)
        expected = library.project.exe.run(inputs)
        arena = library.ready()
        for _ in range(100):
            found = library.run(arena, inputs, share)
            wrong.extend(name for name, array in expected.items() if found[name].tobytes() != array.tobytes())

    threads = [
        threading.Thread(target=work, args=(libraries(name),)) for name in ("classifier", "transformer", "recurrent")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_every_task_is_done_once_by_several_threads(pool):
    share, _ = pool
    done, who = [], set()

    @WORK
    def note(job, first, last):
        done.extend(range(first, last))
        who.add(threading.get_ident())
        time.sleep(0.001)

    for tasks in (1, 2, 3, 97, 1000):
        done.clear()
        share.run(share.pool, ctypes.cast(note, ctypes.c_void_p), None, tasks)
        assert sorted(done) == list(range(tasks))
    assert len(who) > 1


def test_a_pool_that_cannot_be_is_refused(pool):
    _, c = pool
    memory = aligned((c.gpucomp_pool_size() + 64,), np.dtype(np.uint8))
    at, nbytes = address_of(memory), c.gpucomp_pool_size()
    wrong = [(None, nbytes, 2), (at + 8, nbytes, 2), (at, nbytes - 1, 2), (at, nbytes, 0), (at, nbytes, 65)]

    assert [c.gpucomp_pool_begin(*given) for given in wrong] == [errno.EINVAL] * len(wrong)


def test_what_is_wrong_with_a_call_is_told(libraries):
    library = libraries("classifier")
    arena, weights = library.arena(), address_of(library.weights)
    at, nbytes = address_of(arena), len(arena)
    inputs = random_inputs(library.project.exe.inputs)
    given, made = table([*inputs.values()]), table([np.zeros(10, np.float32), np.zeros(16, np.float32)])

    def told(code):
        return library.error(code).decode()

    assert "not prepared" in told(library.c_run(at, given, made, None))
    assert "null" in told(library.c_init(None, nbytes, weights))
    assert "null" in told(library.c_init(at, nbytes, None))
    assert "aligned" in told(library.c_init(at + 8, nbytes, weights))
    assert "aligned" in told(library.c_init(at, nbytes, weights + 8))
    assert "smaller" in told(library.c_init(at, nbytes - 1, weights))
    wrong = library.arena()
    assert "weights" in told(library.c_init(at, nbytes, address_of(wrong)))
    assert library.c_init(at, nbytes, weights) == 0
    assert "null" in told(library.c_run(at, None, made, None))
    assert "null" in told(
        library.c_run(at, given, table([np.zeros(10, np.float32), np.zeros(16, np.float32)][:0]), None)
    )
    moved = library.arena()
    moved[...] = arena
    assert "do not move the arena" in told(library.c_run(address_of(moved), given, made, None))
    odd = np.zeros(4 * 28 * 28 * 3 + 8, np.uint8)
    assert "aligned" in told(library.c_run(at, table([odd[1:]]), made, None))
    assert "unknown" in told(99)


def test_a_run_in_an_arena_that_is_in_use_is_refused(libraries):
    library = libraries("classifier")
    arena = library.ready()
    inputs = random_inputs(library.project.exe.inputs)
    codes = []

    def inside(pool, work, job, tasks):
        WORK(work)(job, 0, tasks)
        made = [np.zeros(10, np.float32), np.zeros(16, np.float32)]
        codes.append(library.c_run(address_of(arena), table([*inputs.values()]), table(made), None))

    library.run(arena, inputs, Share(None, SHARE(inside)))

    assert codes
    assert {library.error(code).decode() for code in codes} == {
        "another run is using this arena: give each thread an arena of its own"
    }
    library.run(arena, inputs)


def test_two_models_and_one_pool_are_in_one_program_in_cxx(projects, tmp_path):
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    one, other = projects("classifier"), projects("recurrent")
    parts = [*one.compiled("-O2", files=("gpucomp_pool.c",)), *other.compiled("-O2", files=("gpucomp_pool.c",))[:2]]
    main = tmp_path / "main.cc"
    main.write_text(
        '#include "classifier.h"\n#include "gpucomp_pool.h"\n#include "recurrent.h"\n'
        "int main() { return classifier_arena_size() > 0 && recurrent_arena_size() > 0 && gpucomp_pool_size() > 0 ? 0 : 1; }\n"
    )
    folders = [f"-I{project.folder}" for project in (one, other)]
    kernels = other.folder / "recurrent_kernels.o"
    flags = ("-std=c++20", *WARNINGS[1:])

    run("g++", *flags, *folders, main, *parts, kernels, "-pthread", "-o", tmp_path / "program")

    run(tmp_path / "program")


def test_the_same_model_gives_the_same_files(projects, tmp_path):
    first = projects("quantized")
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(layout, "SHARED_NS", 0.0)
        again = Project(MODELS["quantized"](), tmp_path, "quantized")

    assert [path.name for path in first.files] == [path.name for path in again.files]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(first.files, again.files, strict=True))


def test_a_loop_is_exported_as_a_loop(projects):
    project = projects("recurrent")
    assert project.exe.plan.repeats
    assert "static const struct loop loops[LOOPS + 1]" in (project.folder / "recurrent.c").read_text()
    assert "struct loop" not in (projects("classifier").folder / "classifier.c").read_text()


def test_small_work_is_left_to_one_thread(tmp_path):
    project = Project(classifier(), tmp_path, "classifier")
    rows = layout.layout_of(project.exe.plan, project.exe.weights).launches
    assert not any(row.shared for row in rows)
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(layout, "SHARED_NS", 0.0)
        assert any(row.shared for row in layout.layout_of(project.exe.plan, project.exe.weights).launches)


STACK = """
#include "NAME.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define NBYTES (8u << 20)
static int result;
static void *run_it(void *arena)
{
    static float x[UPPER_INPUT_x], y[UPPER_OUTPUT_y];
    NAME_inputs inputs = {x};
    NAME_outputs outputs = {y};
    result = NAME_run(arena, &inputs, &outputs, NULL);
    return NULL;
}
int main(void)
{
    size_t nbytes = NAME_arena_size(), untouched = 0;
    void *arena = aligned_alloc(64, nbytes);
    unsigned char *stack = aligned_alloc(4096, NBYTES);
    memset(stack, 0xA5, NBYTES);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, NBYTES);
    result = NAME_init(arena, nbytes, NAME_weights);
    pthread_create(&thread, &attributes, run_it, arena);
    pthread_join(thread, NULL);
    while (stack[untouched] == 0xA5)
        ++untouched;
    printf("%zu %d\\n", NBYTES - untouched, UPPER_STACK);
    return result;
}
"""
OF_THE_SYSTEM = 4096  # bytes of a thread's stack that are glibc's own


def test_a_run_takes_no_more_stack_than_the_header_says(tmp_path):
    """Of a convolution by Winograd's algorithm, which takes the most."""
    project = Project(convolution(), tmp_path, "conv")
    assert "winograd" in {kernel.family.rpartition("/")[2] for kernel in project.exe.plan.kernels}
    (tmp_path / "main.c").write_text(STACK.replace("NAME", "conv").replace("UPPER", "CONV"))
    run("gcc", "-D_GNU_SOURCE", "-O1", "main.c", *project.compiled("-O2"), "-pthread", "-o", "main", cwd=tmp_path)

    taken, told = map(int, run(tmp_path / "main").split())

    assert 100_000 < taken - OF_THE_SYSTEM <= told
    assert told < 2 * taken


def test_the_pool_has_more_stack_than_a_model_takes(projects):
    header = (projects("classifier").folder / "gpucomp_pool.h").read_text()
    assert int(re.search(r"GPUCOMP_POOL_STACK (\d+)", header)[1]) > refusals.LARGEST_STACK + OF_THE_SYSTEM


@pytest.mark.slow
@NEEDS_CMAKE
def test_more_than_a_hundred_megabytes_of_weights(tmp_path):
    project = Project(large(), tmp_path, "large")
    assert (tmp_path / "large_weights.bin").stat().st_size > 100_000_000

    programs = cmake(project.folder)

    assert "bit for bit" in run(programs / "selftest")
    for path in tmp_path.rglob("*"):  # hundreds of megabytes, which pytest would keep
        if path.is_file():
            path.unlink()


def test_a_recurrent_model_starts_anew_in_each_run(libraries):
    library = libraries("recurrent")
    assert recurrent.__name__ == library.name
    arena = library.ready()
    inputs = [random_inputs(library.project.exe.inputs, seed) for seed in (1, 2, 1)]

    first, _, again = [library.run(arena, one) for one in inputs]

    assert_same(again, first)
