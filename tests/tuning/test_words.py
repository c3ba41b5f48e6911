"""Errors of the tuner speak of arguments in Python, and of options on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucomp.errors import GpucompError
from gpucomp.tuning import specs
from gpucomp.tuning.network import Address
from gpucomp.tuning.samplers import named
from gpucomp.tuning.samplers.ask_tell import opened


@pytest.mark.parametrize(
    ("wrong", "in_python", "in_shell"),
    [
        (lambda: named.check("frob"), "sampler 'frob': one of model", "--sampler 'frob': one of model"),
        (lambda: named.check("json:loads"), "sampler 'json:loads': a subclass", "--sampler 'json:loads': a subclass"),
        (lambda: specs.parse("matmul m=64"), "kernel 'matmul m=64': n, k must", "--kernel 'matmul m=64': n, k must"),
        (lambda: specs.parse("matmul q=1"), "kernel 'matmul q=1': 'q=1' is not", "--kernel 'matmul q=1': 'q=1' is not"),
        (lambda: opened("frob://x"), "storage 'frob://x': ", "--storage 'frob://x': "),
        (lambda: Address.parse("tls://10.0.0.1", False), "give certificates=", "give --tls-ca"),
        (lambda: Address.parse("10.0.0.1", False), "give certificates=", "give --tls-ca"),
    ],
)
def test_a_message_has_the_words_of_where_it_is_read(
    wrong: Callable[[], object], in_python: str, in_shell: str
) -> None:
    with pytest.raises(GpucompError) as found:
        wrong()
    error = found.value
    assert in_python in error.message
    assert "--" not in error.message
    assert in_shell in error.in_shell


def test_a_search_that_cannot_be_resumed_says_so_in_both_ways(tmp_path: Path) -> None:
    from gpucomp.tuning.tuner import TuneOptions, tune

    with pytest.raises(GpucompError) as found:
        tune(
            specs.model("add rows=64 cols=64"),
            target="cpu",
            records=tmp_path / "none",
            options=TuneOptions(resume=True),
        )
    assert found.value.code == "GPC7103"
    assert found.value.message.endswith("for a new search leave out gpucomp.TuneOptions(resume=True)")
    assert found.value.in_shell.endswith("for a new search leave out --resume")
