"""Writes a compiled model as a C project: sources, machine code, weights, a test with recorded results, how it is built."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from gpucomp.artifact.open_plan import Place
from gpucomp.artifact.plan import Buffer, Plan
from gpucomp.errors import UsageError, quote
from gpucomp.export import states
from gpucomp.export.layout import ALIGNMENT, Argument, Layout, layout_of, rounded
from gpucomp.export.names import CTensor, commented, members, picture_in, project_name
from gpucomp.export.open_layout import open_layout_of, shape_of
from gpucomp.export.processors import asked, checks, compiler_of, needed, uses_tiles
from gpucomp.export.recording import Recorded, recorded
from gpucomp.export.refusals import refuse, refuse_many, require_place
from gpucomp.export.sizes import bytes_of, is_open
from gpucomp.export.stack import stack_bytes
from gpucomp.export.states import StateRow
from gpucomp.ir.types import NAMED
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.render import environment
from gpucomp.lazy_dataclass import dataclass
from gpucomp.runtime.artifact import Contents
from gpucomp.runtime.executable import Executable
from gpucomp.runtime.inputs import TensorSpec
from gpucomp.targets import cpu, resolve

TOLERANCE = 1e-3  # of the largest number, where results were recorded by code for another processor
PIECE_BYTES = 48  # of struct piece in templates/states.c.j2
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


@dataclass(frozen=True)
class Model:
    """What is exported: ``inputs`` and ``outputs`` are those of a caller, ``states`` are tensors that the program keeps, and
    ``layout`` is how it lies.
    """

    contents: Contents
    target: str
    inputs: list[CTensor]
    outputs: list[CTensor]
    layout: Layout
    states: list[CTensor]

    @property
    def plan(self) -> Plan:
        return self.contents.plan


def export_c(
    exe: Executable,
    folder: Path,
    *,
    name: str = "",
    model: str = "",
    elsewhere: Callable[[], Executable] | None = None,
    seed: int = 0,
) -> list[Path]:
    """Write ``exe``, compiled for a processor, as a C project into ``folder``. Returns the files that were written.

    ``name`` is the prefix of all names; by default it comes from ``model``, the name of the model's file. If this machine cannot
    run the code, the results of what ``elsewhere`` makes are recorded: the same model compiled for this machine. ``seed`` is that
    of the self-test's inputs.

    Raises ``UnsupportedError`` (GPC4030) with everything in the model that C code does not do; ``UsageError`` for a target that
    is no processor (GPC2061), a name (GPC2060), or a folder that has other files than an earlier export of this name (GPC2064)
    or cannot be written (GPC2005).
    """
    refuse(exe)
    contents = exe.contents()
    name = project_name(name, Path(model or contents.plan.model or "model").stem)
    require_place(folder, name)
    made = Model(
        contents,
        exe.target,
        members("INPUT", exe.inputs),
        members("OUTPUT", exe.outputs),
        _layout(contents),
        members("STATE", [TensorSpec(state.name, state.dtype, state.shape) for state in exe.states]),
    )
    counted = [size.dim.name for size in made.layout.open.sizes if size.counted] if made.layout.open else []
    records = recorded(exe, contents.plan, elsewhere, counted, seed)
    variables = _variables(made, records, name, model)
    binary: dict[str, bytes] = {
        f"{name}_kernels.o": _kernels(made, name),
        f"{name}_weights.bin": made.layout.weights,
        "selftest_data.bin": records.content,
    }
    texts = {file.format(name=name): _rendered(template, variables) for file, template in TEMPLATES.items()}
    for stem, symbol in ((f"{name}_weights", f"{name}_weights"), ("selftest_data", f"{name}_recorded")):
        digest = hashlib.sha256(binary[f"{stem}.bin"]).hexdigest()
        about = {"file": f"{stem}.bin", "symbol": symbol, "alignment": ALIGNMENT, "digest": digest}
        texts[f"{stem}.S"] = _rendered("data.S.j2", about)
    return _write(folder, name, binary | {file: text.encode() for file, text in texts.items()})


def _layout(contents: Contents) -> Layout:
    plan, opened = contents.plan, contents.open
    if opened is not None:
        example = opened.plan.at(opened.example)
        assert example is not None
        pointer = compiler_of(plan).pointer
        made = open_layout_of(opened.plan, opened.shapes.dims, example.plan, contents.weights, pointer)
        refuse_many(len(made.open.numbers) if made.open else 0)
        return made

    def total(at: int, size: int) -> int:
        return at + rounded(size) if at >= 0 else 0

    return layout_of(plan, contents.weights, *states.rows_of(plan, lambda buffer: buffer.nbytes, total))


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


def _kernel_names(plan: Plan, name: str) -> list[str]:
    return [f"{name}_kernel_{number}" for number in range(len(plan.kernels))]


def _kernels(model: Model, name: str) -> bytes:
    """The kernels as one object."""
    sources = {
        symbol: KernelSource(
            kernel.name,
            kernel.language,
            model.contents.sources[kernel.source],
            Geometry((1, 1, 1) if is_open(kernel.groups) else kernel.groups, kernel.items, kernel.shared),
        )
        for symbol, kernel in zip(_kernel_names(model.plan, name), model.plan.kernels, strict=True)
    }
    return cpu.linked(sources, resolve(model.target))


def _memory(model: Model, argument: Argument) -> str:
    """The expression of C for where something lies, in a run."""
    opened = model.layout.open
    match argument.place:
        case "IN_INPUT":
            return f"(const void *)read[{argument.number}]"
        case "IN_OUTPUT":
            return f"(const void *)written[{argument.number}]"
        case "IN_WEIGHTS":
            return f"context->weights + {argument.offset}"
        case "IN_TEMPORARY":
            assert opened is not None
            start = f"n[{model.layout.temporary_bytes}] + n[offsets_at(n)[{argument.number}]]"
            return f"memory_of(context) + (size_t)({start})"
        case _:
            return f"memory_of(context) + {argument.offset}"


def _copies(model: Model) -> list[dict[str, object]]:
    """What a run copies at its end: the number of the output, the expression of C for where it is, and its bytes."""
    opened = model.layout.open
    return [
        {
            "output": copy.output,
            "source": _memory(model, copy.source),
            "nbytes": f"(size_t)n[{copy.nbytes}]" if opened else f"{copy.nbytes}u",
        }
        for copy in model.layout.copies
    ]


def _addresses(model: Model, tensors: Sequence[CTensor], names: Sequence[str], *, written: bool) -> list[str]:
    """The expressions of C for where the inputs or outputs of the plan are: the caller's memory, or that of states."""
    layout = model.layout
    of_state = {(state.output if written else state.input): state for state in layout.states}
    member = {tensor.name: tensor.member for tensor in tensors}
    found = []
    for number, name in enumerate(names):
        state = of_state.get(number)
        own = f"{'outputs' if written else 'inputs'}->{member[name]}" if state is None else ""
        found.append(own or _state_address(layout, of_state[number], written=written))
    return found


def _state_address(layout: Layout, state: StateRow, *, written: bool) -> str:
    """The expression of C for the memory of a state that a run reads, or writes."""
    one, other = (state.other, state.offset) if written else (state.offset, state.other)
    place = f"{one}" if state.output < 0 else f"context->turn ? {other} : {one}"
    return (
        f"(memory_of(context) + n[{place}])"
        if layout.open
        else f"(memory_of(context) + {layout.counter_bytes} + ({place}))"
    )


def _pieces(model: Model) -> list[dict[str, object]]:
    """Of each state expressions of C: its valid part is ``count`` pieces of ``nbytes`` bytes, ``pitch`` apart, from ``at`` on."""
    plan, layout = model.plan, model.layout
    found: list[dict[str, object]] = []
    for tensor, row, state in zip(model.states, layout.states, plan.states, strict=True):
        shape = plan.buffers[plan.inputs[row.input]].shape
        extents = [f"(size_t){n}" for n in (shape_of(layout.open.numbers, shape) if layout.open else map(str, shape))]
        rows, axis = ["(size_t)context->rows"] if state.grows else [], max(state.axis, 0)
        capacity, inner = (
            [f"(size_t){state.capacity}"] * len(rows),
            [*extents[axis + len(rows) :], f"{tensor.itemsize}u"],
        )
        found.append(
            {
                "member": tensor.member,
                "itemsize": tensor.itemsize,
                "at": _state_address(layout, row, written=False),
                "count": " * ".join(extents[:axis]) or "1",
                "pitch": " * ".join([*capacity, *inner]),
                "nbytes": " * ".join([*rows, *inner]),
            }
        )
    return found


def _given(model: Model) -> list[tuple[CTensor, str]]:
    """The tensors whose memory a run checks, each with a condition of C: that it has elements."""
    found: list[tuple[CTensor, str]] = []
    for tensor in (*model.inputs, *model.outputs):
        if tensor.fixed and tensor.elements:
            found.append((tensor, ""))
        elif not tensor.fixed:
            assert model.layout.open is not None
            found.append((tensor, f" && n[{bytes_of(model.layout.open.numbers, tensor.dtype, _shape(model, tensor))}]"))
    return found


def _shape(model: Model, tensor: CTensor) -> Sequence[Any]:
    """The shape as the plan has it."""
    return _buffer(model, tensor).shape


def _buffer(model: Model, tensor: CTensor) -> Buffer:
    plan = model.plan
    if tensor.kind == "INPUT":
        return next(plan.buffers[p] for p in plan.inputs if plan.buffers[p].name == tensor.name)
    return plan.buffers[plan.outputs[plan.output_names.index(tensor.name)]]


def _of_sizes(model: Model) -> dict[str, object]:
    """What the templates show of a model whose sizes each run decides; of another one, that it has none."""
    opened = model.layout.open
    input_bytes = [f"{t.nbytes}u" for t in model.inputs] if opened is None else []
    output_bytes = [f"{t.nbytes}u" for t in model.outputs] if opened is None else []
    found: dict[str, object] = {"sized": opened is not None, "growing": False, "own": "", "sizes_parameter": ""}
    found |= {"asked_sizes": [], "input_bytes": input_bytes, "output_bytes": output_bytes, "output_extents": []}
    if opened is None:
        return found
    by_name = {s.dim.name: str(s.low) if s.counted else f"(size_t)sizes.{s.member}" for s in opened.sizes}
    for tensor in model.inputs:
        parts = [str(NAMED[tensor.dtype].nbytes), *(by_name.get(str(n), str(n)) for n in tensor.extents)]
        input_bytes.append(" * ".join(parts))
    for tensor in model.outputs:
        parts = [
            str(NAMED[tensor.dtype].nbytes),
            *(f"(size_t)shapes.{tensor.member}[{k}]" for k in range(len(tensor.extents))),
        ]
        output_bytes.append(" * ".join(parts))
    shapes: list[Sequence[Any]] = [model.plan.buffers[model.plan.inputs[s.input]].shape for s in model.layout.states]
    kept = sorted({n.number for shape in shapes for n in shape if isinstance(n, Place)})
    return found | {
        "own": "context->",
        "growing": opened.held is not None,
        "sizes_parameter": "const {name}_sizes *sizes, ",
        "asked_sizes": [size for size in opened.sizes if not size.counted],
        "held_sizes": kept,
        "output_extents": [shape_of(opened.numbers, _shape(model, tensor)) for tensor in model.outputs],
    }


def _stack(model: Model) -> int:
    """Of a run, and of the numbers of ``NAME_arena_size``."""
    kernels = max((stack_bytes(model.contents.sources[k.source]) for k in model.plan.kernels), default=1024)
    opened = model.layout.open
    own = 8 * (len(opened.numbers) if opened else 0) + PIECE_BYTES * len(model.states)
    return max(kernels, 1024 * math.ceil(own / 1024) + 1024 if own else 0)


def _variables(model: Model, records: Recorded, name: str, file: str) -> dict[str, object]:
    """What the templates show."""
    plan, layout = model.plan, model.layout
    compiler, processor = compiler_of(plan), needed(plan, model.contents.sources)
    given, of_sizes = _given(model), _of_sizes(model)
    return of_sizes | {
        "sizes_parameter": str(of_sizes["sizes_parameter"]).format(name=name),
        "name": name,
        "upper": name.upper(),
        "version": metadata.version("gpucomp"),
        "target": commented(plan.target if plan.target != "cpu" else f"cpu ({plan.arch})"),
        "model_told": f"`{commented(file)}`" if file else "a model",
        "precision": plan.precision,
        "alignment": ALIGNMENT,
        "inputs": model.inputs,
        "outputs": model.outputs,
        "states": model.states,
        "pieces": _pieces(model),
        "recorded": records,
        "exact": records.exact,
        "tolerance": TOLERANCE,
        "half_tolerance": HALF_TOLERANCE,
        "layout": layout,
        "arena_bytes": layout.arena_bytes(compiler.pointer) if layout.open is None else 0,
        "digest": ", ".join(f"0x{byte:02x}" for byte in layout.digest),
        "magic": f"0x{layout.digest[:8].hex()}",
        "kernels": _kernel_names(plan, name),
        "labels": [commented(kernel.label or kernel.family) for kernel in plan.kernels],
        "copies": _copies(model),
        "given": given,
        "read": _addresses(model, model.inputs, [plan.buffers[p].name for p in plan.inputs], written=False),
        "written": _addresses(model, model.outputs, plan.output_names, written=True),
        "stack_bytes": _stack(model),
        "check": checks(processor),
        "asked": asked(processor),
        "tiles": uses_tiles(plan, model.contents.sources),
        "compiler": compiler,
        "picture": picture_in(model.inputs) if layout.open is None else None,
        "shows_floats": model.outputs[0].dtype == "f32",
    }
