"""``make docs`` builds the pages: no broken link, every page in the navigation, and a reference that has everything."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest

from docs.commands import commands, page
from gpucomp.cli.commands import gpucomp
from tests.docs.pages import DOCS, ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package, installed in (
        ("mkdocs-material", "material"),
        ("mkdocstrings[python]", "mkdocstrings_handlers.python"),
    ):
        pytest.importorskip(installed, reason=f"python -m pip install {package}")
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    ran = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


def test_every_page_is_built(site):
    pages = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}

    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}

    assert {str(p) for p in pages} | {"reference/commands"} <= {str(p) for p in built}
    assert not list(site.rglob("*.py"))


def test_the_reference_of_python_has_every_public_name(site):
    import gpucomp as package

    built = (site / "reference" / "python.html").read_text(encoding="utf-8")

    anchors = {found.rpartition(".")[2] for found in re.findall(r'id="(gpucomp[\w.]*)"', built)}
    assert set(package.__all__) <= anchors
    assert "<li><code>shapes</code>" in built  # the parameters of ``compile`` are a list


@pytest.mark.parametrize(("page", "others"), [("python", ["GpucompError"]), ("extending", [])])
def test_docstrings_in_the_reference_have_no_code_that_no_test_runs(site, page, others):
    built = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")

    signatures = re.findall(r'doc-signature highlight"><pre>', built)
    assert len(signatures) > 4
    assert re.findall(r"<pre><code>(\w+)", built) == others  # the tree of exceptions is text
    assert len(re.findall("<pre", built)) == len(signatures) + len(others)


def test_the_page_of_commands_has_every_command_and_option():
    text = page()

    sections = dict(re.findall(r"^## (gpucomp[\w ]*)\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    expected = {" ".join(path): command for path, command in commands(gpucomp, ("gpucomp",))}
    assert set(sections) == set(expected)
    assert len(sections) >= 18
    for name, command in expected.items():
        options = {o for p in command.params if isinstance(p, click.Option) for o in p.opts}
        assert [option for option in options if option not in sections[name]] == []
