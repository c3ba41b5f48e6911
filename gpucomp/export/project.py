"""Writes a compiled model as a C project: sources, machine code, weights, a test with recorded results, how it is built."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from gpucomp.device import processor
from gpucomp.device.isa import isa_of
from gpucomp.errors import UsageError, quote
from gpucomp.export.layout import ALIGNMENT, Layout, layout_of
from gpucomp.export.names import CTensor, commented, members, picture_in, project_name
from gpucomp.export.processors import asked, checks, compiler_of
from gpucomp.export.refusals import refuse, require_place
from gpucomp.export.stack import stack_bytes
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.render import environment
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.inputs import random_inputs
from gpucomp.targets import cpu, resolve

TOLERANCE = 1e-3  # of the largest number, where results were recorded by code for another processor
HALF_TOLERANCE = 2e-2  # of numbers with 16 bits
TEMPLATES = {
    "{name}.h": "model.h.j2",
    "{name}.c": "model.c.j2",
    "{name}.pc.in": "model.pc.in.j2",
    "gpucomp_share.h": "share.h.j2",
    "gpucomp_pool.h": "pool.h.j2",
    "gpucomp_pool.c": "pool.c.j2",
    "selftest.c": "selftest.c.j2",
    "example.c": "example.c.j2",
    "CMakeLists.txt": "CMakeLists.txt.j2",
    "README.md": "README.md.j2",
}
Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, Any]]


@dataclass(frozen=True)
class Recorded:
    """Inputs and outputs of the self-test, each at a multiple of ``ALIGNMENT``. ``exact``: made by the very code."""

    inputs: list[CTensor]
    outputs: list[CTensor]
    content: bytes
    exact: bool


def export_c(
    exe: Executable,
    folder: Path,
    *,
    name: str = "",
    model: str = "",
    elsewhere: Run | None = None,
    seed: int = 0,
) -> list[Path]:
    """Write ``exe``, compiled for a processor, as a C project into ``folder``. Returns the files that were written.

    ``name`` is the prefix of all names; by default it comes from ``model``, the name of the model's file. If this machine cannot
    run the code, the results of ``elsewhere`` are recorded, a run of the same model by other code. ``seed`` is that of the
    self-test's inputs.

    Raises ``UnsupportedError`` (GPC4030) with everything in the model that C code does not do; ``UsageError`` for a target that
    is no processor (GPC2061), a name (GPC2060), or a folder that has other files than an earlier export of this name (GPC2064)
    or cannot be written (GPC2005).
    """
    refuse(exe)
    name = project_name(name, Path(model or exe.plan.model or "model").stem)
    require_place(folder, name)
    layout = layout_of(exe.plan, exe.weights)
    recorded = _recorded(exe, elsewhere, seed)
    variables = _variables(exe, layout, recorded, name, model)
    binary: dict[str, bytes] = {
        f"{name}_kernels.o": _kernels(exe, name),
        f"{name}_weights.bin": layout.weights,
        "selftest_data.bin": recorded.content,
    }
    texts = {file.format(name=name): _rendered(template, variables) for file, template in TEMPLATES.items()}
    for stem, symbol in ((f"{name}_weights", f"{name}_weights"), ("selftest_data", f"{name}_recorded")):
        texts[f"{stem}.S"] = _rendered("data.S.j2", {"file": f"{stem}.bin", "symbol": symbol, "alignment": ALIGNMENT})
    return _write(folder, name, binary | {file: text.encode() for file, text in texts.items()})


def _write(folder: Path, name: str, files: Mapping[str, bytes]) -> list[Path]:
    """The header first, by which ``require_place`` knows a project, even one that was not completed."""
    header = f"{name}.h"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(files, key=lambda file: (file != header, file)):
            (folder / file).write_bytes(files[file])
    except OSError as error:
        raise UsageError(f"cannot write {quote(folder)}: {error.strerror}", code="GPC2005") from None
    return [folder / file for file in sorted(files)]


def _rendered(template: str, variables: Mapping[str, object]) -> str:
    return environment().get_template(f"gpucomp.export:templates/{template}").render(**variables)


def _kernel_names(exe: Executable, name: str) -> list[str]:
    return [f"{name}_kernel_{number}" for number in range(len(exe.plan.kernels))]


def _kernels(exe: Executable, name: str) -> bytes:
    """The kernels as one object."""
    sources = {
        symbol: KernelSource(
            kernel.name,
            kernel.language,
            exe.sources[kernel.source],
            Geometry(kernel.groups, kernel.items, kernel.shared),
        )
        for symbol, kernel in zip(_kernel_names(exe, name), exe.plan.kernels, strict=True)
    }
    return cpu.linked(sources, resolve(exe.target))


def _recorded(exe: Executable, elsewhere: Run | None, seed: int) -> Recorded:
    inputs = random_inputs(exe.inputs, seed)
    here = isa_of(frozenset(exe.plan.features)).name == platform.machine() and not processor.missing(exe.plan.features)
    if not here and elsewhere is None:
        raise UsageError(
            f"the results of the self-test are recorded here, and this processor does not run code for {exe.target}: "
            "give the .onnx model, which can be compiled for this one too",
            code="GPC2062",
        )
    run: Run = exe.run if here or elsewhere is None else elsewhere
    results = run(inputs)
    at, parts, placed = 0, list[bytes](), []
    for tensor in (*members("INPUT", exe.inputs), *members("OUTPUT", exe.outputs)):
        array = np.asarray(inputs[tensor.name] if tensor.kind == "INPUT" else results[tensor.name])
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).tobytes()
        placed.append(replace(tensor, recorded=at))
        parts.append(content + bytes(-len(content) % ALIGNMENT))
        at += len(parts[-1])
    kept = [[tensor for tensor in placed if tensor.kind == kind] for kind in ("INPUT", "OUTPUT")]
    return Recorded(kept[0], kept[1], b"".join(parts) or bytes(ALIGNMENT), here)


def _copies(layout: Layout, recorded: Recorded) -> list[dict[str, object]]:
    """What a run copies at its end: the output, the expression of C for where it is, and its bytes."""
    found: list[dict[str, object]] = []
    for copy in layout.copies:
        place = copy.source
        match place.place:
            case "IN_INPUT":
                source = f"inputs->{recorded.inputs[place.number].member}"
            case "IN_OUTPUT":
                source = f"outputs->{recorded.outputs[place.number].member}"
            case "IN_WEIGHTS":
                source = f"context->weights + {place.offset}"
            case _:
                source = f"(unsigned char *)arena + rounded(sizeof(struct context)) + {place.offset}"
        found.append({"to": recorded.outputs[copy.output].member, "source": source, "nbytes": copy.nbytes})
    return found


def _variables(exe: Executable, layout: Layout, recorded: Recorded, name: str, model: str) -> dict[str, object]:
    """What the templates show."""
    plan = exe.plan
    compiler, check = compiler_of(plan), checks(plan)
    picture = picture_in(recorded.inputs)
    first = recorded.outputs[0]
    return {
        "name": name,
        "upper": name.upper(),
        "version": metadata.version("gpucomp"),
        "target": commented(plan.target if plan.target != "cpu" else f"cpu ({plan.arch})"),
        "model_told": f"`{commented(model)}`" if model else "a model",
        "precision": plan.precision,
        "alignment": ALIGNMENT,
        "inputs": recorded.inputs,
        "outputs": recorded.outputs,
        "exact": recorded.exact,
        "tolerance": TOLERANCE,
        "half_tolerance": HALF_TOLERANCE,
        "layout": layout,
        "arena_bytes": layout.arena_bytes,
        "digest": ", ".join(f"0x{byte:02x}" for byte in layout.digest),
        "magic": f"0x{layout.digest[:8].hex()}",
        "kernels": _kernel_names(exe, name),
        "labels": [commented(kernel.label or kernel.family) for kernel in plan.kernels],
        "copies": _copies(layout, recorded),
        "stack_bytes": max((stack_bytes(exe.sources[kernel.source]) for kernel in plan.kernels), default=1024),
        "check": check,
        "asked": asked(plan),
        "compiler": compiler,
        "picture": picture,
        "shows_floats": first.dtype == "f32",
    }
