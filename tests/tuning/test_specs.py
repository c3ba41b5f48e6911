"""One kernel in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpucomp import compiler
from gpucomp.cli.tune import tune
from gpucomp.errors import UsageError
from gpucomp.targets import cpu
from gpucomp.tuning import specs
from gpucomp.tuning.tasks import tasks_of


@pytest.mark.parametrize(
    ("text", "shape"),
    [("conv2d c=3 h=11 w=7 oc=5 k=3 pad=1 stride=2 relu=1", (1, 5, 6, 4)), ("conv2d c=6 h=5 groups=3 r=1 s=2", (1, 6, 5, 4)),
     ("matmul m=5 n=7 k=11", (5, 7)), ("matmul batch=2 m=5 n=7 k=11 relu=1", (2, 5, 7)), ("softmax rows=3 cols=17", (3, 17)),
     ("layernorm rows=3 cols=17", (3, 17)), ("maxpool c=3 h=8 k=3 pad=1", (1, 3, 4, 4)), ("add rows=3 cols=5", (3, 5))],
)  # fmt: skip
def test_a_kernel_in_words_is_one_task(text, shape):
    lowered = compiler.lower(specs.model(text), cpu.named("cpu:x86-64-v3"))

    assert [v.shape for v in lowered.graph.outputs] == [shape]
    assert len(tasks_of(lowered, cpu.named("cpu:x86-64-v3"))) == 1


@pytest.mark.parametrize(
    ("text", "match"),
    [("", "one of conv2d, matmul"), ("fft n=8", "one of conv2d"), ("matmul m=5 n=7", "k must be given"),
     ("matmul m=5 n=7 k=0", "k must be given"), ("matmul m=5 n=7 k=-3", "'k=-3'"), ("matmul m=5 n=7 k=x", "'k=x'"),
     ("matmul m=5 m=5 n=7 k=3", "is given twice"), ("matmul m=5 n=7 k=9999999", "'k=9999999'"), ("matmul m=5 n=7 q=3", "'q=3'"),
     ("matmul m=5 n=7 k", "'k'"), ("softmax rows=3", "cols must be given")],
)  # fmt: skip
def test_what_is_no_kernel_is_a_usage_error(text, match):
    with pytest.raises(UsageError, match=match):
        specs.parse(text)


def test_a_size_that_is_copied_from_a_missing_one_is_not_asked_for():
    with pytest.raises(UsageError, match="c, h must be given and be at least 1; conv2d takes n c h w oc k r s stride"):
        specs.parse("conv2d")


def test_the_page_and_the_help_list_every_kind_with_its_sizes():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "tune.md").read_text(encoding="utf-8")
    rows = {
        kind: row
        for row in page.splitlines()
        for kind in re.findall("`(\\w+)`", row.split("|")[1] if "|" in row else "")
    }
    (option,) = [o for o in tune.params if o.name == "kernels"]

    for kind, (sizes, _) in specs.SIZES.items():
        assert set(re.findall(r"`(\w+)[=`]", rows[kind].split("|", 2)[2])) == sizes.keys(), kind
        assert kind in option.help


def test_groups_that_do_not_divide_are_a_usage_error():
    with pytest.raises(UsageError, match="groups must divide"):
        specs.model("conv2d c=5 h=5 groups=2")
