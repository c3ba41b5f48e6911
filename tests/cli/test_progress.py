"""What a progress line says: what is done, what is left, and how long that takes."""

import time
from types import SimpleNamespace

import pytest

from gpucomp.cli import tune
from gpucomp.cli.progress import Line, progress


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_what_is_left_follows_from_what_is_done(clock):
    line = Line("compiling m.onnx", clock=clock)
    clock.now += 10
    line.report("render", 0, 8)
    clock.now += 4
    line.report("render", 2, 8)

    assert str(line) == "compiling m.onnx, 14 s, about 12 s of this stage left: render 2 of 8"


def test_a_text_that_changes_within_a_stage_changes_nothing_that_is_left(clock):
    line = Line("tuning", clock=clock)
    line.report("search", 0, 2000, "kernel 1 of 2, trial")
    clock.now += 1000
    line.report("search", 1000, 2000, "kernel 1 of 2, trial")
    clock.now += 2
    line.report("search", 1002, 2000, "kernel 2 of 2, trial")

    assert str(line) == "tuning, 1002 s, about 998 s of this stage left: kernel 2 of 2, trial 1002 of 2000"


def test_what_earlier_stages_did_is_not_this_stages_speed(clock):
    line = Line("tuning", clock=clock)
    line.report("search", 0, 20)
    clock.now += 10
    line.report("final", 10, 20)
    clock.now += 6
    assert line.left is None
    line.report("final", 12, 20)

    assert line.left == 24


def test_a_search_is_one_stage(monkeypatch):
    from contextlib import contextmanager

    told = []

    @contextmanager
    def progress(title, seconds, every):
        yield lambda *values: told.append(values)

    monkeypatch.setattr(tune, "progress", progress)
    studies = [SimpleNamespace(task=SimpleNamespace(label=x), best=0.5, trials=[1]) for x in "ab"]
    with tune.watching(SimpleNamespace(budget=None, trials=20)) as watch:
        for done, study in enumerate(studies):
            watch(SimpleNamespace(phase="search", current=study, studies=studies, trials=done))

    assert told == [
        ("search", 0, 20, "kernel 1 of 2, 2.00 x its default, a, trial"),
        ("search", 1, 20, "kernel 2 of 2, 2.00 x its default, b, trial"),
    ]


def test_nothing_is_foretold_where_nothing_is_known(clock):
    line = Line("compiling m.onnx", clock=clock)
    assert str(line) == "compiling m.onnx, 0 s"
    clock.now += 5
    line.report("partition", 0, 1)

    assert str(line) == "compiling m.onnx, 5 s: partition"


def test_a_time_that_is_known_beforehand_is_counted_down(clock):
    line = Line("measuring", 3.0, clock=clock)
    clock.now += 1

    assert str(line) == "measuring, 1 s, about 2 s left"
    clock.now += 5
    assert str(line).endswith("about 0 s left")


def test_a_long_label_does_not_hide_the_time_that_is_left(clock):
    from rich.console import Console
    from rich.spinner import Spinner

    line = Line("tuning", 60.0, clock=clock)
    line.report("search", 0, 0, "kernel 1 of 1, 1.11 x its default, Conv f32[1,28,28,32] f32[3,3,32,32] pad 1, trial")
    console = Console(width=80, force_terminal=True)

    with console.capture() as shown:
        console.print(Spinner("dots", text=line))

    assert "about 60 s left" in shown.get()
    assert len(shown.get().splitlines()) == 1


def test_a_name_cannot_command_the_terminal(clock):
    assert "\x1b" not in str(Line("compiling \x1b[2Jm.onnx", clock=clock))


def test_without_a_terminal_a_line_is_written_now_and_then(capfd):
    with progress("tuning", every=0.01) as report:
        report("search", 3, 0, "kernel 1 of 2, trial 3")
        time.sleep(0.2)
    with progress("compiling"):
        time.sleep(0.05)

    out, err = capfd.readouterr()
    assert out == ""
    assert set(err.splitlines()) <= {"tuning, 0 s", "tuning, 0 s: kernel 1 of 2, trial 3"}
    assert "tuning, 0 s: kernel 1 of 2, trial 3" in err


def test_a_search_without_a_number_of_trials_counts_them():
    study = SimpleNamespace(task=SimpleNamespace(label="a"), best=0.5, trials=[1])
    state = SimpleNamespace(phase="search", current=study, studies=[study], trials=12)

    assert tune.line(state).endswith("a, trial 12")
    assert tune.line(state, 20).endswith("a, trial")
