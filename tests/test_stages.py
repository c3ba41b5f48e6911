"""The table of a compilation's stages: what is in it, and when it is printed."""

from __future__ import annotations

import time

import pytest

import gpucomp
from gpucomp import compiler, config, stages, targets
from gpucomp.stages import Stages
from tests.onnx_builders import model, node, value

SMALL = model([node("MatMul", ["x", "x"], ["p"]), node("Tanh", ["p"], ["y"])], [value("x", (13, 13))])
NAMES = ["start", "read", "rewrite", "partition", "choose", "render", "plan", "compile", "open"]


def test_stages_are_in_order_and_one_that_comes_again_has_the_sum(monkeypatch):
    clock = iter([(0.0, 0.0), (1.0, 0.5), (3.0, 4.5), (3.5, 5.0), (10.0, 5.0)])
    helped = iter([7.0, 7.25])
    monkeypatch.setattr(stages, "_now", lambda: next(clock))
    monkeypatch.setattr(stages, "_of_helpers", lambda: next(helped))
    told = []
    noted = Stages(lambda *call: told.append(call))

    for call in (("read", 0, 2), ("read", 1, 2), ("plan", 0, 1), ("read", 0, 1)):
        noted(*call)

    assert noted.until_now() == [("start", 1.0, 0.5), ("read", 8.5, 4.0), ("plan", 0.5, 0.5), ("helpers", 0.0, 0.25)]
    assert told == [("read", 0, 2), ("read", 1, 2), ("plan", 0, 1), ("read", 0, 1)]


def test_processor_seconds_are_of_this_process():
    noted = Stages()
    noted("sleep", 0, 1)
    time.sleep(0.05)
    noted("count", 0, 1)
    sum(range(2_000_000))

    _, slept, counted = noted.until_now()

    assert slept.wall > 0.05 > slept.cpu
    assert counted.cpu > 0


def test_a_compilation_tells_every_stage():
    noted = Stages()

    compiler.compile(SMALL, target="cpu", progress=noted)

    assert [stage.name for stage in noted.until_now()] == NAMES


def test_the_table_is_printed_for_who_debugs(capsys):
    gpucomp.compile(SMALL, target="cpu")
    assert "all stages" not in capsys.readouterr().err

    with config.using(debug=1):
        gpucomp.compile(SMALL, target="cpu")

    lines = capsys.readouterr().err.splitlines()[-len(NAMES) - 1 :]
    assert [line.split("  ")[0].strip() for line in lines] == [*NAMES, "all stages"]


@pytest.mark.parametrize("watched", [False, True])
def test_a_source_is_known_before_other_schedules_are_chosen_unless_somebody_watches_the_passes(watched, monkeypatch):
    """The small model and a third kernel of the first one's shape, which is rendered once."""
    again = model(
        [node("MatMul", ["x", "x"], ["p"]), node("Softmax", ["p"], ["q"]), node("MatMul", ["q", "q"], ["y"])],
        [value("x", (13, 13))],
    )
    order: list[str] = []
    chosen = compiler.choice_of

    def choice_of(step, *rest):
        order.append(f"choose {step.kernel.family}")
        return chosen(step, *rest)

    monkeypatch.setattr(compiler, "choice_of", choice_of)
    observer = (lambda record: None) if watched else None
    device = targets.resolve("cpu")
    with config.using(verify=False):
        lowered = compiler.lower(
            again, device, observer=observer, rendered=lambda source: order.append(source.name.partition("_")[2])
        )
    plain = compiler.lower(again, device)  # tests verify what passes give

    product, softmax = ("choose contraction", "contraction"), ("choose norm", "norm")
    assert order[:4] == ([product[0], softmax[0], product[1], softmax[1]] if watched else [*product, *softmax])
    texts = [[item.source.text for item in one.rendered.values()] for one in (lowered, plain)]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 3
