"""Every operator, through partition and native code, computes what its reference does: one case per type and variant."""

import numpy as np
import pytest

from gpucomp.ir.graph import Graph, input_value
from gpucomp.ir.types import type_of
from gpucomp.kernel.partition import partition
from gpucomp.kernel.step import KernelStep
from gpucomp.ops.registry import OPS
from testing.tolerance import assert_matches
from tests.native import run_kernel
from tests.op_cases import CASE_LIST


def variant(name, case):
    choices = tuple(sorted((k, str(v)) for k, v in case.attrs.items() if isinstance(v, (bool, str))))
    return name, tuple(a.dtype.name for a in case.operands), str(case.attrs.get("to")), choices


COMPUTED = [(n, c) for n, c in CASE_LIST if OPS[n].algorithm and all(a.size for a in c.operands)]
VARIANTS = list({variant(n, c): (n, c) for n, c in reversed(COMPUTED)}.values())


def run(name, case):
    inputs = [input_value(f"x{i}", type_of(a)) for i, a in enumerate(case.operands)]
    graph = Graph(tuple(inputs), OPS[name].node(*inputs, **case.attrs).values)
    known = dict(zip(inputs, case.operands, strict=True))
    for step in partition(graph):
        assert isinstance(step, KernelStep), step.why
        known.update(zip(step.outputs, run_kernel(step.kernel, [known[v] for v in step.inputs]), strict=True))
    return [known[v].reshape(v.shape) for v in graph.outputs]


@pytest.mark.parametrize(("name", "case"), VARIANTS, ids=[f"{n}-{c}"[:120] for n, c in VARIANTS])
def test_kernel_computes_what_the_reference_does(name, case):
    expected = OPS[name].reference(*case.operands, **case.attrs)

    results = run(name, case)

    for actual, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert_matches(actual, np.asarray(wanted), terms=case.terms)


def test_every_operator_with_an_algorithm_is_run():
    assert {name for name, _ in VARIANTS} == {name for name, op in OPS.items() if op.algorithm}
