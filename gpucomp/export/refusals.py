"""What C code of a model does not do. All of it is told at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpucomp.artifact.plan import WEIGHT
from gpucomp.device.isa import isa_of
from gpucomp.errors import UnsupportedError, UsageError, quote, several
from gpucomp.export.stack import stack_bytes
from gpucomp.export.states import problems_of
from gpucomp.ir.types import STRING
from gpucomp.refusal import Refusal
from gpucomp.runtime.any_shape import AnyShapeExecutable
from gpucomp.runtime.artifact import Contents
from gpucomp.runtime.executable import Executable
from gpucomp.targets import MODULES

LARGEST_ARENA = {4: (1 << 31) - 1, 8: (1 << 48) - 1}  # bytes behind the context, by those of a pointer
LARGEST_WEIGHTS = 1 << 31  # bytes that code reaches from where it lies
LARGEST_STACK = 7 << 20  # bytes: less than GPUCOMP_POOL_STACK of templates/pool.h.j2
MOST_NUMBERS = (1 << 16) - 1  # that follow from sizes: the C program finds each by 16 bits
MOST_TASKS = (1 << 32) - 1  # of a launch


def refuse(exe: Executable) -> None:
    """Raise ``UnsupportedError`` (GPC4030) if ``exe`` does what C code does not, ``UsageError`` (GPC2061) if it is for no
    processor.
    """
    require_processor(exe.target)
    if isinstance(exe, AnyShapeExecutable) and isinstance(exe.program, Refusal):
        problems = [
            f"there is no program for any size ({exe.program.reason}): give one size with --shapes NAME:1x3x224x224"
        ]
    else:
        problems = [*_on_the_host(exe), *_of_the_plan(exe.contents()), *_of_states(exe)]
    if problems:
        more = f" (and {several(len(problems) - 1, 'other problem')})" if len(problems) > 1 else ""
        raise UnsupportedError(
            f"the model cannot be C code: {problems[0]}{more}", problems=tuple(problems), code="GPC4030"
        )


def refuse_many(numbers: int) -> None:
    """Raise ``UnsupportedError`` (GPC4030) for too many numbers that follow from the sizes of a run."""
    if numbers > MOST_NUMBERS:
        problem = f"{numbers} numbers follow from its sizes, and at most {MOST_NUMBERS} are supported"
        raise UnsupportedError(f"the model cannot be C code: {problem}", problems=(problem,), code="GPC4030")


def require_processor(target: str) -> None:
    """Raise ``UsageError`` (GPC2061) if ``target`` is of a kind that is no processor."""
    if target.partition(":")[0] in MODULES.keys() - {"cpu"}:
        raise UsageError(
            f"C code for {target}: only processors have it, such as cpu:x86-64-v3 or cpu:cortex-a72", code="GPC2061"
        )


def require_place(folder: Path, name: str) -> None:
    """Raise ``UsageError`` if ``folder`` has files, and no earlier export of this name (GPC2064), or cannot be read (GPC2005)."""
    header = folder / f"{name}.h"
    try:
        if not folder.exists() or not any(folder.iterdir()):
            return
        begins = header.read_bytes()[:200] if header.is_file() else b""
    except OSError as error:
        raise UsageError(f"cannot write {quote(folder)}: {error.strerror}", code="GPC2005") from None
    if not begins.startswith(f"/* {name}: a neural network as machine code for ".encode()):
        raise UsageError(
            f"{quote(folder)} has files, and no C project {name} that gpucomp wrote: give a new folder, or an empty one",
            code="GPC2064",
        )


def _on_the_host(exe: Executable) -> Iterator[str]:
    for launch in exe.contents().plan.launches:
        if launch.kernel < 0:
            node = f" at node {quote(launch.nodes[0])}" if launch.nodes else ""
            yield f"{launch.host}{node} runs on the host, in Python"
    for operator, node in exe.dynamic_operators:
        yield f"{operator} at node {quote(node)} runs on the host, in Python: its shape depends on values"


def _of_states(exe: Executable) -> Iterator[str]:
    contents = exe.contents()
    yield from problems_of(contents.plan, one_size=contents.open is None)
    if not exe.outputs:
        yield "it has no outputs but its states"


def _of_the_plan(contents: Contents) -> Iterator[str]:
    plan = contents.plan
    named = {*plan.inputs, *plan.outputs}
    for position, buffer in enumerate(plan.buffers):
        if buffer.dtype == STRING.name and (position in named or buffer.kind == WEIGHT):
            yield f"{quote(buffer.name)} is of strings"
    weights = sum(buffer.nbytes for buffer in plan.buffers if buffer.kind == WEIGHT)
    if weights >= LARGEST_WEIGHTS:
        yield f"its weights have {weights} bytes, and at most {LARGEST_WEIGHTS - 1} are supported"
    most = LARGEST_ARENA[isa_of(frozenset(plan.features)).pointer]
    if plan.arena_bytes > most:
        yield f"it takes {plan.arena_bytes} bytes beside its weights, and at most {most} are supported"
    if any(isinstance(kernel.groups[0], int) and kernel.groups[0] >= MOST_TASKS for kernel in plan.kernels):
        yield "a kernel has too many tasks"
    if any(stack_bytes(contents.sources[kernel.source]) > LARGEST_STACK for kernel in plan.kernels):
        yield f"a kernel takes more than {LARGEST_STACK} bytes of stack"
