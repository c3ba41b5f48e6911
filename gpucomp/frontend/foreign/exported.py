"""An ``ExportedProgram`` of torch as an ONNX model, by torch's own exporter, and what that exporter does not get right."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from google.protobuf.message import EncodeError
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from gpucomp.errors import UnsupportedError, quote
from gpucomp.frontend.foreign.masks import fill_with_zeros
from gpucomp.frontend.foreign.torch_exporter import BEYOND_IT, pieces, quiet
from gpucomp.frontend.foreign.translations import draws, operator_name, other_in_onnx, place_of, trains

MOST_BYTES = (1 << 31) - 1  # of a protobuf message
MOST_SIZE = 8192  # of a dimension without an end
_ONE_AT_A_TIME = Lock()  # warnings that a thread ignores are ignored in all, and what it restores is what it found
# how many guards a program's sizes had when it was first seen: what an earlier attempt assumed is no part of the program
_GUARDS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def exported(program: Any) -> bytes:
    """An ``ExportedProgram`` as a model, with the ranges of its sizes. Raises ``UnsupportedError`` (GPC4022)."""
    with _ONE_AT_A_TIME, quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        try:
            if (nbytes := _nbytes(program)) > MOST_BYTES:
                raise _too_large(f"its weights have {nbytes} bytes")
            _require_right(program)
            program = _taken_apart(program)
            made: Any = torch.onnx.export(program, dynamo=True, verbose=False, optimize=False)
            proto = made.model_proto
            if shapes := _shapes(program, proto):
                proto.metadata_props.add(key="gpucomp:shapes", value=json.dumps(shapes))
            return bytes(proto.SerializeToString(deterministic=True))
        except EncodeError as error:
            raise _too_large(str(error)) from error
        except BEYOND_IT as error:
            raise _beyond("torch's exporter", error) from error


class _Named(torch.nn.Module):
    """A model of a list of tensors, or of one, as one whose arguments have names."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model

        def forward(*given: Any) -> Any:
            return self.model([*given] if len(given) > 1 else given[0])

        named = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        forward.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # torch names the inputs by it
        self.forward = forward


def program_of(model: Any, examples: Mapping[str, Any], batched: Sequence[str]) -> Any:
    """A module of torch as an ``ExportedProgram``; inputs of these names have an open batch. Raises ``UnsupportedError``
    (GPC4022).
    """
    batch = torch.export.Dim("batch")
    sizes = tuple({0: batch} if name in batched else None for name in examples)
    names = [name if name.isidentifier() and not iskeyword(name) else f"input_{n}" for n, name in enumerate(examples)]
    try:
        with quiet(), torch.no_grad():
            module = _Named(model, names).eval()
            return torch.export.export(module, tuple(examples.values()), dynamic_shapes=sizes, strict=False)
    except BEYOND_IT as error:
        raise _beyond("torch.export", error) from error


def _beyond(what: str, error: BaseException) -> UnsupportedError:
    cause = error.__cause__ or error
    told = str(cause).splitlines() or [""]
    return UnsupportedError(f"{what}: {type(cause).__name__}: {quote(' '.join(told[:2]))}", code="GPC4022")


def _too_large(why: str) -> UnsupportedError:
    return UnsupportedError(
        f"the program is larger than 2 GiB as a model: {why}; torch.onnx.export(program, external_data=True).save(path) "
        "writes a model whose weights are beside it",
        code="GPC4022",
    )


def _nbytes(program: Any) -> int:
    tensors = [*program.state_dict.values(), *program.constants.values()]
    shared = {(one.data_ptr(), one.nbytes) for one in tensors if hasattr(one, "data_ptr") and one.device.type != "meta"}
    return sum(nbytes for _, nbytes in shared)


def _require_right(program: Any) -> None:
    """Raise ``UnsupportedError`` (GPC4022) for what torch's exporter leaves out, or translates to something else."""
    nodes = [node for module in _graphs(program) for node in module.graph.nodes]
    for node in nodes:
        if node.op == "call_function" and (why := _objection(node)):
            at = f" at {place}" if (place := place_of(node)) else ""
            raise UnsupportedError(f"{quote(operator_name(node))}{at}: {why}", code="GPC4022")
    if any(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in nodes):
        program = program.run_decompositions({})  # only then it is known what is written to
    signature = program.graph_signature
    kinds = ("buffers_to_mutate", "parameters_to_mutate", "user_inputs_to_mutate")
    written = [str(name) for kind in kinds for name in (getattr(signature, kind, None) or {}).values()]
    if written:
        raise UnsupportedError(
            f"the program writes into {quote(', '.join(written))}, which a model cannot do: return the new value instead, and "
            "give it to the next run; model.eval() before the export if it is a statistic of training",
            code="GPC4022",
        )
    for number, spec in enumerate(one for one in signature.output_specs if one.kind.name == "USER_OUTPUT"):
        if type(spec.arg).__name__ == "ConstantArgument":
            raise UnsupportedError(
                f"result {number} of the program is {quote(spec.arg.value)} and no tensor: leave it out", code="GPC4022"
            )


def _taken_apart(program: Any) -> Any:
    """The program in operators that torch's exporter has right."""
    env = _shape_env(program)
    before = 0 if env is None else _GUARDS.setdefault(env, len(env.guards))
    found = program.run_decompositions(dict(pieces().table))
    # a function that asks for a size gets an answer for the example's, and a program has no guards to hold the others back
    assumed = [str(guard.expr) for guard in env.guards[before:] if not _is_usual(guard.expr)] if env is not None else []
    if assumed:
        raise UnsupportedError(
            f"taken apart, the program would be right only where {quote(', '.join(assumed))}: narrow the ranges of its sizes, "
            "or close them",
            code="GPC4022",
        )
    for module in _graphs(found):
        fill_with_zeros(module.graph)
        module.recompile()
    _require_right(found)
    return found


def _shape_env(program: Any) -> Any:
    """What knows the open sizes of a program; ``None`` if all are closed."""
    values = (node.meta.get("val") for node in program.graph.find_nodes(op="placeholder"))
    found = (value.fake_mode.shape_env for value in values if isinstance(value, FakeTensor))
    return next(found, None)


def _is_usual(guard: Any) -> bool:
    """Whether a guard only says that a size is not 0 or 1, which torch.export takes for granted: it is about strides."""
    return bool(guard.is_Relational and guard.rel_op == "!=" and guard.rhs in (0, 1))


def _graphs(program: Any) -> list[fx.GraphModule]:
    """The program's graph, and those of its branches and loops."""
    return [module for module in program.graph_module.modules() if isinstance(module, fx.GraphModule)]


def _objection(node: Any) -> str:
    if draws(node):
        return "it draws random numbers, which must be those of torch's generator"
    if trains(node):
        return "torch's exporter takes a batch normalization in training for one that is not"
    return other_in_onnx(node)


def _shapes(program: Any, proto: Any) -> dict[str, list[Any]]:
    """The shapes of inputs with open sizes: numbers, and for each open size its name, and its range if it has ends."""
    ranges = {str(symbol): found for symbol, found in program.range_constraints.items()}
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    found: dict[str, list[Any]] = {}
    for info in proto.graph.input:  # named as in the program, which has others too: numbers, texts and None
        sizes = getattr(values.get(info.name), "shape", ())
        shape = [size if isinstance(size, int) else _range(str(size), ranges.get(str(size))) for size in sizes]
        if any(isinstance(size, list) for size in shape):
            found[info.name] = shape
    return found


def _range(name: str, limits: Any) -> list[Any]:
    if limits is None:
        return [name]
    low = int(limits.lower) if limits.lower.is_Integer else 1
    has_end = limits.upper.is_Integer and limits.upper < 1 << 31
    return [name, max(low, 0), int(limits.upper) if has_end else max(MOST_SIZE, 4 * low)]
