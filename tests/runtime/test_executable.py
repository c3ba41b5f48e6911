"""An executable: what it says of itself, and every input it refuses."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from gpucomp import config
from gpucomp.artifact.plan import Launch
from gpucomp.errors import InputError, UsageError
from gpucomp.loading import load
from gpucomp.runtime.inputs import TensorSpec, checked_inputs
from tests.runtime.samples import PLAN, NumpyProgram, executable, use_numpy

ROOT = Path(__file__).parent.parent.parent
X = np.arange(15, dtype=np.float32).reshape(3, 5)


@pytest.fixture(autouse=True)
def numpy_device(monkeypatch):
    use_numpy(monkeypatch)


def test_run_returns_every_output_by_name():
    exe = executable()

    out = exe.run({"x": X})

    assert list(out) == ["y", "z"]
    assert np.array_equal(out["y"], X * exe.weights["w0"] + exe.weights["w1"])
    assert np.array_equal(out["z"], X)


def test_the_device_is_opened_once_and_not_before_the_first_run():
    exe = executable()
    assert exe.inputs
    assert exe.kernels
    assert NumpyProgram.opened == 0

    exe.run({"x": X})
    exe.run({"x": X})

    assert NumpyProgram.opened == 1


class OnlyDlpack:
    """An array that numpy can read through DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnAGpu(OnlyDlpack):
    def __dlpack_device__(self):
        return (2, 0)


class CudaArray:
    __cuda_array_interface__ = {"shape": (3, 5), "typestr": "<f4", "data": (0, False), "version": 3}  # noqa: RUF012


@pytest.mark.parametrize(
    "value",
    [
        X,
        np.asfortranarray(X),
        X.astype(">f4"),
        np.repeat(X, 2, axis=1)[:, ::2],
        OnlyDlpack(X),
    ],
    ids=["c order", "fortran order", "big endian", "strided", "dlpack"],
)
def test_an_array_of_any_layout_is_taken(value):
    out = executable().run({"x": value})

    assert np.array_equal(out["z"], X)


@pytest.mark.parametrize(
    ("inputs", "code", "message"),
    [
        ({"x": X, "X": X}, "GPC2101", "there is no input 'X'; the model's inputs are 'x'"),
        ({}, "GPC2109", r"missing: 'x' f32\[3,5\]"),
        ({"x": X[:2]}, "GPC2103", r"input 'x': shape \[3, 5\] expected, found \[2, 5\]"),
        ({"x": X.reshape(5, 3)}, "GPC2103", r"shape \[3, 5\] expected, found \[5, 3\]"),
        ({"x": X[None]}, "GPC2103", r"found \[1, 3, 5\]"),
        ({"x": X.astype(np.float64)}, "GPC2104", r"element type f32 \(float32\) expected, found float64; convert with"),
        ({"x": X.astype(ml_dtypes.bfloat16)}, "GPC2104", "found bfloat16"),
        ({"x": np.full((3, 5), "a")}, "GPC2105", "is not a tensor"),
        ({"x": np.full((3, 5), None)}, "GPC2105", "an array of object is not a tensor"),
        ({"x": X.tolist()}, "GPC2105", "an array expected .* found list"),
        ({"x": None}, "GPC2105", "found NoneType"),
        ([X], "GPC2105", "a mapping of names to arrays expected, found list"),
        ({7: X}, "GPC2101", "there is no input '7'"),
        ({'"; {{7*7}}\n': X}, "GPC2101", r"there is no input '\"; \{\{7\*7\}\}\\n'"),
    ],
)
def test_a_wrong_input_is_refused_by_name(inputs, code, message):
    with pytest.raises(InputError, match=message) as caught:
        executable().run(inputs)

    assert caught.value.code == code
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "method"),
    [
        (lambda exe: exe({"x": X}), "run"),
        (lambda exe: exe(X), "run"),
        (lambda exe: exe.run(None, {"x": X}), "run"),
        (lambda exe: exe.run(x=X), "run"),
        (lambda exe: exe.run(), "run"),
        (lambda exe: exe.profile(["z"], {"x": X}), "profile"),
        (lambda exe: exe.timeline(x=X), "timeline"),
    ],
    ids=["call", "module", "session", "keyword", "nothing", "profile", "timeline"],
)
def test_another_librarys_call_is_told_how_it_is_called_here(call, method):
    with pytest.raises(UsageError, match=rf"exe\.{method}\(\{{'x': array\}}\)") as caught:
        call(executable())

    assert (caught.value.code, caught.value.exit_code) == ("GPC2016", 2)


def test_a_tensor_of_torch_is_told_what_torch_calls_it():
    torch = pytest.importorskip("torch")

    with pytest.raises(InputError, match=r"found float64; convert with \.to\(torch\.float32\)"):
        executable().run({"x": torch.zeros(3, 5, dtype=torch.float64)})


def test_the_inputs_can_be_named():
    assert np.array_equal(executable().run(inputs={"x": X})["z"], X)


@pytest.mark.parametrize(("name", "here"), [("get_inputs", "exe.inputs"), ("predict", r"exe.run\(")])
def test_another_librarys_name_is_told_what_it_is_here(name, here):
    with pytest.raises(AttributeError, match=f"no attribute '{name}': .*{here}"):
        getattr(executable(), name)

    assert not hasattr(executable(), name)


def test_a_name_that_nobody_has_is_an_ordinary_mistake():
    with pytest.raises(AttributeError, match="'Executable' object has no attribute 'inptus'"):
        executable().inptus  # noqa: B018


@pytest.mark.parametrize("value", [OnAGpu(X), CudaArray()], ids=["dlpack", "cuda array interface"])
def test_an_array_on_a_gpu_needs_cupy(value, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)

    with pytest.raises(
        InputError, match="in a device's memory, and cupy, which would read it, is not installed"
    ) as caught:
        executable().run({"x": value})

    assert caught.value.code == "GPC2106"


class FakeCupy:
    """What of cupy the runtime uses, over numpy."""

    class cuda:
        class runtime:
            CUDARuntimeError = MemoryError

        @staticmethod
        def get_current_stream():
            return SimpleNamespace(synchronize=lambda: None)

    def from_dlpack(self, value):
        return DeviceArray(value.array)

    def asarray(self, value):
        return DeviceArray(X + 1)

    def asnumpy(self, value):
        return value.array


@pytest.mark.parametrize(("value", "expected"), [(OnAGpu(X), X), (CudaArray(), X + 1)])
def test_an_array_on_a_gpu_is_read_through_cupy(value, expected, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy())

    out = executable().run({"x": value})

    assert np.array_equal(out["z"], expected)


class DeviceArray:
    """What of a cupy array the checks look at."""

    def __init__(self, array):
        self.array, self.dtype, self.shape, self.flags = array, array.dtype, array.shape, array.flags
        self.waits, self.device = 0, self

    def synchronize(self):
        self.waits += 1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def copy(self, order):
        return DeviceArray(self.array.copy(order))


@pytest.mark.parametrize("layout", [np.ascontiguousarray, np.asfortranarray])
def test_an_array_on_a_gpu_stays_there_for_a_model_that_runs_there(layout, monkeypatch):
    cupy = FakeCupy()
    monkeypatch.setattr(cupy, "asarray", lambda value: DeviceArray(layout(X)), raising=False)
    monkeypatch.setitem(sys.modules, "cupy", cupy)

    found = checked_inputs({"x": CudaArray()}, executable().inputs, kind="cuda")["x"]

    assert isinstance(found, DeviceArray)
    assert found.flags.c_contiguous


def test_an_array_on_a_gpu_is_checked_as_any_other(monkeypatch):
    cupy = FakeCupy()
    monkeypatch.setattr(cupy, "asarray", lambda value: DeviceArray(X[:, 1:]), raising=False)
    monkeypatch.setitem(sys.modules, "cupy", cupy)

    with pytest.raises(InputError, match=r"shape \[3, 5\] expected, found \[3, 4\]"):
        checked_inputs({"x": CudaArray()}, executable().inputs, kind="cuda")


class Refusing(OnlyDlpack):
    def __dlpack__(self, **options):
        raise BufferError("it requires a gradient")


def test_an_array_whose_dlpack_export_fails_is_refused():
    with pytest.raises(InputError, match="DLPack export failed: it requires a gradient") as caught:
        executable().run({"x": Refusing(X)})

    assert caught.value.code == "GPC2106"


def test_a_scalar_input_keeps_its_rank():
    plan = replace(PLAN, buffers=(replace(PLAN.buffers[0], shape=(), nbytes=4), *PLAN.buffers[1:]))

    out = executable(plan).run({"x": np.float32(3)})

    assert out["z"].shape == ()


def test_specs_print_as_types():
    exe = executable()

    assert [str(spec) for spec in exe.inputs] == ["x: f32[3,5]"]
    assert [str(spec) for spec in exe.outputs] == ["y: f32[3,5]", "z: f32[3,5]"]


def test_a_name_that_is_no_word_is_quoted_in_its_spec():
    names = ["a/b.c:0", "", "a b", "\x1b[31m", "{{7*7}}\n"]

    shown = [str(TensorSpec(name, "f32", ())) for name in names]

    assert shown == ["a/b.c:0: f32[]", "'': f32[]", "'a b': f32[]", r"'\x1b[31m': f32[]", r"'{{7*7}}\n': f32[]"]


def test_kernels_say_what_they_swallowed():
    first, second = executable().kernels

    assert (first.name, first.entry, first.family, first.ops) == ("k0_1", "k0", "loops", ("Mul",))
    assert first.nodes == ("scale node",)
    assert first.schedule == {"vector": 8}
    assert (first.tier, first.label, first.why) == ("default", "mul 3x5", "its result is read twice")
    assert (second.name, second.ops) == ("k1", ("Add", "Relu"))


def test_a_host_operator_is_among_the_kernels():
    plan = replace(PLAN, launches=(Launch(-1, (0, 4), "h0", ("NonZero",), ("n",), "no algorithm", 1, "NonZero"),))

    (info,) = executable(plan).kernels

    assert (info.name, info.family, info.label, info.entry) == ("h0", "host", "NonZero", "")


def test_peak_bytes_are_arena_weights_inputs_and_outputs():
    assert executable().peak_bytes == 128 + (12 + 4 + 3) + 60 + 60


def test_profile_gives_the_time_of_every_kernel():
    times = executable().profile({"x": X})

    assert [(info.name, seconds) for info, seconds in times] == [("k0_1", 0.25), ("k1", 0.5)]


class Exclusive(NumpyProgram):
    """Knows whether two runs use it at once, and how many programs run at once."""

    clashes, running, most = 0, 0, 0
    lock = threading.Lock()

    def __init__(self, *given):
        super().__init__(*given)
        self.busy = False

    def run(self, inputs, how):
        one = Exclusive
        with one.lock:
            one.clashes += self.busy
            self.busy, one.running = True, one.running + 1
            one.most = max(one.most, one.running)
        threading.Event().wait(0.02)
        with one.lock:
            self.busy, one.running = False, one.running - 1
        return super().run(inputs, how)


@pytest.mark.parametrize("threads", [1, 3])
def test_runs_from_several_threads_use_a_lane_each_and_take_turns_beyond(monkeypatch, threads):
    use_numpy(monkeypatch, Exclusive)
    monkeypatch.setattr(Exclusive, "clashes", 0)
    monkeypatch.setattr(Exclusive, "most", 0)
    exe = executable()

    with config.using(threads=threads):
        callers = [threading.Thread(target=exe.run, args=({"x": X},)) for _ in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()

    assert (Exclusive.clashes, Exclusive.most, Exclusive.opened) == (0, threads, 1)


def test_a_process_forked_in_the_middle_of_a_run_can_run():
    script = (
        "import os, numpy as np\n"
        "from gpucomp.runtime.executable import PROGRAMS\n"
        "from tests.runtime.samples import executable, NumpyProgram\n"
        "PROGRAMS['cpu'] = (NumpyProgram.__module__, 'NumpyProgram')\n"
        "exe = executable()\n"
        "exe.lanes._opening.acquire()\n"
        "exe.lanes._changed.acquire()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    exe.run({'x': np.zeros((3, 5), np.float32)})\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, cwd=ROOT)

    assert ran.stdout == "7\n", ran.stderr


def test_a_compiled_model_is_saved_by_a_name_that_the_command_line_knows(tmp_path):
    with pytest.raises(UsageError, match=r"GPC2008 '.*model': a name that ends in \.gpuc expected"):
        executable().save(tmp_path / "model")

    assert list(tmp_path.iterdir()) == []


def test_a_saved_executable_gives_the_same_answer(tmp_path):
    exe = executable()
    exe.save(tmp_path / "m.gpuc")

    again = load(tmp_path / "m.gpuc")

    assert np.array_equal(again.run({"x": X})["y"], exe.run({"x": X})["y"])
    assert again.plan == exe.plan
    assert repr(again) == "<Executable 'sample' for cpu: 2 kernels>"
