"""The backend for ``torch.compile``: each of Dynamo's graphs becomes one executable, or several, or stays in eager."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensor

from gpucomp.errors import GpucompError, UnsupportedError, UsageError, internal_error, quote
from gpucomp.frontend.foreign.fx_graphs import copied
from gpucomp.frontend.foreign.torch_exporter import BEYOND_IT, pieces
from gpucomp.torch import reports
from gpucomp.torch.operators import tensor_objection
from gpucomp.torch.partition import compiled_parts
from gpucomp.torch.reports import Graph
from gpucomp.torch.settings import Settings
from gpucomp.torch.verify import Verified

log = logging.getLogger(__name__)
GRADIENTS = "gradients may be needed: call the model under torch.no_grad(), or after model.requires_grad_(False)"


def backend(
    module: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, **others: Any
) -> Callable[..., Any]:
    """``torch.compile(model, backend="gpucomp", options={...})``: Dynamo calls this with each graph.

    ``options`` are the fields of ``gpucomp.torch.Settings``. What cannot be compiled runs in eager; ``gpucomp.torch.report()``
    says what that is, and why. Raises ``UsageError`` (GPC2053) for a wrong option, which torch wraps in its own
    ``BackendCompilerFailed``; with ``strict``, also ``UnsupportedError`` (GPC4021) and the errors of ``gpucomp.compile``.
    """
    if others:
        raise UsageError(
            f"torch.compile: {quote(min(others))} is no argument of this backend; it has options", code="GPC2053"
        )
    settings = Settings.of(options)
    if not any(node.op.startswith("call_") for node in module.graph.nodes):
        return module.forward
    graph = reports.begin(module)
    began = time.perf_counter()
    try:
        return _compiled(module, example_inputs, settings, graph)
    except GpucompError as error:
        if settings.strict:
            raise
        graph.parts.clear()
        graph.eager[:] = getattr(error, "missing", None) or [error.message]
        log.warning("graph %d stays in eager: %s; print(gpucomp.torch.report()) has more", graph.number, error.message)
        return module.forward
    finally:
        graph.seconds = time.perf_counter() - began


backend.reset = reports.reset  # type: ignore[attr-defined]  # called by torch.compiler.reset


def _compiled(module: fx.GraphModule, given: Sequence[Any], settings: Settings, graph: Graph) -> Callable[..., Any]:
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    if why := next(filter(None, map(_objection, tensors)), ""):
        raise UnsupportedError(f"an input of the graph: {why}", code="GPC4021")
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        _refuse_gradients()
    here = pieces()
    # what AOTAutograd gives a compiler: attributes first
    attributes = (
        dict(module.named_parameters(remove_duplicate=False)),
        dict(module.named_buffers(remove_duplicate=False)),
    )
    arguments = [*(tensor for each in attributes for tensor in each.values()), *given]

    traced = _Traced()
    trace = aot_autograd(fw_compiler=_refuse_gradients, inference_compiler=traced.take, decompositions=dict(here.apart))
    try:
        with here.override(dict(here.composite)):
            found: Callable[..., Any] = trace(module, given)
    except TorchDynamoException:
        reports.withdraw(graph)
        raise  # by which Dynamo tells itself what to do next
    except BEYOND_IT as error:
        raise UnsupportedError(f"AOTAutograd: {type(error).__name__}: {error}", code="GPC4021") from error
    assert traced.module is not None, "AOTAutograd calls one of its compilers"
    # not inside the trace, where every tensor is a fake one
    weights = _weights(traced.module, arguments, traced.metadata)
    eager = copied(traced.module) if settings.verify else traced.module  # the parts are cut out of the other
    try:
        run = compiled_parts(traced.module, weights, settings, graph)
    except BEYOND_IT as error:
        raise internal_error(error) from error
    traced.run = Verified(run, eager.forward, settings, graph) if settings.verify else run
    return found


class _Traced:
    """The graph that AOTAutograd made, and what it calls with the list of the graph's arguments."""

    _boxed_call = True

    def __init__(self) -> None:
        self.module: fx.GraphModule | None = None
        self.metadata: Any = None
        self.run: Callable[..., Any] = _refuse_gradients

    def take(self, module: fx.GraphModule, examples: Sequence[Any]) -> _Traced:
        """AOTAutograd's ``inference_compiler``."""
        context = TracingContext.try_get()
        self.module, self.metadata = module, None if context is None else context.fw_metadata
        return self

    def __call__(self, args: list[Any]) -> Any:
        return self.run(*args)


def _weights(functional: fx.GraphModule, arguments: Sequence[Any], metadata: Any) -> dict[int, torch.Tensor]:
    """The arguments of the traced graph that are weights and that it does not change, by position.

    There are none if the trace has other arguments than Dynamo's graph, as for inputs that share memory: then all are fed.
    """
    values = [node.meta["val"] for node in functional.graph.find_nodes(op="placeholder")]
    if metadata is None or len(values) != len(arguments):
        return {}
    changed = set(metadata.mutated_inp_runtime_indices)
    found = {}
    for position in metadata.static_input_indices:
        tensor, value = arguments[position], values[position]
        if position in changed or not isinstance(tensor, torch.Tensor) or _is_fake(tensor):
            continue
        if tensor.shape == value.shape and tensor.dtype == value.dtype:
            found[position] = tensor
    return found


def _is_fake(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor)


def _objection(tensor: torch.Tensor) -> str:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) and not _is_fake(tensor):
        return f"a {type(tensor).__name__}, a subclass of torch.Tensor"
    return tensor_objection(tensor)


def _refuse_gradients(*_: object) -> NoReturn:
    raise UnsupportedError(GRADIENTS, code="GPC4021")
