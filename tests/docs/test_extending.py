"""The pages that add something are followed to the letter, each in a copy of the sources."""

from __future__ import annotations

import shutil

import pytest

from tests.docs.follow import FILES, PARTS, change, copied, followed
from tests.docs.pages import DOCS, ROOT, Block, blocks

PAGES = sorted(page for page in (DOCS / "extend").glob("*.md") if page.stem != "index")
SAYS = {
    "operator": ("Snake Sqrt", "passed"),
    "rule": ("abs_of_negative", "passed"),
    "kernel-pass": ("exact-quotients", "passed"),
    "engine": ("loops/strided", "point += ", "passed"),
    "target": ("opencl:adreno", "cpu:sandybridge", "passed"),
    "sampler": ("climbing:Climber",),
    "plugin": ("abs_of_negative",),
}


def test_each_thing_has_a_page():
    assert {page.stem for page in PAGES} == set(SAYS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page, tmp_path, files):
    if page.stem == "engine":
        from gpucomp.targets import opencl

        pytest.importorskip("pyopencl")
        if not opencl.devices():
            pytest.skip("no OpenCL device")
    shutil.copy(files / "model.onnx", tmp_path / "model.onnx")

    ran = followed(page, tmp_path)

    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    assert [text for text in SAYS[page.stem] if text not in ran.stdout] == []


def test_the_sampler_of_the_page_differs_from_a_random_one_on_the_space_of_the_page(tmp_path, monkeypatch):
    from gpucomp.tuning import recorded
    from gpucomp.tuning.replay import replay

    for block in blocks(DOCS / "extend" / "sampler.md"):
        if block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    (space,) = recorded.read(ROOT / "bench/results/spaces/matmul-61x96x200.json.gz")

    climbs, draws = (replay(space, name, trials=60, seeds=3).curve for name in ("climbing:Climber", "random"))

    assert climbs != draws


def test_a_diff_must_fit_the_file(tmp_path):
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n", encoding="utf-8")

    change(tmp_path, Block(ROOT / "README.md", 1, "diff", " one\n-two\n+2\n", "a.py"))

    assert (tmp_path / "a.py").read_text(encoding="utf-8") == "one\n2\nthree\n"
    with pytest.raises(AssertionError, match="0 places"):
        change(tmp_path, Block(ROOT / "README.md", 1, "diff", "-four\n+4\n", "a.py"))


def test_the_copy_does_not_change_the_sources(tmp_path):
    copied(tmp_path)
    change(tmp_path, Block(ROOT / "README.md", 1, "python", "X = 1\n", "gpucomp/errors.py"))

    assert (tmp_path / "gpucomp" / "errors.py").read_text(encoding="utf-8").endswith("X = 1\n")
    assert not (ROOT / "gpucomp" / "errors.py").read_text(encoding="utf-8").endswith("X = 1\n")
    assert all((tmp_path / name).exists() for name in (*PARTS, *FILES))
    golden = [path for path in (tmp_path / "tests" / "golden").rglob("*") if path.is_file()]
    assert len(golden) > 10
    assert not any(path.is_symlink() for path in golden)
