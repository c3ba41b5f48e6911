"""What a hostile case is, and the table of all of them. Everything is made by code: no hostile file lies in the repository.

A case prepares its files in a folder of its own and gives the call to be judged. How the call is judged is in ``worker``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

OK = "ok"
GROUPS = (
    "arguments", "artifacts", "attributes", "bytes", "cache", "commands", "effort", "external", "forests", "frames", "functions",
    "graph", "loops", "names", "records", "running", "shapes", "tensors",
)  # fmt: skip

Act = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One hostile thing and what has to become of it.

    prepare  makes the files in an empty folder and returns the call that is judged; its own costs are not counted
    code     the error's documented code, or ``OK`` for what is strange and still right: then the call may not raise
    mention  what the message has to say: the node, tensor or file
    """

    name: str
    prepare: Callable[[Path], Act]
    code: str
    mention: str = ""

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]


CASES: dict[str, Case] = {}


def add(name: str, code: str, prepare: Callable[[Path], Act], mention: str = "") -> None:
    if name in CASES:
        raise ValueError(f"case {name!r} is there twice")
    CASES[name] = Case(name, prepare, code, mention)


def everything() -> Mapping[str, Case]:
    """All cases by name."""
    for group in GROUPS:
        importlib.import_module(f"tests.hostile.{group}")
    return CASES


# --- calls that are judged


def check(path: Path | bytes | onnx.ModelProto) -> None:
    """What ``gpucomp check`` does, with the error where that has a list of texts."""
    from gpucomp.frontend import onnx as frontend

    frontend.load(path)


def compile_cpu(path: Path | bytes | onnx.ModelProto) -> None:
    import gpucomp

    gpucomp.compile(path, target="cpu")


def run_cpu(
    path: Path | bytes,
    inputs: Mapping[str, np.ndarray],
    expected: Mapping[str, Any],
    last: Mapping[str, Any] | None = None,
    target: str = "cpu",
) -> None:
    """Compile and run; outputs that ``expected`` has must be equal to it, and the last elements to those of ``last``."""
    import gpucomp

    outputs = gpucomp.compile(path, target=target).run(inputs)
    for name, array in expected.items():
        np.testing.assert_array_equal(outputs[name], array)
    for name, number in (last or {}).items():
        np.testing.assert_array_equal(outputs[name].reshape(-1)[-1], number)


# --- ways to say a case


def content(
    name: str, code: str, make: Callable[[], bytes], mention: str = "", act: Callable[[Any], None] = check
) -> None:
    """A model file of these bytes."""

    def prepare(folder: Path) -> Act:
        (folder / "m.onnx").write_bytes(make())
        return partial(act, folder / "m.onnx")

    add(name, code, prepare, mention)


def proto(
    name: str, code: str, make: Callable[[], onnx.ModelProto], mention: str = "", act: Callable[[Any], None] = check
) -> None:
    """A file with this model."""
    content(name, code, lambda: make().SerializeToString(), mention, act)


def listed(group: str, rows: Iterable[tuple[Any, ...]], say: Callable[..., None] = proto) -> None:
    """Rows of (what, code, make, mention...) as cases of a group."""
    for what, *rest in rows:
        say(f"{group}/{what}", *rest)
