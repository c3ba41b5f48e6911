"""Arrays that a run on the processor uses where they lie, and those for which it takes the general way."""

import numpy as np
import pytest

import gpucomp
from gpucomp.errors import GpucompError
from gpucomp.runtime.cpu import CpuProgram
from tests.onnx_builders import model, node, value

SHAPE = (3, 5)


@pytest.fixture
def exe():
    nodes = [
        node("Add", ["a", "b"], ["sum"]),
        node("Sub", ["a", "b"], ["difference"]),
        node("Mul", ["a", "a"], ["square"]),
    ]
    values = [value(name, SHAPE) for name in ("square", "sum", "difference")]
    made = gpucomp.compile(model(nodes, [value("a", SHAPE), value("b", SHAPE)], values), target="cpu")
    made.run(feed())  # opens it
    return made


def feed():
    random = np.random.default_rng(0)
    return {name: random.standard_normal(SHAPE).astype(np.float32) for name in "ab"}


def right(given):
    a, b = given["a"], given["b"]
    return {"square": a * a, "sum": a + b, "difference": a - b}


@pytest.fixture
def ways(monkeypatch):
    """For each run, whether all arrays were used where they lie."""
    found, original = [], CpuProgram.run

    def run(program, inputs, how, bound=None):
        found.append(bound is not None)
        return original(program, inputs, how, bound)

    monkeypatch.setattr(CpuProgram, "run", run)
    return found


def test_usual_runs_use_arrays_where_they_lie(exe, ways):
    given = feed()
    kept = {name: np.empty(SHAPE, np.float32) for name in ("difference", "sum")}

    fresh, partly = exe.run(given), exe.run(given, outputs=kept)

    assert ways == [True, True]
    assert list(fresh) == list(partly) == ["square", "sum", "difference"]  # the order of the model
    for found in (fresh, partly):
        for name, array in right(given).items():
            np.testing.assert_array_equal(found[name], array)
    assert all(partly[name] is array for name, array in kept.items())


def strided(array):
    wide = np.zeros((SHAPE[0], 2 * SHAPE[1]), np.float32)
    wide[:, ::2] = array
    return wide[:, ::2]


def unaligned(array):
    raw = np.zeros(array.nbytes + 1, np.uint8)
    view = raw[1:].view(np.float32).reshape(SHAPE)
    view[...] = array
    return view


class Derived(np.ndarray):
    pass


@pytest.mark.parametrize("changed", [strided, unaligned, lambda array: array.view(Derived), np.asfortranarray])
def test_other_inputs_take_the_general_way(exe, changed):
    given = feed()
    expected = right(given)

    found = exe.run({**given, "a": changed(given["a"])})

    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def of_another_type(given):
    return {"sum": np.zeros(SHAPE, np.float64)}


def of_another_shape(given):
    return {"sum": np.zeros(SHAPE[::-1], np.float32)}


def read_only(given):
    array = np.zeros(SHAPE, np.float32)
    array.flags.writeable = False
    return {"sum": array}


def unknown(given):
    return {"sum": np.zeros(SHAPE, np.float32), "total": np.zeros(SHAPE, np.float32)}


def sharing_memory(given):
    memory = np.zeros(2 * SHAPE[0] * SHAPE[1], np.float32)
    first, second = memory[: SHAPE[0] * SHAPE[1]], memory[1 : 1 + SHAPE[0] * SHAPE[1]]
    return {"sum": first.reshape(SHAPE), "difference": second.reshape(SHAPE)}


@pytest.mark.parametrize(
    ("outputs", "code"),
    [
        (of_another_type, "GPC2115"),
        (of_another_shape, "GPC2115"),
        (read_only, "GPC2115"),
        (unknown, "GPC2114"),
        (sharing_memory, "GPC2116"),
    ],
)
def test_wrong_outputs_are_refused_and_nothing_is_written(exe, ways, outputs, code):
    given = feed()
    arrays = outputs(given)
    with pytest.raises(GpucompError) as error:
        exe.run(given, outputs=arrays)

    assert error.value.code == code
    assert ways == []
    assert not any(array.any() for array in arrays.values())


def test_a_result_in_the_memory_of_an_input_is_copied_there_at_the_end(exe, ways):
    given = feed()
    expected = right(given)

    found = exe.run(given, outputs={"sum": given["a"], "square": given["b"]})

    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    assert found["sum"] is given["a"]


def test_wrong_inputs_are_told_as_before(exe):
    given = feed()
    for wrong, code in [
        ({"a": given["a"]}, "GPC2109"),
        ({**given, "c": given["a"]}, "GPC2101"),
        ({**given, "a": given["a"].T}, "GPC2103"),
        ({**given, "a": given["a"].astype(np.float64)}, "GPC2104"),
        ({**given, "a": given["a"].astype(">f4")}, None),
    ]:
        if code is None:  # bytes in another order are the same numbers
            np.testing.assert_array_equal(exe.run(wrong)["sum"], right(given)["sum"])
            continue
        with pytest.raises(GpucompError) as error:
            exe.run(wrong)
        assert error.value.code == code
