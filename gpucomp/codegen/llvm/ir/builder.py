"""Builds textual LLVM IR one instruction at a time: typed values with operators, loops and branches.

A ``Value`` is a scalar or a vector of lanes. An operation on both kinds first splats the scalar. Mutable variables are
stack slots, which LLVM's SROA turns back into registers.

A size that each run decides (``Size``) can stand where a whole number can. The function then has one more argument, ``sizes``:
an array of i64 with what ``Code.sizes`` lists. Each is loaded once, in the entry block.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gpucomp.codegen.llvm.ir import pieces
from gpucomp.codegen.llvm.ir.types import I1, I64, PTR, Number, Type, spell
from gpucomp.ir.size import Size
from gpucomp.kernel.run_sizes import MAGIC, SHIFT, SIZE, RunSize

NEVER_KNOWN = ("load ", "call ", "phi ", "atomicrmw ")  # the same text may give another value the next time


@dataclass(eq=False, slots=True)
class Value:
    """One SSA value or constant, which does not change. It is not frozen: making one would take three times as long.

    Arithmetic is floating-point, or wraps on integers. Comparisons are signed on integers and ordered on floats.
    """

    code: Code
    text: str
    type: Type

    def _lift(self, other: Value | Number) -> tuple[Value, Value]:
        if not isinstance(other, Value):
            return self, self.code.const(other, self.type)
        if self.type.lanes == other.type.lanes:
            return self, other
        if self.type.lanes:
            return self, self.code.splat(other, self.type.lanes)
        return self.code.splat(self, other.type.lanes), other

    def _binary(self, floating: str, integer: str, other: Value | Number, flags: str = "") -> Value:
        a, b = self._lift(other)
        assert a.type == b.type, f"{a.type} and {b.type}"
        known = a.text[0] != "%" or b.text[0] != "%"
        if known and a.type is I64 and (folded := _fold(integer, a, b)) is not None:
            return folded
        op = f"{floating}{flags}" if a.type.is_float else integer
        return self.code.let(f"{op} {a.type} {a.text}, {b.text}", a.type)

    def __add__(self, other: Value | Number) -> Value:
        return self._binary("fadd", "add", other)

    def __sub__(self, other: Value | Number) -> Value:
        return self._binary("fsub", "sub", other)

    def __mul__(self, other: Value | Number) -> Value:
        return self._binary("fmul", "mul", other)

    def __truediv__(self, other: Value | Number) -> Value:
        return self._binary("fdiv", "sdiv", other)

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.code.let(f"fneg {self.type} {self.text}", self.type)
        return self.code.const(0, self.type) - self

    def __and__(self, other: Value | Number) -> Value:
        return self._binary("", "and", other)

    def __or__(self, other: Value | Number) -> Value:
        return self._binary("", "or", other)

    def __xor__(self, other: Value | Number) -> Value:
        return self._binary("", "xor", other)

    def __invert__(self) -> Value:
        return self ^ (True if self.type.scalar == "i1" else -1)

    def __lshift__(self, other: Value | int) -> Value:
        return self._binary("", "shl", other)

    def integer_op(self, op: str, other: Value | Number) -> Value:
        """``lshr``, ``ashr``, ``udiv``, ``urem``, ``srem`` ..."""
        return self._binary("", op, other)

    def compare(self, predicate: str, other: Value | Number) -> Value:
        """``predicate`` is one of ``icmp`` or ``fcmp``: ``slt``, ``olt``, ``uno`` ..."""
        a, b = self._lift(other)
        assert a.type == b.type, f"{a.type} and {b.type}"
        op = "fcmp" if a.type.is_float else "icmp"
        return self.code.let(f"{op} {predicate} {a.type} {a.text}, {b.text}", a.type.of("i1"))

    def _ordered(self, name: str, other: Value | Number) -> Value:
        return self.compare(("o" if self.type.is_float else "s") + name, other)

    def __lt__(self, other: Value | Number) -> Value:
        return self._ordered("lt", other)

    def __le__(self, other: Value | Number) -> Value:
        return self._ordered("le", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self._ordered("gt", other)

    def __ge__(self, other: Value | Number) -> Value:
        return self._ordered("ge", other)

    def equals(self, other: Value | Number) -> Value:
        return self.compare("oeq" if self.type.is_float else "eq", other)

    def differs(self, other: Value | Number) -> Value:
        return self.compare("une" if self.type.is_float else "ne", other)

    def is_nan(self) -> Value:
        return self.compare("uno", self)

    def bitcast(self, scalar: str) -> Value:
        return self.code.convert("bitcast", self, scalar)

    def intrinsic(self, name: str, *others: Value | Number, flags: str = "") -> Value:
        """``llvm.<name>`` on values of this type; ``flags`` are LLVM's of fast arithmetic."""
        args = [self]
        for other in others:
            args.append(other if isinstance(other, Value) else self.code.const(other, self.type))
        lanes = max(a.type.lanes for a in args)
        args = [self.code.splat(a, lanes) for a in args]
        inner = ", ".join(f"{a.type} {a.text}" for a in args)
        type = args[0].type
        call = f"call {flags} {type}" if flags else f"call {type}"
        return self.code.let(f"{call} @llvm.{name}.{type.suffix}({inner})", type, pure=True)

    def muladd(self, factor: Value | Number, addend: Value | Number) -> Value:
        """``self * factor + addend``, fused if the processor can."""
        return self.intrinsic("fmuladd", factor, addend)


FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "udiv": operator.floordiv,
    "urem": operator.mod,
}


def _whole(value: Value) -> int | None:
    """The number that a constant i64 is; ``None`` for any other value."""
    return int(value.text) if value.type is I64 and value.text[0] != "%" else None


def _steps(first: Value, last: Value, by: Value) -> int | None:
    """How many steps a loop of known numbers has; ``None`` if one of them is not known."""
    start, stop, step = _whole(first), _whole(last), _whole(by)
    return None if start is None or stop is None or step is None else len(range(start, stop, step))


def _fold(op: str, a: Value, b: Value) -> Value | None:
    """Folds constant index arithmetic, so that strides and unrolled loops stay constant."""
    x, y = _whole(a), _whole(b)
    if x is not None and y is not None and op in FOLDED and (op[0] != "u" or (x >= 0 and y > 0)):
        return a.code.integer(FOLDED[op](x, y))
    if (y == 0 and op in {"add", "sub"}) or (y == 1 and op in {"mul", "udiv", "sdiv"}):
        return a
    if (x == 0 and op == "add") or (x == 1 and op == "mul"):
        return b
    if (0 in (x, y) and op == "mul") or (x == 0 and op in {"udiv", "urem"}) or (y == 1 and op == "urem"):
        return a.code.integer(0)
    return None


@dataclass(frozen=True)
class Slot:
    """A mutable variable on the stack."""

    code: Code
    address: Value
    type: Type

    def get(self) -> Value:
        return self.code.load(self.address, self.type)

    def set(self, value: Value) -> None:
        self.code.store(value, self.address)


@dataclass
class Captured:
    """Lines that are kept aside: the label they start with, and the block they end in."""

    label: str
    lines: list[str]
    exit: str = ""


class Code:
    """The body of one function, in the order it is written.

    native_half    the processor converts between f16 and f32
    native_scale   it multiplies 16 lanes of f32 by powers of two
    native_masks   it loads some lanes of 32 bits or more, where others have branches
    native_bf16    it rounds f32 to bf16, but turns denormals into zero; only for callers that accept that
    """

    def __init__(
        self, name: str, *, native_half: bool = False, native_scale: bool = False, native_masks: bool = False
    ) -> None:
        self.name = name
        self.native_half, self.native_scale, self.native_masks = native_half, native_scale, native_masks
        self.native_bf16 = False
        self._tables: set[str] = set()
        self._sizes: dict[RunSize, Value] = {}
        self._numbers: dict[RunSize, int] = {}
        self._lines: list[str] = []
        self._entry: list[str] = []
        self._counter = 0
        self.globals: list[str] = []
        self.block = "entry"
        # values whose instruction dominates what comes next, by its text; and which are known only within each open block
        self._known: dict[str, Value] = {}
        self._scopes: list[list[str]] = [[]]

    def _name(self, prefix: str = "v") -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def emit(self, text: str) -> None:
        self._lines.append(f"  {text}")

    def let(self, text: str, type: Type, *, pure: bool = False) -> Value:
        """The result of an instruction. The same instruction on the same values is written once where the first one dominates.

        LLVM finds such values too, but every pass before has them twice. ``pure`` says so of a call.
        """
        pure = pure or not text.startswith(NEVER_KNOWN)
        if pure and (known := self._known.get(text)) is not None:
            return known
        self._counter += 1
        name = f"%v{self._counter}"
        self._lines.append(f"  {name} = {text}")
        made = Value(self, name, type)
        if pure:
            self._known[text] = made
            self._scopes[-1].append(text)
        return made

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """What becomes known in the block is forgotten behind it: control may not have come through it."""
        self._scopes.append([])
        yield
        self._forget()
        self._scopes.pop()

    def _forget(self) -> None:
        for text in self._scopes[-1]:
            del self._known[text]
        self._scopes[-1].clear()

    def argument(self, name: str, type: Type) -> Value:
        return Value(self, f"%{name}", type)

    @property
    def sizes(self) -> tuple[RunSize, ...]:
        """What the array ``sizes`` has to hold."""
        return tuple(self._numbers)

    def share_sizes(self, caller: Code) -> None:
        """Reads sizes from the array that ``caller`` is given."""
        self._numbers = caller._numbers

    def size(self, size: Size, kind: str = SIZE) -> Value:
        """A size of the run, or a number of its ``kind``, as an i64."""
        wanted = RunSize(size, kind)
        if wanted not in self._sizes:
            number = self._numbers.setdefault(wanted, len(self._numbers))
            self._entry += [
                f"  %size{number}.at = getelementptr i64, ptr %sizes, i64 {number}",
                f"  %size{number} = load i64, ptr %size{number}.at, !invariant.load !{{}}",
            ]
            self._sizes[wanted] = Value(self, f"%size{number}", I64)
        return self._sizes[wanted]

    def divided(self, value: Value, divisor: Size) -> Value:
        """``value`` divided by a positive size, rounded down. ``value`` is at least 0 and less than 2**31.

        A product and a shift: both numbers are arguments, see ``RunSize``.
        """
        wide = self.convert("zext" if value.type.bits < 64 else "sext", value, "i64")
        factor = self.size(divisor, MAGIC) & 0xFFFFFFFF  # tells LLVM that a product of 32-bit numbers is enough
        quotient = ((wide & 0x7FFFFFFF) * factor).integer_op("lshr", self.size(divisor, SHIFT))
        return self.convert("trunc", quotient, value.type.scalar)

    def const(self, value: Number, type: Type) -> Value:
        if isinstance(value, Size):
            scalar = self.size(value)
            if type.is_float:
                scalar = self.convert("sitofp", scalar, type.scalar)
            elif type.bits < 64:
                scalar = self.convert("trunc", scalar, type.scalar)
            return self.splat(scalar, type.lanes) if type.lanes else scalar
        text = spell(value, type.scalar)
        if type.lanes:
            text = f"splat ({type.scalar} {text})"
        return Value(self, text, type)

    def integer(self, value: int | Size) -> Value:
        return Value(self, str(value), I64) if value.__class__ is int else self.const(value, I64)

    def vector(self, values: Sequence[Number], scalar: str) -> Value:
        """A constant vector, with one value per lane."""
        inner = ", ".join(f"{scalar} {spell(v, scalar)}" for v in values)
        return Value(self, f"<{inner}>", Type(scalar, len(values)))

    def splat(self, value: Value, lanes: int) -> Value:
        if value.type.lanes == lanes:
            return value
        assert value.type.lanes == 0, f"{value.type} to {lanes} lanes"
        if not value.text.startswith("%"):
            return Value(self, f"splat ({value.type} {value.text})", Type(value.type.scalar, lanes))
        type = Type(value.type.scalar, lanes)
        one = self.let(f"insertelement {type} poison, {value.type} {value.text}, i32 0", type)
        return self.let(f"shufflevector {type} {one.text}, {type} poison, <{lanes} x i32> zeroinitializer", type)

    def shuffle(self, a: Value, b: Value, order: Sequence[int]) -> Value:
        inner = ", ".join(f"i32 {i}" for i in order)
        type = Type(a.type.scalar, len(order))
        text = f"shufflevector {a.type} {a.text}, {b.type} {b.text}, <{len(order)} x i32> <{inner}>"
        return self.let(text, type)

    def extract(self, value: Value, lane: int) -> Value:
        return self.let(f"extractelement {value.type} {value.text}, i32 {lane}", Type(value.type.scalar))

    def convert(self, op: str, value: Value, scalar: str) -> Value:
        """Converts to ``scalar`` by ``sext``, ``trunc``, ``bitcast``, ``sitofp`` ...; does nothing if it is that type."""
        if value.type.scalar == scalar:
            return value
        return self.let(f"{op} {value.type} {value.text} to {value.type.of(scalar)}", value.type.of(scalar))

    def narrowed(self, value: Value, scalar: str) -> Value:
        """An f64 rounded to ``scalar``. The rounding is not merged with a following one.

        LLVM may merge f64 to f32 to f16 into one conversion, which is a call of a C library without AVX512-FP16.
        """
        if value.type.scalar == scalar:
            return value
        return self.convert("fptrunc", value, scalar).intrinsic("arithmetic.fence")

    def select(self, condition: Value, then: Value | Number, otherwise: Value | Number) -> Value:
        if not isinstance(then, Value):
            assert isinstance(otherwise, Value)
            then = self.const(then, otherwise.type)
        if not isinstance(otherwise, Value):
            otherwise = self.const(otherwise, then.type)
        lanes = max(condition.type.lanes, then.type.lanes, otherwise.type.lanes)
        then, otherwise = self.splat(then, lanes), self.splat(otherwise, lanes)
        assert then.type == otherwise.type, f"{then.type} and {otherwise.type}"
        inner = f"select {condition.type} {condition.text}, {then.type} {then.text}, {otherwise.type} {otherwise.text}"
        return self.let(inner, then.type)

    # memory

    def gep(self, base: Value, offset: Value | int | Size, scalar: str) -> Value:
        """``base + offset`` elements of ``scalar``; a vector of offsets gives a vector of pointers."""
        at = offset if isinstance(offset, Value) else self.integer(offset)
        if at.text == "0":
            return base
        type = Type("ptr", at.type.lanes)
        return self.let(f"getelementptr {scalar}, ptr {base.text}, {at.type} {at.text}", type)

    def load(self, address: Value, type: Type, align: int = 0) -> Value:
        return self.let(f"load {type}, ptr {address.text}{f', align {align}' if align else ''}", type)

    def store(self, value: Value, address: Value, align: int = 0) -> None:
        self.emit(f"store {value.type} {value.text}, ptr {address.text}{f', align {align}' if align else ''}")

    def slot(self, type: Type) -> Slot:
        return Slot(self, self.stack(str(type)), type)

    def stack(self, type: str, align: int = 0) -> Value:
        """Space for one ``type`` in the stack frame. It is allocated in the entry block, wherever this is called."""
        name = f"%{self._name('s')}"
        self._entry.append(f"  {name} = alloca {type}{f', align {align}' if align else ''}")
        return Value(self, name, PTR)

    def table(self, name: str, values: Sequence[Number], scalar: str) -> Value:
        """A constant array beside the function. It is written once, even if several calls request it."""
        symbol = f"@{self.name}.{name}"
        if symbol not in self._tables:
            self._tables.add(symbol)
            inner = ", ".join(f"{scalar} {spell(v, scalar)}" for v in values)
            self.globals.append(f"{symbol} = internal constant [{len(values)} x {scalar}] [{inner}], align 64")
        return Value(self, symbol, PTR)

    def gather(self, base: Value, offset: Value, scalar: str, mask: Value | None = None) -> Value:
        """``base[offset]`` for each lane of ``offset``; lanes outside ``mask`` are not read and give zero."""
        address = self.gep(base, offset, scalar)
        lanes = offset.type.lanes
        if not lanes:
            return self.load(address, Type(scalar))
        type = Type(scalar, lanes)
        chosen = self.splat(self.const(True, I1) if mask is None else mask, lanes)
        inner = (
            f"{address.type} {address.text}, i32 {max(type.bits // 8, 1)}, "
            f"{chosen.type} {chosen.text}, {type} zeroinitializer"
        )
        return self.let(f"call {type} @llvm.masked.gather.{type.suffix}.v{lanes}p0({inner})", type)

    def scatter(self, value: Value, base: Value, offset: Value, mask: Value | None = None) -> None:
        """``base[offset] = value``, for each lane of ``offset`` inside ``mask``."""
        address = self.gep(base, offset, value.type.scalar)
        chosen = self.splat(self.const(True, I1) if mask is None else mask, value.type.lanes)
        inner = (
            f"{value.type} {value.text}, {address.type} {address.text}, i32 {max(value.type.bits // 8, 1)}, "
            f"{chosen.type} {chosen.text}"
        )
        self.emit(f"call void @llvm.masked.scatter.{value.type.suffix}.v{value.type.lanes}p0({inner})")

    def masked_load(self, address: Value, type: Type, mask: Value) -> Value:
        """The lanes of ``mask``; the others are zero."""
        if count := self._first(mask):
            return pieces.loaded(address, type, count)
        inner = f"ptr {address.text}, i32 {max(type.bits // 8, 1)}, {mask.type} {mask.text}, {type} zeroinitializer"
        return self.let(f"call {type} @llvm.masked.load.{type.suffix}.p0({inner})", type)

    def masked_store(self, value: Value, address: Value, mask: Value) -> None:
        """Stores the lanes of ``mask``.

        Without AVX-512 the first lanes are stored in pieces: see ``gpucomp.codegen.llvm.ir.pieces``.

        Works around a fault of LLVM 22 for AVX-512: if it knows that a mask has one lane, it turns a masked store of
        truncated integers into a store of a whole 32-bit integer, four bytes instead of one or two. A constant mask
        with one lane therefore becomes a store of that lane, and any other mask of narrow values is hidden from LLVM's
        analysis.
        """
        if mask.text.startswith("<") and mask.text.count("true") == 1:
            lane = mask.text.split(",").index(next(part for part in mask.text.split(",") if "true" in part))
            self.store(
                self.extract(value, lane), self.gep(address, lane, value.type.scalar), max(value.type.bits // 8, 1)
            )
            return
        if count := self._first(mask):
            pieces.store(value, address, count)
            return
        if self.native_scale and value.type.bits < 32 and not mask.text.startswith("<"):
            mask = self._hidden(mask)
        inner = (
            f"{value.type} {value.text}, ptr {address.text}, i32 {max(value.type.bits // 8, 1)}, "
            f"{mask.type} {mask.text}"
        )
        self.emit(f"call void @llvm.masked.store.{value.type.suffix}.p0({inner})")

    def _first(self, mask: Value) -> int:
        """How many lanes ``mask`` has, if these are known to be the first ones and pieces are faster than a mask, otherwise 0."""
        return 0 if self.native_scale else pieces.first_lanes(mask.text)

    def _hidden(self, mask: Value) -> Value:
        """``mask`` as a value that LLVM knows nothing of."""
        lanes = mask.type.lanes
        bits, register = Type(f"i{lanes}"), Type(f"i{max(lanes, 8)}")
        number = self.let(f"bitcast {mask.type} {mask.text} to {bits}", bits)
        if bits != register:
            number = self.convert("zext", number, register.scalar)
        hidden = self.let(f'call {register} asm "", "=r,0"({register} {number.text})', register)
        if bits != register:
            hidden = self.let(f"trunc {register} {hidden.text} to {bits}", bits)
        return self.let(f"bitcast {bits} {hidden.text} to {mask.type}", mask.type)

    def opaque(self, pointer: Value) -> Value:
        """``pointer`` as a value that LLVM knows nothing of: it keeps it in a register instead of computing it from others."""
        return self.let(f'call ptr asm "", "=r,0"(ptr {pointer.text})', PTR)

    def prefetch(self, address: Value, *, far: bool = False, write: bool = False) -> None:
        """Prefetches the cache line at ``address``, which may be outside the program's memory.

        ``far`` prefetches into the second-level cache, ``write`` for writing.
        """
        self.emit(f"call void @llvm.prefetch.p0(ptr {address.text}, i32 {int(write)}, i32 {2 if far else 3}, i32 1)")

    def arrive(self, address: Value) -> Value:
        """How many threads have arrived at the i64 at ``address`` before. What these have written can then be read."""
        return self.let(f"atomicrmw add ptr {address.text}, i64 1 acq_rel, align 8", I64)

    def fence(self) -> None:
        """Keeps the optimizer from moving loads across this point. It produces no instruction."""
        self.emit('call void asm sideeffect "", "~{memory}"()')

    # control

    def label(self, name: str) -> None:
        """Begins a block, to which any jump may lead."""
        self._forget()
        self._begin(name)

    def _begin(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self.block = name

    def jump(self, name: str) -> None:
        self.emit(f"br label %{name}")

    def branch(self, condition: Value, then: str, otherwise: str) -> None:
        self.emit(f"br i1 {condition.text}, label %{then}, label %{otherwise}")

    @contextmanager
    def loop(self, start: Value | int | Size, stop: Value | int | Size, step: int | Size = 1) -> Iterator[Value]:
        """``for (i = start; i < stop; i += step)`` on i64. One step of known numbers is written without a loop."""
        first = start if isinstance(start, Value) else self.integer(start)
        last = stop if isinstance(stop, Value) else self.integer(stop)
        by = self.integer(step)
        steps = _steps(first, last, by)
        if steps == 1:
            yield first
            return
        enter = self.const(True, I1) if steps else first < last
        name = self._name("l")
        before = self.block
        self.branch(enter, f"{name}.body", f"{name}.end")
        self._begin(f"{name}.body")
        counter, following = Value(self, f"%{name}.i", I64), Value(self, f"%{name}.next", I64)
        place = len(self._lines)
        self._lines.append("")  # for the phi, whose second source is known at the end
        with self._scope():
            yield counter
            latch = self.block
            self.emit(f"{following.text} = add nuw nsw i64 {counter.text}, {by.text}")
            again = following < last
        self._lines[place] = f"  {counter.text} = phi i64 [ {first.text}, %{before} ], [ {following.text}, %{latch} ]"
        self.branch(again, f"{name}.body", f"{name}.end")
        self._begin(f"{name}.end")

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Runs the block if the scalar ``condition`` holds."""
        name = self._name("w")
        self.branch(condition, f"{name}.then", f"{name}.end")
        self._begin(f"{name}.then")
        with self._scope():
            yield
        self.jump(f"{name}.end")
        self._begin(f"{name}.end")

    @contextmanager
    def repeat(self) -> Iterator[list[Value]]:
        """Runs the block once, and repeats it while the last condition that it appended holds."""
        name = self._name("r")
        self.jump(f"{name}.body")
        self._begin(f"{name}.body")
        again: list[Value] = []
        yield again
        self.branch(again[-1], f"{name}.body", f"{name}.end")
        self._begin(f"{name}.end")

    @contextmanager
    def captured(self) -> Iterator[Captured]:
        """Keeps what the block writes aside, under a label of its own, for ``replay``."""
        name = self._name("c")
        outer, before = self._lines, self.block
        self._lines = []
        self._begin(name)
        captured = Captured(name, self._lines)
        with self._scope():
            yield captured
        captured.exit = self.block
        self._lines, self.block = outer, before

    def replay(self, captured: Captured) -> None:
        """Writes captured lines here. The caller has jumped to their label, and ends them with a jump or branch."""
        self._lines.extend(captured.lines)
        self.block = captured.exit

    def join(self, type: Type, arrivals: Sequence[tuple[Value, str]]) -> Value:
        """A phi: the value from the block that control came from."""
        inner = ", ".join(f"[ {value.text}, %{block} ]" for value, block in arrivals)
        return self.let(f"phi {type} {inner}", type)

    def any(self, mask: Value) -> Value:
        """Whether any lane of ``mask`` is set."""
        if not mask.type.lanes:
            return mask
        return self.let(f"call i1 @llvm.vector.reduce.or.{mask.type.suffix}({mask.type} {mask.text})", I1)

    def minimum(self, a: Value, b: Value | int | Size) -> Value:
        other = b if isinstance(b, Value) else self.const(b, a.type)
        x, y = _whole(a), _whole(other)
        if x is None or y is None:
            return a.intrinsic("smin", other)
        return a if x < y else other

    def function(self, header: str) -> str:
        """The whole function; ``header`` is the text ``define ... (...) #0``."""
        body = "\n".join([*self._entry, *self._lines])
        return "\n".join([*self.globals, f"{header} {{\nentry:", body, "  ret void\n}\n"])
