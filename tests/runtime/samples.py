"""A small compiled model whose device is numpy: y = x * scale + shift, z = x itself."""

from dataclasses import replace

import numpy as np

from gpucomp.artifact.formulas import Formulas
from gpucomp.artifact.open_model import OpenModel
from gpucomp.artifact.open_plan import Choices, OpenPlan, Place, Stack
from gpucomp.artifact.plan import INPUT, OUTPUT, TEMP, WEIGHT, Buffer, CompiledKernel, Launch, Plan
from gpucomp.artifact.tensor_map import TensorMap
from gpucomp.ir.dim import Dim
from gpucomp.ir.dims import OpenShapes
from gpucomp.runtime.artifact import Contents
from gpucomp.runtime.ceilings import Ceilings, Span
from gpucomp.runtime.executable import PROGRAMS, Executable

CEILINGS = Ceilings(2, 1e12, ((1 << 10, 64e9), (1 << 20, 16e9)), 1e-6)


class NumpyProgram:
    """Stands for a device: it computes the sample from the weights it is given."""

    opened = 0

    def __init__(self, plan, sources, binaries, weights):
        type(self).opened += 1
        self.weights = weights

    def beside(self):
        made = type(self)(None, {}, {}, self.weights)
        type(self).opened -= 1
        return made

    def bound(self, inputs, outputs):
        """Nothing: it reads no addresses."""

    def run(self, inputs, how):
        x = inputs["x"]
        found = {"y": x * self.weights["w0"] + self.weights["w1"], "z": x.copy()}
        for name, array in how.outputs.items():
            array[...] = found[name]
        return found | how.outputs

    def zeros(self, shape, dtype):
        return np.zeros(shape, dtype)

    def profile(self, inputs):
        return self.timeline(inputs)[0]

    def timeline(self, inputs):
        return [0.25, 0.5], [Span(0, 0, 0.0, 0.25), Span(0, 1, 0.0, 0.125), Span(1, 0, 0.25, 0.75)]

    def ceilings(self):
        return CEILINGS


def use_numpy(monkeypatch, program=NumpyProgram):
    monkeypatch.setitem(PROGRAMS, "cpu", (program.__module__, program.__name__))
    monkeypatch.setattr(program, "opened", 0)


PLAN = Plan(
    target="cpu",
    kind="cpu",
    arch="x86-64-v3",
    buffers=(
        Buffer(INPUT, "x", "f32", (3, 5), 60),
        Buffer(WEIGHT, "w0", "f32", (3, 1), 12),
        Buffer(WEIGHT, "w1", "f32", (), 4),
        Buffer(TEMP, "t0", "f32", (3, 5), 60, 64),
        Buffer(OUTPUT, "y", "f32", (3, 5), 60),
        Buffer(WEIGHT, "w2", "bf16", (7, 0), 0),
        Buffer(WEIGHT, "w3", "i4", (3,), 3),
    ),
    kernels=(
        CompiledKernel(
            "k0",
            "llvm",
            "k0.ll",
            "model.o",
            (2, 1, 1),
            (1, 1, 1),
            0,
            "loops",
            "mul 3x5",
            "default",
            {"vector": 8},
            operations=10**11,
            traffic=1 << 30,
            arithmetic="f32",
        ),
        CompiledKernel(
            "k1",
            "llvm",
            "k1.ll",
            "model.o",
            (1, 1, 1),
            (1, 1, 1),
            0,
            "loops",
            "add 3x5",
            "default",
            operations=10**9,
            traffic=4 << 30,
            arithmetic="f64",
        ),
    ),
    launches=(
        Launch(0, (0, 1, 3), "k0_1", ("Mul",), ("scale node",), "its result is read twice", 2),
        Launch(1, (3, 2, 4), "", ("Add", "Relu"), ("a", "b"), "the output", 2),
    ),
    inputs=(0,),
    outputs=(4, 0),
    output_names=("y", "z"),
    arena_bytes=128,
    live_bytes=128,
    model="sample",
    features=("avx2", "fma"),
)


SHAPES = OpenShapes({"x": (Dim("n", 1, 64), Dim("h", 4, 32, multiple=4))}, {"n": "the test", "h": "the model"}, {})
# of n and h: n*h, n*h + 1, floor(n*h / h), the least of n and h, 4 - n, and the bytes of h floats
FORMULAS = Formulas(
    ("n", "h"),
    (
        ("sum", 0, ((1, (0, 1)),), 1),
        ("sum", 1, ((1, (2,)),), 1),
        ("quotient", 2, 1),
        ("least", (0, 1)),
        ("sum", 4, ((-1, (0,)),), 1),
        ("sum", 0, ((4, (1,)),), 1),
    ),
)
ROWS = TensorMap(0, "f32", (Place(1), Place(0)), (Place(7),), (8, 2), swizzle=32)
OPEN_PLAN = OpenPlan(
    replace(
        PLAN,
        buffers=(
            Buffer(INPUT, "x", "f32", (Place(0), Place(1)), 0),
            Buffer(WEIGHT, "w0", "f32", (3, 1), 12),
            Buffer(TEMP, "t0", "f32", (Place(3), 2), 0, 0),
            Buffer(TEMP, "t1", "f32", (16,), 64, 64),
            Buffer(TEMP, "t2", "i8", (Place(2),), 0, 0),
            Buffer(OUTPUT, "y", "f32", (Place(4), Place(1)), 0),
        ),
        kernels=(
            replace(
                PLAN.kernels[0],
                groups=(Place(0), 1, 1),
                numbers=(("size", 2), ("magic", 1), ("shift", 1)),
                tensor_maps=(ROWS,),
            ),
            replace(PLAN.kernels[1], numbers=(("size", 3),)),
            replace(PLAN.kernels[1], name="k2", numbers=(("size", 2),)),
        ),
        launches=(Launch(0, (0, 1, 2), inputs=2), Launch(1, (2, 3, 4, 5), inputs=1)),
        outputs=(5, 0),
    ),
    FORMULAS,
    ((6, "<=", False), (1, "==", False)),
    ((Stack((2,), ()), Stack((3,), (0,)), Stack((4,), (0, 1))),),
    64,
    (Choices(1, 2, (0, 50), (1, 2), (((2, 8), 1.25),)),),
)


FIXED_PLAN = replace(
    PLAN,
    buffers=tuple(
        replace(b, shape=(2, 8), nbytes=64)
        if b.kind in (INPUT, TEMP, OUTPUT)
        else replace(b, shape=(2, 1), nbytes=8)
        if b.name == "w0"
        else b
        for b in PLAN.buffers
    ),
)


def open_contents(plan=OPEN_PLAN):
    model = OpenModel(SHAPES, plan, ((Place(4), Place(1)), tuple(SHAPES.dims.values())), {"n": 2, "h": 8})
    return replace(contents(plan.plan), open=model, fixed=(({"n": 2, "h": 8}, contents(FIXED_PLAN)),))


def contents(plan=PLAN):
    rng = np.random.default_rng(0)
    from gpucomp.ir.types import DTYPES

    weights = {
        b.name: rng.integers(1, 7, b.shape).astype(DTYPES[b.dtype].numpy) for b in plan.buffers if b.kind == WEIGHT
    }
    sources = {"k0.ll": "; scale\ndefine void @k0() { ret void }\n", "k1.ll": "; shift — überall\n"}
    return Contents(plan, sources, {"model.o": b"\x7fELF" + bytes(range(256)) * 5}, weights)


def executable(plan=PLAN):
    parts = contents(plan)
    return Executable(parts.plan, parts.sources, parts.binaries, parts.weights)


def close(found, wanted):
    """Whether two computations in f32 agree."""
    return np.allclose(found, wanted, rtol=1e-4, atol=1e-5)
