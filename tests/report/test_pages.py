"""Each page in Chromium: it draws what it is given, its scripts work, and hostile texts are only texts."""

import itertools
import json
import re

import numpy as np
import onnx
import pytest

from gpucomp import cli, config, files
from gpucomp.cli import profile, profile_page
from gpucomp.report import page
from gpucomp.runtime.kernel_info import KernelInfo
from gpucomp.tuning import study_page
from gpucomp.tuning.page import replayed
from gpucomp.tuning.recorded import Row, space_of
from gpucomp.tuning.replay import replay
from tests.browser import opened
from tests.hostile.names import NAMES, everywhere
from tests.onnx_builders import model, node, value
from tests.runtime.samples import CEILINGS
from tests.tuning.test_study_page import searched

BREAKOUT = (
    "</script></title></style><script>document.title='PWNED'</script><img src=x onerror=\"document.title='PWNED'\">\"'"
)
HOSTILE = [BREAKOUT, *(name for name in NAMES.values() if name.strip())]


def check_inert(dom: str, title: str) -> None:
    """The page has its own title and elements, and no text of it is more than a text."""
    assert re.search(r"<title>(.*?)</title>", dom, re.DOTALL)[1].startswith(title)
    markup = re.sub(r"<script.*?</script>|<style.*?</style>", "", dom, flags=re.DOTALL)
    assert not re.search(r"<(img|iframe|object|embed|link|base|form)\b|\son\w+=", re.sub(r'"[^"]*"|>[^<]*', "", markup))
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069\u200b\x00-\x08\x1b\x85]", dom)


def test_hostile_texts_become_one_short_printable_line():
    for text in HOSTILE:
        found = page.line(text)
        assert found.isprintable()
        assert len(found) <= page.MOST_SHOWN
        assert not set("<>\"'") & set(page.shown(text))
    assert page.line("e" + "\u0301" * 500 + "x") == "e" + "\u0301" * page.MOST_MARKS + "x"


def test_data_cannot_end_its_element():
    found = page.data("d", [BREAKOUT])

    assert found.count("<") == 2
    assert "<script type=" in found


def test_columns_of_numbers_are_set_to_the_right():
    found = page.table(("name", "time", "change"), [("a", "1.5 (1 to 2)", "1 → 2"), ("b", "-", "2 → 4")])

    assert re.findall(r"<t[dh]( class=\"n\")?>", found) == ["", ' class="n"', ""] * 3


def test_the_style_sheet_and_no_other_module_says_how_many_colours_there_are():
    root = page.HERE.parent
    sheet = (page.HERE / "page.css").read_text(encoding="utf-8")
    sources = [path for folder in ("cli", "report") for path in (root / folder).glob("*.py")]

    assert set(re.findall(r"--c(\d+):", sheet)) == set(map(str, range(page.COLOURS)))
    assert [p.name for p in sources if re.search("^COLOURS =", p.read_text(encoding="utf-8"), re.M)] == ["page.py"]


def test_a_page_that_cannot_be_written_is_a_usage_error(tmp_path):
    with pytest.raises(Exception, match="GPC2005"):
        files.write(tmp_path / "gone" / "p.html", "")


def test_the_profile_draws_each_kernel_against_its_floor_and_sorts(tmp_path):
    infos = [KernelInfo(name, "loops", ("Mul",), (), label=name, operations=2 * 10**9, traffic=1 << 20, arithmetic="f32")
             for name in ("quick", "slow", BREAKOUT)]  # fmt: skip
    runs = [([0.010, 0.040, 0.020], []), ([0.012, 0.044, 0.022], []), ([0.011, 0.042, 0.021], [])]
    found = profile.Profile(runs, CEILINGS, profile.rows(infos, runs, CEILINGS))
    path = tmp_path / "p.html"
    files.write(path, profile_page.text(found, BREAKOUT, ["how"]))

    dom = opened(path, then="document.querySelector('[data-by=ms]').click()")

    assert re.findall(r'<tr data-number="(\d)"', dom) == ["2", "3", "1"]  # the slowest first
    bars = [float(share) for share in re.findall(r'<div class="bar"><i style="width:([\d.]+)%', dom)]
    floors = [float(share) for share in re.findall(r'<b style="left:([\d.]+)%', dom)]
    longest = 44  # ms: the slowest run
    assert bars == pytest.approx([100 * 42 / longest, 100 * 21 / longest, 100 * 11 / longest], abs=0.01)
    assert floors == pytest.approx([100 * row.floor_ms / longest for row in found.rows][:1] * 3, abs=0.01)
    check_inert(dom, "Profile of &lt;/script")


def test_a_profile_without_measured_peaks_has_no_word_of_floors():
    (info,) = [
        KernelInfo("k", "loops", ("Mul",), (), label="k", operations=2 * 10**9, traffic=1 << 20, arithmetic="f32")
    ]
    runs = [([0.010], [])]

    with_peaks, without = (
        profile_page.text(profile.Profile(runs, peaks, profile.rows([info], runs, peaks)), "m.onnx", ["how"])
        for peaks in (CEILINGS, None)
    )

    for word in ("against its floor", "most above the floor", "x floor", "<th>limit"):
        assert (word in with_peaks, word in without) == (True, False)
    assert "peaks are measured on the CPU only" in without
    assert without.count("<th>") == re.search("<tbody>.*</tbody>", without)[0].count("<td")


def test_the_study_draws_a_curve_with_its_interval_for_each_sampler_and_the_space(tmp_path):
    rows = [Row({"tile": x, BREAKOUT: y, "mode": z}, None if x * y == 16 else x + 0.1 * y + 0.01 * hash(z))
            for x, y, z in itertools.product((1, 2, 4), (1, 2, 4), (0, 1))]  # fmt: skip
    space = space_of(BREAKOUT, NAMES["right_to_left"], rows, (64,))
    results = [replay(space, name, trials=12, seeds=3) for name in ("random", "grid")]
    path = tmp_path / "s.html"
    replayed(path, [space], results)

    dom = opened(path)

    curves = re.search(r"<figure>.*?</figure>", dom, re.DOTALL)[0]
    assert curves.count("<polygon") == curves.count('<path class="line"') == 2
    assert [name in curves for name in ("random", "grid")] == [True, True]
    assert all(len(points.split()) == 24 for points in re.findall(r'<polygon points="([^"]*)"', curves))
    assert dom.count("<figure>") == 1 + 2 + 3  # curves; sorted times, a map; a chart of each parameter
    assert dom.count("×</text>") == 1
    assert "Best time over the best of all; × failed</" in dom
    check_inert(dom, "Searches on recorded spaces")


@pytest.fixture
def drawn(tmp_path, monkeypatch, capsys):
    """Draws the graph of a model by the command line."""
    monkeypatch.chdir(tmp_path)
    with config.using():

        def draw(proto, *arguments, code=0):
            onnx.save(proto, "m.onnx")
            assert cli.main(["inspect", "m.onnx", *(arguments or ("--graph", "-o", "g.html"))]) == code
            return tmp_path / "g.html" if code == 0 else capsys.readouterr().err

        yield draw


def convolved() -> onnx.ModelProto:
    """A Conv with its Relu, and two numbers that are added at compile time."""
    nodes = [node("Conv", ["x", "w"], ["c"], name="conv"), node("Relu", ["c"], ["r"], name="act"),
             node("Add", ["one", "one"], ["two"], name="folded"), node("MaxPool", ["r"], ["p"], name="pool", kernel_shape=[2, 2]),
             node("Mul", ["p", "two"], ["y"], name="scale")]  # fmt: skip
    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "one": np.ones(1, np.float32)}
    return model(nodes, [value("x", (1, 3, 8, 8))], ["y"], weights=weights)


def test_the_graph_shows_what_is_fused_and_finds_a_node(drawn):
    dom = opened(drawn(convolved()), "act")

    assert ">1 found in 1 kernels<" in dom
    (hit,) = re.findall(r'<g class="k[^"]*\bhit\b[^"]*" data-k="(\d)"', dom)
    assert hit == "1"  # 0 is the input
    box = re.search(r'<g class="k[^"]*" data-k="1".*?</g>', dom, re.DOTALL)[0]
    assert "<tspan>Conv</tspan> conv" in box
    assert "<tspan>Relu</tspan> act" in box
    assert len(re.findall(r'<path class="e[^"]*\bon\b', dom)) == 2  # from the input, to the pool


def test_every_kernel_that_writes_a_part_of_a_value_leads_to_its_reader(drawn):
    nodes = [node("MatMul", ["x", "v"], ["a"]), node("MatMul", ["x", "w"], ["b"]), node("Tanh", ["b"], ["t"]),
             node("Concat", ["a", "t"], ["y"], axis=1)]  # fmt: skip
    weights = {"v": np.ones((32, 24), np.float32), "w": np.ones((32, 40), np.float32)}
    text = drawn(model(nodes, [value("x", (16, 32))], ["y"], weights=weights)).read_text(encoding="utf-8")

    found = json.loads(re.search(r'<script[^>]*id="graph-data"[^>]*>(.*?)</script>', text, re.DOTALL)[1])

    assert [box["head"].split()[-1] for box in found["boxes"]] == ["x", "MatMul", "MatMul", "y"]
    assert found["edges"] == [[0, 1], [0, 2], [1, 3], [2, 3]]


def test_the_graph_tells_of_a_chosen_kernel_and_of_nodes_in_none(drawn):
    path = drawn(convolved())
    chosen = opened(path, then="document.querySelector('.k[data-k=\"1\"]').dispatchEvent(new Event('click'))")
    folded = opened(path, "folded")

    panel = re.search(r'<aside id="panel">.*?</aside>', chosen, re.DOTALL)[0]
    assert "<dt>engine</dt>" in panel
    assert "<dd>f32[4,3,3,3]</dd>" in panel or "f32[3,3,3,4]" in panel
    assert "<li>act</li>" in panel
    assert ">0 found" not in folded
    assert "<li>Add folded</li>" in re.search(r'<aside id="panel">.*?</aside>', folded, re.DOTALL)[0]


def test_hostile_names_in_a_graph_are_only_texts(drawn):
    every = [*dict.fromkeys(name[:300] for name in HOSTILE if "\0" not in name)]
    nodes = [node("Relu", ["x"], [f"{k}{name}"], name=f"{k}{name}") for k, name in enumerate(every)]
    path = drawn(model(nodes, [value("x", (3,))], [n.output[0] for n in nodes]))

    dom = opened(path, then="for (const one of document.querySelectorAll('.k')) one.dispatchEvent(new Event('click'))")

    check_inert(dom, "Graph of m.onnx")
    assert dom.count('data-k="') > len(every)


def test_every_name_and_text_of_a_model_may_be_hostile(drawn):
    draws = drawn(everywhere(BREAKOUT), "--graph", "-o", "g.html", "--shapes", f"{BREAKOUT}0:2x3")

    check_inert(opened(draws), "Graph of m.onnx")


@pytest.mark.parametrize("arguments", [("--graph",), ("--graph", "before", "-o", "g.html"), ("-o", "g.html")])
def test_a_graph_of_kernels_wants_a_file_and_a_file_wants_a_graph(drawn, arguments):
    assert "give --graph -o FILE.html" in drawn(convolved(), *arguments, code=2)


def test_the_page_of_a_search_draws_its_trials_and_folds_its_sources(tmp_path):
    made = searched(tmp_path)
    path = tmp_path / "records.html"
    found = [r | {"label": BREAKOUT} if r.get("label") else r for r in made.tools.store.read()]
    study_page.write(path, found, {made.task.kernel.digest: made.task}, BREAKOUT)

    dom = opened(path)

    search = re.search(r"<figure><figcaption>The search.*?</figure>", dom, re.DOTALL)[0]
    assert search.count("<title>") == sum(r["kind"] == "trial" and r["invalidity"] == "correct" for r in found)
    assert search.count('<path class="line') == 1
    (source,) = re.findall(r"<details>(.*?)</details>", dom, re.DOTALL)
    assert "The default's source beside the winner's" in source
    assert "<pre>---" in source
    check_inert(dom, "&lt;/script")


def test_the_intervals_of_many_samplers_are_in_the_table_alone(tmp_path):
    rows = [
        Row({"tile": x, "width": y}, None if x * y == 16 else x + 0.1 * y)
        for x, y in [(1, 1), (1, 4), (2, 4), (4, 4), (4, 1)]
    ]
    space = space_of("k", "device", rows, (64,))
    results = [replay(space, "random", trials=4, seeds=3)] * 4
    path = tmp_path / "s.html"

    replayed(path, [space], results)

    text = path.read_text()
    assert "<polygon" not in text
    assert "in parentheses in the table is the range of 3 searches" in text
    assert "Best time over the best of all; × failed; empty: not measured" in text
