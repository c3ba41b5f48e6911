"""Sessions of ``gpucomp.ort`` beside onnxruntime's: results, what they say of a model, and exceptions."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import gpucomp.ort
from tests.ort import models

BOTH = pytest.mark.parametrize("ort", [gpucomp.ort, onnxruntime], ids=["gpucomp", "onnxruntime"])
CPU = ["CPUExecutionProvider"]
X = np.array([[1, -4, 2], [0, 0, -3]], np.float32)


def raised(call) -> tuple[str, str]:
    """The name of the exception, and the status in its message."""
    with pytest.raises(BaseException) as info:  # noqa: PT011  the two are compared
        call()
    text = str(info.value)
    return type(info.value).__name__, text.split(" : ")[2] if text.startswith("[ONNXRuntimeError]") else ""


def same(call) -> None:
    """``call`` raises the same exception of both modules."""
    assert raised(lambda: call(gpucomp.ort)) == raised(lambda: call(onnxruntime))


def session(ort, model: bytes):
    return ort.InferenceSession(model, providers=CPU)


@BOTH
def test_outputs_are_in_the_order_that_is_asked_for(ort):
    made = session(ort, models.affine())
    y = np.maximum(X + np.array([-1, 2, 0.5], np.float32), 0)

    for names, wanted in (
        (None, [y, y.sum(1)]),
        ([], [y, y.sum(1)]),
        (["z"], [y.sum(1)]),
        (["z", "y", "z"], [y.sum(1), y, y.sum(1)]),
    ):
        found = made.run(names, {"x": X})
        assert len(found) == len(wanted)
        for array, expected in zip(found, wanted, strict=True):
            np.testing.assert_allclose(array, expected, rtol=1e-6)
            assert array.dtype == expected.dtype


def test_results_are_arrays_of_their_own():
    made = session(gpucomp.ort, models.affine())
    first = made.run(None, {"x": X})
    kept = [array.copy() for array in first]

    made.run(None, {"x": X + 5})

    assert all(np.array_equal(a, b) for a, b in zip(first, kept, strict=True))


@BOTH
@pytest.mark.parametrize("rows", [0, 1, 2, 17, 9001])
def test_any_number_of_rows_runs(ort, rows):
    x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)

    y, z = session(ort, models.affine()).run(None, {"x": x})

    assert y.shape == (rows, 3)
    np.testing.assert_allclose(z, np.maximum(x + np.array([-1, 2, 0.5], np.float32), 0).sum(1), rtol=1e-5)


@BOTH
@pytest.mark.parametrize("given", [X.tolist(), X[:, ::-1][:, ::-1], np.asfortranarray(X), X.astype(np.float32)[...]])
def test_lists_and_arrays_of_any_layout_are_inputs(ort, given):
    found = session(ort, models.affine()).run(["y"], {"x": given})[0]

    np.testing.assert_allclose(found, np.maximum(X + np.array([-1, 2, 0.5], np.float32), 0))


@BOTH
def test_a_session_says_what_its_model_is(ort):
    made = session(ort, models.affine())
    args = [(a.name, a.type, a.shape) for a in (*made.get_inputs(), *made.get_outputs())]
    meta = made.get_modelmeta()

    assert args == [
        ("x", "tensor(float)", ["rows", 3]),
        ("y", "tensor(float)", ["rows", 3]),
        ("z", "tensor(float)", ["rows"]),
    ]
    assert (meta.producer_name, meta.graph_name, meta.domain, meta.description) == (
        "maker",
        "graph",
        "org.example",
        "what it is",
    )
    assert (meta.version, meta.custom_metadata_map) == (5, {"author": "somebody"})
    assert made.get_overridable_initializers() == []
    assert made.get_providers() == CPU


@BOTH
def test_types_are_written_as_onnxruntime_writes_them(ort):
    made = session(ort, models.of_words())

    assert [a.type for a in made.get_inputs()] == ["tensor(int64)", "tensor(string)"]
    assert [a.type for a in made.get_outputs()] == ["seq(tensor(int64))", "tensor(string)"]


@BOTH
def test_sequences_and_texts_are_results(ort):
    k, t = np.array([3, 4], np.int64), np.array(["a", "bc", ""], object)

    pair, texts = session(ort, models.of_words()).run(None, {"k": k, "t": t})

    assert [part.tolist() for part in pair] == [[3, 4], [3, 4]]
    assert texts.tolist() == ["a", "bc", ""]


def test_dimensions_of_one_name_may_differ_as_in_onnxruntime():
    model = models.two_inputs(["n", 3], ["n", 3])
    x, u = np.ones((4, 3), np.float32), np.ones((1, 3), np.float32)

    found, wanted = (session(ort, model).run(None, {"x": x, "u": u})[0] for ort in (gpucomp.ort, onnxruntime))

    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("names", [("?", "?"), ("", ""), ("-1", "-1")])
def test_open_sizes_without_names_are_different_ones(names):
    made = session(gpucomp.ort, models.two_inputs([names[0], 3], [names[1], 3]))

    assert made.run(None, {"x": np.ones((4, 3), np.float32), "u": np.ones((1, 3), np.float32)})[0].shape == (4, 3)


@BOTH
def test_an_input_chooses_a_branch(ort):
    made, x = session(ort, models.branching()), np.array([2, 5], np.float32)

    found = [made.run(None, {"x": x, "rate": np.array(rate, np.int64)})[0].tolist() for rate in (7, 8, 7, *range(40))]

    assert found == [[3, 6] if rate == 7 else [6, 15] for rate in (7, 8, 7, *range(40))]


def test_a_branch_is_compiled_and_not_computed_by_numpy():
    made = session(gpucomp.ort, models.branching())
    made.run(None, {"x": np.ones(3, np.float32), "rate": np.array(7, np.int64)})

    assert made._programs.first.dynamic_operators == ()


@BOTH
def test_an_input_whose_value_is_a_shape_is_given_in_each_run(ort):
    made, x = session(ort, models.reshaped()), np.arange(12, dtype=np.float32).reshape(3, 4)

    shapes = [
        made.run(None, {"x": x, "shape": np.array(shape, np.int64)})[0].shape for shape in ((4, 3), (2, 6), (4, 3))
    ]

    assert shapes == [(4, 3), (2, 6), (4, 3)]


@BOTH
def test_sizes_that_nothing_says_beforehand_are_found_in_a_run(ort):
    made, x = session(ort, models.of_blocks()), np.arange(14 * 13, dtype=np.float32).reshape(14, 13)

    for rows in (14, 7, 14):
        assert np.array_equal(made.run(None, {"x": x[:rows]})[0], x[:rows].reshape(-1, 91))


@BOTH
def test_sequences_are_inputs_of_any_number_of_tensors(ort):
    made, rows = session(ort, models.joined()), np.arange(15, dtype=np.float32).reshape(5, 3)

    for parts in ([rows[:2], rows[2:]], [rows[:1], rows[1:2], rows[2:]], [rows]):
        assert np.array_equal(made.run(None, {"parts": parts})[0], rows)


def test_a_choosing_input_of_another_type_is_refused_and_does_not_count():
    made, x = session(gpucomp.ort, models.branching()), np.ones(3, np.float32)
    made.run(None, {"x": x, "rate": np.array(7, np.int64)})

    for rate in (np.array(7, np.uint64), *(np.array(float(k)) for k in range(20))):
        with pytest.raises(gpucomp.ort.capi.onnxruntime_pybind11_state.InvalidArgument):
            made.run(None, {"x": x, "rate": rate})
    assert made._programs._constants == ("rate",)


@BOTH
def test_a_run_in_the_background_that_fails_calls_back_too(ort):
    done, told = threading.Event(), []

    def callback(results, user_data, error):
        told.append((list(results), bool(error)))
        done.set()

    session(ort, models.affine()).run_async(["z"], {"x": X[:, :2]}, callback, None)

    assert done.wait(20)
    assert told == [([], True)]


def test_wrong_calls_are_told_by_their_types():
    made = session(gpucomp.ort, models.affine())

    with pytest.raises(TypeError, match="run_options"):
        made.run(None, {"x": X}, 5)
    with pytest.raises(TypeError, match="callback"):
        made.run_async(None, {"x": X}, 5, None)
    with pytest.raises(AttributeError, match="keys"):
        made.run(None, [X])
    with pytest.raises(RuntimeError, match="Could not create tensor from given input list"):
        made.run(None, {"x": [[1, 2], [3]]})
    with pytest.raises(gpucomp.ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="datetime64"):
        made.run(None, {"x": np.zeros((2, 3), "datetime64[s]")})
    with pytest.raises(RuntimeError, match="99 is no element type"):
        gpucomp.ort.OrtValue.ortvalue_from_shape_and_type([2], 99)


def test_providers_that_cannot_be_set_leave_the_session_as_it_was():
    made = session(gpucomp.ort, models.affine())

    with pytest.raises(gpucomp.ort.capi.onnxruntime_pybind11_state.InvalidArgument):
        made.set_providers([("GpucompExecutionProvider", {"target": "abacus"})])

    assert made.get_providers() == CPU
    np.testing.assert_allclose(made.run(["z"], {"x": X})[0], [2.5, 2.0])


def test_an_optimized_model_of_another_kind_is_not_written(tmp_path):
    options = gpucomp.ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.onnx")

    with pytest.warns(UserWarning, match=r"nothing is written .*\.gpuc expected"):
        gpucomp.ort.InferenceSession(models.affine(), options, providers=CPU)
    assert list(tmp_path.iterdir()) == []


def test_an_override_of_a_free_dimension_is_its_only_size():
    options = gpucomp.ort.SessionOptions()
    options.add_free_dimension_override_by_name("rows", 2)
    made = gpucomp.ort.InferenceSession(models.affine(), options, providers=CPU)

    assert made.run(["z"], {"x": X})[0].shape == (2,)
    with pytest.raises(gpucomp.ort.capi.onnxruntime_pybind11_state.InvalidArgument):
        made.run(None, {"x": X[:1]})


WRONG = {
    "a missing input": {},
    "another name": {"x": X, "q": X},
    "another type": {"x": X.astype(np.float64)},
    "another size": {"x": X[:, :2]},
    "another rank": {"x": X[0]},
    "no array": {"x": 1.5},
}


@pytest.mark.parametrize("feed", WRONG.values(), ids=WRONG)
def test_wrong_inputs_raise_what_onnxruntime_raises(feed):
    same(lambda ort: session(ort, models.affine()).run(None, feed))


def test_a_wrong_input_is_told_by_both_names():
    with pytest.raises(Exception, match=r"Unexpected input data type.*tensor\(double\).*GPC2104.*astype\('float32'\)"):
        session(gpucomp.ort, models.affine()).run(None, {"x": X.astype(np.float64)})


def test_a_wrong_output_name_raises_what_onnxruntime_raises():
    same(lambda ort: session(ort, models.affine()).run(["nope"], {"x": X}))
    same(lambda ort: session(ort, models.affine()).run("z", {"x": X}))
    same(lambda ort: session(ort, models.affine()).run([5], {"x": X}))


@BOTH
def test_names_of_outputs_may_come_from_an_iterator(ort):
    assert len(session(ort, models.affine()).run((name for name in ["z"]), {"x": X})) == 1


@BOTH
def test_an_input_of_another_name_may_be_none(ort):
    assert len(session(ort, models.affine()).run(None, {"x": X, "q": None})) == 2


@BOTH
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (np.array([b"a", b"bcd"]), ["a", "bcd"]),
        (np.array(["a", 3.5, None], object), ["a", "3.5", "None"]),
        ([b"a", 3], ["b'a'", "3"]),
    ],
    ids=["bytes", "objects", "list"],
)
def test_what_is_given_as_a_text_becomes_one(ort, given, wanted):
    assert session(ort, models.of_texts()).run(None, {"t": given})[0].tolist() == wanted


@BOTH
def test_an_override_of_a_free_dimension_is_in_the_shapes(ort):
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("rows", 2)
    made = ort.InferenceSession(models.affine(), options, providers=CPU)

    assert [a.shape for a in (*made.get_inputs(), *made.get_outputs())] == [[2, 3], [2, 3], [2]]


def test_a_refusal_that_is_met_again_keeps_no_inputs():
    """An exception that is raised again and again has the frames of every run, and these have its inputs."""
    made, left = session(gpucomp.ort, models.of_thousands()), []
    for _ in range(3):
        x = np.ones((3, 13), np.float32)
        left.append(weakref.ref(x))
        with pytest.raises(gpucomp.ort.capi.onnxruntime_pybind11_state.Fail) as told:
            made.run(None, {"x": x})
        left.append(str(told.value))
        del x, told
    gc.collect()

    assert [one() is None for one in left[::2]] == [True] * 3
    assert len(set(left[1::2])) == 1


def test_a_refusal_that_is_met_again_is_another_exception():
    made = session(gpucomp.ort, models.of_thousands())
    causes = []
    for _ in range(3):
        with pytest.raises(gpucomp.ort.capi.onnxruntime_pybind11_state.Fail) as told:
            made.run(None, {"x": np.ones((3, 13), np.float32)})
        causes.append(told.value.__cause__)

    assert len({id(cause) for cause in causes}) == 3
    assert len({(type(cause), str(cause), cause.code, cause.in_shell) for cause in causes}) == 1


def test_models_that_are_none_raise_what_onnxruntime_raises(tmp_path):
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"no model")

    for model in (tmp_path / "missing.onnx", damaged, b"no model", b"", "", 5):
        same(lambda ort, model=model: ort.InferenceSession(model, providers=CPU))


def test_an_operator_that_does_not_exist_is_told_when_the_session_is_made():
    model = models.affine().replace(b"Relu", b"Relv")

    with pytest.raises(gpucomp.ort.capi.onnxruntime_pybind11_state.NotImplemented, match=r"GPC4001.*Relv"):
        gpucomp.ort.InferenceSession(model, providers=CPU)


@BOTH
def test_runs_of_many_threads_do_not_disturb_each_other(ort):
    made = session(ort, models.affine())

    def run(rows: int) -> bool:
        x = np.full((rows, 3), rows, np.float32)
        return bool((made.run(["z"], {"x": x})[0] == np.float32(3 * rows + 1.5)).all())

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(run, [1 + k % 9 for k in range(200)]))


@BOTH
def test_a_run_in_the_background_calls_back(ort):
    done, told = threading.Event(), []

    def callback(results, user_data, error):
        told.append((results, user_data, error))
        done.set()

    session(ort, models.affine()).run_async(["z"], {"x": X}, callback, "mine")

    assert done.wait(20)
    ((results, user_data, error),) = told
    np.testing.assert_allclose(results[0], [2.5, 2.0])
    assert (user_data, error) == ("mine", "")


@BOTH
def test_a_run_that_is_told_to_end_fails(ort):
    options = ort.RunOptions()
    options.terminate = True

    with pytest.raises(Exception, match="Exiting due to terminate flag being set to true") as info:
        session(ort, models.affine()).run(None, {"x": X}, options)
    assert type(info.value).__name__ == "Fail"


@BOTH
def test_sessions_are_not_pickled(ort):
    made = session(ort, models.affine())

    for call in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot pickle"):
            call(made)


def test_providers_that_are_not_here_are_warned_of_and_passed_over():
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        made = gpucomp.ort.InferenceSession(models.affine(), providers=["CUDAExecutionProvider", *CPU])

    assert made.get_providers() == CPU


def test_the_own_provider_has_a_target_as_an_option():
    given = [("GpucompExecutionProvider", {"target": "opencl:pocl"})]
    made = gpucomp.ort.InferenceSession(models.affine(), providers=given)

    assert made._programs.first.target == "opencl:pocl"
    np.testing.assert_allclose(made.run(["z"], {"x": X})[0], [2.5, 2.0])
    with pytest.raises(ValueError, match="no option 'targets'"):
        gpucomp.ort.InferenceSession(models.affine(), providers=[("GpucompExecutionProvider", {"targets": "cpu"})])


@pytest.mark.parametrize("providers", ["CPUExecutionProvider", 5, [5], [("CPUExecutionProvider",)]])
def test_providers_in_another_form_are_refused(providers):
    with pytest.raises(ValueError, match="'providers'"):
        gpucomp.ort.InferenceSession(models.affine(), providers=providers)


def test_a_compiled_file_is_a_model(tmp_path):
    options = gpucomp.ort.SessionOptions()
    options.optimized_model_filepath = tmp_path / "model.gpuc"
    gpucomp.ort.InferenceSession(models.affine(), options, providers=CPU)
    made = gpucomp.ort.InferenceSession(tmp_path / "model.gpuc")

    assert [(a.name, a.type, a.shape) for a in made.get_inputs()] == [("x", "tensor(float)", ["rows", 3])]
    np.testing.assert_allclose(made.run(["z"], {"x": X})[0], [2.5, 2.0])


def test_threads_of_a_session_are_those_of_its_runs():
    options = gpucomp.ort.SessionOptions()
    options.intra_op_num_threads = 1
    made = gpucomp.ort.InferenceSession(models.affine(), options, providers=CPU)
    made.run(None, {"x": X})

    with made._programs.first.at(rows=2)._program() as program:
        assert program.threads == 1


def test_a_profile_is_one_that_chrome_reads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = gpucomp.ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, "told"
    made = gpucomp.ort.InferenceSession(models.affine(), options, providers=CPU)
    made.run(None, {"x": X})
    made.run(None, {"x": X})

    began = made.get_profiling_start_time_ns()
    file = made.end_profiling()

    events = json.loads((tmp_path / file).read_text())
    assert file.startswith("told_")
    assert [e["name"] for e in events if e["cat"] == "Session"] == ["model_run", "model_run"]
    assert all(e["ph"] == "X" and e["dur"] > 0 for e in events)
    assert any(e["cat"] == "Node" for e in events)
    assert made.get_profiling_start_time_ns() == began > 0
    assert session(gpucomp.ort, models.affine()).end_profiling() == ""


@pytest.mark.parametrize("shape", [["n", "n"], ["batch", None], [None, 3]])
def test_shapes_are_told_as_the_file_has_them(shape):
    model = models.two_inputs(shape, [2, 3])

    found, wanted = ([a.shape for a in session(ort, model).get_inputs()] for ort in (gpucomp.ort, onnxruntime))

    assert found == wanted


def test_half_precision_and_integers_keep_their_types():
    x = np.array([1.5, -2], np.float16)
    nodes = [models.helper.make_node("Abs", ["x"], ["y"])]
    model = models.bytes_of(
        nodes, [models.tensor("x", [2], TensorProto.FLOAT16)], [models.tensor("y", [2], TensorProto.FLOAT16)]
    )

    found, wanted = (session(ort, model).run(None, {"x": x})[0] for ort in (gpucomp.ort, onnxruntime))

    assert found.dtype == wanted.dtype == np.float16
    assert np.array_equal(found, wanted)


def test_onnxruntime_is_not_imported():
    code = "import sys, gpucomp.ort; gpucomp.ort.install(); import onnxruntime; from onnxruntime.capi import _pybind_state as C; "
    code += "from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, Fail; "
    code += "print(onnxruntime is gpucomp.ort, C.Fail is Fail, [m for m in sys.modules if m == 'torch'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True []\n"


def test_putting_the_module_in_the_place_of_onnxruntime_is_enough():
    code = "import sys, gpucomp.ort; sys.modules['onnxruntime'] = gpucomp.ort; import onnxruntime as rt; "
    code += (
        "from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument; from gpucomp.ort import exceptions; "
    )
    code += "print(rt.InferenceSession.__module__, InvalidArgument is exceptions.InvalidArgument)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "gpucomp.ort.session True\n"


def test_install_refuses_where_onnxruntime_is_there_already():
    assert sys.modules["onnxruntime"] is onnxruntime
    with pytest.raises(RuntimeError, match="imported before"):
        gpucomp.ort.install()
