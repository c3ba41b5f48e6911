"""Prints the statements of ``gpucomp.expr.lower`` as LLVM IR in which one axis is spread over the lanes of a vector.

A value that does not depend on that axis stays a scalar. An index that grows by a constant per lane stays a scalar and
a stride; loads at it become vector loads, broadcasts or gathers, depending on the stride. Branches on lanes become
masks. Without a vector axis everything is scalar. The caller chooses the axis and writes the loops around it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from gpucomp.codegen.llvm.ir import arithmetic, storage
from gpucomp.codegen.llvm.ir.builder import Captured, Code, Slot, Value
from gpucomp.codegen.llvm.ir.math import exp_below_zero, quotient
from gpucomp.codegen.llvm.ir.quantize import code_of, quantizer_of
from gpucomp.codegen.llvm.ir.shuffles import strided_load
from gpucomp.codegen.llvm.ir.types import I64 as I64_TYPE
from gpucomp.codegen.llvm.ir.types import Type
from gpucomp.expr.core import Call, Cast, Const, Expr, Load, Select
from gpucomp.expr.lower import Accumulate, Block, If, Let, Loop, Operand, Start
from gpucomp.expr.simplify import Interval, bounds
from gpucomp.ir.size import Size, below
from gpucomp.ir.types import BOOL, F32, I64, DType, TensorType

NEAR = 4  # the largest stride at which contiguous loads are shuffled
INT32 = (-(2**31), 2**31 - 1)


@dataclass(frozen=True, eq=False)
class Affine:
    """An i64 index that is ``base`` in lane 0 and grows by ``stride`` per lane."""

    base: Value
    stride: int


LaneValue = Value | Affine


def _fits(interval: Interval) -> bool:
    return interval[0] >= INT32[0] and interval[1] <= INT32[1]


class Printer:
    """Writes blocks into ``code``. ``width`` is the number of lanes, 0 for scalar code; ``mask`` has the active lanes. ``loaded``
    has what memory holds for some loads, as vectors. ``below_zero`` are expressions that are at most 0, or NaN.

    ``values`` binds names (index variables, holes) to values; statements add their own.
    """

    def __init__(
        self,
        code: Code,
        params: Sequence[Value],
        types: Sequence[TensorType],
        *,
        width: int = 0,
        mask: Value | None = None,
        values: Mapping[str, LaneValue] | None = None,
        loaded: Mapping[Expr, Value] | None = None,
        below_zero: Container[Expr] = (),
    ) -> None:
        self.code, self.params, self.types, self.width = code, params, types, width
        self.mask = mask
        self.values: dict[str, LaneValue] = dict(values or {})
        self._loaded, self._below_zero = loaded or {}, below_zero
        self._slots: dict[str, Slot] = {}
        self._conditional = False  # inside a branch that only some lanes may take
        self._shared_loads = 0
        self._unrounded: dict[Expr, Value] = {}  # operands of the calls that round

    # operands

    def operand(self, operand: Operand) -> LaneValue:
        if isinstance(operand, Const):
            return arithmetic.constant(self.code, operand.value, operand.dtype)
        if operand.name in self._slots:
            return self._slots[operand.name].get()
        return self.values[operand.name]

    def value(self, operand: Operand) -> Value:
        """The operand in registers of its element type: a vector if its lanes differ, otherwise a scalar."""
        return self._plain(self.operand(operand), operand.dtype)

    def lanes(self, operand: Operand) -> Value:
        """The operand as a vector, or as a scalar in scalar code."""
        value = self.value(operand)
        return self.code.splat(value, self.width) if self.width else value

    def _plain(self, value: LaneValue, dtype: DType) -> Value:
        if isinstance(value, Affine):
            return self._spread(value, "i64")
        return self.code.convert("sext", value, "i64") if dtype is I64 else value

    def _spread(self, value: Affine, scalar: str) -> Value:
        base = value.base if scalar == "i64" else self.code.convert("trunc", value.base, scalar)
        return base + self.code.vector([lane * value.stride for lane in range(self.width)], scalar)

    def _index_operands(self, exprs: Sequence[Expr], operands: Sequence[Operand], narrow: bool) -> list[Value]:
        """Operands of index arithmetic; in 32 bits if lanes differ and the ranges allow it."""
        raw = [self.operand(o) for o in operands]
        if not any(isinstance(v, Affine) or v.type.lanes for v in raw):
            return [self._plain(v, I64) for v in raw]
        scalar = "i32" if narrow and all(_fits(bounds(e)) for e in exprs) else "i64"
        result = []
        for value in raw:
            if isinstance(value, Affine):
                value = self._spread(value, scalar)
            elif value.type.bits > int(scalar[1:]):
                value = self._truncate(value)
            else:
                value = self.code.convert("sext", value, scalar)
            result.append(value)
        return result

    def _truncate(self, value: Value) -> Value:
        if not value.text.startswith("%"):
            return Value(self.code, value.text.replace("i64", "i32"), value.type.of("i32"))
        return self.code.convert("trunc", value, "i32")

    # statements

    def run(self, block: Block) -> None:
        for statement in block:
            match statement:
                case Let():
                    self.values[statement.target.name] = self._let(statement)
                case If():
                    self.values[statement.target.name] = self._if(statement)
                case Loop():
                    self._loop(statement)
                case Start(target=target, initial=initial):
                    type = Type(storage.register_scalar(target.dtype), self.width)
                    slot = self._slots[target.name] = self.code.slot(type)
                    slot.set(arithmetic.constant(self.code, initial.value, initial.dtype, self.width))
                case Accumulate(target=target, op=op, value=value):
                    slot = self._slots[target.name]
                    fn = {"sum": "add", "prod": "mul"}.get(op, op)
                    slot.set(arithmetic.apply(fn, target.dtype, [slot.get(), self.lanes(value)]))

    def _let(self, let: Let) -> LaneValue:
        match let.expr:
            case Load() if let.expr in self._loaded:
                return storage.from_memory(self._loaded[let.expr], let.expr.dtype)
            case Load(source=source):
                return self._load(source, let.operands[0])
            case Call(fn=fn, args=args) if args[0].dtype is I64:
                return self._index(fn, let.expr, let.operands)
            case Call(fn="div", dtype=dtype, args=(_, divisor)) if dtype is F32 and _from_one_to_two(divisor):
                return quotient(*(self.value(o) for o in let.operands))
            case Call(fn="exp", dtype=dtype, args=(power,)) if dtype is F32 and self._is_below_zero(power):
                return exp_below_zero(self.value(let.operands[0]))
            case Call(fn=fn, args=args):
                operands = [self.value(o) for o in let.operands]
                if fn == "round":
                    self._unrounded[let.expr] = operands[0]
                return arithmetic.apply(fn, args[0].dtype, operands)
            case Select(dtype=dtype):
                condition, *branches = let.operands
                if dtype is I64:
                    both = self._index_operands([let.expr, *let.expr.operands[1:]], branches, narrow=True)
                else:
                    both = [self.value(o) for o in branches]
                return self.code.select(self.value(condition), *both)
            case Cast(value=value, dtype=dtype) as made:
                if (quantizer := quantizer_of(made)) and quantizer.rounded in self._unrounded:
                    return code_of(self._unrounded[quantizer.rounded], quantizer)
                operand = self.operand(let.operands[0])
                if value.dtype is I64:
                    operand = self._index_operands([value], let.operands, narrow=dtype.bits != 64)[0]
                    if dtype is BOOL or dtype.is_float or dtype.storage_only or operand.type.bits == 64:
                        return arithmetic.cast(operand, I64, dtype)
                    scalar = storage.register_scalar(dtype)
                    return self.code.convert("sext" if dtype.bits > 32 else "trunc", operand, scalar)
                assert isinstance(operand, Value)
                return arithmetic.cast(operand, value.dtype, dtype)
        raise AssertionError(f"no such statement: {let}")

    def _is_below_zero(self, power: Expr) -> bool:
        return power in self._below_zero or _is_negated(power)

    def _index(self, fn: str, expr: Call, operands: Sequence[Operand]) -> LaneValue:
        raw = [self.operand(o) for o in operands]
        if (moved := self._affine(fn, raw)) is not None:
            return moved
        narrow = expr.dtype is BOOL or _fits(bounds(expr))
        args = self._index_operands(expr.args, operands, narrow)
        low, high = bounds(expr.args[0])
        divisor = expr.args[-1]
        if fn in {"floordiv", "mod"} and isinstance(divisor, Const) and isinstance(divisor.value, Size):
            if low >= 0 and high <= INT32[1] and below(0, divisor.value):
                quotient = self.code.divided(args[0], divisor.value)
                return quotient if fn == "floordiv" else args[0] - quotient * args[1]
        elif fn in {"floordiv", "mod", "div", "fmod"} and low >= 0 and isinstance(divisor, Const) and divisor.value > 0:
            return args[0].integer_op("udiv" if fn in {"floordiv", "div"} else "urem", args[1])
        return arithmetic.apply(fn, I64, args)

    def _affine(self, fn: str, raw: Sequence[LaneValue]) -> Affine | None:
        """The stride of sums and constant multiples of indices; ``None`` for other functions."""
        if not any(isinstance(v, Affine) for v in raw):
            return None
        parts = [v if isinstance(v, Affine) else Affine(v, 0) for v in raw]
        if any(p.base.type != I64_TYPE for p in parts):
            return None
        a, b = parts[0], parts[-1]
        if fn == "add":
            return Affine(a.base + b.base, a.stride + b.stride)
        if fn == "sub":
            return Affine(a.base - b.base, a.stride - b.stride)
        if fn == "neg":
            return Affine(-a.base, -a.stride)
        if fn == "mul":
            for x, factor in ((a, b), (b, a)):
                if factor.stride == 0 and not factor.base.text.startswith("%"):
                    return Affine(x.base * factor.base, x.stride * int(factor.base.text))
        return None

    def _load(self, source: int, at: Operand) -> Value:
        code, dtype = self.code, self.types[source].dtype
        scalar = storage.memory_scalar(dtype)
        offset = self.operand(at)
        base = self.params[source]
        if isinstance(offset, Affine) and offset.stride == 1:
            address = code.gep(base, offset.base, scalar)
            type = Type(scalar, self.width)
            mask = self.mask
            raw = code.load(address, type, dtype.nbytes) if mask is None else code.masked_load(address, type, mask)
        elif isinstance(offset, Affine) and offset.stride == 0:
            raw = self._shared(base, offset.base, scalar)
        elif isinstance(offset, Value) and not offset.type.lanes:
            raw = self._shared(base, offset, scalar)
        elif isinstance(offset, Affine) and self._is_near(offset.stride, dtype):
            address = code.gep(base, offset.base, scalar)
            raw = strided_load(code, address, Type(scalar, self.width), offset.stride, self.mask)
        else:
            spread = self._spread(offset, "i64") if isinstance(offset, Affine) else offset
            raw = code.gather(base, spread, scalar, self.mask)
        return storage.from_memory(raw, dtype)

    def _is_near(self, stride: int, dtype: DType) -> bool:
        """Whether loads of all that is between the lanes are faster than a gather: masks have to be instructions for that."""
        return 2 <= stride <= min(NEAR, self.width) and (
            self.mask is None or (self.code.native_masks and dtype.bits >= 32)
        )

    def _shared(self, base: Value, offset: Value, scalar: str) -> Value:
        self._shared_loads += 1
        return self.code.load(self.code.gep(base, offset, scalar), Type(scalar))

    def _branch(self, block: Block, result: Operand, mask: Value | None) -> tuple[Value, Captured, int]:
        """Captures a branch under ``mask``. Returns its value, its code, and the number of loads that all lanes share."""
        outer, loads = self.mask, self._shared_loads
        if mask is not None:
            self.mask = mask if outer is None else outer & mask
        with self.code.captured() as captured:
            self.run(block)
            value = self.value(result)
        self.mask = outer
        return value, captured, self._shared_loads - loads

    def _if(self, statement: If) -> Value:
        code = self.code
        condition = self.value(statement.condition)
        if not condition.type.lanes:
            return self._uniform_if(statement, condition)
        values = []
        inverse = ~condition
        branches = (
            (statement.then, statement.then_value, condition),
            (statement.otherwise, statement.otherwise_value, inverse),
        )
        for block, result, mask in branches:
            if not block.statements:
                values.append(self.value(result))
                continue
            active = mask if self.mask is None else self.mask & mask
            value, captured, shared = self._branch(block, result, mask)
            if not shared:  # masked loads are safe as they are
                code.jump(captured.label)
                code.replay(captured)
                values.append(value)
                continue
            # a load that all lanes share is safe only if some lane takes the branch
            before, end = code.block, f"{captured.label}.end"
            wanted = code.any(active)
            code.branch(wanted, captured.label, end)
            code.replay(captured)
            here = code.block
            code.jump(end)
            code.label(end)
            nothing = Value(code, "zeroinitializer" if value.type.lanes else spell_zero(value.type), value.type)
            values.append(code.join(value.type, [(value, here), (nothing, before)]))
        return code.select(condition, values[0], values[1])

    def _uniform_if(self, statement: If, condition: Value) -> Value:
        code = self.code
        then, then_code, _ = self._branch(statement.then, statement.then_value, None)
        other, other_code, _ = self._branch(statement.otherwise, statement.otherwise_value, None)
        lanes = max(then.type.lanes, other.type.lanes)
        end = f"{then_code.label}.end"
        code.branch(condition, then_code.label, other_code.label)
        arrivals = []
        for value, captured in ((then, then_code), (other, other_code)):
            code.replay(captured)
            arrivals.append((code.splat(value, lanes), code.block))
            code.jump(end)
        code.label(end)
        return code.join(arrivals[0][0].type, arrivals)

    def _loop(self, loop: Loop) -> None:
        if loop.unroll:
            for point in range(loop.axis.extent):
                self.values[loop.axis_name] = self.code.integer(point)
                self.run(loop.body)
            return
        with self.code.loop(0, loop.axis.extent) as i:
            self.values[loop.axis_name] = i
            self.run(loop.body)

    # results

    def store(self, target: int, at: Operand, value: Operand) -> None:
        """``params[target][at] = value`` in every active lane."""
        code, dtype = self.code, self.types[target].dtype
        scalar = storage.memory_scalar(dtype)
        base, offset = self.params[target], self.operand(at)
        if not self.width:
            assert isinstance(offset, Value)
            code.store(storage.to_memory(self.value(value), dtype), code.gep(base, offset, scalar))
            return
        raw = storage.to_memory(self.lanes(value), dtype)
        if isinstance(offset, Affine) and offset.stride == 1:
            address = code.gep(base, offset.base, scalar)
            if self.mask is None:
                code.store(raw, address, dtype.nbytes)
            else:
                code.masked_store(raw, address, self.mask)
            return
        if isinstance(offset, Affine):
            offset = self._spread(offset, "i64")
        code.scatter(raw, base, code.splat(offset, self.width), self.mask)


def _is_negated(expr: Expr) -> bool:
    """Whether ``expr`` is ``-abs(...)``, as in a sigmoid."""
    match expr:
        case Call(fn="neg", args=(Call(fn="abs"),)):
            return True
    return False


def _from_one_to_two(expr: Expr) -> bool:
    """Whether ``expr`` is ``exp(-abs(...)) + 1``, the divisor of a sigmoid."""
    match expr:
        case Call(fn="add", args=(Call(fn="exp", args=(power,)), Const(value=one))):
            return one == 1 and _is_negated(power)
    return False


def spell_zero(type: Type) -> str:
    if type.is_float:
        return "0x0000000000000000"
    return "false" if type.scalar == "i1" else "0"
