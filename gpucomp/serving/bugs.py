"""Exceptions that only a bug raises: the request or the model has them as an internal error, and the server goes on."""

from __future__ import annotations

from types import TracebackType

from gpucomp.errors import GpucompError, internal_error


class Bugs:
    """In this block, an exception that gpucomp does not raise on purpose becomes an internal error. ``where`` is said first."""

    def __init__(self, where: str = "") -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, GpucompError):
            raise internal_error(error, self._where) from error
