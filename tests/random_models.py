"""Random ONNX models over many operators, with inputs to run them on. Every number is near one, so errors compare."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LARGEST = 3000  # elements of one value
PRIMES = (2, 3, 5, 7, 11)
OPSET = 19


class Maker:
    """Draws nodes over what it has drawn. ``values`` are the f32 tensors at hand: name and shape."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[tuple[str, tuple[int, ...]]] = []
        self.values: list[tuple[str, tuple[int, ...]]] = []
        self.count = 0
        self.flags: list[tuple[str, tuple[int, ...]]] = []

    # drawing ------------------------------------------------------------------------------------------------

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def one(self, items):
        return items[self.number(0, len(items))]

    def extent(self) -> int:
        return 1 if self.chance(0.15) else self.number(2, 8)

    def pick(self, *ranks: int):
        fitting = [v for v in self.values if not ranks or len(v[1]) in ranks]
        if not fitting:
            return None
        recent = fitting[-5:]
        return self.one(recent if self.chance(0.7) else fitting)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def array(self, array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def floats(self, *shape: int, scale: float = 1.0) -> str:
        return self.array((self.rng.uniform(-1, 1, shape) * scale).astype(np.float32))

    def ints(self, *numbers: int) -> str:
        return self.array(np.array(numbers, np.int64))

    def add(self, op: str, operands, *, outputs: int = 1, dtype=TensorProto.FLOAT, **attributes):
        """Append the node if its results have a known, small shape; their names and shapes."""
        names = [self.fresh() for _ in range(outputs)]
        node = helper.make_node(op, list(operands), names, name=f"n{len(self.nodes)}", **attributes)
        known = {**dict(self.values), **dict(self.flags)}
        booleans = dict(self.flags)
        infos = [
            helper.make_tensor_value_info(o, TensorProto.BOOL if o in booleans else TensorProto.FLOAT, known[o])
            for o in dict.fromkeys(operands)
            if o in known
        ]
        used = [w for w in self.weights if w.name in operands]
        graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=n) for n in names], used)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        found = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph.output
        shapes = [tuple(d.dim_value for d in o.type.tensor_type.shape.dim) for o in found]
        if any(not 0 < np.prod(s) <= LARGEST or len(s) > 5 for s in shapes):
            return None
        self.nodes.append(node)
        results = list(zip(names, shapes, strict=True))
        (self.flags if dtype == TensorProto.BOOL else self.values).extend(results)
        return results

    # models -------------------------------------------------------------------------------------------------

    def make(self, steps: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        batch, channels = self.one((1, 1, 2)), self.one((2, 3, 4, 6, 8))
        shapes = [
            (batch, channels, self.number(4, 9), self.number(4, 9)),
            (self.extent(), self.extent(), self.extent()),
        ]
        shapes.append((self.number(2, 9), self.number(2, 9)))
        for k, shape in enumerate(shapes[: self.number(1, 4)]):
            self.inputs.append((f"x{k}", shape))
        self.values += self.inputs
        while len(self.nodes) < steps:
            getattr(self, f"make_{self.one(KINDS)}")()
        used = {i for node in self.nodes for i in node.input}
        ends = [v for v in self.values if v[0] not in used and v[0].startswith("v")]
        more = [v for v in self.values if v[0] in used and v[0].startswith("v")]
        outputs = ends + ([self.one(more)] if more and self.chance(0.5) else [])
        inputs = [i for i in self.inputs if i[0] in used]
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "random",
            [info(n, TensorProto.FLOAT, s) for n, s in inputs],
            [info(n, TensorProto.FLOAT, s) for n, s in outputs],
            [w for w in self.weights if w.name in used],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        feeds = {n: self.rng.uniform(-1, 1, s).astype(np.float32) for n, s in inputs}
        return model, feeds

    # operators ----------------------------------------------------------------------------------------------

    def make_unary(self):
        x, _ = self.pick()
        op = self.one(
            ("Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Erf", "Softplus", "Identity", "HardSwish", "Elu", "LeakyRelu")
        )
        self.add(op, [x])

    def make_clip(self):
        x, _ = self.pick()
        low, high = sorted(self.rng.uniform(-1, 1, 2).astype(np.float32))
        bounds = [(self.array(low), self.array(high)), (self.array(low),), ("", self.array(high))]
        self.add("Clip", [x, *self.one(bounds)])

    def make_binary(self):
        x, shape = self.pick()
        others = [n for n, s in self.values if _broadcasts(s, shape)]
        operands = [x, self.one(others)]
        if self.chance(0.5):
            operands.reverse()
        self.add(self.one(("Add", "Sub", "Mul", "Max", "Min")), operands)

    make_residual = make_binary

    def make_constant(self):
        x, shape = self.pick()
        shape = [n if self.chance(0.5) else 1 for n in shape[self.number(0, len(shape) + 1) :]]
        operands = [x, self.floats(*shape)]
        if self.chance(0.3):
            operands.reverse()
        self.add(self.one(("Add", "Mul", "Sub", "Max")), operands)

    def make_sum(self):
        x, shape = self.pick()
        same = [n for n, s in self.values if s == shape]
        self.add(self.one(("Sum", "Mean", "Max")), [x, *(self.one(same) for _ in range(self.number(0, 3)))])

    def make_where(self):
        x, shape = self.pick()
        others = [n for n, s in self.values if _broadcasts(s, shape)]
        flag = self.add("Greater", [self.one(others), self.array(np.float32(0.0371))], dtype=TensorProto.BOOL)
        if flag:
            self.add("Where", [flag[0][0], x, self.one([*others, self.floats()])])

    def make_conv(self):
        found = self.pick(3, 4)
        if found is None:
            return
        x, (_, c, *spatial) = found
        groups = self.one([g for g in (1, 1, 2, c) if c % g == 0])
        out = groups * self.one((1, 1, 2, 3))
        kernel = [self.number(1, 4) for _ in spatial]
        options = {"group": groups, "strides": [self.one((1, 1, 2, 3)) for _ in spatial]}
        options["dilations"] = [self.one((1, 1, 2)) for _ in spatial]
        if self.chance(0.2):
            options["auto_pad"] = self.one(("SAME_UPPER", "SAME_LOWER", "VALID"))
        else:
            options["pads"] = [self.number(0, 3) for _ in range(2 * len(spatial))]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, options["dilations"], strict=True)]
        padded = [
            n + sum(options.get("pads", [0] * 2 * len(spatial))[i :: len(spatial)]) for i, n in enumerate(spatial)
        ]
        if any(n < r for n, r in zip(padded, reach, strict=True)) or (
            "auto_pad" in options and max(options["dilations"]) > 1
        ):
            return
        n = c // groups * int(np.prod(kernel))
        operands = [x, self.floats(out, c // groups, *kernel, scale=2 / n**0.5)]
        operands += [self.floats(out)] if self.chance(0.6) else []
        self.add("Conv", operands, kernel_shape=kernel, **options)

    make_conv_again = make_conv

    def make_conv_transpose(self):
        found = self.pick(3, 4)
        if found is None:
            return
        x, (_, c, *spatial) = found
        groups = self.one([g for g in (1, 1, 2, c) if c % g == 0])
        kernel = [self.number(1, 4) for _ in spatial]
        strides = [self.one((1, 2, 3)) for _ in spatial]
        dilations = [self.one((1, 1, 2)) for _ in spatial]
        extra = [self.number(0, s) for s in strides]
        pads = [self.number(0, k) for k in kernel] + [self.number(0, k) for k in kernel]
        size = [
            s * (n - 1) + e + (k - 1) * d + 1 - pads[i] - pads[i + len(spatial)]
            for i, (n, s, k, d, e) in enumerate(zip(spatial, strides, kernel, dilations, extra, strict=True))
        ]
        if min(size) < 1:
            return
        out = self.one((1, 2, 3))
        operands = [x, self.floats(c, out, *kernel, scale=1 / (c // groups) ** 0.5)]
        operands += [self.floats(out * groups)] if self.chance(0.5) else []
        self.add(
            "ConvTranspose",
            operands,
            group=groups,
            kernel_shape=kernel,
            strides=strides,
            dilations=dilations,
            pads=pads,
            output_padding=extra,
        )

    def make_batch_norm(self):
        found = self.pick(3, 4)
        if found is None:
            return
        x, (_, c, *_) = found
        variance = self.array(self.rng.uniform(0.5, 2, c).astype(np.float32))
        self.add("BatchNormalization", [x, self.floats(c), self.floats(c), self.floats(c), variance])

    def make_pool(self):
        found = self.pick(3, 4)
        if found is None:
            return
        x, (_, _, *spatial) = found
        op = self.one(("MaxPool", "AveragePool"))
        kernel = [self.number(1, 4) for _ in spatial]
        pads = [self.number(0, k) for k in kernel] + [self.number(0, k) for k in kernel]
        strides = [self.number(1, 4) for _ in spatial]
        if any(n + pads[i] + pads[i + len(spatial)] < k for i, (n, k) in enumerate(zip(spatial, kernel, strict=True))):
            return
        options = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": self.number(0, 2)}
        if options["ceil_mode"]:  # the two disagree on windows that start in the padding
            options["pads"] = [0] * len(pads)
            if any(n < k for n, k in zip(spatial, kernel, strict=True)):
                return
            if any(
                (n - k) % s and ((n - k) // s + 1) * s >= n for n, k, s in zip(spatial, kernel, strides, strict=True)
            ):
                return
        if op == "AveragePool":
            options["count_include_pad"] = self.number(0, 2) if not options["ceil_mode"] else 0
        self.add(op, [x], **options)

    def make_global_pool(self):
        found = self.pick(3, 4)
        if found:
            self.add(self.one(("GlobalAveragePool", "GlobalMaxPool")), [found[0]])

    def make_gemm(self):
        found = self.pick(2)
        if found is None:
            return
        x, shape = found
        trans_a, trans_b = self.number(0, 2), self.number(0, 2)
        m, k = shape[::-1] if trans_a else shape
        n = self.extent()
        others = [name for name, s in self.values if s == ((n, k) if trans_b else (k, n))]
        b = self.one(others) if others and self.chance(0.5) else self.floats(*((n, k) if trans_b else (k, n)))
        bias = self.one(((), (n,), (1, n), (m, 1), (m, n), (1, 1)))
        operands = [x, b] + ([self.floats(*bias)] if self.chance(0.7) else [])
        self.add(
            "Gemm", operands, transA=trans_a, transB=trans_b, alpha=self.one((1.0, 0.5)), beta=self.one((1.0, 0.7))
        )

    def make_matmul(self):
        found = self.pick(1, 2, 3, 4)
        if found is None:
            return
        x, shape = found
        k = shape[-1]
        others = [n for n, s in self.values if len(s) > 1 and s[-2] == k and _batches(s[:-2], shape[:-2])]
        if others and self.chance(0.5):
            y = self.one(others)
        else:
            lead = [d if self.chance(0.6) else 1 for d in shape[:-2]][self.number(0, max(1, len(shape) - 1)) :]
            y = self.floats(*lead, k, self.extent(), scale=2 / k**0.5)
        self.add("MatMul", [x, y])

    def make_self_attention(self):
        found = self.pick(3)
        if found is None:
            return
        x, (_, _, d) = found
        q, k, v = (self.add("MatMul", [x, self.floats(d, 4, scale=2 / d**0.5)]) for _ in range(3))
        turned = self.add("Transpose", [k[0][0]], perm=[0, 2, 1]) if k else None
        score = self.add("MatMul", [q[0][0], turned[0][0]]) if turned else None
        soft = self.add("Softmax", [score[0][0]], axis=-1) if score else None
        if soft:
            self.add("MatMul", [soft[0][0], v[0][0]])

    def make_concat(self):
        x, shape = self.pick()
        if not shape:
            return
        axis = self.number(0, len(shape))
        rest = [
            n
            for n, s in self.values
            if len(s) == len(shape) and all(a == b or d == axis for d, (a, b) in enumerate(zip(s, shape, strict=True)))
        ]
        operands = [x, *(self.one(rest) for _ in range(self.number(0, 4)))]
        self.add("Concat", operands, axis=axis - (len(shape) if self.chance(0.3) else 0))

    make_concat_again = make_concat

    def make_split(self):
        x, shape = self.pick()
        axes = [d for d, n in enumerate(shape) if n > 1]
        if not axes:
            return
        axis = self.one(axes)
        cut = self.number(1, shape[axis])
        self.add("Split", [x, self.ints(cut, shape[axis] - cut)], outputs=2, axis=axis)

    def make_slice(self):
        x, shape = self.pick()
        if not shape:
            return
        axes = sorted(self.rng.choice(len(shape), self.number(1, len(shape) + 1), replace=False).tolist())
        starts, ends, steps = [], [], []
        for d in axes:
            n = shape[d]
            step = self.one((1, 1, 2, 3, -1, -2))
            if step > 0:
                start = self.number(0, n)
                end = self.number(start + 1, n + 3)
            else:
                start = self.number(0, n + 2)
                end = self.number(-n - 2, -n + min(start, n - 1)) if self.chance(0.5) else -n - 1
            starts.append(start)
            ends.append(end)
            steps.append(step)
        self.add("Slice", [x, self.ints(*starts), self.ints(*ends), self.ints(*axes), self.ints(*steps)])

    def make_transpose(self):
        x, shape = self.pick()
        if not shape:
            return
        self.add("Transpose", [x], perm=self.rng.permutation(len(shape)).tolist())

    make_transpose_again = make_transpose

    def make_reshape(self):
        x, shape = self.pick()
        left = int(np.prod(shape))
        new = []
        while left > 1 and len(new) < 3:
            divisors = [d for d in range(1, left + 1) if left % d == 0]
            new.append(self.one(divisors))
            left //= new[-1]
        new.append(left)
        new = [new[k] for k in self.rng.permutation(len(new))]
        self.add("Reshape", [x, self.ints(*new)])

    def make_flatten(self):
        x, shape = self.pick()
        self.add("Flatten", [x], axis=self.number(0, len(shape) + 1))

    def make_squeeze(self):
        x, shape = self.pick()
        ones = [d for d, n in enumerate(shape) if n == 1]
        if ones and self.chance(0.5):
            self.add("Squeeze", [x, self.ints(self.one(ones))])
        else:
            self.add("Unsqueeze", [x, self.ints(self.number(0, len(shape) + 1))])

    def make_expand(self):
        x, shape = self.pick()
        new = [self.extent() if n == 1 else self.one((1, n)) for n in shape]
        if self.chance(0.3):
            new.insert(0, 2)
        self.add("Expand", [x, self.ints(*new)])

    def make_tile(self):
        x, shape = self.pick()
        if shape:
            self.add("Tile", [x, self.ints(*(self.one((1, 1, 2, 3)) for _ in shape))])

    def make_pad(self):
        x, shape = self.pick()
        if not shape:
            return
        mode = self.one(("constant", "constant", "reflect", "edge"))
        pads = [self.number(0, 3 if mode != "reflect" else min(3, n)) for n in (*shape, *shape)]
        if mode == "constant" and self.chance(0.3):
            d = self.number(0, len(shape))
            if shape[d] > 2:
                pads[d] = -1
        operands = [x, self.ints(*pads)] + (
            [self.array(np.float32(0.5))] if mode == "constant" and self.chance(0.5) else []
        )
        self.add("Pad", operands, mode=mode)

    def make_gather(self):
        x, shape = self.pick()
        if not shape:
            return
        axis = self.number(0, len(shape))
        shape_of = self.one(((), (1,), (3,), (2, 2)))
        places = self.rng.integers(-shape[axis], shape[axis], shape_of)
        self.add("Gather", [x, self.array(places.astype(np.int64))], axis=axis)

    def make_reduce(self):
        x, shape = self.pick()
        if not shape:
            return
        op = self.one(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceMean", "ReduceSum"))
        axes = self.rng.choice(len(shape), self.number(1, len(shape) + 1), replace=False).tolist()
        axes = [a - len(shape) if self.chance(0.3) else a for a in axes]
        if op == "ReduceSum" and np.prod([shape[a] for a in axes]) > 30:
            op = "ReduceMean"
        self.add(op, [x, self.ints(*axes)], keepdims=self.number(0, 2))

    def make_softmax(self):
        x, shape = self.pick()
        if shape:
            self.add(self.one(("Softmax", "LogSoftmax")), [x], axis=self.number(-len(shape), len(shape)))

    def make_layer_norm(self):
        x, shape = self.pick()
        if not shape or np.prod(shape) < 2:
            return
        axis = self.number(0, len(shape))
        rest = shape[axis:]
        if np.prod(rest) < 3:
            return
        operands = [x, self.floats(*rest)] + ([self.floats(*rest)] if self.chance(0.6) else [])
        self.add("LayerNormalization", operands, axis=axis, epsilon=1e-2)

    def make_instance_norm(self):
        found = self.pick(3, 4)
        if found and np.prod(found[1][2:]) > 2:
            c = found[1][1]
            self.add("InstanceNormalization", [found[0], self.floats(c), self.floats(c)], epsilon=1e-2)

    def make_norm_by_hand(self):
        x, shape = self.pick()
        if not shape or shape[-1] < 3:
            return
        axes = self.ints(-1)
        mean = self.add("ReduceMean", [x, axes], keepdims=1)
        centred = self.add("Sub", [x, mean[0][0]])
        squares = self.add("Mul", [centred[0][0], centred[0][0]])
        variance = self.add("ReduceMean", [squares[0][0], axes], keepdims=1)
        shifted = self.add("Add", [variance[0][0], self.array(np.float32(0.01))])
        root = self.add("Sqrt", [shifted[0][0]])
        self.add("Div", [centred[0][0], root[0][0]])

    def make_depth_to_space(self):
        found = self.pick(4)
        if found and found[1][1] % 4 == 0:
            self.add("DepthToSpace", [found[0]], blocksize=2, mode=self.one(("DCR", "CRD")))

    def make_gelu(self):
        x, _ = self.pick()
        scaled = self.add("Mul", [x, self.array(np.float32(2**-0.5))])
        erf = self.add("Erf", [scaled[0][0]])
        shifted = self.add("Add", [erf[0][0], self.array(np.float32(1))])
        product = self.add("Mul", [x, shifted[0][0]])
        self.add("Mul", [product[0][0], self.array(np.float32(0.5))])

    def make_silu(self):
        x, _ = self.pick()
        gate = self.add("Sigmoid", [x])
        self.add("Mul", [x, gate[0][0]])

    def make_turned_sum(self):
        """A square value and its transpose meet: the same kernel at two places of its domain."""
        x, shape = self.pick()
        pairs = [(a, b) for a in range(len(shape)) for b in range(a) if shape[a] == shape[b] > 1]
        if not pairs:
            return
        a, b = self.one(pairs)
        perm = list(range(len(shape)))
        perm[a], perm[b] = b, a
        left = self.add("Tanh", [x]) if self.chance(0.5) else [(x, shape)]
        turned = self.add("Transpose", [left[0][0]], perm=perm)
        right = self.add("Abs", [x]) if self.chance(0.5) else [(x, shape)]
        self.add(self.one(("Add", "Mul", "Sub")), [turned[0][0], right[0][0]])

    def make_attention_of_square(self):
        found = self.pick(2, 3)
        if found is None:
            return
        x, shape = found
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        turned = self.add("Transpose", [x], perm=order)
        self.add("MatMul", [x, turned[0][0]])


KINDS = tuple(name.removeprefix("make_") for name in vars(Maker) if name.startswith("make_"))


def _broadcasts(shape, onto) -> bool:
    return len(shape) <= len(onto) and all(a in (1, b) for a, b in zip(shape[::-1], onto[::-1], strict=False))


def _batches(a, b) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(a[::-1], b[::-1], strict=False))


def random_model(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A checked model of 3 to 20 nodes with several outputs, and inputs for it."""
    maker = Maker(seed)
    return maker.make(maker.number(3, 20))
