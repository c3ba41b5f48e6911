"""The passes that run after a schedule is chosen for a kernel and before it is rendered. ``lowering`` lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from gpucomp.errors import VerifyError
from gpucomp.ir.graph import Value
from gpucomp.ir.passes import Form, PassRecord, run_passes
from gpucomp.ir.printer import Namer
from gpucomp.kernel import Kernel
from gpucomp.kernel.passes.pack_weights import Packed, pack, packed_step
from gpucomp.kernel.step import HostStep, KernelStep
from gpucomp.kernel.verify import kernel_faults
from gpucomp.lazy_dataclass import dataclass
from gpucomp.schedule.choose import Choice


@dataclass(frozen=True, eq=False)
class Scheduled:
    """A step with the schedule that was chosen for its kernel.

    kernel   the kernel to render, at first the step's kernel. Parameters of bytes or f16 may be declared as words of them
    packed   the result of packing a constant operand; the step does not have the packed constant yet
    """

    step: KernelStep
    choice: Choice
    kernel: Kernel
    packed: Packed | None = None

    def launched(self, made: dict[tuple[object, ...], Value]) -> KernelStep:
        """The step with this kernel and its packed constant. ``made`` has the constants that steps share."""
        step = packed_step(self.step, self.packed, made) if self.packed else self.step
        return step if step.kernel is self.kernel else replace(step, kernel=self.kernel)


Program = list[Scheduled | HostStep]


@dataclass(frozen=True, slots=True)
class ScheduledPass:
    """Changes the kernel to render. ``run`` returns the same object if it changes nothing."""

    name: str
    run: Callable[[Scheduled], Scheduled]


def pack_weights(one: Scheduled) -> Scheduled:
    """Packs a constant operand into the layout that the engine reads.

    Takes  a contraction with a constant operand, for which the chosen engine and schedule require a ``Packing``
    Gives  the contraction with the operand as a plain load of one new constant, its last input
    Leaves kernels whose engine requires no packing
    """
    if one.choice.packing is None:
        return one
    packed = pack(one.kernel, one.choice.packing)
    return replace(one, kernel=packed.kernel, packed=packed)


def pack_bytes(one: Scheduled) -> Scheduled:
    """Reads bytes as words of four, and f16 as words of two, for engines that multiply whole words.

    Takes  a contraction of bytes or of f16, for an engine with ``in_words``
    Gives  the contraction with ``PackedInt8`` or ``PackedF16`` as its body: a step of the depth is an i32 or a u32. Parameters
           that are read in whole words are declared as such
    Leaves other types and engines
    """
    kernel = one.choice.family.in_words(one.kernel)
    return one if kernel is one.kernel else replace(one, kernel=kernel)


def order_depth(one: Scheduled) -> Scheduled:
    """Puts the axes of a contraction's depth in memory order, if that allows wider accesses to the left operand.

    Takes  a contraction for an engine with ``in_memory_order``
    Gives  the contraction with the axes ``k`` in another order: for a planar image, (row, column, channel) becomes
           (channel, row, column)
    Leaves depths that are in this order, and engines that depend on the order of a window
    """
    kernel = one.choice.family.in_memory_order(one.kernel)
    return one if kernel is one.kernel else replace(one, kernel=kernel)


def run_scheduled_passes(
    program: Sequence[Scheduled | HostStep],
    passes: Sequence[ScheduledPass],
    observer: Callable[[PassRecord], None] | None = None,
    watch: Callable[[str, Program], None] | None = None,
) -> Program:
    """``program`` after all ``passes``. Steps that share a kernel still share one afterwards.

    For ``observer`` and ``watch`` see ``run_passes``.
    """
    form = Form("scheduled", _text, _verify, _count, "chosen", "scheduled-")

    def bound(one: ScheduledPass) -> Callable[[Program], Program]:
        def run(before: Program) -> Program:
            found: dict[Kernel, Scheduled] = {}
            for item in before:
                if isinstance(item, Scheduled) and item.kernel not in found:
                    found[item.kernel] = one.run(item)
            if all(kernel is item.kernel for kernel, item in found.items()):
                return before
            return [i if isinstance(i, HostStep) else replace(found[i.kernel], step=i.step) for i in before]

        return run

    return run_passes(list(program), [(one.name, bound(one)) for one in passes], form, observer, watch)


def _count(program: Program) -> int:
    return len({item.kernel for item in program if isinstance(item, Scheduled)})


def _text(program: Program, namer: Namer) -> str:
    return "\n".join(line for item in program for line in _lines(item)) + "\n"


def _lines(item: Scheduled | HostStep) -> Iterator[str]:
    if isinstance(item, HostStep):
        yield f"{item.name}: host {item.node.op.name}"
        return
    schedule = " ".join(f"{name}={value}" for name, value in item.choice.schedule.items())
    yield f"{item.step.name}: {item.choice.family.title} {schedule}".rstrip()
    yield from (f"  {line}" for line in item.kernel.text.splitlines())


def _verify(program: Program) -> None:
    """Raise ``VerifyError`` if a load or a store is invalid, or if parameters differ in size from the bound values."""
    for item in program:
        if isinstance(item, Scheduled) and (fault := next(_faults(item), None)):
            raise VerifyError(f"{item.step.name}: {fault}")


def _faults(item: Scheduled) -> Iterator[str]:
    yield from kernel_faults(item.kernel)
    given = item.packed.kernel if item.packed is not None else item.step.kernel
    if len(item.kernel.params) != len(given.params) or item.kernel.outputs != given.outputs:
        yield f"{len(item.kernel.params)} parameters, but {len(given.params)} are bound"
    for number, (type, bound) in enumerate(zip(item.kernel.params, given.params, strict=False)):
        if type.nbytes != bound.nbytes or (number in given.results and type != bound):
            yield f"x{number} is {type}, but {bound} is bound"
