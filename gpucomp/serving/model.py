"""A version of a model that is ready to run: compiled or loaded, with its tensors as the protocol sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpucomp import loading
from gpucomp.errors import InputError, ServingError, UsageError, quote
from gpucomp.ir.dim import Dim
from gpucomp.lazy_dataclass import dataclass
from gpucomp.refusal import Refusal
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.inputs import TensorSpec
from gpucomp.runtime.lanes import MOST_ON_A_GPU
from gpucomp.runtime.open_program import OpenProgram
from gpucomp.runtime.workers import available_threads
from gpucomp.serving.batch import batch_dim
from gpucomp.serving.datatypes import BY_OURS
from gpucomp.serving.protocol import Tensor
from gpucomp.serving.repository import INDEPENDENT, Entry, ModelConfig

MOST_ON_A_CPU = 4  # instances, unless more are asked for


@dataclass(frozen=True)
class Loaded:
    """``batch`` is the dimension along which requests are joined, or why they are not; at most ``max_batch`` rows then."""

    name: str
    version: int
    exe: Executable
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    instances: int
    batch: Dim | Refusal
    max_batch: int = 1
    delay_us: int = 0
    queue: int | None = None
    timeout_s: float | None = None

    def check(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Raise ``InputError`` (GPC2111, GPC2112) for sizes that the model does not take."""
        if isinstance(self.exe, AnyShapeExecutable):
            self.exe.check_sizes(shapes)


def load(entry: Entry, config: ModelConfig, target: str, max_batch: int) -> Loaded:
    """Load or compile a model, and open its device. ``target`` and ``max_batch`` are for models that do not say their own.

    Raises ``GpucompError``: what ``gpucomp.compile`` and ``gpucomp.load`` raise, and ``ServingError`` (GPC1211) for a model
    that cannot be served.
    """
    shapes: Mapping[str, Any] = {}
    before = _state(entry.path)
    if entry.path.suffix == ".gpuc":
        exe = loading.load(entry.path)
    else:
        from gpucomp.compiling import compile  # imports the compiler, which a .gpuc file does not need

        shapes = open_inputs(entry.path, config.shapes)
        wanted = config.target or target
        exe = compile(entry.path, target=wanted, shapes=shapes, precision=config.precision)
    inputs, outputs = _served(entry, exe)
    exe.open()
    instances = config.instances or (
        min(available_threads(), MOST_ON_A_CPU) if exe.target.startswith("cpu") else MOST_ON_A_GPU
    )
    batch = _batch(entry, exe, shapes, config, config.max_batch or max_batch)
    if before is None or _state(entry.path) != before:  # what was proven, or declared, could be another model
        raise _cannot(entry, "its file was written again while it was loaded; load it once more")
    if config.max_batch is not None and config.max_batch > 1 and isinstance(batch, Refusal):
        raise _cannot(entry, f"max_batch = {config.max_batch}: {batch.reason}")
    most = min(config.max_batch or max_batch, batch.high) if isinstance(batch, Dim) else 1
    return Loaded(
        entry.name,
        entry.version,
        exe,
        inputs,
        outputs,
        instances,
        batch,
        most,
        config.delay_us,
        config.queue,
        config.timeout_s,
    )


def _state(path: Path) -> tuple[int, ...] | None:
    """What tells whether a file was written again; ``None`` if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _cannot(entry: Entry, why: str) -> ServingError:
    return ServingError(f"model {quote(entry.name)}, version {entry.version}: {why}", code="GPC1211")


def open_inputs(path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes to compile an ONNX model for: those ``given``, and a name for every size that it leaves open."""
    from gpucomp.frontend.onnx.loader import Source, declared_shapes, read

    source = Source(*read(path))
    declared = declared_shapes(source)
    found = dict(given)
    for info in source.proto.graph.input:
        shape = declared.get(info.name, ())
        if info.name in found or None not in shape:
            continue
        dims = info.type.tensor_type.shape.dim
        found[info.name] = tuple(
            size if size is not None else dim.dim_param or f"{info.name}.{axis}"
            for axis, (size, dim) in enumerate(zip(shape, dims, strict=True))
        )
        break  # the names of all others are then the model's own
    return found


def _served(entry: Entry, exe: Executable) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Inputs and outputs for the protocol. Raises ``ServingError`` for what it has no form for."""
    if isinstance(exe, AnyShapeExecutable):
        if isinstance(exe.program, Refusal):
            raise _cannot(
                entry,
                f"each new size would be compiled while a request waits ({exe.program.reason}); give numbers as shapes",
            )
        exe.compile_with(None)
    if exe.states:
        raise _cannot(entry, "it has states, and requests of the protocol have no context that would keep them")
    plan = exe.contents().plan
    if containers := [*plan.input_containers, *plan.output_containers]:
        raise _cannot(entry, f"{quote(containers[0])} is no tensor, and the protocol has only tensors")
    return _tensors(entry, exe.inputs), _tensors(entry, exe.outputs)


def _tensors(entry: Entry, specs: Sequence[TensorSpec]) -> tuple[Tensor, ...]:
    found = []
    for spec in specs:
        if spec.dtype not in BY_OURS:
            raise _cannot(entry, f"{quote(spec.name)} has elements of {spec.dtype}, which the protocol has not")
        shape = tuple(size if isinstance(size, int) else -1 for size in spec.shape)
        found.append(Tensor(spec.name, BY_OURS[spec.dtype], shape))
    return tuple(found)


def _batch(entry: Entry, exe: Executable, shapes: Mapping[str, Any], config: ModelConfig, most: int) -> Dim | Refusal:
    """The dimension along which requests are joined: its rows are independent by proof, or by what the configuration says."""
    if most < 2:
        return Refusal("batches are not asked for: max_batch is 1")
    found = batch_dim(exe.inputs, exe.outputs)
    if isinstance(found, Refusal) or config.rows == INDEPENDENT:
        return found
    if entry.path.suffix == ".gpuc":
        return Refusal(
            'a .gpuc file holds no graph for a proof; if rows do not change each other, say rows = "independent"'
        )
    assert isinstance(exe, AnyShapeExecutable)  # it has a dimension
    assert isinstance(exe.program, OpenProgram)  # ``_served`` refuses others
    from gpucomp.serving.rows import independent  # imports the compiler too

    why = independent(entry.path, shapes, found, exe.program.example)
    return found if why is None else why


def is_wrong_input(error: BaseException) -> bool:
    """Whether an error of a run is the request's fault, not the model's."""
    return isinstance(error, InputError | UsageError)
