"""What tests of the backend share. Dynamo starts anew in each: what it has compiled stays with a function's code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch = pytest.importorskip("torch", reason="could not import 'torch'")
    pytest.importorskip("onnxscript", reason="could not import 'onnxscript'")
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(3)
    yield
    torch.compiler.reset()
