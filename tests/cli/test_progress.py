"""What a progress line says: what is done, what is left, and how long that takes."""

import pytest

from gpucomp.cli.progress import Line


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

    assert str(line) == "compiling m.onnx: render 2 of 8, 14 s, about 12 s of this stage left"


def test_nothing_is_foretold_where_nothing_is_known(clock):
    line = Line("compiling m.onnx", clock=clock)
    assert str(line) == "compiling m.onnx, 0 s"
    clock.now += 5
    line.report("partition", 0, 1)

    assert str(line) == "compiling m.onnx: partition, 5 s"


def test_a_time_that_is_known_beforehand_is_counted_down(clock):
    line = Line("measuring", 3.0, clock=clock)
    clock.now += 1

    assert str(line) == "measuring, 1 s, about 2 s left"
    clock.now += 5
    assert str(line).endswith("about 0 s left")


def test_a_name_cannot_command_the_terminal(clock):
    assert "\x1b" not in str(Line("compiling \x1b[2Jm.onnx", clock=clock))
