"""Every block of code in README, CONTRIBUTING and docs/ runs or is checked, and what the pages send the reader to is there."""

from __future__ import annotations

import importlib
import json
import re
from urllib.parse import urlparse

import pytest

import gpucomp
from gpucomp import config
from tests.docs.conftest import save_photo
from tests.docs.pages import DOCS, PAGES, ROOT, blocks, commands, name, prose
from tests.docs.session import EXTRAS, NOT_HERE, PROJECT, SMALLER, TARGETS, Session, key_of

MOST_WORDS = 900  # of the README: what is read in three minutes
LANGUAGES = {"python", "sh", "text", "diff", "jinja", "toml", "c"}
RUN = [
    page
    for page in PAGES
    if page.parent != DOCS / "extend" and any(b.language in ("python", "sh") for b in blocks(page))
]
README = ROOT / "README.md"


SLOW = {"docs/tutorial.md"}  # a whole network is compiled, and compared tensor by tensor


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[pytest.mark.slow] * (name(p) in SLOW), id=name(p)) for p in RUN]
)
def test_the_blocks_of_a_page_run(page, place, monkeypatch):
    if re.search(r"photo\.jpg|\bPIL\b", page.read_text(encoding="utf-8")):
        save_photo(place / "photo.jpg")
    if "import tritonclient" in page.read_text(encoding="utf-8"):
        pytest.importorskip("tritonclient.http", reason="pip install tritonclient[http]")
    session = Session(place, monkeypatch)

    try:
        for block in blocks(page):
            session.run(block)
    finally:
        session.close()


@pytest.mark.filterwarnings("ignore")  # of torch's exporter about torch
def test_the_examples_with_torch_run():
    pytest.importorskip("torch", reason="could not import 'torch'")
    pytest.importorskip("onnxscript", reason="could not import 'onnxscript'")
    found = [b for b in blocks(DOCS / "how-to" / "deploy.md") if not b.runs and "torch.onnx" in b.text]
    names = {"gpucomp": gpucomp}

    for block in found:
        exec(compile(block.text, str(block), "exec"), names)

    assert len(found) == 2
    assert names["y"].shape == (5, 8, 62, 62)


@pytest.mark.filterwarnings("ignore")  # of torch about torch
def test_the_page_about_torch_runs(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="could not import 'torch'")
    pytest.importorskip("onnxscript", reason="could not import 'onnxscript'")
    from torch._dynamo.backends import registry

    monkeypatch.setitem(registry._BACKENDS, "gpucomp", None)
    monkeypatch.setitem(registry._COMPILER_FNS, "gpucomp", importlib.import_module("gpucomp.torch").backend)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    torch.compiler.reset()

    for block in [b for b in blocks(DOCS / "how-to" / "pytorch.md") if b.language == "python"]:
        exec(compile(block.text, str(block), "exec", dont_inherit=True), names)

    assert names["y"].shape == (4, 10)
    assert [graph.compiled for graph in gpucomp.torch.report().graphs] == [True, True]
    assert names["exe"].inputs[0].shape[0].high == 64


def test_what_is_made_smaller_or_left_out_is_on_a_page():
    """An exception that is not needed any more is deleted."""
    found = set()
    for page in PAGES:
        for block in blocks(page):
            if block.language == "sh":
                for command in commands(block):
                    program, *words = command.words
                    found.add(key_of(words[1:] if program == "python" else command.words))

    assert found - {""} == {*SMALLER, *NOT_HERE}
    named = re.findall(r"tests/\S+\.py", " ".join(NOT_HERE.values()))
    assert len(named) >= 4
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_most_pages_have_blocks_that_run():
    assert len(RUN) >= 14
    assert sum(b.runs and b.language in ("python", "sh") for page in RUN for b in blocks(page)) >= 60


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_says_its_language(page):
    assert {block.language for block in blocks(page)} <= LANGUAGES
    # an indented block would be shown as code, and no test would run it
    assert not re.search(r"\n\n {4,}(gpucomp|python|make|import|from) ", prose(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_block_is_overlooked(page):
    text = page.read_text(encoding="utf-8")

    assert len(re.findall(r"^[ \t>]*(?:```|~~~)", text, re.MULTILINE)) == 2 * len(blocks(page))
    assert not re.search(r"^(=== |!!! |\?\?\?)|<pre|<code", text, re.MULTILINE)  # tabs, boxes and HTML may hold more
    assert text.count("<!-- no-run") == sum(not block.runs for block in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page):
    generated = {DOCS / "reference" / "commands.md"}
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if urlparse(target).scheme or target.startswith("#"):
            continue
        found = (page.parent / target.partition("#")[0]).resolve()
        assert found.exists() or found in generated, target
        assert page in (README, ROOT / "CONTRIBUTING.md") or found.is_relative_to(DOCS), f"{target} is not in the site"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_paths_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    made = [block.title for block in blocks(page) if block.title]
    named = re.findall(r"`((?:gpucomp|tests|testing|bench|kernels_templates|tuning|examples|docs)/[\w/.-]*)`", text)

    missing = [path for path in named if not (ROOT / path).exists()]
    assert [path for path in missing if not any(title.startswith(path) for title in made)] == []


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_the_readme_has_one_picture_drawn_from_committed_results():
    from bench.cpu.picture import picture
    from bench.cpu.report import rows_of

    (shown,) = re.findall(r"!\[[^]]*\]\(([^)]*)\)", README.read_text(encoding="utf-8"))
    rows = rows_of(json.loads((ROOT / "bench/results/cpu_1.json").read_text(encoding="utf-8")))

    assert (ROOT / shown).read_text(encoding="utf-8") == picture(rows)


def test_the_ratios_of_the_readme_are_those_of_the_results():
    rows = re.findall(r"^\|(.*)\| `(bench/results/\w+\.md)` \|$", README.read_text(encoding="utf-8"), re.MULTILINE)

    assert len(rows) == 4
    for cells, results in rows:
        (means,) = re.findall(
            r"^\| geometric mean \|(.*)\|$", (ROOT / results).read_text(encoding="utf-8"), re.MULTILINE
        )
        written = [cell.strip() for cell in cells.split("|")[1:] if cell.strip()]
        assert written == [cell.strip() for cell in means.split("|")[3:]]


def test_extras_and_targets_of_make_that_pages_name_exist():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)

    named = {extra for found in re.findall(r"'\.\[([\w,]+)\]'", text) for extra in found.split(",")}

    assert {"pocl", "nvrtc", "cuda13", "tune"} <= named <= EXTRAS
    assert {"test", "fuzz", "layouts"} <= set(re.findall(r"`make ([a-z-]+)", text)) <= TARGETS


def test_the_extras_that_are_listed_are_those_that_exist():
    page = (DOCS / "how-to" / "install.md").read_text(encoding="utf-8")

    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)

    assert {extra.strip("`") for row in rows for extra in row.split(", ")} == EXTRAS
    (whole,) = re.findall(r'^all = \["gpucomp\[([\w,]+)\]"\]', PROJECT, re.MULTILINE)
    (left_out,) = re.findall(r"^\| `all` \| all of these but (.*) \|$", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", left_out)) == EXTRAS - {"all"} - set(whole.split(","))


def test_the_settings_that_are_listed_are_those_that_exist():
    page = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")

    listed = set(re.findall(r"^\| `(\w+_\w+)", page, re.MULTILINE))

    of_others = {"rocm": "ROCM_PATH"}  # variables that are not ours
    assert listed == {of_others.get(field, f"GPUCOMP_{field.upper()}") for field in config.Config.__dataclass_fields__}


def test_code_cites_no_page_that_is_not_there():
    sources = [
        p
        for folder in ("gpucomp", "tuning", "kernels_templates", "testing", "bench")
        for p in (ROOT / folder).rglob("*")
    ]
    texts = [p.read_text(encoding="utf-8") for p in sources if p.suffix in (".py", ".j2", ".h") and p.is_file()]
    cited = {found for text in texts for found in re.findall(r"(?<![\w/.])(?:docs/)?[\w-]+\.md\b(?= \d)", text)}
    cited |= {found for text in texts for found in re.findall(r"docs/[\w/-]+\.md", text)}

    assert "docs/conformance.md" in cited
    assert [page for page in cited if not (ROOT / page).exists()] == []
