"""The context of every stage: the target, the options and the folder; it also opens the device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.gpu.devices import Described
from gpucomp.device.target import Target


@dataclass
class Options:
    """The command line; see ``python -m bench.gpu --help``."""

    out: Path
    target: str = "cuda"
    limit_s: float = 540.0
    dry_run: bool = False
    reduced: bool = False
    again: bool = False
    models: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    top: int = 16
    kernel_s: float = 8.0
    torch_compile: bool = False
    compilers: int = 1
    find_db: Path | None = None


@dataclass
class Context:
    options: Options
    described: Described | None = None

    @cached_property
    def target(self) -> Target:
        assert self.described is not None
        return self.described.target()

    @property
    def harness_folder(self) -> Path | None:
        """The folder in which a dry run keeps the output of g++; ``None`` on a device."""
        return self.options.out / "harness" if self.options.dry_run else None

    @property
    def small(self) -> bool:
        return self.options.reduced or self.options.dry_run

    def open_device(self) -> Any:
        from bench.gpu import devices

        kind = devices.KINDS[self.options.target]
        if self.options.dry_run:
            return devices.Harness(self.harness_folder, kind.manifest(kind.rehearsal))
        return kind.open()
