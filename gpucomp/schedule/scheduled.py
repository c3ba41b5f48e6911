"""From the schedule that was chosen for a kernel to the kernel that is rendered. ``lowering`` has these passes in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpucomp.errors import VerifyError
from gpucomp.ir.graph import Value
from gpucomp.ir.passes import Form, PassRecord, run_passes
from gpucomp.ir.printer import Namer
from gpucomp.kernel import Kernel
from gpucomp.kernel.passes.pack_weights import Packed, pack, packed_step
from gpucomp.kernel.step import HostStep, KernelStep
from gpucomp.kernel.verify import kernel_faults
from gpucomp.schedule.choose import Choice


@dataclass(frozen=True, eq=False)
class Scheduled:
    """A step with the schedule that was chosen for its kernel.

    kernel   what is rendered: at first the step's kernel. Parameters of bytes may be seen as words of four.
    packed   the kernel after its constant operand was packed; the step does not have that constant yet
    """

    step: KernelStep
    choice: Choice
    kernel: Kernel
    packed: Packed | None = None

    def launched(self, made: dict[tuple[object, ...], Value]) -> KernelStep:
        """The step with this kernel, and the packed constant as an input. ``made`` keeps constants that several steps share."""
        step = packed_step(self.step, self.packed, made) if self.packed else self.step
        return step if step.kernel is self.kernel else replace(step, kernel=self.kernel)


Program = list[Scheduled | HostStep]


@dataclass(frozen=True, slots=True)
class ScheduledPass:
    """Changes the kernel that is rendered. Returns the same object where it changes nothing."""

    name: str
    run: Callable[[Scheduled], Scheduled]


def pack_weights(one: Scheduled) -> Scheduled:
    """Lays a constant operand out as the engine reads it.

    Takes  a contraction with a constant operand, for which the chosen engine and schedule want a ``Packing``
    Gives  the contraction with the operand as a plain load of one new constant, its last input
    Leaves kernels whose engine reads its operands as they are
    """
    if one.choice.packing is None:
        return one
    packed = pack(one.kernel, one.choice.packing)
    return replace(one, kernel=packed.kernel, packed=packed)


def pack_bytes(one: Scheduled) -> Scheduled:
    """Reads bytes by words of four, for engines that multiply four bytes at once.

    Takes  a contraction of bytes along a run of the depth, for an engine that has ``in_words``
    Gives  the contraction with ``PackedInt8`` as its body: a step of the depth is an i32. Parameters that are read by whole
           words are seen as i32.
    Leaves other types and engines
    """
    kernel = one.choice.family.in_words(one.kernel)
    return one if kernel is one.kernel else replace(one, kernel=kernel)


def order_depth(one: Scheduled) -> Scheduled:
    """Puts the axes of a contraction's depth in the order of memory.

    Takes  a contraction that gets wider accesses to its left operand by that, for an engine that has ``in_memory_order``
    Gives  the contraction with the axes ``k`` in another order: (row, column, channel) becomes (channel, row, column) where
           the image is planar
    Leaves depths that are in this order, and engines that walk along windows
    """
    kernel = one.choice.family.in_memory_order(one.kernel)
    return one if kernel is one.kernel else replace(one, kernel=kernel)


def run_scheduled_passes(
    program: Sequence[Scheduled | HostStep],
    passes: Sequence[ScheduledPass],
    observer: Callable[[PassRecord], None] | None = None,
    watch: Callable[[str, Program], None] | None = None,
) -> Program:
    """``program`` after every one of ``passes``; steps that share a kernel go on sharing one. ``observer`` and ``watch``: see
    ``run_passes``."""
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
    """Raise ``VerifyError`` unless loads and stores are within the parameters, and these take the bytes of what is bound."""
    for item in program:
        if isinstance(item, Scheduled) and (fault := next(_faults(item), None)):
            raise VerifyError(f"{item.step.name}: {fault}")


def _faults(item: Scheduled) -> Iterator[str]:
    yield from kernel_faults(item.kernel)
    given = item.packed.kernel if item.packed is not None else item.step.kernel
    if len(item.kernel.params) != len(given.params) or item.kernel.outputs != given.outputs:
        yield f"{len(item.kernel.params)} parameters where {len(given.params)} are bound"
    for number, (type, bound) in enumerate(zip(item.kernel.params, given.params, strict=False)):
        if type.nbytes != bound.nbytes or (number in given.results and type != bound):
            yield f"x{number} is a {type} where a {bound} is bound"
