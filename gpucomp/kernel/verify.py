"""Checks that steps are consistent with each other and with the graph, after each kernel pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpucomp.errors import VerifyError
from gpucomp.expr.core import Load, walk
from gpucomp.ir.graph import Constant, Graph, Input, Sizes, Value
from gpucomp.ir.types import TensorType
from gpucomp.kernel.body import Store
from gpucomp.kernel.ir import FusedLayers, Kernel
from gpucomp.kernel.step import HostStep, Step


def verify_steps(steps: Sequence[Step], graph: Graph) -> None:
    """Raise ``VerifyError`` unless

    - every load and store of a kernel names an existing parameter, with one index per axis, and with its dtype;
    - every value is written before it is read, and every graph output is written;
    - all kernels that read or write a value have the same dtype for it, and as many elements as the value.
    """
    last = {value: number for number, step in enumerate(steps) for value in step.outputs}
    seen: dict[Value, TensorType] = {}
    for number, step in enumerate(steps):
        for value in step.inputs:
            if value.op not in (Constant, Input, Sizes) and last.get(value, number) >= number:
                raise VerifyError(f"{step.name} reads a value that earlier steps have not written completely")
        if isinstance(step, HostStep):
            continue
        if fault := next(kernel_faults(step.kernel), None):
            raise VerifyError(f"{step.name}: {fault}")
        if len(step.kernel.params) != len(step.inputs) + len(step.outputs):
            raise VerifyError(
                f"{step.name}: {len(step.kernel.params)} parameters, but the step reads {len(step.inputs)} values "
                f"and writes {len(step.outputs)}"
            )
        for value, type in zip((*step.inputs, *step.outputs), step.kernel.params, strict=True):
            if type.size != value.type.size:
                raise VerifyError(f"{step.name}: parameter {type} is bound to value {value.type}")
            if seen.setdefault(value, type).dtype is not type.dtype:
                raise VerifyError(f"{step.name}: parameter {type} is bound to a value that is {seen[value]} elsewhere")
    for name, value in zip(graph.output_names, graph.outputs, strict=True):
        if value not in last and value.op not in (Constant, Input, Sizes):
            raise VerifyError(f"no step writes output {name!r}")


def kernel_faults(kernel: Kernel) -> Iterator[str]:
    """The faults of the loads and stores of ``kernel``, as text."""
    if isinstance(kernel.body, FusedLayers):
        for layer in kernel.body.layers:
            yield from kernel_faults(layer.kernel)
        return
    for expr in kernel.expressions():
        for node in walk(expr):
            if isinstance(node, Load):
                if not 0 <= node.source < len(kernel.params):
                    yield f"a load of x{node.source}, but there are {len(kernel.params)} parameters"
                elif len(node.index) != len(kernel.params[node.source].shape):
                    yield f"a load of x{node.source} with {len(node.index)} indices for {kernel.params[node.source]}"
                elif node.dtype is not kernel.params[node.source].dtype:
                    yield f"a load of x{node.source} as {node.dtype}, not {kernel.params[node.source].dtype}"
    for store in kernel.stores:
        yield from _store_faults(kernel, store)


def _store_faults(kernel: Kernel, store: Store) -> Iterator[str]:
    if not kernel.inputs <= store.target < len(kernel.params):
        yield f"a store to x{store.target}, but the outputs are x{kernel.inputs} to x{len(kernel.params) - 1}"
    elif len(store.index) != len(kernel.params[store.target].shape):
        yield f"a store to x{store.target} with {len(store.index)} indices for {kernel.params[store.target]}"
    elif store.value.dtype is not kernel.params[store.target].dtype:
        yield f"a store of {store.value.dtype} to x{store.target}, but it is {kernel.params[store.target]}"
