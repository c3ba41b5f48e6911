"""``bench.packages``: what it takes out of packages, and the inputs that it makes. Nothing is downloaded."""

import numpy as np

from bench import packages
from gpucomp import Dim
from gpucomp.runtime.inputs import TensorSpec


def test_inputs_are_what_their_names_and_types_say():
    specs = [
        TensorSpec("x", "f32", (Dim("n"), 3)),
        TensorSpec("ids", "i64", (Dim("n"), 50)),
        TensorSpec("token_type_ids", "i64", (5,)),
        TensorSpec("attention_mask", "i64", (5,)),
        TensorSpec("mask", "bool", (5,)),
    ]
    found = packages.fed(specs, {"n": 2}, np.random.default_rng(0))

    assert {name: (a.dtype, a.shape) for name, a in found.items()} == {
        "x": (np.float32, (2, 3)),
        "ids": (np.int64, (2, 50)),
        "token_type_ids": (np.int64, (5,)),
        "attention_mask": (np.int64, (5,)),
        "mask": (np.bool_, (5,)),
    }
    assert 0 < found["ids"].max() < packages.WORDS
    assert found["attention_mask"].all()
    assert not found["token_type_ids"].any()
    assert not found["mask"].any()
