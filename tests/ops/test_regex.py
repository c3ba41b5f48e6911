"""Regular expressions: the same answers as Python's, and never more work than states times characters."""

import random
import re

import pytest

from gpucomp.ops.regex import MAX_STATES, Pattern, without_accents

PIECES = [
    "a",
    "b",
    "[ab]",
    "[^a]",
    ".",
    "(a|bc)",
    r"\w",
    r"\W",
    r"\d",
    r"\s",
    "(?:ab)?",
    "a{2,3}",
    "b*?",
    "(a|)",
    "[a-c]+",
    "^",
    "$",
    r"\b",
    "c{2}",
    "(?i:B)",
    "(ab){0,2}",
    "(a*b)*",
]


@pytest.mark.parametrize("seed", range(40))
def test_random_patterns_match_what_pythons_match(seed):
    rng = random.Random(seed)
    for _ in range(12):
        pattern = "".join(rng.choice(PIECES) for _ in range(rng.randrange(0, 5)))
        compiled = Pattern(pattern)
        for _ in range(20):
            text = "".join(rng.choice("abcB 1_") for _ in range(rng.randrange(0, 7)))
            assert compiled.matches(text) == bool(re.fullmatch(pattern, text, re.ASCII)), (pattern, text)


def test_case_and_lines_are_flags_inside_the_pattern():
    assert Pattern("(?i)ab[c-e]").matches("ABD")
    assert not Pattern("ab[c-e]").matches("ABD")
    assert Pattern("(?s)a.b").matches("a\nb")
    assert not Pattern("a.b").matches("a\nb")
    assert Pattern("(?m)a$\n^b").matches("a\nb")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*)*b", "a*a*a*a*a*a*b", "((a*)*)*b", "(.*)(.*)(.*)(.*)x"])
def test_patterns_that_backtracking_takes_forever_on_are_a_matter_of_states(pattern):
    assert not Pattern(pattern).matches("a" * 3000 + "c")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "not a regular expression"),
        ("a{3,1}", "not a regular expression"),
        ("(?=a)b", "uses assert, which RE2 does not have"),
        (r"(a)\1", "uses groupref, which RE2 does not have"),
        ("(?>a)", "which RE2 does not have"),
        ("a" * 10_001, "10001 characters"),
        ("(((a{99}){99}){99}){99}", f"more than {MAX_STATES} states"),
        ("(" * 5000 + ")" * 5000, "nested too deep|not a regular expression"),
    ],
)
def test_patterns_that_are_wrong_or_too_large_are_refused(pattern, message):
    with pytest.raises(ValueError, match=message):
        Pattern(pattern)


def test_repeating_nothing_ends():
    assert Pattern("(){99999}a").matches("a")
    assert not Pattern("(){0,99999}a").matches("")
    with pytest.raises(ValueError, match=f"more than {MAX_STATES} states"):
        Pattern("((){99999}){99999}")


def test_accents_are_left_out():
    assert without_accents("Grüße, Ǻç") == "Gruße, Ac"
