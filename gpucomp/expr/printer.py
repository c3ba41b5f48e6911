"""Prints expressions as short text for people, tests and golden files. The back ends print code."""

from __future__ import annotations

from collections import Counter

from gpucomp.expr.core import Call, Cast, Const, Expr, Hole, Load, Reduce, Select, Var, walk

INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "and": "&",
    "or": "|",
}


LARGEST_TREE = 500  # most nodes of an expression that is printed as a tree, with its shared parts repeated


def format_expr(expr: Expr) -> str:
    """``(x0[i0, i1] + 1.0)``; the shared parts of a large expression are written once: ``{t0 = ...; (t0 * t0)}``."""
    size: dict[Expr, int] = {}
    uses: Counter[Expr] = Counter()
    for node in walk(expr):
        size[node] = 1 + sum(size[operand] for operand in node.operands)
        uses.update(node.operands)
    text: dict[Expr, str] = {}
    parts: list[str] = []
    for node in walk(expr):
        text[node] = _spell(node, text)
        if size[expr] > LARGEST_TREE and uses[node] > 1 and node.operands:
            parts.append(f"t{len(parts)} = {text[node]}")
            text[node] = f"t{len(parts) - 1}"
    return f"{{{'; '.join([*parts, text[expr]])}}}" if parts else text[expr]


def _spell(expr: Expr, text: dict[Expr, str]) -> str:
    operands = [text[operand] for operand in expr.operands]
    match expr:
        case Const():
            text_of = repr(expr.value)
            return f"({text_of})" if " " in text_of else text_of
        case Var() | Hole():
            return expr.name
        case Load():
            return f"x{expr.source}[{', '.join(operands)}]"
        case Call(fn=fn, args=(_, _)) if fn in INFIX:
            return f"({operands[0]} {INFIX[fn]} {operands[1]})"
        case Call():
            return f"{expr.fn}({', '.join(operands)})"
        case Select():
            return f"({operands[0]} ? {operands[1]} : {operands[2]})"
        case Cast():
            return f"{expr.dtype}({operands[0]})"
        case Reduce():
            axes = ", ".join(f"{a.name}<{a.extent}" for a in expr.axes)
            return f"{expr.op}[{axes}]({operands[0]})"
    raise AssertionError(f"no such expression: {type(expr)}")
