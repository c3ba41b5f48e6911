"""An engine computes kernels with one kind of body: ``Family.problem`` is where an unknown kernel becomes one of these."""

from __future__ import annotations

import pytest

from gpucomp.kernel import Rowwise
from gpucomp.targets.back_end import engines_by_body
from testing.kernels import matmul, softmax

ENGINES = [
    pytest.param(kind, family, id=f"{language}-{family.title}")
    for language in ("cuda", "llvm")
    for kind, engines in engines_by_body(language).items()
    for family in engines
]


@pytest.mark.parametrize(("kind", "family"), ENGINES)
def test_an_engine_is_in_the_row_of_the_body_that_it_computes(kind, family):
    assert family.body is kind


@pytest.mark.parametrize(("kind", "family"), ENGINES)
def test_a_kernel_with_another_kind_of_body_is_an_error_that_names_both(kind, family):
    kernel = matmul(3, 5, 7) if kind is Rowwise else softmax(3, 5)
    other = type(kernel.body)

    with pytest.raises(TypeError, match=f"kernel {kernel.label}: {kind.__name__} expected, {other.__name__} found"):
        family.problem(kernel)
