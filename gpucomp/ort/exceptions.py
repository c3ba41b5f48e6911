"""onnxruntime's exception types, which programs catch by name, and what each of gpucomp's errors becomes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpucomp.errors import (
    ArtifactError,
    DeviceError,
    GpucompError,
    InputError,
    ModelError,
    RunStoppedError,
    UnsupportedError,
    UsageError,
)


class Fail(Exception):
    """Anything that no other type says."""


class InvalidArgument(Exception):
    """An argument of a call, or an input of a run, is wrong."""


class NoSuchFile(Exception):
    """There is no such model file."""


class NoModel(Exception):
    """The file holds no model."""


class EngineError(Exception):
    """The engine failed."""


class RuntimeException(Exception):
    """A run failed."""


class InvalidProtobuf(Exception):
    """The bytes are no ONNX model."""


class ModelLoaded(Exception):
    """The session has a model already."""


class NotImplemented(Exception):
    """The model or the option is valid, but gpucomp does not have it. The message says what, and at which node."""


class InvalidGraph(Exception):
    """The model breaks the ONNX standard."""


class EPFail(Exception):
    """A device, driver or compiler is missing or failed."""


class ModelLoadCanceled(Exception):
    """The loading of the model was cancelled."""


class ModelRequiresCompilation(Exception):
    """The model must be compiled first."""


class NotFound(Exception):
    """Something that was asked for is not there."""


class DeviceReset(Exception):
    """The device was reset."""


# numbers and names that onnxruntime's messages begin with
STATUS: dict[type[Exception], tuple[int, str]] = {
    Fail: (1, "FAIL"),
    InvalidArgument: (2, "INVALID_ARGUMENT"),
    NoSuchFile: (3, "NO_SUCHFILE"),
    NoModel: (4, "NO_MODEL"),
    EngineError: (5, "ENGINE_ERROR"),
    RuntimeException: (6, "RUNTIME_EXCEPTION"),
    InvalidProtobuf: (7, "INVALID_PROTOBUF"),
    ModelLoaded: (8, "MODEL_LOADED"),
    NotImplemented: (9, "NOT_IMPLEMENTED"),
    InvalidGraph: (10, "INVALID_GRAPH"),
    EPFail: (11, "EP_FAIL"),
    ModelLoadCanceled: (12, "MODEL_LOAD_CANCELED"),
    ModelRequiresCompilation: (13, "MODEL_REQUIRES_COMPILATION"),
    NotFound: (14, "NOT_FOUND"),
    DeviceReset: (15, "DEVICE_RESET"),
}
BECOMES: tuple[tuple[type[GpucompError], type[Exception]], ...] = (  # the first that fits
    (InputError, InvalidArgument),
    (UsageError, InvalidArgument),
    (ModelError, InvalidGraph),
    (UnsupportedError, NotImplemented),
    (ArtifactError, InvalidProtobuf),
    (DeviceError, EPFail),
    (RunStoppedError, Fail),
)
CODES = {"GPC3001": NoSuchFile, "GPC3002": InvalidProtobuf}


def error(kind: type[Exception], text: str) -> Exception:
    """An exception of ``kind`` whose message begins as onnxruntime's."""
    number, name = STATUS[kind]
    return kind(f"[ONNXRuntimeError] : {number} : {name} : {text}")


def theirs(found: GpucompError) -> Exception:
    """The exception of onnxruntime's that one of gpucomp's becomes. Its code stays in the message."""
    kind = next((kind for ours, kind in BECOMES if isinstance(found, ours)), Fail)
    return error(CODES.get(found.code, kind), str(found))


@contextmanager
def translated() -> Iterator[None]:
    """Raise gpucomp's errors of a block as onnxruntime's."""
    try:
        yield
    except GpucompError as found:
        raise theirs(found) from found


FAILURES: tuple[type[Exception], ...] = (*STATUS, ValueError, RuntimeError)  # of a run
