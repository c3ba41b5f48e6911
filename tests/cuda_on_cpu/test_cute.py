"""Where the headers of CUTLASS and CUDA are looked for."""

from __future__ import annotations

import pytest

from tests.cuda_on_cpu.cute import CuteError, include_folders

CUTLASS = "cutlass_library/source/include"  # in the Python package


@pytest.mark.parametrize("below", ["cccl/", ""])
def test_headers_are_found_where_they_are_named_or_installed(tmp_path, monkeypatch, below):
    for header in (f"{CUTLASS}/cute/tensor.hpp", "cuda/include/cuda.h", f"cuda/include/{below}cuda/std/utility"):
        (tmp_path / header).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / header).touch()
    (tmp_path / "cutlass_library/__init__.py").touch()
    cuda = tmp_path / "cuda/include"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("CUDA_HOME", str(cuda.parent))
    monkeypatch.setenv("CUTLASS_INCLUDE", str(tmp_path / CUTLASS))
    assert include_folders() == [tmp_path / CUTLASS, cuda, cuda / below]

    monkeypatch.delenv("CUTLASS_INCLUDE")
    assert include_folders() == []

    monkeypatch.undo()
    monkeypatch.setenv("CUDA_HOME", str(cuda.parent))
    monkeypatch.delenv("CUTLASS_INCLUDE", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert include_folders()[0] == tmp_path / CUTLASS


def test_a_folder_that_is_named_and_has_no_headers_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("CUTLASS_INCLUDE", str(tmp_path))

    with pytest.raises(CuteError, match=f"CUTLASS_INCLUDE={tmp_path}: there is no "):
        include_folders()
