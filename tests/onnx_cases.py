"""ONNX's own tests, run by the operators' references: what ``bench.conformance`` runs on the targets."""

from __future__ import annotations

from bench.conformance import cases as suite
from bench.conformance.cases import as_array, cases, listed, mismatch, passing
from gpucomp.backend import Backend
from gpucomp.frontend.onnx import load
from gpucomp.ir import verify
from gpucomp.ops.interpreter import interpret
from gpucomp.runtime.inputs import flattened, gathered

__all__ = ["InterpreterBackend", "as_array", "cases", "interpreted", "listed", "mismatch", "passing", "verdict"]


def interpreted(model, target, shapes, constants):
    """Stands in for the compiler: the graph run by its operators' references."""
    graph = load(model, shapes=shapes, constants=constants)
    verify(graph)

    def run(feed):
        results = interpret(graph, flattened(feed, graph.input_containers))
        return gathered(dict(zip(graph.output_names, results, strict=True)), graph.output_containers)

    return run


class InterpreterBackend(Backend):
    compile = staticmethod(interpreted)


def verdict(case, backend=InterpreterBackend):
    """As ``suite.verdict``, by the references unless another ``backend`` is given."""
    return suite.verdict(case, backend)
