"""Prints lowered expressions (``expr.lower``) as CUDA C++ or OpenCL C statements. Loops over work belong to templates.

Index arithmetic is printed in ``int`` if intervals prove that it fits, otherwise in 64 bits. Integer arithmetic that is
used once and reads no memory is printed in place. Every other operation is a statement of its own, so that a value used
twice is computed once. A size that each run decides is an argument of the kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpucomp.codegen.c.arguments import Arguments, fits
from gpucomp.codegen.c.dialect import INT32, Dialect, computed_in
from gpucomp.codegen.c.helpers import (
    BODIES,
    double_to_half,
    float_to_integer,
    function_helper,
    round_to_half,
    storage_helper,
)
from gpucomp.errors import UnsupportedError
from gpucomp.expr.core import REDUCTIONS, Call, Cast, Const, Expr, Load, Select
from gpucomp.expr.lower import Accumulate, Block, If, Let, Loop, Lowering, Operand, Ref, Start, Statement
from gpucomp.expr.simplify import bounds
from gpucomp.ir.size import Size, below
from gpucomp.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, U32, U64, DType

PRIMARY, UNARY, PRODUCT, SUM, SHIFT, ORDER, EQUALITY, BIT_AND, BIT_XOR, BIT_OR, AND, OR, TERNARY = range(13, 0, -1)

Text = tuple[str, int]  # C text and the precedence of its outermost operator

OPERATORS = {
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "lt": ("<", ORDER),
    "le": ("<=", ORDER),
    "eq": ("==", EQUALITY),
    "ne": ("!=", EQUALITY),
    "bitand": ("&", BIT_AND),
    "bitor": ("|", BIT_OR),
    "bitxor": ("^", BIT_XOR),
    "and": ("&&", AND),
    "or": ("||", OR),
    "xor": ("!=", EQUALITY),
}
LIBRARY = {
    **{name: name for name in ("floor", "ceil", "sqrt", "exp", "log", "erf", "pow", "fmod")},
    **{name: name for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: name for name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
    "abs": "fabs",
    "round": "rint",
}
# functions of 16-bit floats whose result needs no rounding
EXACT = frozenset({"max", "min", "neg", "abs", "sign", "floor", "ceil", "round", "fmod"})
WHOLE = frozenset({"floor", "ceil", "round"})  # the identity on integers
LONGEST_INLINE = 200  # characters; some texts repeat their operands, so a chain of them would double at every step


class CPrinter:
    """Prints the blocks of one kernel. ``helpers`` are the device functions that they call, in order of first use.

    ``params`` are the names and types of the kernel's parameters. The source of a ``Load`` is a position in it, its
    index one flat offset.
    """

    def __init__(self, dialect: Dialect, params: Sequence[tuple[str, DType]], features: frozenset[str]) -> None:
        self.dialect, self.params, self.features = dialect, params, features
        self.helpers: dict[str, str] = {}
        self.arguments = Arguments(dialect)
        self._types: dict[str, str] = {}  # the C type of each name of a 64-bit integer
        self._inline: dict[str, Text] = {}
        self._natural: set[str] = set()  # names of integers that are never negative
        for _, dtype in params:
            self._require(dtype)

    # ---- names and types ----

    def _require(self, dtype: DType) -> None:
        if dtype is F64 and self.dialect.extensions and "fp64" not in self.features:
            raise UnsupportedError("the device has no f64 arithmetic (cl_khr_fp64)", code="GPC4001")

    def ctype(self, expr: Expr) -> str:
        """The C type of ``expr`` in a register: ``int`` for an index that provably fits."""
        self._require(expr.dtype)
        if expr.dtype is I64 and self._fits(expr):
            return self.dialect.values[I32]
        return self.dialect.value_type(expr.dtype)

    def _fits(self, expr: Expr) -> bool:
        low, high = bounds(expr)
        return INT32[0] <= low and high <= INT32[1]

    def declare(self, expr: Expr, name: str) -> str:
        """Records that the surrounding text calls ``expr`` ``name``; its C type is ``ctype(expr)``."""
        self._inline.pop(name, None)
        self._types[name] = self.ctype(expr)
        self._note_sign(expr, name)
        return name

    def _note_sign(self, expr: Expr, name: str) -> None:
        natural = expr.dtype is I64 and bounds(expr)[0] >= 0
        (self._natural.add if natural else self._natural.discard)(name)

    def _forget(self, name: str) -> None:
        """Discards what another scope knew of ``name``: names are unique in a scope, but not in a kernel."""
        self._inline.pop(name, None)
        self._types.pop(name, None)
        self._natural.discard(name)

    def lowering(self, bindings: Mapping[Expr, str], *, prefix: str = "e", unroll_limit: int = 16) -> Lowering:
        """A ``Lowering`` with ``bindings``, whose types this printer then knows."""
        for expr, name in bindings.items():
            self.declare(expr, name)
        return Lowering(bindings, prefix=prefix, unroll_limit=unroll_limit)

    def _type_of(self, operand: Operand) -> str:
        if isinstance(operand, Ref) and operand.name in self._types:
            return self._types[operand.name]
        if isinstance(operand, Const) and operand.dtype is I64:
            return self.dialect.values[I32 if fits(operand.value) else I64]
        return self.dialect.value_type(operand.dtype)

    # ---- statements ----

    def block(self, block: Block, results: Iterable[Operand] = (), later: Iterable[Operand] = ()) -> list[str]:
        """The statements as lines. The caller prints ``results`` right after them, and ``later`` in other scopes.

        Integer arithmetic that is used once may be printed within the text of a result (``operand``).
        """
        uses: Counter[str] = Counter()
        _count(block, uses)
        near = list(results)
        for operand in near:
            uses[_name(operand)] += 1
        for operand in later:
            uses[_name(operand)] += 2  # it keeps its own statement
        return self._statements(block, uses, Counter(map(_name, near)))

    def operand(self, operand: Operand, above: int = 0) -> str:
        """The text of an operand, in parentheses if its operator binds weaker than ``above``."""
        text, precedence = self._text(operand)
        return f"({text})" if precedence < above else text

    def _text(self, operand: Operand) -> Text:
        if isinstance(operand, Const):
            return self.number(operand.value, operand.dtype), PRIMARY
        return self._inline.get(operand.name) or (operand.name, PRIMARY)

    def number(self, value: Any, dtype: DType = I64) -> str:
        """The text of a constant, or of a size that each run decides."""
        return self.arguments.name(value) if isinstance(value, Size) else self.dialect.literal(value, dtype)

    def _statements(self, block: Block, uses: Counter[str], direct: Counter[str]) -> list[str]:
        direct = direct + Counter()
        for statement in block:
            for operand in _direct(statement):
                direct[_name(operand)] += 1
        lines: list[str] = []
        for statement in block:
            lines += self._statement(statement, uses, direct)
        return lines

    def _statement(self, statement: Statement, uses: Counter[str], direct: Counter[str]) -> list[str]:
        match statement:
            case Let(target, expr, operands):
                text = self._expression(expr, operands)
                self._forget(target.name)
                self._types[target.name] = ctype = self.ctype(expr)
                self._note_sign(expr, target.name)
                once = uses[target.name] == 1 and direct[target.name] == 1
                short = len(text[0]) <= LONGEST_INLINE
                if once and short and not expr.dtype.is_float and not isinstance(expr, Load):
                    self._inline[target.name] = text
                    return []
                return [f"const {ctype} {target.name} = {text[0]};"]
            case If():
                return self._if(statement, uses)
            case Start(target, initial):
                self._forget(target.name)
                ctype = self._types[target.name] = self.dialect.value_type(target.dtype)
                return [f"{ctype} {target.name} = {self.operand(initial)};"]
            case Loop(axis, name, body, unroll):
                self._forget(name)
                self.declare(axis, name)
                ctype = self._types[name]
                head = f"for ({ctype} {name} = 0; {name} < {self.number(axis.extent)}; ++{name}) {{"
                inner = self._statements(body, uses, Counter())
                return [*(["#pragma unroll"] if unroll else []), head, *_indent(inner), "}"]
            case Accumulate(target, op, value):
                return [f"{target.name} = {self._call(REDUCTIONS[op], target.dtype, [target, value])[0]};"]
        raise AssertionError(f"no such statement: {statement}")

    def _if(self, statement: If, uses: Counter[str]) -> list[str]:
        target = statement.target
        self._forget(target.name)
        if (stored := self._stored_type(statement)) is not None:
            return self._one_load(statement, stored, uses)
        # a 64-bit integer from a branch is rare, and its interval is not known here: it stays in 64 bits
        ctype = self._types[target.name] = self.dialect.value_type(target.dtype)
        then = self._statements(statement.then, uses, Counter([_name(statement.then_value)]))
        otherwise = self._statements(statement.otherwise, uses, Counter([_name(statement.otherwise_value)]))
        condition = self.operand(statement.condition)
        single = self._single_load(statement, then, otherwise)
        if single is not None:
            condition = self.operand(statement.condition, above=OR)
            other = self.operand(statement.otherwise_value, above=TERNARY)
            return [f"const {ctype} {target.name} = {condition} ? {single} : {other};"]
        then = [*then, f"{target.name} = {self.operand(statement.then_value)};"]
        if not otherwise and isinstance(statement.otherwise_value, Const):
            start = f"{ctype} {target.name} = {self.operand(statement.otherwise_value)};"
            return [start, f"if ({condition}) {{", *_indent(then), "}"]
        otherwise = [*otherwise, f"{target.name} = {self.operand(statement.otherwise_value)};"]
        return [
            f"{ctype} {target.name};",
            f"if ({condition}) {{",
            *_indent(then),
            "} else {",
            *_indent(otherwise),
            "}",
        ]

    def _stored_type(self, statement: If) -> DType | None:
        """The type that all branches load, if each of them is one load after index arithmetic; otherwise ``None``."""
        found: set[DType | None] = set()
        for branch, value in (
            (statement.then, statement.then_value),
            (statement.otherwise, statement.otherwise_value),
        ):
            if not branch.statements:
                return None
            *before, last = branch.statements
            if not isinstance(last, Let | If) or last.target is not value:
                return None
            if not all(isinstance(s, Let) and not isinstance(s.expr, Load) for s in before):
                return None
            if isinstance(last, If):
                found.add(self._stored_type(last))
            else:
                found.add(self.params[last.expr.source][1] if isinstance(last.expr, Load) else None)
        return found.pop() if len(found) == 1 else None

    def _one_load(self, statement: If, stored: DType, uses: Counter[str]) -> list[str]:
        """Lets the conditions choose an address, and loads once.

        On a GPU, branches that load diverge, and deeply nested ones use the stack. The branches that ``_stored_type``
        accepts are index arithmetic, which is safe to compute even if the branch is not taken.
        """
        target = statement.target
        ctype = self._types[target.name] = self.dialect.value_type(target.dtype)
        lines, address = self._address(statement, stored, uses)
        return [*lines, f"const {ctype} {target.name} = {self._read(address, '', stored)};"]

    def _address(self, statement: If, stored: DType, uses: Counter[str]) -> tuple[list[str], str]:
        """The lines that compute the address that ``statement`` loads from, and the name of the address."""
        lines, places = [], []
        for branch in (statement.then, statement.otherwise):
            *before, last = branch.statements
            lines += self._statements(Block(before), uses, Counter(map(_name, _direct(last))))
            if isinstance(last, If):
                inner, place = self._address(last, stored, uses)
                lines += inner
            else:
                assert isinstance(last, Let)
                assert isinstance(last.expr, Load)
                place = f"{self.params[last.expr.source][0]} + {self.operand(last.operands[0], SUM)}"
            places.append(place)
        name = f"{statement.target.name}_from"
        condition = self.operand(statement.condition, above=OR)
        lines.append(f"{self.dialect.read_pointer(stored)} {name} = {condition} ? {places[0]} : {places[1]};")
        return lines, name

    def _single_load(self, statement: If, then: list[str], otherwise: list[str]) -> str | None:
        """The load's text if the branch is one load and nothing else; it is printed as ``inside ? x[i] : 0``."""
        value = statement.then_value
        if otherwise or len(then) != 1 or not isinstance(value, Ref):
            return None
        last = statement.then.statements[-1] if statement.then.statements else None
        if not isinstance(last, Let) or last.target is not value or not isinstance(last.expr, Load):
            return None
        return self._expression(last.expr, last.operands)[0]

    # ---- expressions ----

    def combine(self, op: str, dtype: DType, a: str, b: str) -> str:
        """The text of the reduction ``op`` of two named values."""
        return self._call(REDUCTIONS[op], dtype, [Ref(a, dtype), Ref(b, dtype)])[0]

    def _expression(self, expr: Expr, operands: Sequence[Operand]) -> Text:
        match expr:
            case Load():
                return self._load(expr, operands)
            case Call(fn=fn):
                wide = expr.args[0].dtype is I64 and not (
                    all(self._type_of(o) == self.dialect.values[I32] for o in operands)
                    and (expr.dtype is not I64 or self._fits(expr))
                )
                text = self._call(fn, expr.args[0].dtype, operands, wide=wide)
                narrow = expr.dtype is I64 and wide and self._fits(expr)
                return (f"({self.dialect.values[I32]}){_parenthesised(text, UNARY)}", UNARY) if narrow else text
            case Select():
                condition, then, otherwise = operands
                parts = self.operand(condition, OR), self.operand(then, OR), self.operand(otherwise, TERNARY)
                return f"{parts[0]} ? {parts[1]} : {parts[2]}", TERNARY
            case Cast():
                return self._cast(operands[0], expr.value.dtype, expr.dtype, self.ctype(expr))
        raise AssertionError(f"no such expression: {expr}")

    def load(self, source: int, offset: str) -> str:
        """Element ``offset`` of parameter ``source`` as a value."""
        name, dtype = self.params[source]
        return self._read(name, offset, dtype)

    def _read(self, pointer: str, offset: str, dtype: DType) -> str:
        """The element ``offset`` elements after ``pointer`` (at ``pointer`` if empty), as a value."""
        if dtype in self.dialect.converted:
            return f"vload_half({offset or 0}, {pointer})"
        return self.widened(f"{pointer}[{offset}]" if offset else f"*{pointer}", dtype)

    def store(self, target: int, offset: str, value: str) -> str:
        """The statement that writes element ``offset`` of parameter ``target``."""
        name, dtype = self.params[target]
        if dtype in self.dialect.converted:
            return f"vstore_half_rte({value}, {offset}, {name});"
        return f"{name}[{offset}] = {self.narrowed(value, dtype)};"

    def written(self, target: int, value: Expr) -> Expr:
        """``value`` without a final rounding that its store to parameter ``target`` does anyway."""
        dtype = self.params[target][1]
        rounds = dtype in self.dialect.converted or (dtype in (F16, BF16) and dtype in self.dialect.narrow)
        if rounds and isinstance(value, Cast) and value.dtype is dtype and value.value.dtype is F32:
            return value.value
        return value

    def fetched(self, text: str, dtype: DType) -> str:
        """An element that ``Dialect.fetch`` loaded, as a value."""
        return text if dtype in self.dialect.converted else self.widened(text, dtype)

    def put(self, text: str, dtype: DType) -> str:
        """A value as an element for ``Dialect.put``."""
        return text if dtype in self.dialect.converted else self.narrowed(text, dtype)

    def widened(self, text: str, dtype: DType) -> str:
        """A stored element as a value."""
        if dtype in self.dialect.widen:
            return f"{self._storage(self.dialect.widen[dtype], dtype)}({text})"
        return f"({text} != 0)" if dtype is BOOL else text

    def narrowed(self, text: str, dtype: DType) -> str:
        """A value as a stored element."""
        if dtype in self.dialect.narrow:
            return f"{self._storage(self.dialect.narrow[dtype], dtype)}({text})"
        return text

    def _storage(self, name: str, dtype: DType) -> str:
        definition = storage_helper(self.dialect, dtype, name)
        if definition is not None:
            self.helpers.setdefault(name, definition)
        return name

    def _load(self, expr: Load, operands: Sequence[Operand]) -> Text:
        assert len(operands) == 1, "loads are flattened before they are printed"
        text = self.load(expr.source, self.operand(operands[0]))
        return text, PRIMARY

    def _helper(self, named: tuple[str, str]) -> str:
        name, definition = named
        self.helpers.setdefault(name, definition)
        return name

    def _cast(self, operand: Operand, source: DType, target: DType, ctype: str) -> Text:
        text = self.operand(operand)
        if target is BOOL:
            return f"{self.operand(operand, ORDER)} != 0", EQUALITY
        if target.is_float and target.bits < 32:
            if source is F64 and target is F16:
                text = f"{self._helper(double_to_half(self.dialect))}({text})"
            elif computed_in(source) is not F32:
                text = f"(float){self.operand(operand, UNARY)}"
            return self._rounded(text, target), PRIMARY
        if source.is_float and target.is_integer and not target.storage_only:
            return f"{self._helper(float_to_integer(self.dialect, computed_in(source), target))}({text})", PRIMARY
        if target.storage_only:  # four-bit and two-bit integers wrap
            inner = text
            if source.is_float:
                inner = f"{self._helper(float_to_integer(self.dialect, computed_in(source), I32))}({text})"
            sign = 1 << (target.bits - 1)
            masked = f"(({inner}) & {2 * sign - 1})"
            ctype = self.dialect.value_type(target)
            return (
                (f"({ctype})(({masked} ^ {sign}) - {sign})", UNARY)
                if target.kind == "i"
                else (f"({ctype}){masked}", UNARY)
            )
        if self._type_of(operand) == ctype:
            return self._text(operand)
        return f"({ctype}){self.operand(operand, UNARY)}", UNARY

    def _rounded(self, text: str, dtype: DType) -> str:
        """A float rounded to a value that ``dtype`` has."""
        if dtype in self.dialect.converted:
            return f"{self._helper(round_to_half(self.dialect, native='fp16' in self.features))}({text})"
        narrow = self._storage(self.dialect.narrow[dtype], dtype)
        widen = self._storage(self.dialect.widen[dtype], dtype)
        return f"{widen}({narrow}({text}))"

    def _call(self, fn: str, dtype: DType, operands: Sequence[Operand], *, wide: bool = True) -> Text:
        if dtype.is_float:
            text = self._float_call(fn, dtype, operands)
            rounds = dtype.bits < 32 and fn not in EXACT and fn not in {"lt", "le", "eq", "ne", "isnan", "isinf"}
            return (self._rounded(text[0], dtype), PRIMARY) if rounds else text
        if dtype is BOOL:
            return self._bool_call(fn, operands)
        return self._integer_call(fn, dtype, operands, wide=wide)

    def _infix(self, symbol: str, precedence: int, operands: Sequence[Operand]) -> Text:
        a, b = operands
        return f"{self.operand(a, precedence)} {symbol} {self.operand(b, precedence + 1)}", precedence

    def _float_call(self, fn: str, dtype: DType, operands: Sequence[Operand]) -> Text:
        working = computed_in(dtype)
        if fn == "div":
            return self._infix("/", PRODUCT, operands)
        if fn in OPERATORS and fn not in {"and", "or", "xor", "bitand", "bitor", "bitxor"}:
            return self._infix(*OPERATORS[fn], operands)
        if fn in {"and", "or", "xor", "not"}:
            return self._bool_call(fn, operands, zero=" != 0")
        texts = ", ".join(self.operand(o) for o in operands)
        if fn in {"max", "min"} and working is F32 and "cp_async" in self.features:
            return f"gc_{fn}_nan({texts})", PRIMARY  # one instruction since sm_80
        if fn in {"max", "min"} and (chosen := self._clamp(fn, operands)) is not None:
            return chosen
        if fn == "neg":
            return f"-{self.operand(operands[0], PRIMARY)}", UNARY
        if fn == "isnan":
            text = self.operand(operands[0], EQUALITY + 1)
            return f"{text} != {text}", EQUALITY
        if fn == "isinf":
            infinity = self.dialect.literal(float("inf"), working)
            return f"{self.dialect.function('fabs', working)}({texts}) == {infinity}", EQUALITY
        if fn in LIBRARY:
            return f"{self.dialect.function(LIBRARY[fn], working)}({texts})", PRIMARY
        if fn in BODIES:
            return f"{self._helper(function_helper(self.dialect, fn, working))}({texts})", PRIMARY
        raise UnsupportedError(f"{fn} of {dtype} has no meaning", code="GPC4002")

    def _clamp(self, fn: str, operands: Sequence[Operand]) -> Text | None:
        """max(x, c) as ``x < c ? c : x``: one comparison suffices if the constant is not NaN."""
        a, b = operands
        if isinstance(a, Const):
            a, b = b, a
        if isinstance(a, Const) or not isinstance(b, Const) or b.value != b.value:
            return None
        value, limit = self.operand(a, ORDER + 1), self.operand(b)
        return f"{value} {'<' if fn == 'max' else '>'} {limit} ? {limit} : {value}", TERNARY

    def _bool_call(self, fn: str, operands: Sequence[Operand], zero: str = "") -> Text:
        names = {"add": "or", "max": "or", "mul": "and", "min": "and", "bitand": "and", "bitor": "or", "bitxor": "xor"}
        fn = names.get(fn, fn)
        if fn in {"not", "bitnot"}:
            return (
                (f"{self.operand(operands[0], EQUALITY)} == 0", EQUALITY)
                if zero
                else (f"!{self.operand(operands[0], UNARY)}", UNARY)
            )
        a, b = operands
        if fn == "lt":
            return f"!{self.operand(a, UNARY)} && {self.operand(b, AND + 1)}", AND
        if fn == "le":
            return f"!{self.operand(a, UNARY)} || {self.operand(b, OR + 1)}", OR
        if fn not in OPERATORS:
            raise UnsupportedError(f"{fn} of bool has no meaning", code="GPC4002")
        symbol, precedence = OPERATORS[fn]
        if zero:
            left, right = (f"({self.operand(o, EQUALITY)}{zero})" for o in operands)
            return f"{left} {symbol} {right}", precedence
        # compilers warn about || within && and the like if there are no parentheses
        inner = {AND: EQUALITY, OR: EQUALITY}.get(precedence, UNARY)
        left = self.operand(a, AND if fn == "and" else inner)
        return f"{left} {symbol} {self.operand(b, inner)}", precedence

    def _integer_call(self, fn: str, dtype: DType, operands: Sequence[Operand], *, wide: bool) -> Text:
        if fn in WHOLE:
            return self._text(operands[0])
        if fn in {"and", "or", "xor", "not"}:
            return self._bool_call(fn, operands, zero=" != 0")
        narrow = dtype is I64 and not wide
        if dtype is I64 and wide:
            operands = [self._widened(o) for o in operands]
        if fn in {"lt", "le", "eq", "ne", "bitand", "bitor", "bitxor"}:
            return self._infix(*OPERATORS[fn], operands)
        a, *rest = operands
        if rest and (known := self._by_constant(fn, dtype, a, rest[0], narrow)) is not None:
            return known
        if fn in {"max", "min"}:
            low, high = self.operand(a, ORDER + 1), self.operand(rest[0], ORDER + 1)
            return f"{low} {'>' if fn == 'max' else '<'} {high} ? {low} : {high}", TERNARY
        if fn in {"add", "sub", "mul"} and (narrow or dtype in (U32, U64)):
            return self._infix(*OPERATORS[fn], operands)
        if fn in {"add", "sub", "mul", "neg", "abs", "bitnot"}:
            return self._wrapping(fn, dtype, operands, narrow)
        if fn in BODIES:
            helper = self._helper(function_helper(self.dialect, fn, I32 if narrow else dtype))
            return f"{helper}({', '.join(self.operand(o) for o in operands)})", PRIMARY
        raise UnsupportedError(f"{fn} of {dtype} has no meaning", code="GPC4002")

    def _widened(self, operand: Operand) -> Operand:
        """An index converted to 64 bits by a cast, so that the operation is done in 64 bits."""
        if isinstance(operand, Const) or self._type_of(operand) != self.dialect.values[I32]:
            return operand
        name = f"({self.dialect.values[I64]}){self.operand(operand, UNARY)}"
        self._inline[name] = (name, UNARY)
        if operand.name in self._natural:
            self._natural.add(name)
        return Ref(name, I64)

    def _by_constant(self, fn: str, dtype: DType, a: Operand, b: Operand, narrow: bool) -> Text | None:
        """C's own division, if the divisor is a constant above zero and the dividend is known not to be negative."""
        if fn not in {"div", "floordiv", "mod", "fmod"} or not isinstance(b, Const) or not below(0, b.value):
            return None
        if isinstance(b.value, Size) and narrow and isinstance(a, Ref) and a.name in self._natural:
            which = self.arguments.divided if fn in {"div", "floordiv"} else self.arguments.rest
            return which(self.operand(a), b.value), PRIMARY
        symbol = "/" if fn in {"div", "floordiv"} else "%"
        if dtype.kind == "u" or fn in {"div", "fmod"} or (isinstance(a, Ref) and a.name in self._natural):
            return self._infix(symbol, PRODUCT, (a, b))
        return None

    def _wrapping(self, fn: str, dtype: DType, operands: Sequence[Operand], narrow: bool) -> Text:
        """Arithmetic modulo 2^bits, done in the unsigned type, because signed overflow is undefined in C."""
        t = self.dialect.values[I32] if narrow else self.dialect.value_type(dtype)
        wide = self.dialect.values[U64 if dtype.bits == 64 and not narrow else U32]
        a = self.operand(operands[0], UNARY)
        if fn == "neg":
            return (
                (f"-{self.operand(operands[0], PRIMARY)}", UNARY)
                if narrow
                else (f"({t})(({wide})0 - ({wide}){a})", UNARY)
            )
        if fn == "bitnot":
            return f"({t})~{a}", UNARY
        if fn == "abs":
            if dtype.kind == "u":
                return self._text(operands[0])
            least = self.operand(operands[0], ORDER + 1)
            return f"{least} < 0 ? ({t})(({wide})0 - ({wide}){a}) : {least}", TERNARY
        b = self.operand(operands[1], UNARY)
        return f"({t})(({wide}){a} {OPERATORS[fn][0]} ({wide}){b})", UNARY


def _name(operand: Operand) -> str:
    return operand.name if isinstance(operand, Ref) else ""


def _direct(statement: Statement) -> list[Operand]:
    """The operands that a statement reads in its own scope."""
    match statement:
        case Let(operands=operands):
            return list(operands)
        case If(condition=condition):
            return [condition]
    return []


def _count(block: Block, uses: Counter[str]) -> None:
    for statement in block:
        for operand in _direct(statement):
            uses[_name(operand)] += 1
        match statement:
            case If(then=then, then_value=a, otherwise=otherwise, otherwise_value=b):
                _count(then, uses)
                _count(otherwise, uses)
                uses[_name(a)] += 1
                uses[_name(b)] += 1
            case Loop(body=body):
                _count(body, uses)
            case Accumulate(value=value):
                uses[_name(value)] += 1


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _parenthesised(text: Text, above: int) -> str:
    return f"({text[0]})" if text[1] < above else text[0]
