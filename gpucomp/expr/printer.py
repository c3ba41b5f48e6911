"""Expressions as short text for people, tests, goldens and digests. Code is printed by the back ends, not here.

An expression is a DAG and its text a tree: ``x`` in ``max(x, 0)`` written out again at each use doubles with every
layer. So in a large expression what is used more than once is named: ``{%0 = (x0[i0] + 1.0); (%0 * %0)}``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from gpucomp.expr.core import Call, Cast, Const, Expr, Hole, Load, Reduce, Select, Var

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%",
    "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "and": "&", "or": "|",
}  # fmt: skip
LARGE = 400  # nodes of the written-out tree above which shared parts are named


def format_expr(expr: Expr) -> str:
    """``(x0[i0, i1] + 1.0)``"""
    order = list(_operands_first(expr))
    size: dict[Expr, int] = {}
    for node in order:
        size[node] = 1 + sum(size[child] for child in node.operands)
    if size[expr] <= LARGE:
        return _texts(order, frozenset())[0][expr]
    uses = Counter(child for node in order for child in node.operands)
    shared = frozenset(n for n in order if uses[n] > 1 and n.operands and n is not expr)
    texts, definitions = _texts(order, shared)
    return f"{{{'; '.join([*definitions, texts[expr]])}}}"


def _operands_first(expr: Expr) -> Iterator[Expr]:
    seen: set[Expr] = set()
    stack = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.operands))


def _texts(order: Iterable[Expr], shared: frozenset[Expr]) -> tuple[dict[Expr, str], list[str]]:
    texts: dict[Expr, str] = {}
    definitions: list[str] = []
    for node in order:
        text = _text(node, texts)
        if node in shared:
            definitions.append(f"%{len(definitions)} = {text}")
            text = f"%{len(definitions) - 1}"
        texts[node] = text
    return texts, definitions


def _text(expr: Expr, texts: Mapping[Expr, str]) -> str:
    match expr:
        case Const():
            return repr(expr.value)
        case Var() | Hole():
            return expr.name
        case Load():
            return f"x{expr.source}[{', '.join(texts[i] for i in expr.index)}]"
        case Call(fn=fn, args=(a, b)) if fn in INFIX:
            return f"({texts[a]} {INFIX[fn]} {texts[b]})"
        case Call():
            return f"{expr.fn}({', '.join(texts[a] for a in expr.args)})"
        case Select():
            return f"({texts[expr.condition]} ? {texts[expr.then]} : {texts[expr.otherwise]})"
        case Cast():
            return f"{expr.dtype}({texts[expr.value]})"
        case Reduce():
            axes = ", ".join(f"{a.name}<{a.extent}" for a in expr.axes)
            return f"{expr.op}[{axes}]({texts[expr.body]})"
    raise AssertionError(f"no such expression: {type(expr)}")
