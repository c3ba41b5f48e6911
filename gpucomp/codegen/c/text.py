"""Helpers for C text in templates: sums and products without needless terms, and the layout of a whole source."""

from __future__ import annotations

from collections.abc import Sequence

from gpucomp.codegen.c.arguments import Argument


def plus(*terms: str | int | Argument) -> str:
    """The sum of ``terms``, without those that are zero: ``plus("row", 0)`` is ``row``."""
    return " + ".join(str(t) for t in terms if str(t) != "0") or "0"


def times(text: str | int | Argument, factor: int | Argument) -> str:
    """``text * factor``: numbers are multiplied out, and a factor of one is not written."""
    text = str(text)
    if text == "0" or factor == 0:
        return "0"
    if factor == 1:
        return text
    if isinstance(factor, Argument):
        return str(factor) if text == "1" else f"{_tight(text)} * {factor}"
    return str(int(text) * factor) if text.isdigit() else f"{_tight(text)} * {factor}"


def each(name: str, count: int, statement: str) -> list[str]:
    """``statement`` for each value of ``name`` below ``count``: an unrolled loop, or the statement alone if ``count`` is 1."""
    if count == 1:
        return [statement]
    return ["#pragma unroll", f"for (int {name} = 0; {name} < {count}; ++{name}) {statement}"]


def over(text: str | int, divisor: int | Argument) -> str:
    """``text / divisor``, where ``text`` is never negative, and an ``int`` if a run decides the divisor."""
    text = str(text)
    if isinstance(divisor, Argument):
        return text if text == "0" else divisor.arguments.divided(text, divisor.size)
    if divisor == 1 or text == "0":
        return text
    return str(int(text) // divisor) if text.isdigit() else f"{_tight(text)} / {divisor}"


def modulo(text: str | int, divisor: int | Argument) -> str:
    """``text % divisor``, where ``text`` is never negative, and an ``int`` if a run decides the divisor."""
    text = str(text)
    if isinstance(divisor, Argument):
        return text if text == "0" else divisor.arguments.rest(text, divisor.size)
    if divisor == 1 or text == "0":
        return "0"
    return str(int(text) % divisor) if text.isdigit() else f"{_tight(text)} % {divisor}"


def remainder(product: str, divisor: int | Argument) -> str:
    """``product % divisor``, like ``modulo``, where ``product`` needs no parentheses."""
    return modulo(product, divisor) if isinstance(divisor, Argument) else f"{product} % {divisor}"


def _tight(text: str) -> str:
    """``text`` as an operand of a product: a sum gets parentheses."""
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == " " and depth == 0 and position:
            return f"({text})"
    return text


def loop(index: str, count: int, body: Sequence[str], *, unrolled: bool = True) -> list[str]:
    """A loop that runs ``body`` for each value of ``index`` below ``count``.

    A count of one needs no loop; ``body`` then has to contain 0 in place of the index.
    """
    if count == 1:
        return list(body)
    head = [f"for (int {index} = 0; {index} < {count}; ++{index}) {{"]
    return [*(["#pragma unroll"] if unrolled else []), *head, *body, "}"]


def guarded(condition: str, body: Sequence[str]) -> list[str]:
    """``body`` under ``if (condition)``; without the ``if`` when the condition is empty."""
    return [f"if ({condition}) {{", *body, "}"] if condition else list(body)


def stage(comment: str, body: Sequence[str]) -> list[str]:
    """``body`` after an empty line and what it does; nothing if it is empty."""
    return ["", f"// {comment}", *body] if body else []


def tidy(text: str) -> str:
    """Indents ``text`` by its braces, and keeps single blank lines between statements.

    Templates need not know how deeply the blocks that hooks return are nested. Lines of a parameter list, which come
    before the brace, keep their own indentation.
    """
    lines: list[str] = []
    depth = 0
    in_signature = False
    for line in (raw.rstrip() for raw in text.splitlines()):
        body = line.lstrip()
        if not body:
            if lines and lines[-1] and not lines[-1].endswith("{"):
                lines.append("")
            continue
        if depth == 0 and not in_signature:
            in_signature = body.endswith("(")
            indent = ""
        elif in_signature:
            indent = line[: len(line) - len(body)]
        else:
            indent = "  " * (depth - body.startswith("}"))
        if body.startswith("}") and lines and not lines[-1]:
            lines.pop()
        lines.append(indent + body)
        code = body.split("//")[0]
        depth += code.count("{") - code.count("}")
        in_signature = in_signature and depth == 0
    return "\n".join(lines).rstrip() + "\n"
