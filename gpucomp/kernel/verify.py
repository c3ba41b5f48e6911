"""Checks steps by what they say of each other. Trusts nothing that a pass wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpucomp.errors import VerifyError
from gpucomp.expr.core import Load, walk
from gpucomp.ir.graph import Constant, Graph, Input, Value
from gpucomp.ir.types import TensorType
from gpucomp.kernel.body import Store
from gpucomp.kernel.ir import FusedLayers, Kernel
from gpucomp.kernel.step import HostStep, Step


def verify_steps(steps: Sequence[Step], graph: Graph) -> None:
    """Raise ``VerifyError`` unless

    - every load and store of a kernel names a parameter, by as many indices as that has axes, a load as its type;
    - every value is written before it is read, and what the graph gives is written at the end;
    - all kernels that read or write a value see one type, of the value's shape.
    """
    last = {value: number for number, step in enumerate(steps) for value in step.outputs}
    seen: dict[Value, TensorType] = {}
    for number, step in enumerate(steps):
        for value in step.inputs:
            if value.op not in (Constant, Input) and last.get(value, number) >= number:
                raise VerifyError(f"{step.name} reads a value that no step before it has written whole")
        if isinstance(step, HostStep):
            continue
        if fault := next(kernel_faults(step.kernel), None):
            raise VerifyError(f"{step.name}: {fault}")
        if len(step.kernel.params) != len(step.inputs) + len(step.outputs):
            raise VerifyError(
                f"{step.name}: {len(step.kernel.params)} parameters for {len(step.inputs)} values that it reads "
                f"and {len(step.outputs)} that it writes"
            )
        for value, type in zip((*step.inputs, *step.outputs), step.kernel.params, strict=True):
            if type.size != value.type.size:
                raise VerifyError(f"{step.name}: a parameter {type} for a value {value.type}")
            if seen.setdefault(value, type).dtype is not type.dtype:
                raise VerifyError(f"{step.name}: a parameter {type} for a value that another step has as {seen[value]}")
    for name, value in zip(graph.output_names, graph.outputs, strict=True):
        if value not in last and value.op not in (Constant, Input):
            raise VerifyError(f"no step writes output {name!r}")


def kernel_faults(kernel: Kernel) -> Iterator[str]:
    """What is wrong with the loads and stores of ``kernel``."""
    if isinstance(kernel.body, FusedLayers):
        for link in kernel.body.links:
            yield from kernel_faults(link.kernel)
        return
    for expr in kernel.expressions():
        for node in walk(expr):
            if isinstance(node, Load):
                if not 0 <= node.source < len(kernel.params):
                    yield f"a load of x{node.source}, of {len(kernel.params)} parameters"
                elif len(node.index) != len(kernel.params[node.source].shape):
                    yield f"a load of x{node.source} with {len(node.index)} indices, a {kernel.params[node.source]}"
                elif node.dtype is not kernel.params[node.source].dtype:
                    yield f"a load of x{node.source} as {node.dtype}, a {kernel.params[node.source]}"
    for store in kernel.stores:
        yield from _store_faults(kernel, store)


def _store_faults(kernel: Kernel, store: Store) -> Iterator[str]:
    if not kernel.inputs <= store.target < len(kernel.params):
        yield f"a store to x{store.target}; outputs are x{kernel.inputs} to x{len(kernel.params) - 1}"
    elif len(store.index) != len(kernel.params[store.target].shape):
        yield f"a store to x{store.target} with {len(store.index)} indices, a {kernel.params[store.target]}"
    elif store.value.dtype is not kernel.params[store.target].dtype:
        yield f"a store of {store.value.dtype} to x{store.target}, a {kernel.params[store.target]}"
