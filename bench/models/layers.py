"""Operators and layers on top of the graph builder, decomposed into the nodes that model exporters write.

An operator computes its result's shape and writes its node in the form of the builder's opset; a layer also declares weights.
No whole network is defined here.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import numpy_helper

from bench.models.builder import GraphBuilder, Pair, Tensor, normal, pair, uniform

AFTER_RELU = 2.0  # 1 / E[relu(z)^2] of a standard normal z: He's factor
AFTER_SILU = 2.3  # 1 / E[silu(z)^2] is 2.8 at variance 1, and falls to 2 as the variance grows
LINEAR = 1.0


class NetworkBuilder(GraphBuilder):
    """A graph builder with operators and layers.

    ``gain`` is one over the mean square of a layer's input. Weights are drawn with variance gain / fan_in, so that the layer's
    result has a variance near one.
    """

    def constant(self, value: object, dtype: type = np.float32) -> Tensor:
        array: np.ndarray = np.asarray(value, dtype)
        return self.emit("Constant", [], array.shape, value=numpy_helper.from_array(array))

    def unary(self, op: str, x: Tensor, **attrs: Any) -> Tensor:
        return self.emit(op, [x], x.shape, **attrs)

    def binary(self, op: str, a: Tensor, b: Tensor) -> Tensor:
        return self.emit(op, [a, b], np.broadcast_shapes(a.shape, b.shape))

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self.binary("Add", a, b)

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        return self.binary("Mul", a, b)

    def relu(self, x: Tensor) -> Tensor:
        return self.unary("Relu", x)

    def relu6(self, x: Tensor) -> Tensor:
        if self.opset < 11:
            return self.unary("Clip", x, min=0.0, max=6.0)
        return self.emit("Clip", [x, self.constant(0.0), self.constant(6.0)], x.shape)

    def sigmoid(self, x: Tensor) -> Tensor:
        return self.unary("Sigmoid", x)

    def silu(self, x: Tensor) -> Tensor:
        return self.mul(x, self.sigmoid(x))

    def dropout(self, x: Tensor, ratio: float) -> Tensor:
        if self.opset < 12:
            return self.unary("Dropout", x, ratio=ratio)
        return self.emit("Dropout", [x, self.constant(ratio)], x.shape)

    def softmax(self, x: Tensor) -> Tensor:
        """Over the last axis."""
        return self.unary("Softmax", x, axis=len(x.shape) - 1)

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        shape = (*batch, a.shape[-2], b.shape[-1])
        self.flop += 2 * math.prod(shape) * a.shape[-1]
        return self.emit("MatMul", [a, b], shape)

    def gemm(self, a: Tensor, b: Tensor, *c: Tensor, transpose_b: bool = False) -> Tensor:
        shape = (a.shape[0], b.shape[0 if transpose_b else 1])
        self.flop += 2 * math.prod(shape) * a.shape[1]
        attrs = {"transB": 1} if transpose_b else {}
        return self.emit("Gemm", [a, b, *c], shape, alpha=1.0, beta=1.0, **attrs)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        assert math.prod(shape) == math.prod(x.shape), f"{x.shape} does not reshape to {shape}"
        return self.emit("Reshape", [x, self.constant(shape, np.int64)], shape)

    def transpose(self, x: Tensor, *perm: int) -> Tensor:
        return self.emit("Transpose", [x], [x.shape[axis] for axis in perm], perm=perm)

    def flatten(self, x: Tensor) -> Tensor:
        return self.emit("Flatten", [x], (x.shape[0], math.prod(x.shape[1:])), axis=1)

    def concat(self, xs: Sequence[Tensor], axis: int) -> Tensor:
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in xs)
        return self.emit("Concat", xs, shape, axis=axis)

    def split(self, x: Tensor, sizes: Sequence[int], axis: int) -> list[Tensor]:
        assert sum(sizes) == x.shape[axis], f"axis {axis} of {x.shape} does not split into {sizes}"
        shapes = [[*x.shape[:axis], size, *x.shape[axis + 1 :]] for size in sizes]
        if self.opset < 13:
            return self.emit_many("Split", [x], shapes, axis=axis, split=sizes)
        return self.emit_many("Split", [x, self.constant(sizes, np.int64)], shapes, axis=axis)

    def unsqueeze(self, x: Tensor, axis: int) -> Tensor:
        shape = [*x.shape[:axis], 1, *x.shape[axis:]]
        if self.opset < 13:
            return self.emit("Unsqueeze", [x], shape, axes=[axis])
        return self.emit("Unsqueeze", [x, self.constant([axis], np.int64)], shape)

    def squeeze(self, x: Tensor, axis: int) -> Tensor:
        shape = [*x.shape[:axis], *x.shape[axis + 1 :]]
        if self.opset < 13:
            return self.emit("Squeeze", [x], shape, axes=[axis])
        return self.emit("Squeeze", [x, self.constant([axis], np.int64)], shape)

    def slice(self, x: Tensor, stop: int, axis: int) -> Tensor:
        """The first ``stop`` entries along ``axis``."""
        bounds = [self.constant([v], np.int64) for v in (0, stop, axis)]
        return self.emit("Slice", [x, *bounds], [*x.shape[:axis], stop, *x.shape[axis + 1 :]])

    def gather(self, data: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
        shape = [*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]]
        return self.emit("Gather", [data, indices], shape, axis=axis)

    def reduce_mean(self, x: Tensor, axes: Sequence[int], keepdims: bool = True) -> Tensor:
        axes = [axis % len(x.shape) for axis in axes]
        kept = [1 if i in axes else size for i, size in enumerate(x.shape) if keepdims or i not in axes]
        return self.emit("ReduceMean", [x], kept, axes=axes, keepdims=int(keepdims))

    def max_pool(self, x: Tensor, kernel: int, stride: int, pad: int = 0, ceil_mode: bool = False) -> Tensor:
        attrs = {"ceil_mode": 1} if ceil_mode else {}  # unknown to opsets below 10
        return self._pool("MaxPool", x, kernel, stride, pad, **attrs)

    def average_pool(self, x: Tensor, kernel: int, stride: int, pad: int = 0) -> Tensor:
        """Padding counts in the mean, as in torch."""
        return self._pool("AveragePool", x, kernel, stride, pad, count_include_pad=1)

    def _pool(self, op: str, x: Tensor, kernel: int, stride: int, pad: int, **attrs: int) -> Tensor:
        spare = stride - 1 if attrs.get("ceil_mode") else 0
        sizes = [(size + 2 * pad - kernel + spare) // stride + 1 for size in x.shape[2:]]
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        return self.emit(op, [x], [*x.shape[:2], *sizes], **window, **attrs)

    def global_average_pool(self, x: Tensor) -> Tensor:
        return self.emit("GlobalAveragePool", [x], [*x.shape[:2], 1, 1])

    def conv(
        self,
        x: Tensor,
        name: str,
        channels: int,
        kernel: Pair,
        *,
        stride: int = 1,
        pad: Pair | None = None,
        groups: int = 1,
        bias: bool = False,
        gain: float = AFTER_RELU,
    ) -> Tensor:
        """A 2-D convolution; ``pad`` defaults to half the kernel, which keeps the size at stride 1."""
        n, c, *sizes = x.shape
        kernel = pair(kernel)
        pads = (kernel[0] // 2, kernel[1] // 2) if pad is None else pair(pad)
        fan_in = c // groups * math.prod(kernel)
        with self.scope(name):
            operands = [
                x,
                self.weight("weight", (channels, c // groups, *kernel), normal((gain / fan_in) ** 0.5)),
            ]
            if bias:
                operands.append(self.weight("bias", (channels,), normal(0.1)))
            outs = [(size + 2 * p - k) // stride + 1 for size, p, k in zip(sizes, pads, kernel, strict=True)]
            self.flop += 2 * n * channels * math.prod(outs) * fan_in
            return self.emit(
                "Conv",
                operands,
                (n, channels, *outs),
                dilations=[1, 1],
                group=groups,
                kernel_shape=kernel,
                pads=[*pads, *pads],
                strides=[stride] * 2,
            )

    def conv_transpose(self, x: Tensor, name: str, channels: int, kernel: int, stride: int) -> Tensor:
        """A transposed convolution with bias and without padding, of the output of a ReLU."""
        n, c, *sizes = x.shape
        fan_in = c * math.ceil(kernel / stride) ** 2  # input elements that reach one output element
        with self.scope(name):
            weight = self.weight("weight", (c, channels, kernel, kernel), normal((AFTER_RELU / fan_in) ** 0.5))
            bias = self.weight("bias", (channels,), normal(0.1))
            self.flop += 2 * math.prod(x.shape) * channels * kernel * kernel
            return self.emit(
                "ConvTranspose",
                [x, weight, bias],
                (n, channels, *((size - 1) * stride + kernel for size in sizes)),
                dilations=[1, 1],
                group=1,
                kernel_shape=[kernel] * 2,
                pads=[0] * 4,
                strides=[stride] * 2,
            )

    def batch_norm(self, x: Tensor, name: str, *, scale: float = 1.0, epsilon: float = 1e-5) -> Tensor:
        """Statistics and affine terms differ between channels and are far from the identity; none is zero."""
        channels = (x.shape[1],)
        with self.scope(name):
            operands = [
                x,
                self.weight("weight", channels, uniform(0.7 * scale, 1.3 * scale)),
                self.weight("bias", channels, normal(0.2 * scale)),
                self.statistic("running_mean", channels, normal(0.2)),
                self.statistic("running_var", channels, uniform(0.6, 1.6)),
            ]
            attrs = {"training_mode": 0} if self.opset >= 14 else {}
            return self.emit("BatchNormalization", operands, x.shape, epsilon=epsilon, momentum=0.9, **attrs)

    def linear(self, x: Tensor, name: str, features: int, *, bias: bool = True, gain: float = LINEAR) -> Tensor:
        """y = x W + b: a Gemm on matrices, else MatMul and Add with the bias first, as torch exports it."""
        fan_in = x.shape[-1]
        fill = normal((gain / fan_in) ** 0.5)
        with self.scope(name):
            terms = [self.weight("bias", (features,), normal(0.1))] if bias else []
            if len(x.shape) == 2:
                weight = self.weight("weight", (features, fan_in), fill)
                return self.gemm(x, weight, *terms, transpose_b=True)
            # the exporter transposes the weight at export, and its name is lost
            product = self.matmul(x, self.weight("onnx::MatMul", (fan_in, features), fill))
            return self.add(terms[0], product) if bias else product

    def embedding(self, ids: Tensor, name: str, rows: int, features: int, std: float) -> Tensor:
        with self.scope(name):
            return self.gather(self.weight("weight", (rows, features), normal(std)), ids)

    def layer_norm(self, x: Tensor, name: str, epsilon: float) -> Tensor:
        """The LayerNormalization operator, over the last axis."""
        with self.scope(name):
            return self.emit("LayerNormalization", [x, *self._layer_norm_weights(x)], x.shape, axis=-1, epsilon=epsilon)

    def layer_norm_in_pieces(self, x: Tensor, name: str, epsilon: float) -> Tensor:
        """The nine nodes that exporters write below opset 17, over the last axis."""
        with self.scope(name):
            scale, bias = self._layer_norm_weights(x)
            centred = self.binary("Sub", x, self.reduce_mean(x, [-1]))
            square = self.binary("Pow", centred, self.constant(2.0))
            variance = self.add(self.reduce_mean(square, [-1]), self.constant(epsilon))
            return self.add(self.mul(self.binary("Div", centred, self.unary("Sqrt", variance)), scale), bias)

    def _layer_norm_weights(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = (x.shape[-1],)
        return self.weight("weight", features, uniform(0.7, 1.3)), self.weight("bias", features, normal(0.1))

    def gelu(self, x: Tensor) -> Tensor:
        """x / 2 (1 + erf(x / sqrt 2)), as Div, Erf, Add, Mul, Mul."""
        erf = self.unary("Erf", self.binary("Div", x, self.constant(math.sqrt(2))))
        return self.mul(self.mul(x, self.add(erf, self.constant(1.0))), self.constant(0.5))

    def gelu_tanh(self, x: Tensor) -> Tensor:
        """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), one node for each operation."""
        half = self.mul(x, self.constant(0.5))
        cube = self.mul(self.binary("Pow", x, self.constant(3.0)), self.constant(0.044715))
        inner = self.mul(self.add(x, cube), self.constant(math.sqrt(2 / math.pi)))
        return self.mul(half, self.add(self.unary("Tanh", inner), self.constant(1.0)))
