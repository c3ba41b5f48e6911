"""The page of our own records: every kernel that was tuned, by its own figures, with its source where a model has it."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest

from gpucomp.errors import UsageError
from gpucomp.tuning import choice, study_page
from gpucomp.tuning import page as page_of_searches
from gpucomp.tuning.space import Candidates
from testing.kernels import matmul
from tests.tuning.fakes import Builders, Device
from tests.tuning.test_study import KERNEL, M, N, right, speeds, study, texts


def searched(folder, **changes):
    """A search whose times are made up, with a pick, one candidate that is not built and one that is killed."""
    device = Device(right(matmul(M, N, 11)))
    made = study(folder, device)
    bad, killer = texts(made)[3], texts(made)[5]
    made = study(
        folder,
        device,
        builders=Builders(lambda text: "no <register> left" if text == bad else ""),
        die=lambda text: "killed" if text == killer else "",
    )
    device.seconds = speeds(made).__getitem__
    made.batch(20)
    winner = made.leaders(1)[0]
    verdict = choice.Verdict(winner, 0.625, (0.5, 0.8), 36, 4, False)
    made.tools.store.append("pick", made.pick(winner, verdict.fields))
    return made


def written(tmp_path, made, tasks=()):
    path = tmp_path / "page.html"
    study_page.write(path, made.tools.store.read(), {task.kernel.digest: task for task in tasks})
    page = path.read_text(encoding="utf-8")
    return page[page.index("</style></head>") :]


def rows(page):
    """The cells of all tables."""
    found = re.findall(r"<tr>(.*?)</tr>", page)
    return [[html.unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in found]


def test_the_page_says_how_the_search_went_and_what_is_around_the_winner(tmp_path):
    made = searched(tmp_path)
    page = written(tmp_path, made)

    cells = rows(page)
    (first,) = [row for row in cells if row[0] == KERNEL.digest[:12]]
    trials = [r for r in made.tools.store.read() if r["kind"] == "trial"]
    assert first[3:5] == [str(len(trials)), "2"]
    assert first[6:8] == ["1.600", "1.250 to 2.000"]
    assert ["1", "compile", "no <register> left"] in cells
    assert any(row[:2] == ["1", "killed"] for row in cells)
    default, fastest = (next(row for row in cells if row[0] == name) for name in ("default", "fastest"))
    assert default[1] == f"{made.task.default.family.title} " + " ".join(
        f"{k}={v}" for k, v in made.task.default.schedule.items()
    )
    assert fastest[1] == first[8]  # the pick
    best = made.leaders(1)[0].schedule
    around = [row for row in cells if len(row) == 3 and "→" in row[1]]
    assert around
    assert all(row[1].startswith(f"{best[row[0]]} → ") for row in around)
    ratios = [float(row[2]) for row in around if row[2] != "failed"]
    assert ratios == sorted(ratios)
    assert min(ratios) >= 1


def test_without_a_model_there_is_no_source_and_with_it_there_is_what_differs(tmp_path):
    made = searched(tmp_path)
    assert "source beside" not in written(tmp_path, made)

    page = html.unescape(written(tmp_path, made, [made.task]))
    winner = made.leaders(1)[0]
    old, new = (made.render(c)[0].text.splitlines() for c in (made.task.default, winner))
    gone = next(line for line in old if line not in new)
    assert "The default's source beside the winner's" in page
    assert f"-{gone}" in page


def test_a_long_difference_is_cut_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(study_page, "MOST_LINES", 5)
    made = searched(tmp_path)
    lines = study_page.difference(
        made.task, made.trials[-1] | {"configuration": made.leaders(1)[0].schedule}
    ).splitlines()

    assert len(lines) == 6
    assert re.fullmatch(r"\.\.\. and \d+ more lines", lines[-1])


def test_what_cannot_be_rendered_any_more_is_said(tmp_path):
    made = searched(tmp_path)
    best = dict(made.leaders(1)[0].schedule)

    assert (
        study_page.difference(made.task, {"engine": "abacus", "configuration": best})
        == "the engine abacus no longer exists"
    )


@pytest.mark.parametrize("every", [True, False])
def test_an_engine_without_parameters_has_no_space(tmp_path, every):
    found = searched(tmp_path).tools.store.read()
    bare = [r for r in found if r["kind"] == "trial" and r["invalidity"] == "correct"]
    changed = [r | {"configuration": {}} if r in bare[: None if every else 3] else r for r in found]
    changed = [r for r in changed if not (every and r.get("invalidity") in ("compile", "killed"))]
    study_page.write(tmp_path / "p.html", changed, {})

    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert ("It has no parameters." in page) == every
    assert ("One parameter away from the winner" in page) != every
    assert KERNEL.digest[:12] in page


def test_texts_of_records_are_escaped(tmp_path):
    made = searched(tmp_path)
    found = [r | ({"label": "<b>conv</b>"} if "label" in r else {}) for r in made.tools.store.read()]
    study_page.write(tmp_path / "p.html", found, {})

    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;conv&lt;/b&gt;" in page
    assert "<b>conv</b>" not in page


def test_records_without_a_success_are_refused(tmp_path):
    made = searched(tmp_path)
    found = [r for r in made.tools.store.read() if r.get("invalidity") != "correct"]
    with pytest.raises(UsageError, match="no trial in these records succeeded"):
        study_page.write(tmp_path / "p.html", found, {})


def test_every_kernel_is_in_the_first_table_and_those_without_a_success_have_no_section(tmp_path):
    made = searched(tmp_path)
    found = made.tools.store.read()
    hopeless = [r | {"kernel": "f" * 64, "label": "hopeless"} for r in found if r["kind"] == "task" or r.get("fault")]
    shown = study_page.write(tmp_path / "p.html", [*found, *hopeless], {})

    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert shown == 1
    assert [row[:2] for row in rows(page) if row[0] == "f" * 12] == [["f" * 12, "hopeless"]]
    assert f"hopeless ({'f' * 12})</h2>" not in page
    assert "1 of these kernels have no section below: no trial of theirs succeeded." in page


def test_kernels_that_were_not_tried_are_folded(tmp_path):
    made = searched(tmp_path)
    found = made.tools.store.read()
    begun = next(r for r in found if r["kind"] == "launch") | {"kernel": "f" * 64, "label": "untried"}
    shown = study_page.write(tmp_path / "p.html", [*found, begun], {})

    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert shown == 1
    assert "<details><summary>1 more kernel not tried</summary>" in page
    assert page.index("f" * 12) > page.index("not tried")
    assert "no trial of theirs succeeded" not in page


def test_the_default_is_at_best_as_fast_as_itself(tmp_path):
    made = searched(tmp_path)
    found = [
        r | {"ratio": 0.5} if r["kind"] == "trial" and r.get("default") else r
        for r in made.tools.store.read()
        if r["kind"] == "task" or r.get("default")
    ]
    study_page.write(tmp_path / "p.html", found, {})

    row = next(
        row for row in rows((tmp_path / "p.html").read_text(encoding="utf-8")) if row[0] == made.task.kernel.digest[:12]
    )
    assert row[5] == "1.000"


def test_few_points_are_said_to_be_few(tmp_path):
    page = written(tmp_path, searched(tmp_path))

    assert "that it expected to be fast. They are fewer than 30: " in page
    assert "fewer" not in study_page.caveat(study_page.FEW)


def test_a_small_sample_has_no_shares_of_variance_and_is_no_space(tmp_path, monkeypatch):
    monkeypatch.setattr("gpucomp.tuning.page.FEW", 1000)
    page = written(tmp_path, searched(tmp_path))

    assert "Share of the variance" not in page
    assert "points that the search tried" in page
    assert "in the file" not in page


def test_one_point_is_no_points():
    said = page_of_searches.space(Candidates(("a",), np.array([[1]])), np.array([2.0]), sampled=True)[0]

    assert "1 point that the search tried, 1 measured. 1 of them takes at most" in said


def test_the_values_of_a_parameter_have_the_number_of_their_points(tmp_path):
    made = searched(tmp_path)
    right = [r for r in made.tools.store.read() if r["kind"] == "trial" and r["invalidity"] == "correct"]
    page = written(tmp_path, made)

    engine = right[0]["engine"]
    for name in right[0]["configuration"]:
        for value in {r["configuration"][name] for r in right}:
            count = sum(r["engine"] == engine and r["configuration"][name] == value for r in right)
            varies = len({r["configuration"][name] for r in right}) > 1
            assert not varies or f"{value} ({count})" in page


def test_the_fastest_tenth_of_a_small_sample_has_no_shares(tmp_path, monkeypatch):
    monkeypatch.setattr("gpucomp.tuning.page.FEW", 5)
    page = written(tmp_path, searched(tmp_path))

    assert "Share of the variance" in page
    assert "of the fastest tenth" not in page


def test_a_winner_without_a_neighbour_is_told_so(tmp_path):
    found = searched(tmp_path).tools.store.read()
    right = [r for r in found if r["kind"] == "trial" and r["invalidity"] == "correct"]
    winner = min(right, key=lambda r: r["ratio"])
    far = [r for r in right if sum(r["configuration"].get(k) != v for k, v in winner["configuration"].items()) > 1]
    assert far
    study_page.write(tmp_path / "p.html", [winner, far[0]], {})

    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "No point was tried that differs from the winner in one parameter only." in page


def test_a_default_that_nothing_was_measured_for_has_no_interval(tmp_path):
    made = searched(tmp_path)
    found = [
        r | {"ratio": 1.0, "interval": [1.0, 1.0], "rounds": 0} if r["kind"] == "pick" else r
        for r in made.tools.store.read()
    ]
    study_page.write(tmp_path / "p.html", found, {})

    (row,) = (row for row in rows((tmp_path / "p.html").read_text(encoding="utf-8")) if row[0] == KERNEL.digest[:12])
    assert row[6:8] == ["1.000", "-"]
