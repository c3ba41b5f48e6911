"""Expressions as short text for people, tests and goldens. Code is printed by the back ends, not here."""

from __future__ import annotations

from gpucomp.expr.core import Call, Cast, Const, Expr, Hole, Load, Reduce, Select, Var

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%",
    "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "and": "&", "or": "|",
}  # fmt: skip


def format_expr(expr: Expr) -> str:
    """``(x0[i0, i1] + 1.0)``"""
    match expr:
        case Const():
            return repr(expr.value)
        case Var() | Hole():
            return expr.name
        case Load():
            return f"x{expr.source}[{', '.join(map(format_expr, expr.index))}]"
        case Call(fn=fn, args=(a, b)) if fn in INFIX:
            return f"({format_expr(a)} {INFIX[fn]} {format_expr(b)})"
        case Call():
            return f"{expr.fn}({', '.join(map(format_expr, expr.args))})"
        case Select():
            return f"({format_expr(expr.condition)} ? {format_expr(expr.then)} : {format_expr(expr.otherwise)})"
        case Cast():
            return f"{expr.dtype}({format_expr(expr.value)})"
        case Reduce():
            axes = ", ".join(f"{a.name}<{a.extent}" for a in expr.axes)
            return f"{expr.op}[{axes}]({format_expr(expr.body)})"
    raise AssertionError(f"no such expression: {type(expr)}")
