"""The demo: digits drawn as text, and the whole of it on every device of this machine."""

import numpy as np
import pytest

import gpucomp
from examples.digits import data, demo


def test_a_digit_is_drawn_darker_where_there_is_more_ink():
    image = np.zeros((8, 8), np.float32)
    image[0, 0], image[7, 7], image[3, 4] = 1, 0.5, 0.1

    lines = demo.drawing(image)

    assert [len(line) for line in lines] == [16] * 8
    assert (lines[0][:2], lines[7][-2:], lines[3][8:10]) == ("@@", "==", "..")
    assert sum(character != " " for line in lines for character in line) == 6


def test_digits_stand_side_by_side_over_what_is_read():
    images, _ = data.held_back()

    lines = demo.drawings(images[:5], np.array([1, 2, 3, 4, 5]), np.array([1, 2, 8, 4, 5]))

    assert len(lines) == 2 * (8 + 1 + 1)
    assert lines[8].split() == ["reads", "1", "reads", "2", "reads", "8,", "meant", "3", "reads", "4"]
    assert lines[18].split() == ["reads", "5"]


def test_a_misread_digit_is_among_those_shown():
    labels = np.arange(10).repeat(2)
    predicted = labels.copy()
    predicted[[2, 13]] = 0

    assert demo.chosen(labels, predicted) == [0, 2, 4, 6, 8, 10, 12, 13]
    assert demo.chosen(labels, labels) == [0, 2, 4, 6, 8, 10, 12, 14]


def test_the_demo_reads_digits_on_the_cpu(capsys, monkeypatch):
    monkeypatch.setattr(demo, "LATENCY_S", 0.01)

    code = demo.main(["cpu"])

    out = capsys.readouterr().out
    assert code == 0
    assert "reads 0" in out
    (row,) = [line for line in out.splitlines() if " of 450 " in line]
    assert int(row.split()[1]) >= 0.985 * 450
    assert "contraction" in out


def test_a_device_that_cannot_be_used_does_not_end_the_demo(capsys, monkeypatch):
    monkeypatch.setattr(demo, "LATENCY_S", 0.01)
    compile = gpucomp.compile

    def broken(model, *, target, **options):
        if target == "opencl":
            raise gpucomp.DeviceError("no memory")
        return compile(model, target=target, **options)

    monkeypatch.setitem(vars(gpucomp), "compile", broken)

    code = demo.main(["opencl", "cpu"])

    assert code == 0
    assert "opencl could not be used: GPC5000 no memory" in capsys.readouterr().out


def test_a_machine_without_any_usable_device_is_an_error(capsys, monkeypatch):
    def broken(model, **options):
        raise gpucomp.DeviceError("none")

    monkeypatch.setitem(vars(gpucomp), "compile", broken)

    assert demo.main(["cpu"]) == 5
    assert "cpu could not be used: GPC5000 none" in capsys.readouterr().err


@pytest.mark.slow
def test_the_demo_uses_every_device_here(capsys):
    assert demo.main() == 0

    assert "could not be used" not in capsys.readouterr().out
