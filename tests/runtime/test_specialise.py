"""Programs for single sets of sizes: made by a thread or beforehand, used where they are faster, and gone where not."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import gpucomp
from gpucomp import Dim
from gpucomp.errors import InputError, UsageError
from gpucomp.runtime import specialise
from gpucomp.runtime.specialise import Specialiser
from tests.onnx_builders import model, node, value

RNG = np.random.default_rng(4)
FACTORS = RNG.standard_normal((1, 12, 1)).astype(np.float32)


def scaled():
    return model(
        [node("Mul", ["x", "k"], ["m"]), node("Softmax", ["m"], ["y"], axis=-1)],
        [value("x", ["n", 12, "w"])],
        ["y"],
        {"k": FACTORS},
    )


SHAPES = {"x": (Dim("n", 1, 8), 12, Dim("w", 1, 100))}


def compiled(**options):
    return gpucomp.compile(scaled(), target="cpu", shapes=SHAPES, **options)


def expected(x):
    raised = np.exp((x * FACTORS).astype(np.float64))
    return raised / raised.sum(axis=-1, keepdims=True)


def feed(n=2, w=7):
    return {"x": RNG.standard_normal((n, 12, w)).astype(np.float32)}


def run(exe, n=2, w=7):
    inputs = feed(n, w)
    np.testing.assert_allclose(exe.run(inputs)["y"], expected(inputs["x"]), rtol=1e-4, atol=1e-6)


def wait_for(exe, *states):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if [one.state for one in exe.report()] == list(states):
            return
        time.sleep(0.01)
    raise AssertionError(exe.report())


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(specialise, "HOT", 2)
    monkeypatch.setattr(specialise, "IDLE_S", 0.05)


def test_nothing_is_specialised_unless_it_is_asked_for(soon):
    exe = compiled()

    for _ in range(5):
        run(exe)

    assert exe.report() == ()
    assert "gpucomp-specialise" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(("faster", "state"), [(1e9, "kept"), (0.0, "slower")])
def test_sizes_that_are_run_often_get_a_program_that_stays_if_it_is_faster(monkeypatch, soon, faster, state):
    monkeypatch.setattr(specialise, "FASTER", faster)
    exe = compiled(specialise="background")

    run(exe)
    run(exe, n=3)
    assert exe.report() == ()
    run(exe)
    wait_for(exe, "trying")
    for _ in range(2 * specialise.SAMPLES + 2):
        run(exe)

    (found,) = exe.report()
    assert (found.sizes, found.state) == ({"n": 2, "w": 7}, state)
    assert found.ratio > 0
    run(exe)
    run(exe, n=3)


def test_an_error_in_the_background_is_reported_and_never_raised(monkeypatch, soon):
    exe = compiled(specialise="background")

    def broken(shapes, progress):
        raise RuntimeError(f"no {shapes['x']}")

    exe.compile_with(broken)
    for _ in range(3):
        run(exe)
    wait_for(exe, "failed")
    for _ in range(30):
        run(exe)

    assert [one.error for one in exe.report()] == ["RuntimeError: no (2, 12, 7)"]


def test_the_thread_ends_when_it_has_nothing_to_do(soon):
    exe = compiled(specialise="background")

    run(exe)
    run(exe)
    wait_for(exe, "trying")

    end = time.monotonic() + 10
    while "gpucomp-specialise" in [thread.name for thread in threading.enumerate()]:
        assert time.monotonic() < end
        time.sleep(0.01)
    run(exe, n=4)
    run(exe, n=4)
    wait_for(exe, "trying", "trying")


class Fake:
    def __init__(self, seconds=0.0):
        self.seconds, self.runs = seconds, 0

    def run(self, inputs):
        self.runs += 1
        time.sleep(self.seconds)
        return inputs


def specialiser(made=lambda sizes, watch: Fake(), declared=None):
    return Specialiser(made, lambda exe: None, declared or {})


def entry_at(one, key, runs=specialise.HOT + 1):
    for _ in range(runs - 1):
        one.entry(key, {"n": key[0]})
    end = time.monotonic() + 20
    while (found := one.entry(key, {"n": key[0]})) is None:
        assert time.monotonic() < end
        time.sleep(0.001)
    return found


@pytest.mark.parametrize(("own", "general", "state"), [(0.0, 0.002, "kept"), (0.002, 0.0, "slower")])
def test_runs_go_to_both_in_turns_until_one_is_faster(own, general, state):
    whole, one = Fake(general), specialiser(lambda sizes, watch: Fake(own))
    entry = entry_at(one, (1,))
    program = entry.exe

    for _ in range(2 * specialise.SAMPLES + 2):
        specialise.run(entry, one, lambda: whole, lambda exe: exe.run({}))

    assert (entry.state, whole.runs, program.runs) == (state, specialise.SAMPLES + 1, specialise.SAMPLES + 1)
    for _ in range(10):
        specialise.run(entry, one, lambda: whole, lambda exe: exe.run({}))
    assert (program if state == "kept" else whole).runs == specialise.SAMPLES + 11
    assert (entry.exe is None) == (state == "slower")


def test_the_least_recently_used_goes(monkeypatch):
    monkeypatch.setattr(specialise, "MOST_KEPT", 2)
    one = specialiser()

    for key in ((1,), (2,)):
        entry_at(one, key)
    one.entry((1,), {"n": 1})
    entry_at(one, (3,))

    assert [found.sizes for found in one.report()] == [{"n": 1}, {"n": 3}]


def test_sizes_of_long_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(specialise, "MOST_NOTED", 5)
    one = specialiser()

    for n in range(100):
        one.entry((n,), {"n": n})

    assert len(one._entries) == 5


def test_a_process_ends_in_the_middle_of_a_compilation():
    code = """
import time
from gpucomp.runtime import specialise

def made(sizes, watch):
    for _ in range(10_000):
        time.sleep(0.01)
        watch("render", 0, 1)

one = specialise.Specialiser(made, lambda exe: None, {})
for _ in range(specialise.HOT):
    one.entry((1,), {"n": 1})
while [found.state for found in one.report()] != ["compiling"]:
    time.sleep(0.01)
"""
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert (done.stdout, done.stderr) == ("", "")
    assert time.monotonic() - begin < specialise.AT_EXIT_S + 10


def test_a_forked_process_has_its_own_thread():
    ready = threading.Event()

    def made(sizes, watch):
        ready.wait()
        return Fake()

    one = specialiser(made)
    for _ in range(specialise.HOT):
        one.entry((1,), {"n": 1})
    one.reset()  # what a child does

    assert one.report() == ()
    ready.set()
    assert entry_at(one, (1,)).state == "trying"


@pytest.mark.parametrize("given", [{"n": 2, "w": 7}, {"x": (2, 12, 7)}], ids=["sizes", "shapes"])
def test_declared_sizes_are_compiled_at_once_and_are_in_the_file(tmp_path, given):
    exe = compiled(specialise="declared", specialise_for=[given, {"n": 1, "w": 1}])
    exe.save(tmp_path / "m.gpuc")
    loaded = gpucomp.load(tmp_path / "m.gpuc")
    loaded.save(tmp_path / "again.gpuc")

    for one in (exe, loaded):
        assert [found.sizes for found in one.report()] == [{"n": 2, "w": 7}, {"n": 1, "w": 1}]
        for _ in range(2 * specialise.SAMPLES + 2):
            run(one)
            run(one, n=3)
        states = {found.sizes["n"]: found.state for found in one.report()}
        assert states[2] in ("kept", "slower")
        assert states[1] == "trying"
    assert (tmp_path / "again.gpuc").read_bytes() == (tmp_path / "m.gpuc").read_bytes()


def test_declared_sizes_share_equal_weights_in_the_file(tmp_path):
    big = model([node("Gather", ["t", "i"], ["g"]), node("Softmax", ["g"], ["y"])], [value("i", ["k"], 7)], ["y"],
                {"t": RNG.standard_normal((500, 100)).astype(np.float32)})  # fmt: skip
    exe = gpucomp.compile(big, target="cpu", shapes={"i": ("k",)}, specialise="declared", specialise_for=[{"k": 3}])
    exe.save(tmp_path / "m.gpuc")

    assert (tmp_path / "m.gpuc").stat().st_size < 1.5 * 500 * 100 * 4
    assert gpucomp.load(tmp_path / "m.gpuc").run({"i": np.arange(3)})["y"].shape == (3, 100)


def test_a_file_that_nobody_trusts_is_built_again(tmp_path):
    exe = compiled(specialise="declared", specialise_for=[{"n": 2, "w": 7}])
    exe.save(tmp_path / "m.gpuc")
    loaded = gpucomp.load(tmp_path / "m.gpuc", trusted=False)

    for n in (1, 2, 2, 2):
        run(loaded, n=n)


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ({"specialise": "always"}, "GPC2036", "one of never, declared, background expected, 'always' given"),
        ({"specialise": "declared"}, "GPC2036", "specialise='declared' needs specialise_for"),
        ({"specialise_for": [{"n": 1, "w": 2}]}, "GPC2036", "specialise_for needs declared"),
        ({"specialise": "declared", "specialise_for": {"n": 1}}, "GPC2036", "a list of sets of sizes expected"),
        (
            {"specialise": "declared", "specialise_for": [3]},
            "GPC2035",
            "an object with a size for each of 'n', 'w'",
        ),
        ({"specialise": "declared", "specialise_for": [{"n": 1}]}, "GPC2111", "dimension 'w' has no size"),
        ({"specialise": "declared", "specialise_for": [{"n": 9, "w": 1}]}, "GPC2111", "dimension 'n' is 9, 1 to 8"),
        ({"specialise": "declared", "specialise_for": [{"x": (1, 12)}]}, "GPC2035", "a list of 3 sizes for input 'x'"),
        ({"specialise": "declared", "specialise_for": [{"x": (1, 2, 3)}]}, "GPC2035", "dimension 1 of input 'x' is 12"),
    ],
)
def test_wrong_options_are_told(options, code, told):
    with pytest.raises((UsageError, InputError)) as caught:
        compiled(**options)

    assert (caught.value.code, told in str(caught.value)) == (code, True), str(caught.value)


def test_an_option_without_effect_is_told():
    with pytest.raises(UsageError, match="GPC2036 specialise='background' has no effect without a Dim"):
        gpucomp.compile(scaled(), target="cpu", shapes={"x": (1, 12, 3)}, specialise="background")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process that forks")
def test_a_fork_runs_on(soon):
    exe = compiled(specialise="background")
    run(exe)
    run(exe)
    child = os.fork()
    if child == 0:
        try:
            run(exe)
            run(exe, n=5)
        except BaseException:
            os._exit(1)
        os._exit(0)

    assert os.waitpid(child, 0)[1] == 0
    wait_for(exe, "trying")
