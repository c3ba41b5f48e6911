"""ONNX's node tests through the pipeline: unchanged, and with all inputs except the first as constants."""

import numpy as np
import pytest

from gpucomp import config
from gpucomp.backend import Backend
from gpucomp.frontend.onnx import load
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.pipeline import run_pipeline
from gpucomp.runtime.inputs import flattened, gathered
from tests.onnx_cases import as_array, cases, passing, verdict


def rewritten(model, target, shapes, constants):
    with config.using(verify=True):
        graph = run_pipeline(load(model, shapes=shapes, constants=constants))

    def run(feed):
        wanted = {*graph.input_names, *graph.input_containers}
        kept = flattened({name: given for name, given in feed.items() if name in wanted}, graph.input_containers)
        return gathered(dict(zip(graph.output_names, interpret(graph, kept), strict=True)), graph.output_containers)

    return run


class RewritingBackend(Backend):
    compile = staticmethod(rewritten)


def backend_with_constants(case):
    """A backend in which all inputs of the case's first data set are constants, except the first input."""
    model = case.model
    weights = {tensor.name for tensor in model.graph.initializer}
    names = [info.name for info in model.graph.input if info.name not in weights]
    arrays = [as_array(v) for v in case.data_sets[0][0]]
    known = {n: a for n, a in zip(names[1:], arrays[1:], strict=False) if isinstance(a, np.ndarray)}

    class WithConstants(Backend):
        @staticmethod
        def compile(model, target, shapes, constants):
            return rewritten(model, target, shapes, {**constants, **known})

    return WithConstants


@pytest.mark.parametrize("name", sorted(passing()))
def test_rewriting_keeps_the_case_right(name):
    case = cases()[name]

    assert verdict(case, RewritingBackend) == ""
    assert verdict(case, backend_with_constants(case)) == ""
