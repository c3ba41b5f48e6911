"""Exported C projects of models whose sizes each run decides, and of models with states."""

import ctypes
import itertools
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import gpucomp
from bench.decoder_model import Sizes, decoder
from gpucomp import Dim
from gpucomp.artifact.formulas import GREATEST, LARGEST, LEAST, QUOTIENT, SUM, Formulas
from gpucomp.errors import UnsupportedError
from gpucomp.export import layout, refusals
from gpucomp.export.numbers import Numbers
from gpucomp.export.project import export_c
from gpucomp.export.recording import recorded
from gpucomp.kernels_templates.render import environment
from gpucomp.runtime.native import address_of
from tests.export.built import COMPILERS, SHARE, WARNINGS, WORK, Library, Project, Share, cmake, run, table
from tests.export.models import ANY_SIZE, filter_of
from tests.onnx_builders import model, node, value
from tests.runtime.test_updated_states import grouped

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the machine code is ELF"),
    pytest.mark.skipif(not COMPILERS, reason="no C compiler is installed"),
]
NEEDS_CMAKE = pytest.mark.skipif(not shutil.which("cmake"), reason="cmake is not installed")
AT = {
    "pyramid": [(1, 4, 1), (4, 64, 90), (2, 32, 33), (3, 8, 17), (2, 32, 33), (1, 64, 90), (4, 4, 90)],
    "steps": [(1,), (60,), (2,), (17,), (60,)],
}
SIZES = Sizes()
PAST = [f"past_key_values.{n}.{kind}" for n in range(SIZES.layers) for kind in ("key", "value")]
RNG = np.random.default_rng(7)


@pytest.fixture(scope="module")
def projects(tmp_path_factory):
    """Each model once, by name, with all launches shared that can be: the models are small."""
    made = {}

    def project(name):
        if name in made:
            return made[name]
        how = {"states": {"h": "h_new"}}
        if name in ANY_SIZE:
            proto, shapes = ANY_SIZE[name]()
            how = {"shapes": shapes}
        elif name == "generator":
            proto = decoder(SIZES)
            past = (Dim("batch", 1, 4), SIZES.groups, Dim("past", 0, SIZES.positions), SIZES.size)
            how = {"shapes": {"input_ids": (Dim("batch", 1, 4), Dim("words", 1, 40)), **dict.fromkeys(PAST, past)}}
            how["states"] = "auto"
        elif name == "filter":
            proto = filter_of(2)
        else:
            proto, shape = filter_of("n"), (Dim("n", 1, 8), 16)
            how["shapes"] = {"x": shape, "h": shape}
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(layout, "SHARED_NS", 0.0)
            made[name] = Project(proto, tmp_path_factory.mktemp(name), name, **how)
        return made[name]

    return project


def feed(exe, sizes):
    """Random inputs at the sizes of the dimensions, which are in the order of the header."""
    named = dict(zip(exe.dims, sizes, strict=False))
    shapes = [[named[n.name] if isinstance(n, Dim) else n for n in spec.shape] for spec in exe.inputs]
    return {
        spec.name: RNG.standard_normal(shape).astype(spec.type.dtype.numpy)
        for spec, shape in zip(exe.inputs, shapes, strict=True)
    }


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].shape == array.shape
        assert found[name].tobytes() == np.ascontiguousarray(array).tobytes(), name


@pytest.mark.parametrize("name", ANY_SIZE)
def test_the_results_are_those_of_the_executable_at_each_size(name, libraries):
    library = libraries(name)
    exe = library.project.exe
    most = tuple(dim.nearest(dim.high) for dim in exe.dims.values())
    arena = library.ready(most)

    def in_pieces(pool, work, job, tasks):
        for task in reversed(range(tasks)):
            WORK(work)(job, task, task + 1)

    for sizes, share in itertools.product(AT[name], (None, Share(None, SHARE(in_pieces)))):
        inputs = feed(exe, sizes)
        expected = exe.run(inputs)
        shapes = library.shapes(arena, sizes)
        assert shapes == [expected[spec.name].shape for spec in exe.outputs]
        code, found = library.run_at(arena, sizes, inputs, shapes, share)
        assert code == 0
        assert_same(found, expected)


def test_nothing_behind_the_arena_is_written(libraries):
    library = libraries("pyramid")
    for sizes in AT["pyramid"]:
        arena = library.arena(256, sizes)
        nbytes = len(arena) - 256
        assert library.c_init(address_of(arena), nbytes, address_of(library.weights)) == 0
        code, _ = library.run_at(arena, sizes, feed(library.project.exe, sizes), library.shapes(arena, sizes))
        assert code == 0
        assert (arena[nbytes:] == 0xA5).all()


def test_sizes_that_the_model_is_not_for_are_told(libraries):
    library = libraries("pyramid")
    arena = library.ready((2, 32, 33))
    inputs, shapes = feed(library.project.exe, (2, 32, 33)), library.shapes(arena, (2, 32, 33))

    def told(*sizes):
        return library.error(library.run_at(arena, sizes, inputs, shapes)[0]).decode()

    wrong = [(0, 32, 33), (5, 32, 33), (2, 30, 33), (2, 68, 33), (2, 32, 91), (-1, 32, 33), (2, 1 << 62, 33)]
    assert {told(*sizes) for sizes in wrong} == {
        "the model is not for these sizes: the header says which ones each may be"
    }
    assert all(library.size(*library.sizes(sizes)) == 0 for sizes in wrong)
    assert told(4, 64, 90) == "the arena is smaller than pyramid_arena_size(...) of these sizes"
    assert told(2, 32, 33) == "no error"
    assert told(1, 4, 1) == "no error"
    small = library.arena(sizes=(1, 4, 1))
    assert library.c_init(address_of(small), 64, address_of(library.weights)) == 3
    header = (library.project.folder / "pyramid.h").read_text()
    assert "int64_t batch; /* 1 to 4 */" in header
    assert "int64_t h; /* 4 to 64, a multiple of 4 */" in header


@pytest.mark.parametrize("name", ["filter", "filters"])
def test_a_state_goes_on_from_run_to_run(name, libraries):
    library = libraries(name)
    exe = library.project.exe
    sizes = (3,) if library.sized else ()
    rows = 3 if library.sized else 2
    arena, context = library.ready(sizes), exe.context()

    for step in range(9):
        if step == 5:
            assert library.c_reset(address_of(arena)) == 0
            context.reset()
        inputs = {"x": RNG.standard_normal((rows, 16)).astype(np.float32)}
        code, found = library.run_at(arena, sizes, inputs, [()])
        assert code == 0
        assert_same(found, context.run(inputs))


def test_other_sizes_than_those_of_a_state_are_told(libraries):
    library = libraries("filters")
    arena = library.ready((8,))
    inputs = {"x": np.ones((8, 16), np.float32)}
    assert library.run_at(arena, (2,), inputs, [()])[0] == 0

    code, _ = library.run_at(arena, (3,), inputs, [()])

    assert library.error(code) == b"the states have other sizes: call filters_reset first"
    assert library.run_at(arena, (2,), inputs, [()])[0] == 0
    assert library.c_reset(address_of(arena)) == 0
    assert library.run_at(arena, (3,), inputs, [()])[0] == 0


def test_states_grow_by_rows_and_go_back(libraries):
    library = libraries("generator")
    exe = library.project.exe
    c_rows, c_rewind = library.c.generator_rows, library.c.generator_rewind
    c_rows.restype, c_rows.argtypes = ctypes.c_int64, [ctypes.c_void_p]
    c_rewind.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    names = [line.split()[1].strip(";") for line in _struct(library, "generator_sizes")]
    assert sorted(names) == ["batch", "words"]
    order = [names.index("batch"), names.index("words")]

    def sizes_of(batch, words):
        return tuple((batch, words)[order.index(k)] for k in range(2))

    arena, context = library.ready(sizes_of(2, 40)), exe.context()
    at = address_of(arena)
    for words, rewind in ((5, None), (1, None), (1, None), (7, 4), (3, None), (1, 0), (40, None), (1, None)):
        if rewind is not None:
            assert c_rewind(at, rewind) == 0
            context.rewind(rewind)
        inputs = {"input_ids": RNG.integers(0, SIZES.vocabulary, (2, words))}
        expected = context.run(inputs)
        code, found = library.run_at(arena, sizes_of(2, words), inputs, [expected["logits"].shape])
        assert code == 0
        assert_same(found, expected)
        assert c_rows(at) == next(iter(context.rows.values()))
    told = library.error(c_rewind(at, 1000)).decode()
    assert told == "a number of rows from 0 to generator_rows() is expected, or to 64 by generator_restore"
    inputs = {"input_ids": np.zeros((2, 40), np.int64)}
    code, _ = library.run_at(arena, sizes_of(2, 40), inputs, [(2, 40, SIZES.vocabulary)])
    assert library.error(code).startswith(b"the states have no room for the rows of this run")
    assert c_rows(address_of(np.zeros(64, np.uint8))) == -1


@pytest.mark.parametrize("name", ["filter", "filters"])
def test_a_state_is_saved_and_goes_on_in_another_arena(name, libraries):
    library = libraries(name)
    sizes = (3,) if library.sized else ()
    first, second, context = library.ready(sizes), library.ready(sizes), library.project.exe.context()
    feeds = [{"x": RNG.standard_normal((3 if library.sized else 2, 16)).astype(np.float32)} for _ in range(7)]
    for feed in feeds[:3]:  # an odd number: the state is in the second of its two pieces of memory
        library.run_at(first, sizes, feed, [()])
        context.run(feed)
    library.run_at(second, sizes, feeds[5], [()])

    code, saved = library.save(first, context.save())

    assert code == 0
    assert_same(saved, context.save())
    assert library.restore(second, sizes, saved) == 0
    code, again = library.save(second, saved)  # before it has run
    assert code == 0
    assert_same(again, saved)
    for feed in feeds[3:]:
        expected = context.run(feed)
        for arena in (first, second):
            code, found = library.run_at(arena, sizes, feed, [()])
            assert code == 0
            assert_same(found, expected)
    context.restore(saved)
    assert library.restore(first, sizes, context.save()) == 0  # from Python
    code, found = library.run_at(first, sizes, feeds[0], [()])
    assert_same(found, context.run(feeds[0]))


def test_states_that_cannot_be_saved_or_restored_are_told(libraries):
    library = libraries("filters")
    arena, feed = library.ready((8,)), {"x": np.ones((8, 16), np.float32)}
    state = np.full((2, 16), 0.25, np.float32)
    none, odd = (ctypes.c_void_p * 1)(), (ctypes.c_void_p * 1)(address_of(state) + 2)

    def told(code):
        return library.error(code).decode()

    code, _ = library.save(arena, {"h": state})
    assert told(code) == "there are no states: no run has been made since filters_init or filters_reset"
    assert library.run_at(arena, (2,), feed, [()])[0] == 0
    assert library.restore(arena, (2,), {"h": state}) == 0
    for sizes, given in (((2,), none), ((2,), odd), ((3,), none), ((9,), table([state]))):
        code = library.c_restore(address_of(arena), *library.sizes(sizes), given)
        assert told(code).split()[0] in ("a", "an", "the")
        # the state is what it was, and of the sizes that it had
        assert told(library.run_at(arena, (3,), feed, [()])[0]).startswith("the states have other sizes")
        code, kept = library.save(arena, {"h": state})
        assert code == 0
        assert (kept["h"] == 0.25).all()
    assert told(library.c_save(address_of(arena), none)).startswith("a pointer is null")
    assert told(library.c_save(address_of(arena), odd)).startswith("an address is not aligned")
    assert told(library.c_save(address_of(arena), None)).startswith("a pointer is null")
    assert told(library.c_save(address_of(np.zeros(999, np.uint8)[1:]), none)).startswith("an address")
    assert library.restore(arena, (3,), {"h": np.ones((3, 16), np.float32)}) == 0  # of other sizes
    assert library.run_at(arena, (3,), feed, [()])[0] == 0
    assert library.c_reset(address_of(arena)) == 0
    code, _ = library.save(arena, {"h": state})
    assert told(code).startswith("there are no states")


def test_states_that_grow_are_saved_and_restored(libraries):
    library = libraries("generator")
    exe, order = library.project.exe, _struct(library, "generator_sizes")

    def sizes_of(words):
        return tuple(2 if "batch" in line else words for line in order)

    def run(arena, words, feed, expected):
        code, found = library.run_at(arena, sizes_of(words), feed, [expected["logits"].shape])
        assert code == 0, library.error(code)
        assert_same(found, expected)

    first, second, context = library.ready(sizes_of(40)), library.ready(sizes_of(40)), exe.context()
    feeds = {words: {"input_ids": RNG.integers(0, SIZES.vocabulary, (2, words))} for words in (5, 1, 7, 30, 3)}
    for words in (5, 1, 7):
        run(first, words, feeds[words], context.run(feeds[words]))
    run(second, 30, feeds[30], exe.context().run(feeds[30]))  # rows that must not be seen later

    code, saved = library.save(first, context.save())

    assert code == 0
    assert_same(saved, context.save())
    assert {array.shape[state.axis] for state, array in zip(exe.states, saved.values(), strict=True)} == {13}
    assert library.restore(second, sizes_of(1), saved, rows=13) == 0
    for words in (1, 3, 7):
        expected = context.run(feeds[words])
        run(first, words, feeds[words], expected)
        run(second, words, feeds[words], expected)
    code, again = library.save(second, context.save())
    assert_same(again, context.save())
    for rows, wanted in ((-1, b"a number of rows"), (65, b"a number of rows"), (64, b"the states have no room")):
        assert library.error(library.restore(second, sizes_of(1), saved, rows=rows)).startswith(wanted)
    feed = feeds[1]
    run(second, 1, feed, context.run(feed))  # nothing has changed
    assert library.restore(second, sizes_of(5), saved, rows=0) == 0
    run(second, 5, feeds[5], exe.context().run(feeds[5]))


def test_states_are_saved_after_a_run_that_was_refused(libraries):
    """The sizes of that run must not decide where the states are."""
    library = libraries("generator")
    order = _struct(library, "generator_sizes")
    small, large = (tuple(2 if "batch" in line else words for line in order) for words in (4, 40))
    arena, context = library.ready(small), library.project.exe.context()
    feed = {"input_ids": RNG.integers(0, SIZES.vocabulary, (2, 4))}
    library.run_at(arena, small, feed, [(2, 4, SIZES.vocabulary)])
    context.run(feed)
    other = {"input_ids": RNG.integers(0, SIZES.vocabulary, (2, 40))}
    code, _ = library.run_at(arena, large, other, [(2, 40, SIZES.vocabulary)])
    assert library.error(code).startswith(b"the arena is smaller")

    code, saved = library.save(arena, context.save())

    assert code == 0
    assert_same(saved, context.save())


def test_a_state_is_updated_where_data_says(tmp_path):
    """Keys and values of a fixed capacity, which attention stores at places of its own: a run changes the arena's memory."""
    how = {"shapes": dict.fromkeys(("old_k", "old_v"), (1, 2, 30, 16)) | {"q": (1, Dim("s", 1, 30), 96)}}
    how["states"] = {"old_k": "new_k", "old_v": "new_v"}
    library = Library(Project(grouped(1, 30), tmp_path, "keys", **how))
    exe = library.project.exe
    assert [(state.in_place, state.axis) for state in exe.states] == [(True, -1)] * 2
    arena, context, rows = library.ready((30,)), exe.context(), 0
    for count in (5, 1, 1, 9, 1):
        rows += count
        shapes = {"q": (1, count, 96), "k": (1, count, 32), "v": (1, count, 32)}
        inputs = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        inputs |= {"lengths": np.array([rows - 1], np.int32), "total": np.array([rows], np.int32)}

        code, found = library.run_at(arena, (count,), inputs, [(1, count, 96)])

        assert code == 0
        assert_same(found, context.run(inputs))


def _struct(library, name):
    text = (library.project.folder / f"{library.name}.h").read_text()
    body = text[text.index(f"typedef struct {name} {{") :].splitlines()[1:]
    return [line.strip() for line in body[: body.index(f"}} {name};")]]


@NEEDS_CMAKE
@pytest.mark.parametrize("name", ["pyramid", "steps", "filter", "filters", "generator"])
def test_the_self_test_runs_at_several_sizes(name, projects):
    project = projects(name)
    programs = cmake(
        project.folder,
        f"-D{name.upper()}_POOL=ON",
        "-DCMAKE_BUILD_TYPE=Debug",
        flags="-fsanitize=address,undefined -fno-sanitize-recover=all",
    )
    runs = {"pyramid": 4, "steps": 4, "filter": 3, "filters": 9, "generator": 12}[name]

    told = run(programs / "selftest", "--threads", "2", "--time", "3")

    assert f" of {runs} runs are as they were recorded, bit for bit" in told
    data = bytearray((project.folder / "selftest_data.bin").read_bytes())
    last = np.frombuffer(data, np.uint8).copy()
    where = int(np.flatnonzero(last)[-1])  # of the last output
    last[where] ^= 0x40
    (project.folder / "selftest_data.bin").write_bytes(last.tobytes())
    run("cmake", "--build", programs)
    with pytest.raises(AssertionError, match="differs from what was recorded"):
        run(programs / "selftest")


@NEEDS_CMAKE
def test_the_example_takes_the_sizes(projects):
    project = projects("steps")
    programs = cmake(project.folder, build="build-example")
    numbers = RNG.standard_normal((7, 2, 8)).astype(np.float32)
    (project.folder / "x.bin").write_bytes(numbers.tobytes())

    lines = run(programs / "example", "7", project.folder / "x.bin").splitlines()

    found = project.exe.run({"x": numbers})["y"].reshape(-1)
    assert [int(line.split()[0]) for line in lines[1:]] == np.argsort(-found, kind="stable")[:5].tolist()
    with pytest.raises(AssertionError, match="the model is not for these sizes"):
        run(programs / "example", "61", project.folder / "x.bin")


def test_other_compilers_take_it_without_a_warning(projects):
    for name, compiler in itertools.product(("pyramid", "steps", "filters", "generator"), COMPILERS):
        projects(name).compiled("-O2", "-Wshadow", "-Wconversion", "-Wno-sign-conversion", compiler=compiler)
    if shutil.which("g++"):
        for name in ("pyramid", "generator"):
            run("g++", "-fsyntax-only", *WARNINGS[1:], "-xc++", f"{name}.h", cwd=projects(name).folder)


def test_more_numbers_than_16_bits_count_are_refused(monkeypatch):
    monkeypatch.setattr(refusals, "MOST_NUMBERS", 10)
    proto, shapes = ANY_SIZE["pyramid"]()
    with pytest.raises(UnsupportedError, match=r"GPC4030 .*numbers follow from its sizes, and at most 10"):
        export_c(gpucomp.compile(proto, target="cpu", shapes=shapes), Path("nowhere"))


def test_what_states_cannot_be_in_c_is_told():
    nodes = [node("Concat", ["x", "past"], ["present"], axis=0), node("ReduceSum", ["present"], ["y"])]
    proto = model(nodes, [value("x", [1, 4]), value("past", ["p", 4])], [value("y", None), value("present", None)])
    shapes = {"past": (Dim("p", 0, 20), 4)}
    exe = gpucomp.compile(proto, target="cpu", shapes=shapes, states={"past": "present"})
    with pytest.raises(
        UnsupportedError,
        match=r"GPC4030 .*'past' has another shape after each run, and is made as a whole: it is made by Concat",
    ):
        export_c(exe, None)
    only = model([node("Add", ["x", "past"], ["present"])], [value("x"), value("past")], [value("present")])
    with pytest.raises(UnsupportedError, match=r"GPC4030 .*it has no outputs but its states"):
        export_c(gpucomp.compile(only, target="cpu", states={"past": "present"}), None)


# formulas


def _random_step(rng, number):
    def place():
        return rng.randrange(number)

    kind = rng.choice([SUM, SUM, SUM, QUOTIENT, LEAST, GREATEST])
    if kind == QUOTIENT:
        return (QUOTIENT, place(), place())
    if kind != SUM:
        return (kind, tuple(place() for _ in range(rng.randint(1, 4))))
    terms = [
        (rng.choice([-1, 1, 2, -3, 64, 1 << 40]), tuple(place() for _ in range(rng.randint(0, 3))))
        for _ in range(rng.randint(0, 3))
    ]
    return (SUM, rng.choice([0, 1, -7, 63]), tuple(terms), rng.choice([1, 1, 1, 2]))


def _in_c(numbers, tmp_path, name):
    """The function ``compute`` of a C program with these numbers."""
    text = environment().get_template("gpucomp.export:templates/arithmetic.c.j2").render(numbers=numbers)
    source = tmp_path / f"{name}.c"
    source.write_text(f"#include <stdint.h>\n{text}int at(int64_t *n);\nint at(int64_t *n) {{ return compute(n); }}\n")
    flags = (*WARNINGS, "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-shared", "-fPIC")
    run(COMPILERS[0], *flags, source, "-o", tmp_path / f"{name}.so")
    return ctypes.CDLL(str(tmp_path / f"{name}.so")).at


@pytest.mark.parametrize("seed", range(12))
def test_formulas_in_c_give_what_they_give_in_python(seed, tmp_path):
    rng = random.Random(seed)
    dims = [Dim("a", 1, 8), Dim("b", 0, 300, 4), Dim("c", 3, 3 if seed % 2 else 1 << 30)]
    steps = [_random_step(rng, 3 + k) for k in range(rng.randint(1, 14))]
    formulas = Formulas(("a", "b", "c"), tuple(steps))
    numbers = Numbers(formulas, dims)
    at = _in_c(numbers, tmp_path, f"f{seed}")
    refused = 0

    for _ in range(200):
        sizes = {d.name: d.nearest(rng.randint(d.low, d.high)) for d in dims}
        n = (ctypes.c_int64 * len(numbers))(*sizes.values())
        found = at(n)
        try:
            expected = formulas.at(sizes)
        except ArithmeticError:
            expected = None
            refused += 1
        if found:
            assert list(n) == expected
        else:  # a sum that is too large is refused even if it is divided then
            assert expected is None or any(abs(x) > LARGEST >> 4 for x in expected)


def test_a_number_out_of_its_range_is_refused(tmp_path):
    numbers = Numbers(Formulas(("a",), ((SUM, -5, ((2, (0,)),), 1),)), [Dim("a", 1, 8)])
    numbers.require(1, 0, 7)
    numbers.require_relation(1, "==", False)
    at = _in_c(numbers, tmp_path, "range")

    found = {a: at((ctypes.c_int64 * len(numbers))(a)) for a in range(1, 9)}

    assert found == {a: int(0 <= 2 * a - 5 <= 7) for a in range(1, 9)}


def test_plain_arithmetic_is_used_where_ranges_prove_it():
    steps = ((SUM, 1, ((3, (0, 1)),), 1), (QUOTIENT, 2, 0), (SUM, 0, ((1, (1, 1, 1, 1)),), 1))
    small = Numbers(Formulas(("a", "b"), steps), [Dim("a", 1, 8), Dim("b", 1, 300)])
    assert small.lines == ["n[2] = 1 + 3 * n[0] * n[1];", "n[3] = n[2] / n[0];", "n[4] = n[1] * n[1] * n[1] * n[1];"]
    assert not small.helpers
    large = Numbers(Formulas(("a", "b"), steps), [Dim("a", 0, 8), Dim("b", 1, 1 << 30)])
    assert large.helpers == {"quotient", "times"}


def test_the_self_test_records_what_another_executable_gives(projects):
    exe = projects("pyramid").exe
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("gpucomp.export.recording.processor.missing", lambda features: ["something"])
        made = recorded(exe, exe.contents().plan, lambda: exe, [], 0)
    assert not made.exact
    assert len({one.sizes for one in made.runs}) == 4
