"""The arena of real plans: what lives together lies apart, and the whole is close to the largest live set."""

from dataclasses import replace

import pytest

from bench.models import MODELS, build
from gpucomp import targets
from gpucomp.artifact.plan import TEMP, Plan
from gpucomp.compiler import render
from gpucomp.frontend import onnx as frontend
from gpucomp.kernel.grouping import Policy
from gpucomp.kernel.partition import partition
from gpucomp.planning import make_plan
from gpucomp.rewrite.pipeline import run_pipeline

# Sizes of weights alone, of 123 and 23 million: what a fully connected layer and a table hold is not in the arena
SMALLER = {"vgg16": {"hidden": 256}, "bert_base": {"vocabulary": 997}}


def plan_of(name: str, target: str, **sizes) -> Plan:
    device = targets.resolve(target)
    graph = run_pipeline(frontend.load(build(name, **sizes)), target=device)
    steps = partition(graph, Policy.of(device))
    return make_plan(graph, *render(steps, device, lambda stage, done, total: None), device)[0]


def clashes(plan: Plan) -> list[tuple[str, str, int]]:
    """Temporaries that share a byte in a step, other than a result on an operand that this step reads last."""
    touched: dict[int, list[int]] = {}
    for step, launch in enumerate(plan.launches):
        for position in launch.args:
            if plan.buffers[position].kind == TEMP:
                touched.setdefault(position, []).append(step)
    found = []
    spans = [(steps[0], steps[-1], position) for position, steps in touched.items()]
    for first, last, a in spans:
        for start, end, b in spans:
            x, y = plan.buffers[a], plan.buffers[b]
            together = a != b and first <= start <= last
            shared = min(x.offset + x.nbytes, y.offset + y.nbytes) > max(x.offset, y.offset)
            launch = plan.launches[start]
            takes = start == last > first and x.offset == y.offset and a in launch.args[: launch.inputs]
            if together and shared and not takes and end >= start:
                found.append((x.name, y.name, start))
    return found


def test_two_temporaries_in_one_place_are_noticed():
    plan = plan_of("unet_small", "cpu", reduced=True)
    heap = replace(plan, buffers=tuple(replace(b, offset=min(b.offset, 0)) for b in plan.buffers))

    assert clashes(heap)
    assert not clashes(plan)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_80"])
@pytest.mark.parametrize("name", MODELS)
def test_a_small_model_s_arena_is_close_to_its_live_set(name, target):
    plan = plan_of(name, target, reduced=True)

    assert clashes(plan) == []
    assert plan.live_bytes <= plan.arena_bytes <= 1.1 * plan.live_bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_s_arena_is_close_to_its_live_set(name):
    plan = plan_of(name, "cpu", **SMALLER.get(name, {}))

    assert clashes(plan) == []
    assert plan.live_bytes <= plan.arena_bytes <= 1.1 * plan.live_bytes
