"""Random graphs through the whole pipeline: rules that are correct alone must be correct together."""

import numpy as np
import pytest

from gpucomp import config, ops
from gpucomp.ir import Graph, Value, constant
from gpucomp.ops.interpreter import interpret
from gpucomp.rewrite.pipeline import run_pipeline
from testing.tolerance import assert_matches
from tests.builders import graph_of, scalar, tensor
from tests.rewrite.examples import draw

STEPS = 14
LARGEST = 4000  # elements
TERMS = 1000  # sums of sums, and cancellation


class Maker:
    """Draws nodes that read the nodes drawn before. Every step keeps values near one, so that errors stay comparable."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.values = [tensor("a", 2, 4, 5, 3), tensor("b", 1, 3, 4, 4), tensor("c", 3, 6)]

    def pick(self, *ranks: int) -> Value | None:
        fitting = [v for v in self.values if v.type.rank and (not ranks or v.type.rank in ranks)]
        return fitting[self.rng.integers(len(fitting))] if fitting else None

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def array(self, *shape: int) -> Value:
        return constant(self.rng.uniform(-1, 1, shape).astype(np.float32))

    def step(self) -> None:
        made = getattr(self, f"make_{self.rng.choice(KINDS)}")()
        if made is not None and 0 < made.type.size <= LARGEST:
            self.values.append(made)

    def make_unary(self):
        x = self.pick()
        op = [ops.Relu, ops.Tanh, ops.Sigmoid, ops.Neg, ops.Abs][self.number(0, 5)]
        return op(x)

    def make_clip(self):
        low, high = sorted(self.rng.uniform(-1, 1, 2).tolist())
        return ops.Clip(self.pick(), low=low, high=high)

    def make_constant(self):
        x = self.pick()
        shape = [n if self.rng.random() < 0.4 else 1 for n in x.shape[self.number(0, x.type.rank) :]]
        op = [ops.Add, ops.Mul, ops.Sub, ops.Div][self.number(0, 4)]
        c = self.array(*shape)
        if op is ops.Div:
            c = constant(np.sign(c.attrs["value"]) * np.float32(2))
        return op(c, x) if self.rng.random() < 0.3 and op is not ops.Div else op(x, c)

    def make_binary(self):
        x = self.pick()
        fitting = [v for v in self.values if _broadcasts(v.shape, x.shape)]
        y = fitting[self.number(0, len(fitting))]
        return ops.Tanh([ops.Add, ops.Mul, ops.Sub, ops.Max][self.number(0, 4)](x, y))

    def make_transpose(self):
        x = self.pick()
        return ops.Transpose(x, perm=tuple(int(p) for p in self.rng.permutation(x.type.rank)))

    def make_layout(self):
        x = self.pick(4)
        return None if x is None else ops.Transpose(x, perm=[(0, 2, 3, 1), (0, 3, 1, 2)][self.number(0, 2)])

    def make_reshape(self):
        x = self.pick()
        left, shape = x.type.size, []
        for _ in range(self.number(0, 4)):
            divisors = [d for d in range(1, left + 1) if left % d == 0]
            shape.append(divisors[self.number(0, len(divisors))])
            left //= shape[-1]
        return ops.Reshape(x, shape=(*shape, left))

    def make_split(self):
        x = self.pick()
        shape = list(x.shape)
        axis = self.number(0, len(shape))
        divisors = [d for d in range(1, shape[axis] + 1) if shape[axis] % d == 0]
        d = divisors[self.number(0, len(divisors))]
        return (
            ops.Reshape(x, shape=(*shape[:axis], d, shape[axis] // d, *shape[axis + 1 :])) if len(shape) < 6 else None
        )

    def make_merge(self):
        x = self.pick(3, 4, 5, 6)
        if x is None:
            return None
        axis = self.number(0, x.type.rank - 1)
        return ops.Reshape(x, shape=(*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]))

    def make_concat(self):
        x = self.pick()
        axis = self.number(0, x.type.rank)
        fitting = [
            v
            for v in self.values
            if v.type.rank == x.type.rank
            and all(a == b for d, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if d != axis)
        ]
        return ops.Concat(x, fitting[self.number(0, len(fitting))], axis=axis)

    def make_slice(self):
        x = self.pick()
        sizes = tuple(self.number(1, n + 1) for n in x.shape)
        starts = tuple(self.number(0, n - size + 1) for n, size in zip(x.shape, sizes, strict=True))
        return ops.Slice(x, starts=starts, steps=(1,) * x.type.rank, sizes=sizes)

    def make_pad(self):
        x = self.pick(3, 4)
        if x is None:
            return None
        quiet = 2 if self.rng.random() < 0.7 else 0
        pads = [0 if d % x.type.rank < quiet else self.number(0, 2) for d in range(2 * x.type.rank)]
        return ops.Pad(x, pads=tuple(pads), mode="constant", value=float(self.number(0, 3) == 2))

    def make_reduce(self):
        x = self.pick()
        axes = tuple(d for d in range(x.type.rank) if self.rng.random() < 0.4)
        op = [ops.ReduceMean, ops.ReduceMax][self.number(0, 2)]
        return op(x, axes=axes, keepdims=bool(self.number(0, 2))) if axes else None

    def make_softmax(self):
        x = self.pick()
        return ops.Softmax(x, axis=self.number(0, x.type.rank)) if x.type.rank else None

    def make_norm(self):
        x = self.pick(2, 3, 4)
        return None if x is None else ops.LayerNorm(x, axis=self.number(1, x.type.rank), epsilon=0.1)

    def make_conv(self):
        x = self.pick(3, 4)
        if x is None or min(x.shape[2:]) < 2:
            return None
        spatial = x.type.rank - 2
        group = x.shape[1] if self.rng.random() < 0.3 else 1
        w = self.array(group * self.number(1, 4), x.shape[1] // group, *[self.number(1, 3) for _ in range(spatial)])
        pads = tuple(self.number(0, 2) for _ in range(2 * spatial))
        y = ops.Conv(x, w, strides=(self.number(1, 3),) * spatial, pads=pads, dilations=(1,) * spatial, group=group)
        return ops.Mul(y, scalar(0.5))

    def make_conv_transpose(self):
        x = self.pick(4)
        if x is None:
            return None
        group = x.shape[1] if self.rng.random() < 0.3 else 1
        w = self.array(x.shape[1], self.number(1, 4), 2, 2)
        out = (x.shape[2] + 1, x.shape[3] + 1)
        y = ops.ConvTranspose(x, w, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), out=out, group=group)
        return ops.Add(ops.Mul(y, self.array(y.shape[1], 1, 1)), self.array(y.shape[1], 1, 1))

    def make_pool(self):
        x = self.pick(4)
        if x is None or min(x.shape[2:]) < 2:
            return None
        out = (x.shape[2] - 1, x.shape[3] - 1)
        window = {"kernel": (2, 2), "strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "out": out}
        return [ops.MaxPool, ops.AveragePool][self.number(0, 2)](x, **window)

    def make_matmul(self):
        x = self.pick(2, 3, 4)
        return None if x is None else ops.Mul(ops.MatMul(x, self.array(x.shape[-1], self.number(1, 6))), scalar(0.4))

    def make_gather(self):
        x = self.pick()
        if not x.type.rank:
            return None
        axis = self.number(0, x.type.rank)
        i = self.rng.integers(0, x.shape[axis], [(), (2,), (3,)][self.number(0, 3)])
        return ops.Gather(x, constant(np.asarray(i)), axis=axis)


KINDS = sorted(name.removeprefix("make_") for name in vars(Maker) if name.startswith("make_"))


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def random_graph(seed: int) -> Graph:
    maker = Maker(seed)
    for _ in range(STEPS):
        maker.step()
    return graph_of(*maker.values[-3:])


@pytest.mark.parametrize("seed", range(300))
def test_the_pipeline_keeps_what_a_random_graph_computes(seed):
    graph = random_graph(seed)
    inputs = draw(graph, seed)

    with config.using(verify=True):
        after = run_pipeline(graph)

    for found, expected in zip(interpret(after, inputs), interpret(graph, inputs), strict=True):
        assert_matches(found, expected, terms=TERMS)
