"""From an FX graph of ATen operators to ONNX, by the pieces of torch's own exporter.

``torch.onnx.export`` traces a program twice more, in a world of shapes of its own. A backend of ``torch.compile`` must stay in
Dynamo's: what the trace assumes about sizes becomes guards there. So these pieces are called one by one, and they are not
public: everything that may move from one release of torch to the next is imported in ``_pieces``.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, NoReturn

import torch
from torch import fx

from gpucomp.errors import DeviceError, UnsupportedError, quote
from gpucomp.extras import install
from gpucomp.frontend.foreign.decompositions import TABLE, TORCHS
from gpucomp.frontend.foreign.translations import DRAWS_IF
from gpucomp.lazy_dataclass import dataclass

# what the exporter raises where a graph is beyond it; its passes were written for what its own tracer gives
BEYOND_IT = (
    RuntimeError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    NotImplementedError,
)

# each makes a tensor of the graph's own from one that the graph has as a constant
LIFTED = (torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default)


# taken apart, their steps to whole numbers are others
_LINSPACE = torch.ops.aten.linspace
BETWEEN_TENSORS = (_LINSPACE.Tensor_Tensor, _LINSPACE.Tensor_Scalar, _LINSPACE.Scalar_Tensor)
_LEVELS: list[int] = []  # that the exporter's logger had before each thread made it quiet
_LOCK = Lock()


@dataclass(frozen=True)
class Pieces:
    """Torch's exporter: which operators it knows, how others are taken apart, and the translation itself.

    ``table`` takes operators apart: ``apart`` those of backends, ``composite`` those that torch takes apart before these.
    """

    registry: Any
    table: Mapping[Any, Callable[..., Any]]
    apart: Mapping[Any, Callable[..., Any]]
    composite: Mapping[Any, Callable[..., Any]]
    override: Any
    promote: Callable[[fx.GraphModule], None]
    drop_assertions: Callable[[fx.GraphModule], fx.GraphModule]
    translate: Callable[..., Any]


@cache
def pieces() -> Pieces:
    """Raises ``DeviceError`` (GPC5003) where onnxscript is missing, or torch is of a release that has other pieces."""
    try:
        return _pieces()
    except (ImportError, AttributeError, TypeError) as error:
        raise DeviceError(
            f"torch {torch.__version__} and its exporter do not fit: {type(error).__name__}: {error}; torch 2.9 or newer and "
            f"onnxscript expected: {install('torch')}",
            code="GPC5003",
        ) from error


def _pieces() -> Pieces:
    inside = "torch.onnx._internal.exporter"
    names = ("_decomp", "_registration", "_fx_passes", "_core")
    with quiet():
        decomp, registration, passes, core = (importlib.import_module(f"{inside}.{name}") for name in names)
        program = importlib.import_module("torch.export.exported_program")
        registry = registration.ONNXRegistry.from_torchlib()
    known = set(decomp.get_onnx_implemented_overloads(registry)) - {*TORCHS}
    table = decomp.create_onnx_friendly_decomposition_table(known)
    table |= TABLE
    for operator in BETWEEN_TENSORS:
        table.pop(operator, None)
    for operator in [*table]:
        # what takes a constant apart reads the tensor itself, which a trace does not have; random numbers must be torch's
        seeded = torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())
        if operator in LIFTED or (seeded and str(operator) not in DRAWS_IF):
            del table[operator]
    composite, apart = program._split_decomp_table_to_cia_and_python_decomp(dict(table))
    return Pieces(
        registry,
        table,
        apart,
        composite,
        program._override_composite_implicit_decomp,
        passes.insert_type_promotion_nodes,
        passes.remove_assertion_nodes,
        core._exported_program_to_onnx_program,
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Without the exporter's warnings about packages that are not installed, and that nobody asked for."""
    logger = logging.getLogger("torch.onnx")
    with _LOCK:
        _LEVELS.append(logger.level)
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        with _LOCK:
            logger.setLevel(_LEVELS.pop())  # the first of them behind the last thread


def to_onnx(program: torch.export.ExportedProgram) -> bytes:
    """The ONNX model of a program of ATen operators that are taken apart already; it is the same in every process.

    Raises ``UnsupportedError`` (GPC4021) if the exporter cannot translate it.
    """
    from onnx_ir import DataType, serde
    from onnxscript.version_converter import convert_version

    here = pieces()
    with quiet():
        try:
            here.promote(program.graph_module)
            model = here.translate(program, registry=here.registry, lower="at_conversion").model
            if any(value.dtype == DataType.BFLOAT16 for node in model.graph for value in node.outputs):
                convert_version(model, 22)  # the first with all operators on this type
        except BEYOND_IT as error:
            _refuse(error)
    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    for graph in graphs:
        for node in graph.all_nodes():  # traces of the user's calls, which name places on this machine
            node.metadata_props.clear()
            for value in node.outputs:
                value.metadata_props.clear()
        for value in graph.inputs:
            value.metadata_props.clear()
        graph.metadata_props.clear()
    return bytes(serde.to_proto(model).SerializeToString(deterministic=True))


def _refuse(error: BaseException) -> NoReturn:
    cause = error.__cause__ or error
    raise UnsupportedError(f"torch's exporter: {type(cause).__name__}: {quote(cause)}", code="GPC4021") from error
