"""Writes the result of a bisection: the small ONNX model with its data, and its wrong kernel as a program of its own."""

from __future__ import annotations

import json
import shlex
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx

from gpucomp.artifact.plan import INPUT, OUTPUT, WEIGHT, CompiledKernel
from gpucomp.cli.blame import FAILURE, IMPORT, KERNEL, PASS, ROUNDING, Alone, Blame
from gpucomp.cli.compare import Tolerance
from gpucomp.cli.cut import Case
from gpucomp.device.target import Target
from gpucomp.errors import UsageError, quote
from gpucomp.ir.types import DTYPES
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource

NEITHER = "Neither is wrong: both compute every operator right, in f64 from the operands that each of them had."
SCRIPTS = Path(__file__).with_name("standalone")


def write(
    folder: Path,
    case: Case,
    found: Blame,
    target: Target,
    tolerance: Tolerance,
    constants: Mapping[str, np.ndarray] | None = None,
) -> None:
    """``model.onnx``, ``inputs.npz``, ``expected.npz``, ``README.md`` and, for a wrong kernel, ``kernel/``.

    ``constants`` are the inputs that are fixed at compile time. They are in the command in ``README.md``.

    Raises ``UsageError`` if the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(case.model, folder / "model.onnx")
        _save(folder / "inputs.npz", case.inputs)
        _save(folder / "expected.npz", case.expected)
        (folder / "README.md").write_text(_readme(case, found, target, constants or {}), encoding="utf-8")
        if found.alone is not None:
            _write_kernel(folder / "kernel", found.alone, target, tolerance)
    except OSError as error:
        raise UsageError(f"cannot write to {quote(folder)}: {error.strerror}", code="GPC2005") from None


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz with any names: ``np.savez`` would mix them up with its own parameters, and here no name is a path."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, _plain(array), allow_pickle=False)


def _plain(array: np.ndarray) -> np.ndarray:
    """Elements of types that numpy does not know, such as bf16, as integers with the same bits."""
    return array if array.dtype.kind in "biufc" else array.view(f"u{array.dtype.itemsize}")


def _readme(case: Case, found: Blame, target: Target, constants: Mapping[str, np.ndarray]) -> str:
    options = "".join(f" --constants {shlex.quote(_option(name, array))}" for name, array in constants.items())
    lines = [
        "# A model that is not wrong" if found.stage == ROUNDING else "# A model that is wrong",
        "",
        f"`model.onnx`: {case.nodes} {'node' if case.nodes == 1 else 'nodes'}.",
        "`inputs.npz` and `expected.npz`: its inputs and expected outputs. Types that numpy does not know, such as bf16, are",
        "stored as integers with the same bits.",
        "",
        f"    gpucomp compare model.onnx --target {target.name} --input inputs.npz{options}",
        "",
        *told(found),
        "",
    ]
    if found.stage == KERNEL:
        lines += [
            "`kernel/` is the wrong kernel alone: its source, `launch.json` (arguments and sizes of the launch),",
            "`data.npz` (every buffer before the launch, and its contents after) and `kernel.gpuc`. It needs no gpucomp:",
            "",
            "    python kernel/run.py",
            "",
            "It prints the error of each output, and exits with 6 if one is too large.",
            "",
        ]
    return "\n".join(lines)


def _option(name: str, array: np.ndarray) -> str:
    """A fixed input as ``--constants`` takes it."""
    numbers = array.reshape(-1).tolist()
    return f"{name}={','.join(str(n).lower() for n in numbers)}"


def told(found: Blame) -> list[str]:
    """The verdict as text."""
    lines = {
        IMPORT: ["Wrong from the import on: the translation of an operator, or its numpy reference."],
        PASS: [f"Wrong after pass `{found.name}`.", *(f"- it applied {rule}: {n}" for rule, n in found.fired.items())],
        KERNEL: [f"The graph is right after every pass; kernel `{found.name}` is wrong by itself."],
        ROUNDING: [NEITHER, f"- {found.name}"],
        FAILURE: [f"The compiler fails: {found.name}"],
    }.get(
        found.stage, ["Every pass and every kernel is right by itself: their plan is wrong (the arena, for example)."]
    )
    if found.without:
        lines += ["", "With one pass switched off:", *(f"- {name}: {how}" for name, how in found.without.items())]
    return lines


def _write_kernel(folder: Path, alone: Alone, target: Target, tolerance: Tolerance) -> None:
    folder.mkdir(exist_ok=True)
    plan, executable = alone.executable.plan, alone.executable
    data: dict[str, np.ndarray] = {}
    for k, buffer in enumerate(plan.buffers):
        held = {INPUT: alone.inputs, WEIGHT: executable.weights}.get(buffer.kind, {}).get(buffer.name)
        if held is not None:
            data[f"given{k}"] = _bytes(held)
        if buffer.kind == OUTPUT:
            data[f"expected{k}"] = _bytes(alone.expected[buffer.name])
    with (folder / "data.npz").open("wb") as file:
        np.savez(file, **data)  # type: ignore[arg-type]
    launches = []
    for launch in plan.launches:
        kernel = plan.kernels[launch.kernel]
        launches.append(
            {
                "entry": kernel.name,
                "source": kernel.source,
                "groups": kernel.groups,
                "items": kernel.items,
                "shared": kernel.shared,
                "args": launch.args,
                "schedule": dict(kernel.schedule),
                "label": kernel.label,
                "tensor_maps": [asdict(m) for m in kernel.tensor_maps],
                "flags": _flags(_source_of(alone, kernel), target),
            }
        )
    buffers = [
        {"name": b.name, "kind": b.kind, "dtype": DTYPES[b.dtype].numpy.name, "shape": b.shape} for b in plan.buffers
    ]
    described = {"target": target.name, "tolerance": asdict(tolerance), "buffers": buffers, "launches": launches}
    (folder / "launch.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    for name, text in _sources(alone, target).items():
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copyfile(SCRIPTS / "common.py", folder / "common.py")
    shutil.copyfile(SCRIPTS / f"{target.kind}.py", folder / "run.py")
    executable.save(folder / "kernel.gpuc")


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _sources(alone: Alone, target: Target) -> dict[str, str]:
    """The texts as a compiler takes them: with the prelude for CUDA and HIP, as one module for LLVM."""
    plan, sources = alone.executable.plan, alone.executable.sources
    if target.kind == "cuda":
        from gpucomp.targets.cuda import prelude

        return {name: f"{prelude()}\n{text}" for name, text in sources.items()}
    if target.kind == "hip":
        from gpucomp.targets.hip_text import text_of

        return {name: text_of(text) for name, text in sources.items()}
    if target.kind == "opencl":
        return dict(sources)
    from gpucomp.targets.cpu import module_text

    made = [_source_of(alone, k) for k in plan.kernels]
    return {"kernel.ll": module_text(made, target, runner=False)}


def _source_of(alone: Alone, kernel: CompiledKernel) -> KernelSource:
    text = alone.executable.sources[kernel.source]
    return KernelSource(kernel.name, kernel.language, text, Geometry(kernel.groups, kernel.items))


def _flags(source: KernelSource, target: Target) -> list[str]:
    """The flags for the target's compiler."""
    if target.kind == "cuda":
        from gpucomp.targets.cuda import OPTIONS

        return list(OPTIONS)
    if target.kind == "hip":
        from gpucomp.targets.amdgcn import code_object_flags

        return code_object_flags(target.arch)
    if target.kind == "opencl":
        from gpucomp.targets.opencl import device_of
        from gpucomp.targets.opencl_build import build_flags

        return build_flags(device_of(target), source)
    return []
