"""The page of errors: every code with its cause and its mend, and examples that the code can really write."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import DOCS, ROOT

PAGE = (DOCS / "errors.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^### (GPC\d{4}): (.+)\n\n(?:```text\n(.*)\n```\n\n)?- Cause: (.+)\n- Mend: (.+)$", re.MULTILINE)
SECTIONS = {code: rest for code, *rest in SECTION.findall(PAGE)}
CODE = re.compile(r"GPC\d{4}")
UNSAID = {
    "GPC1100",
    "GPC1200",
    "GPC3000",
    "GPC3100",
    "GPC4000",
    "GPC5000",
    "GPC5006",
    "GPC5200",
    "GPC6000",
    "GPC7100",
    "GPC8000",
}  # no text of their own


def pattern(message: ast.expr) -> str:
    """What a message looks like: the text between its expressions."""
    match message:
        case ast.Constant(value=str(text)):
            return re.escape(text)
        case ast.JoinedStr(values=parts):
            return "".join(pattern(part) if isinstance(part, ast.Constant) else ".*" for part in parts)
    return ".*"


def messages() -> dict[str, set[str]]:
    """The patterns of the messages of each code, of all calls with ``code=``, and of the command line's own errors."""
    found: dict[str, set[str]] = {}
    for path in [p for folder in ("gpucomp", "tuning") for p in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            coded = [(k.value, node.args[0]) for k in node.keywords if k.arg == "code"]
            if isinstance(node.func, ast.Name) and node.func.id == "print_error":
                coded.append((node.args[0], node.args[1]))
            coded += [(code, k.value) for code, _ in coded for k in node.keywords if k.arg == "in_shell"]
            option = (
                "--" if ast.unparse(node.func) == "wrong_argument" else ""
            )  # what ``wrong_argument`` puts before it
            for code, message in coded:
                for part in ast.walk(code):
                    if isinstance(part, ast.Constant) and CODE.fullmatch(str(part.value)):
                        found.setdefault(part.value, set()).add(option + pattern(message))
    return found


MESSAGES = messages()


def test_every_code_of_the_page_has_a_section():
    assert set(SECTIONS) == set(re.findall(r"^### (GPC\d{4})", PAGE, re.MULTILINE))
    assert len(SECTIONS) > 100
    assert set(CODE.findall(PAGE)) == set(SECTIONS)


def test_limits_come_after_the_codes():
    assert PAGE.index("## Limits") > max(PAGE.index(f"### {code}") for code in SECTIONS)


def test_every_code_with_a_message_of_its_own_has_an_example():
    assert {code for code, (_, example, *_) in SECTIONS.items() if not example} == UNSAID


@pytest.mark.parametrize("code", sorted(set(SECTIONS) & set(MESSAGES) - UNSAID))
def test_an_example_is_a_message_that_the_code_can_write(code):
    _, example, _, _ = SECTIONS[code]

    assert any(re.fullmatch(each, example) for each in MESSAGES[code]), sorted(MESSAGES[code])


def test_most_examples_are_held_to_the_text_of_a_message():
    assert sum(".*" not in MESSAGES.get(code, {".*"}) for code in SECTIONS) > 70
