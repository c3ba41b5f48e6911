"""Programs that native code moves to other sizes: the same numbers as in Python, the same results, and who runs the others."""

from __future__ import annotations

import ctypes
import math
import threading
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

import gpucomp
from gpucomp import Dim
from gpucomp.artifact.elf import Image
from gpucomp.artifact.open_plan import Stack
from gpucomp.errors import InputError
from gpucomp.ir import size_steps as op
from gpucomp.ir.run_numbers import MAGIC, SHIFT, number_of
from gpucomp.runtime import moving
from gpucomp.runtime.cpu import CpuProgram
from gpucomp.runtime.estimates import BYTES_A_NS, MULTIPLY_ADDS_A_NS
from gpucomp.runtime.native import CODE, TASKS, address_of
from gpucomp.runtime.repeats import ADVANCES
from gpucomp.runtime.runner import Runner
from gpucomp.runtime.trial import AGAIN, Trial
from gpucomp.targets import cpu
from tests.onnx_builders import model, node, value
from tests.runtime.test_any_shape import convolution
from tests.runtime.test_repeats import recurrence


def of_convolution():
    dims = Dim("n", 1, 9), 3, Dim("h", 4, 60), Dim("w", 4, 60)
    exe = gpucomp.compile(convolution(), target="cpu", shapes={"x": dims})
    many = [(1, 5, 7), (9, 60, 60), (2, 60, 4), (4, 31, 33), (1, 4, 4), (3, 17, 59)]
    return exe, [((n, 3, h, w), (n, 1, 1, 1)) for n, h, w in many]


def of_recurrence(op="LSTM", direction="bidirectional", **more):
    made, _ = recurrence(op, 7, 3, 33, direction, states=False, **more)
    extents = made.graph.input[0].type.tensor_type.shape.dim
    extents[0].dim_param, extents[1].dim_param = "time", "batch"
    exe = gpucomp.compile(made, target="cpu", shapes={"x": (Dim("time", 1, 60), Dim("batch", 1, 9), 5)})
    return exe, [((7, 3, 5),), ((60, 9, 5),), ((1, 1, 5),), ((2, 9, 5),), ((33, 2, 5),), ((5, 1, 5),)]


def of_attention():
    """Products of two open sizes, softmax, and two inputs that agree on one size."""
    nodes = [
        node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
        node("ReduceMean", ["p"], ["m"], axes=[0], keepdims=0),
    ]
    infos = [value("q", ("b", "t", 24)), value("k", ("b", 24, "s")), value("v", ("b", "s", 40))]
    dims = {"b": Dim("b", 1, 6), "t": Dim("t", 2, 70, 2), "s": Dim("s", 1, 300)}
    shapes = {
        info.name: tuple(dims.get(d.dim_param) or d.dim_value for d in info.type.tensor_type.shape.dim)
        for info in infos
    }
    exe = gpucomp.compile(model(nodes, infos, ["y", "m"], opset=17), target="cpu", shapes=shapes)
    return exe, [
        ((b, t, 24), (b, 24, s), (b, s, 40))
        for b, t, s in [(1, 2, 1), (6, 70, 300), (2, 34, 33), (5, 2, 257), (3, 70, 1)]
    ]


def of_two_orders():
    """As ``of_attention``, where temporaries may also lie in another order, which takes more memory."""
    exe, many = of_attention()
    plan = exe.program.open_plan
    lying = [k for stack in plan.orders[0] for k in stack.buffers]
    assert len(lying) > 1
    worse = tuple(Stack((k,), tuple(range(number))) for number, k in enumerate(lying))
    exe.program.open_plan = replace(plan, orders=(worse, *plan.orders))
    return exe, many


MODELS = {
    "convolution": of_convolution,
    "lstm": of_recurrence,
    "gru": lambda: of_recurrence("GRU", "reverse", linear_before_reset=1),
    "attention": of_attention,
    "two orders": of_two_orders,
}


def feeds_of(exe, shapes):
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return {spec.name: rng.standard_normal(s, np.float32) for spec, s in zip(exe.inputs, shapes, strict=True)}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    return MODELS[request.param]()


def arguments(program, numbers):
    """The words of the table, with what is in the memory of numbers in the place of its address."""
    rows, table, kernels = program.rows, program._launches.table, program._form.kernels
    found = table.arguments.tolist()
    for place, kernel in zip(rows.number_places.tolist(), rows.number_kernels.tolist(), strict=True):
        count = len(kernels[numbers(kernel)].numbers)
        found[place] = (ctypes.c_int64 * count).from_address(found[place])[:]
    return found


def loops(program):
    table, found = program._launches.table, []
    if table.loops:
        for row, address in enumerate((ctypes.c_uint64 * len(table)).from_address(table.loops)):
            words = ADVANCES + program.rows.counts[row]
            found.append((ctypes.c_int64 * words).from_address(address)[:] if address else None)
    return found


def test_native_code_finds_the_numbers_that_python_finds(case):
    exe, many = case
    exe.run(feeds_of(exe, many[0]))
    (lane,) = exe.program.lanes._free
    for shapes in [*many, *many[::-1]]:
        sizes = exe._shapes.sizes({spec.name: shape for spec, shape in zip(exe.inputs, shapes, strict=True)})
        expected = exe.program.opened(lane, sizes)
        moved = exe._moving._new_programs(lane, shapes, 1)[0]
        assert moved.move(shapes)
        moved._bind_arena()
        expected._bind_arena()
        chosen = exe.program.open_plan.at(sizes).chosen
        assert (
            moved._launches.table._rows[:, [CODE, TASKS]].tolist()
            == expected._launches.table._rows[:, [CODE, TASKS]].tolist()
        )
        assert arguments(moved, chosen.__getitem__) == arguments(expected, chosen.__getitem__)
        assert loops(moved) == loops(expected)
        assert [(a.shape, a.nbytes, a.late) for a in moved._written] == [
            (a.shape, a.nbytes, a.late) for a in expected._written
        ]
        steps = max([r.count for r in exe.program.open_plan.at(sizes).repeats], default=1)
        assert abs(moved._expected_ns - expected._expected_ns) <= len(moved.rows.numbers) * steps  # whole nanoseconds
        known = expected._expected_ns > 1.0  # else it has a trial of its own
        if known and math.frexp(moved._expected_ns)[1] == math.frexp(expected._expected_ns)[1]:
            assert moved._trial is expected._trial


def test_sizes_that_come_often_have_a_trial_of_their_own(monkeypatch):
    monkeypatch.setattr("gpucomp.runtime.cpu.SMALLEST_SHARED_NS", 0.0)
    exe, many = of_attention()
    exe.run(feeds_of(exe, many[0]))
    (lane,) = exe.program.lanes._free
    program = lane.moving[many[0]]
    program._expect(program._expected_ns)  # as after it was moved
    shared = program._trial
    assert shared.most > 1
    while not shared.over:
        shared.note(shared.wanted, 1.0)
    feeds = feeds_of(exe, many[0])

    for _ in range(AGAIN - 1):
        exe.run(feeds)
    assert program._trial is shared
    exe.run(feeds)

    assert program._trial is not shared
    assert program._trial.most == shared.most
    assert not program._trial.over


def test_results_are_those_of_an_executable_for_the_sizes(case):
    exe, many = case
    for one in [*many, *many[::-1], *many]:
        feeds = feeds_of(exe, one)
        sizes = exe._shapes.sizes({name: array.shape for name, array in feeds.items()})
        expected = exe.at(**sizes).run(feeds)
        found = exe.run(feeds)
        assert {name: a.shape for name, a in found.items()} == {name: a.shape for name, a in expected.items()}
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_lane_keeps_a_few_programs_and_moves_the_one_that_was_used_least_recently():
    exe, many = of_convolution()
    for one in many[: moving.KEPT]:
        exe.run(feeds_of(exe, one))
    (lane,) = exe.program.lanes._free
    before = list(lane.moving.values())
    exe.run(feeds_of(exe, many[0]))

    exe.run(feeds_of(exe, many[moving.KEPT]))

    assert [program for program in before if program in lane.moving.values()] == before
    assert list(lane.moving) == [many[2], many[3], many[0], many[4]]
    assert lane.moving[many[4]] is before[1]
    assert not exe._made  # none was made for one set of sizes alone


def test_sizes_that_come_again_get_programs_of_their_own():
    exe, many = of_convolution()
    for _ in range(3):
        for one in many:
            exe.run(feeds_of(exe, one))
    (lane,) = exe.program.lanes._free

    assert len(many) > moving.KEPT
    assert {*lane.moving} == {*many}
    before = list(lane.moving.values())
    exe.run(feeds_of(exe, many[0]))
    assert {*map(id, lane.moving.values())} == {*map(id, before)}


def test_a_lane_has_no_more_programs_than_it_may(monkeypatch):
    monkeypatch.setattr(moving, "MOST", 5)
    monkeypatch.setattr(moving, "MOST_LEFT", 5)
    exe, many = of_convolution()
    for _ in range(4):
        for one in many:
            exe.run(feeds_of(exe, one))
    (lane,) = exe.program.lanes._free

    assert len(many) > 5
    assert (len(lane.moving), len(lane.spare), len(lane.left) <= 5) == (5, 0, True)


def test_a_sequence_is_a_list_at_any_size():
    outputs = [helper.make_value_info("s", helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)))]
    nodes = [node("Relu", ["x"], ["r"]), node("Neg", ["x"], ["q"]), node("SequenceConstruct", ["r", "q"], ["s"])]
    exe = gpucomp.compile(model(nodes, [value("x", ["n", 4])], outputs, opset=17), target="cpu", shapes={"x": ("n", 4)})
    for n in (7, 3, 7):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        found = exe.run({"x": x})
        assert list(found) == ["s"]
        np.testing.assert_array_equal(found["s"], [np.maximum(x, 0), -x])


def test_a_lane_that_began_without_steps_of_a_loop_has_them_in_other_runs():
    exe, _ = of_recurrence()
    steps = exe._shapes.shapes["x"][0]
    assert isinstance(steps, Dim)
    feeds = {n: {"x": np.random.default_rng(n).standard_normal((n, 2, 5)).astype(np.float32)} for n in (1, 5)}
    sized = exe.program.open_plan.at({"time": 1, "batch": 2})
    assert [repeat.count for repeat in sized.repeats] == [1, 0]
    lane = exe.program.lanes.new()
    exe.program.at({"time": 1, "batch": 2})._opened(lane)
    exe.program.lanes._free.append(lane)

    for n in (5, 1, 5):
        found, expected = exe.run(feeds[n]), exe.at(time=n, batch=2).run(feeds[n])
        assert all(np.array_equal(found[name], array) for name, array in expected.items())


def test_threads_at_many_sizes_get_their_own_results():
    exe, many = of_attention()
    expected = {one: result_alone(exe, one) for one in many}
    wrong = []

    def work(start):
        for k in range(40):
            one = many[(start + k * (start + 1)) % len(many)]
            found = exe.run(feeds_of(exe, one))
            wrong.extend(name for name in found if not np.array_equal(found[name], expected[one][name]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


@pytest.mark.parametrize("older", [False, True])
def test_a_thread_that_is_late_claims_no_task_of_other_sizes(older, monkeypatch):
    """Also with machine code of earlier versions, which lets no run begin."""
    calls, enter, has = [], CpuProgram.enter, Image.has
    if older:
        monkeypatch.setattr(Image, "has", lambda self, name: name != "gc_begin" and has(self, name))

    def noted(self, call, thread):
        calls.append((self, call))
        enter(self, call, thread)

    monkeypatch.setattr(CpuProgram, "enter", noted)
    monkeypatch.setattr(Trial, "wanted", 2)
    exe, _ = of_convolution()
    exe.use_threads(2)
    small, large = ((8, 3, 60, 60), (8, 1, 1, 1)), ((9, 3, 60, 60), (9, 1, 1, 1))
    exe.run(feeds_of(exe, small))
    program, call = calls[-1]
    assert isinstance(program, moving.MovingProgram)
    np.testing.assert_array_equal(exe.run(feeds_of(exe, large))["y"], result_alone(exe, large)["y"])
    assert program.move(large)
    before = program._launches.table._states.copy()

    program._runner.enter(call, 1)

    np.testing.assert_array_equal(program._launches.table._states, before)


def result_alone(exe, one):
    feeds = feeds_of(exe, one)
    return exe.at(**exe._shapes.sizes({name: array.shape for name, array in feeds.items()})).run(feeds)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((7, 4, 24), (7, 24, 5), (7, 5, 40)), "1 to 6 expected"),
        (((2, 3, 24), (2, 24, 5), (2, 5, 40)), "a multiple of 2 expected"),
        (((2, 4, 24), (2, 24, 5), (2, 6, 40)), "'s' is 6, but 5 in"),
        (((2, 4, 25), (2, 24, 5), (2, 5, 40)), "shape"),
        (((2, 4, 24, 1), (2, 24, 5), (2, 5, 40)), "shape"),
    ],
)
def test_what_no_run_may_have_is_refused_and_harms_no_program(shapes, message):
    exe, many = of_attention()
    for one in many:
        exe.run(feeds_of(exe, one))
    (lane,) = exe.program.lanes._free
    programs = {*map(id, [*lane.moving.values(), *lane.spare])}

    for _ in range(moving.KEPT + 1):
        with pytest.raises(InputError, match=message):
            exe.run(feeds_of(exe, shapes))

    assert {*map(id, [*lane.moving.values(), *lane.spare])} == programs
    for one in many:
        found = exe.run(feeds_of(exe, one))
        assert all(np.array_equal(found[name], array) for name, array in result_alone(exe, one).items())


def test_the_arena_may_grow_under_a_program_that_is_kept():
    exe, many = of_attention()
    small, large = feeds_of(exe, many[0]), feeds_of(exe, many[1])
    first = exe.run(small)["y"]
    (lane,) = exe.program.lanes._free
    before = len(lane.first._arena.memory)

    exe.run(large)

    assert len(lane.first._arena.memory) > before
    np.testing.assert_array_equal(exe.run(small)["y"], first)


def test_results_are_written_into_arrays_of_the_caller_at_any_sizes():
    exe, many = of_convolution()
    for shapes in (*many[:4], many[1]):
        feeds = feeds_of(exe, shapes)
        expected = exe.run(feeds)["y"]
        given = np.full_like(expected, np.nan)

        found = exe.run(feeds, outputs={"y": given})

        assert found["y"] is given
        np.testing.assert_array_equal(given, expected)
    assert not exe._made, "no executable for these sizes was needed"


def test_arrays_that_results_cannot_be_written_into_at_once_are_for_others():
    exe, many = of_convolution()
    feeds = feeds_of(exe, many[3])
    expected = exe.run(feeds)["y"]
    wide = np.zeros((*expected.shape[:-1], 2 * expected.shape[-1]), expected.dtype)

    exe.run(feeds, outputs={"y": wide[..., ::2]})

    np.testing.assert_array_equal(wide[..., ::2], expected)
    assert not wide[..., 1::2].any()
    other = exe.run(feeds_of(exe, many[2]))["y"]
    assert other.shape != expected.shape
    with pytest.raises(InputError, match="GPC2115"):
        exe.run(feeds, outputs={"y": other})
    with pytest.raises(InputError, match="GPC2115"):
        exe.run(feeds, outputs={"y": expected.astype(np.float64)})
    with pytest.raises(InputError, match="GPC2114"):
        exe.run(feeds, outputs={"z": expected})


def test_machine_code_without_the_steps_and_host_operators_are_for_others(monkeypatch):
    exe, many = of_convolution()
    shapes = many[3]
    feeds = feeds_of(exe, shapes)
    expected = exe.run(feeds)["y"]

    has = Image.has
    monkeypatch.setattr(Image, "has", lambda self, name: name not in ("gc_begin", "gc_sizes") and has(self, name))
    older, _ = of_convolution()
    np.testing.assert_array_equal(older.run(feeds)["y"], expected)
    assert older._moving.run(feeds, shapes, moving.Options()) is None
    assert len(older._made) == 1


# ---- the steps ----


@pytest.fixture(scope="module")
def do():
    """One step on words ``a``, ``b``, ``c`` and others behind them; the result, or ``None`` where it fails."""
    runner = Runner(Image(cpu.build([], cpu.host())), loops=False)

    def run(what, a, b=0, c=0, *others, b_at=2, a_at=1):
        words, table = np.array([77, a, b, c, *others], np.int64), np.array([0, 0, 55], np.int64)
        steps = np.array([(what, 2 if what == op.STORE else 0, a_at, b_at, 3)], np.int64)
        failed = runner.sizes(address_of(steps), 1, address_of(words), address_of(table))
        assert failed in (0, 1)
        assert words.tolist()[1:] == [a, b, c, *others]
        if what == op.STORE:
            assert words[0] == 77
            return None if failed else int(table[2])
        assert table.tolist() == [0, 0, 55]
        assert failed == 0 or words[0] == 77
        return None if failed else int(words[0])

    return run


MOST, LEAST = (1 << 63) - 1, -(1 << 63)


@pytest.mark.parametrize(
    ("what", "words", "expected"),
    [
        (op.ADD_PRODUCT, (7, -11, 3), -74),
        (op.ADD_PRODUCT, (1 << 31, 1 << 31, (1 << 62) - 1), MOST),
        (op.ADD_PRODUCT, (1 << 31, 1 << 31, 1 << 62), None),
        (op.ADD_PRODUCT, (1 << 32, 1 << 31, 0), None),
        (op.ADD_PRODUCT, (MOST, -1, -1), LEAST),
        (op.QUOTIENT, (17, 5), 3),
        (op.QUOTIENT, (-17, 5), -4),
        (op.QUOTIENT, (-15, 5), -3),
        (op.QUOTIENT, (17, 0), None),
        (op.QUOTIENT, (17, -5), None),
        (op.EXACT, (-15, 5), -3),
        (op.EXACT, (17, 5), None),
        (op.EXACT, (-1, 5), None),
        (op.ROUNDED_UP, (65, 64), 128),
        (op.ROUNDED_UP, (128, 64), 128),
        (op.ROUNDED_UP, (0, 64), 0),
        (op.LEAST, (-3, 4), -3),
        (op.LEAST, (4, -3), -3),
        (op.GREATEST, (-3, 4), 4),
        (op.GREATEST, (4, -3), 4),
        (op.WITHIN, (5, 5, 9), 5),
        (op.WITHIN, (9, 5, 9), 9),
        (op.WITHIN, (4, 5, 9), None),
        (op.WITHIN, (10, 5, 9), None),
        (op.UNEQUAL, (4, 5), 4),
        (op.UNEQUAL, (5, 5), None),
        (op.LESS, (4, 5), 1),
        (op.LESS, (5, 5), 0),
        (op.STORE, (1 << 40, 24), (1 << 40) + 24),
        (99, (1, 2), None),
    ],
)
def test_a_step(do, what, words, expected):
    assert do(what, *words) == expected


@pytest.mark.parametrize("kind", [MAGIC, SHIFT])
def test_numbers_of_divisors_are_those_that_python_gives(do, kind):
    what = op.MAGIC if kind == MAGIC else op.SHIFT
    for size in [-3, 0, 1, 2, 3, 7, 8, 9, 1023, 1024, 1025, 123_456_789, (1 << 31) - 1, 1 << 31]:
        assert do(what, size) == number_of(kind, size), size
    assert do(what, (1 << 31) + 1) is None


def test_a_part_is_the_last_that_has_begun(do):
    starts = (0, 5, 9)
    found = [do(op.PART, a, 0, 3, *starts, b_at=4) for a in (-1, 0, 4, 5, 8, 9, 100)]

    assert found == [0, 0, 0, 1, 1, 2, 2]


def test_the_first_of_the_least_is_found(do):
    assert do(op.FIRST_LEAST, 0, 0, 4, 7, 3, 9, 3, b_at=4) == 1
    assert do(op.FIRST_LEAST, 0, 0, 1, 7, b_at=4) == 0
    assert do(op.AT, 1, 0, 0, 3, 6, 88, b_at=4) == 88


def test_a_cost_is_that_of_the_estimates(do):
    rng = np.random.default_rng(3)
    for count in range(7):
        nbytes = [int(n) for n in rng.integers(0, 1 << 22, count)]
        items = [int(n) for n in rng.choice([1, 2, 4, 8], count)]
        told = [n for k in range(count) for n in (5 + 2 * count + k, items[k])]
        moved = sum(nbytes) / BYTES_A_NS
        large = sorted([0, 0, 0, *(n / item for n, item in zip(nbytes, items, strict=True))])[-3:]
        computed = float(np.sqrt(np.prod(large))) / MULTIPLY_ADDS_A_NS
        for rate, expected in ((0, moved), (MULTIPLY_ADDS_A_NS, max(moved, computed))):
            assert do(op.COST, 2, 0, rate, count, *told, *nbytes, b_at=4) == int(expected)
        assert do(op.COST, 1, 0, MULTIPLY_ADDS_A_NS, count, *told, *nbytes, b_at=4) == 0
