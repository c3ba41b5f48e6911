"""Regular expressions in linear time, by simulating a nondeterministic automaton (K. Thompson, Regular Expression Search
Algorithm, CACM 1968). Patterns come with the model and can be hostile: on some, backtracking takes exponential time.
Python's parser reads the pattern. Features that RE2 does not have (look-around, references to groups) are refused.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

MAX_STATES = 10_000
MAX_PATTERN = 10_000
Test = Callable[[str], bool]


class Pattern:
    """A compiled pattern. Raises ``ValueError`` if the pattern is invalid or too large."""

    def __init__(self, pattern: str) -> None:
        self.tests, self.moves, self.first, self.last = _compiled(pattern)

    def matches(self, text: str) -> bool:
        """Whether the whole of ``text`` matches."""
        states = self._reached([self.first], text, 0)
        for position, character in enumerate(text):
            next_states = []
            for state in states:
                test = self.tests[state]
                if test is not None and test(character):
                    next_states += self.moves[state][:1]
            states = self._reached((target for target, _ in next_states), text, position + 1)
            if not states:
                return False
        return self.last in states

    def _reached(self, states: Iterable[int], text: str, position: int) -> set[int]:
        """``states`` and all states that are reached from them without reading a character (epsilon closure)."""
        seen: set[int] = set()
        pending = list(states)
        while pending:
            state = pending.pop()
            if state in seen:
                continue
            seen.add(state)
            if self.tests[state] is None:
                pending += [target for target, here in self.moves[state] if here is None or here(text, position)]
        return seen


class _Builder:
    """Thompson's construction: every part of the pattern becomes a path from one state to another."""

    def __init__(self, flags: int) -> None:
        self.tests: list[Test | None] = []
        self.moves: list[list[tuple[int, Callable[[str, int], bool] | None]]] = []
        self.flags = flags

    def state(self, test: Test | None = None) -> int:
        if len(self.tests) >= MAX_STATES:
            raise ValueError(f"the pattern needs more than {MAX_STATES} states")
        self.tests.append(test)
        self.moves.append([])
        return len(self.tests) - 1

    def reading(self, test: Test, source: int) -> int:
        """Add a transition from ``source`` by one character that passes ``test``. Returns the state after it."""
        reader, target = self.state(test), self.state()
        self.moves[source].append((reader, None))
        self.moves[reader].append((target, None))
        return target

    def sequence(self, items: Iterable[tuple[Any, Any]], source: int) -> int:
        for code, argument in items:
            source = self.item(str(code), argument, source)
        return source

    def item(self, code: str, argument: Any, source: int) -> int:
        match code:
            case "LITERAL" | "NOT_LITERAL":
                inside = _equals(argument, self.flags)
                return self.reading(inside if code == "LITERAL" else lambda c: not inside(c), source)
            case "ANY":
                dot_all = bool(self.flags & re.DOTALL)
                return self.reading(lambda c: dot_all or c != "\n", source)
            case "IN":
                return self.reading(_one_of(argument, self.flags), source)
            case "BRANCH":
                target = self.state()
                for branch in argument[1]:
                    self.moves[self.sequence(branch, source)].append((target, None))
                return target
            case "SUBPATTERN":
                _, added, removed, inner = argument
                before, self.flags = self.flags, (self.flags | added) & ~removed
                source = self.sequence(inner, source)
                self.flags = before
                return source
            case "MAX_REPEAT" | "MIN_REPEAT":  # lazy and greedy are the same here: either the whole text matches or not
                least, most, inner = argument
                return self.repeat(least, most, inner, source)
            case "AT":
                target = self.state()
                self.moves[source].append((target, _anchor(str(argument), self.flags)))
                return target
        raise ValueError(f"the pattern uses {code.lower().replace('_', ' ')}, which RE2 does not have")

    def repeat(self, least: int, most: Any, inner: Any, source: int) -> int:
        for _ in range(least):
            before, source = source, self.sequence(inner, source)
            if source == before:
                break  # the repeated part is empty: once is enough
        target = self.state()
        self.moves[source].append((target, None))
        if not isinstance(most, int) or int(most) >= int(re._constants.MAXREPEAT):  # type: ignore[attr-defined]
            loop = self.state()
            self.moves[source].append((loop, None))
            end = self.sequence(inner, loop)
            self.moves[end] += [(loop, None), (target, None)]
            return target
        for _ in range(most - least):
            before, source = source, self.sequence(inner, source)
            if source == before:
                break
            self.moves[source].append((target, None))
        return target


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> tuple[list[Test | None], list[list[Any]], int, int]:
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"a pattern of {len(pattern)} characters, at most {MAX_PATTERN} are supported")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about future changes of Python's syntax
            parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern is not a regular expression: {error}") from None
    builder = _Builder(parsed.state.flags)
    first = builder.state()
    try:
        last = builder.sequence(parsed, first)
    except RecursionError:
        raise ValueError("the pattern is nested too deep") from None
    return builder.tests, builder.moves, first, last


def _equals(code: int, flags: int) -> Test:
    character = chr(code)
    if flags & re.IGNORECASE:
        folded = character.casefold()
        return lambda c: c.casefold() == folded
    return lambda c: c == character


def _one_of(items: Iterable[tuple[Any, Any]], flags: int) -> Test:
    tests: list[Test] = []
    negated = False
    for code, argument in items:
        match str(code):
            case "NEGATE":
                negated = True
            case "LITERAL":
                tests.append(_equals(argument, flags))
            case "RANGE":
                low, high = argument
                tests.append(_between(low, high, flags))
            case "CATEGORY":
                tests.append(_category(str(argument)))
    return lambda c: any(test(c) for test in tests) != negated


def _between(low: int, high: int, flags: int) -> Test:
    if flags & re.IGNORECASE:
        return lambda c: any(low <= ord(x) <= high for x in {c, *c.lower(), *c.upper()})
    return lambda c: low <= ord(c) <= high


def _is_word(c: str) -> bool:
    return c == "_" or (c.isascii() and c.isalnum())


_CATEGORIES: dict[str, Test] = {  # ASCII only, as in RE2
    "DIGIT": lambda c: "0" <= c <= "9",
    "SPACE": lambda c: c in " \t\n\r\f",
    "WORD": _is_word,
}


def _category(name: str) -> Test:
    kind = name.removeprefix("CATEGORY_")
    test = _CATEGORIES[kind.removeprefix("NOT_")]
    return (lambda c: not test(c)) if kind.startswith("NOT_") else test


def _anchor(name: str, flags: int) -> Callable[[str, int], bool]:
    lines = bool(flags & re.MULTILINE)

    def boundary(text: str, position: int) -> bool:
        before = position > 0 and _is_word(text[position - 1])
        return before != (position < len(text) and _is_word(text[position]))

    match name:
        case "AT_BEGINNING":
            return lambda text, p: p == 0 or (lines and text[p - 1] == "\n")
        case "AT_BEGINNING_STRING":
            return lambda text, p: p == 0
        case "AT_END":
            return lambda text, p: p == len(text) or (lines and text[p] == "\n")
        case "AT_END_STRING":
            return lambda text, p: p == len(text)
        case "AT_BOUNDARY":
            return boundary
        case "AT_NON_BOUNDARY":
            return lambda text, p: not boundary(text, p)
    raise ValueError(f"the pattern uses {name.lower()}, which is not supported")


def without_accents(text: str) -> str:
    """``text`` with composed characters decomposed (NFKD) and combining marks removed."""
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
