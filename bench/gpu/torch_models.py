"""Five of the benchmark models in plain torch, with the weights of the ONNX models; whole models are timed beside them.

To show torch at its best, batch norms are folded into the convolutions before them, and query, key and value are one product.
Images are channels_last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, numpy_helper


class Weights:
    """The initialisers of a model as torch tensors, by their ONNX names."""

    def __init__(self, model: ModelProto, torch: Any, dtype: Any, device: str) -> None:
        self.torch, self.dtype, self.device = torch, dtype, device
        self.arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}

    def __call__(self, name: str) -> Any:
        return self.tensor(self.arrays[name])

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def tensor(self, array: np.ndarray) -> Any:
        tensor = self.torch.from_numpy(np.array(array)).to(self.device)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def conv(self, name: str, norm: str = "") -> tuple[Any, Any]:
        """Weight (channels_last) and bias of a convolution, with the batch norm ``norm`` folded in."""
        weight = self.arrays[f"{name}.weight"].astype(np.float64)
        bias = self.arrays.get(f"{name}.bias", np.zeros(weight.shape[0])).astype(np.float64)
        if norm:
            scale, shift, mean, variance = (
                self.arrays[f"{norm}.{part}"].astype(np.float64)
                for part in ("weight", "bias", "running_mean", "running_var")
            )
            factor = scale / np.sqrt(variance + 1e-5)
            weight, bias = weight * factor[:, None, None, None], (bias - mean) * factor + shift
        image = self.tensor(weight.astype(np.float32)).contiguous(memory_format=self.torch.channels_last)
        return image, self.tensor(bias.astype(np.float32))

    def linear(self, *names: str) -> tuple[Any, Any]:
        """Weight [out, in] and bias of linear layers side by side."""
        weights = [
            self.arrays[f"{n}.onnx::MatMul"].T if f"{n}.onnx::MatMul" in self.arrays else self.arrays[f"{n}.weight"]
            for n in names
        ]
        bias = np.concatenate([self.arrays[f"{n}.bias"] for n in names])
        return self.tensor(np.ascontiguousarray(np.concatenate(weights))), self.tensor(bias)

    def norm(self, name: str) -> tuple[Any, Any]:
        return self(f"{name}.weight"), self(f"{name}.bias")

    def count(self, pattern: str) -> int:
        """The number of consecutive numbers from 0 with which ``pattern`` is the prefix of a name."""
        number = 0
        while any(name.startswith(pattern.format(number)) for name in self.arrays):
            number += 1
        return number


Model = Callable[..., tuple[Any, ...]]


def resnet50(w: Weights) -> Model:
    f, torch = w.torch.nn.functional, w.torch
    stem, head = w.conv("conv1", "bn1"), w.linear("fc")
    blocks = []
    for stage in range(1, 5):
        for index in range(w.count(f"layer{stage}.{{}}.")):
            at = f"layer{stage}.{index}"
            down = w.conv(f"{at}.downsample.0", f"{at}.downsample.1") if f"{at}.downsample.0.weight" in w else None
            convs = [w.conv(f"{at}.conv{n}", f"{at}.bn{n}") for n in (1, 2, 3)]
            blocks.append((convs, down, 2 if stage > 1 and index == 0 else 1))

    def run(x: Any) -> tuple[Any, ...]:
        x = f.max_pool2d(f.relu(f.conv2d(x, *stem, stride=2, padding=3)), 3, 2, 1)
        for convs, down, stride in blocks:
            y = f.relu(f.conv2d(x, *convs[0]))
            y = f.relu(f.conv2d(y, *convs[1], stride=stride, padding=1))
            y = f.conv2d(y, *convs[2])
            x = f.relu(y + (x if down is None else f.conv2d(x, *down, stride=stride)))
        return (f.linear(torch.flatten(f.adaptive_avg_pool2d(x, 1), 1), *head),)

    return run


def mobilenet_v2(w: Weights) -> Model:
    f, torch = w.torch.nn.functional, w.torch
    stem = w.conv("features.0.0", "features.0.1")
    last = w.count("features.{}.") - 1
    head, classifier = w.conv(f"features.{last}.0", f"features.{last}.1"), w.linear("classifier.1")
    strides = _mobilenet_strides(w, last)
    blocks = []
    for index in range(1, last):
        at = f"features.{index}.conv"
        expands = f"{at}.1.0.weight" in w
        layers = [w.conv(f"{at}.0.0", f"{at}.0.1")]
        if expands:
            layers.append(w.conv(f"{at}.1.0", f"{at}.1.1"))
        tail = 2 if expands else 1
        blocks.append((layers, w.conv(f"{at}.{tail}", f"{at}.{tail + 1}"), strides[index - 1]))

    def run(x: Any) -> tuple[Any, ...]:
        x = f.relu6(f.conv2d(x, *stem, stride=2, padding=1))
        for layers, project, stride in blocks:
            y = f.relu6(f.conv2d(x, *layers[0])) if len(layers) == 2 else x
            depth = layers[-1]
            y = f.relu6(f.conv2d(y, *depth, stride=stride, padding=1, groups=y.shape[1]))
            y = f.conv2d(y, *project)
            x = x + y if stride == 1 and y.shape[1] == x.shape[1] else y
        x = f.relu6(f.conv2d(x, *head))
        return (f.linear(torch.flatten(f.adaptive_avg_pool2d(x, 1), 1), *classifier),)

    return run


def _mobilenet_strides(w: Weights, last: int) -> list[int]:
    """Strides of the blocks. A stage begins where the channels change; the strides of stages are the published ones."""
    from bench.models import MODELS

    sizes = MODELS["mobilenet_v2"].published if last > 10 else MODELS["mobilenet_v2"].reduced
    return [stride if not repeat else 1 for _, _, repeats, stride in sizes["stages"] for repeat in range(repeats)]


def vgg16(w: Weights) -> Model:
    f, torch = w.torch.nn.functional, w.torch
    numbers = sorted({int(n.split(".")[1]) for n in w.arrays if n.startswith("features.")})
    convs = [(w.conv(f"features.{n}"), n) for n in numbers]
    pools = {n for n, after in zip(numbers, [*numbers[1:], -1], strict=True) if after != n + 2}
    heads = [w.linear(f"classifier.{n}") for n in (0, 3, 6)]

    def run(x: Any) -> tuple[Any, ...]:
        for conv, number in convs:
            x = f.relu(f.conv2d(x, *conv, padding=1))
            if number in pools:
                x = f.max_pool2d(x, 2, 2)
        x = torch.flatten(x, 1)
        for head in heads[:-1]:
            x = f.relu(f.linear(x, *head))
        return (f.linear(x, *heads[-1]),)

    return run


def bert_base(w: Weights) -> Model:
    f, torch = w.torch.nn.functional, w.torch
    tables = [w(f"embeddings.{name}_embeddings.weight") for name in ("word", "token_type", "position")]
    norm, width = w.norm("embeddings.LayerNorm"), tables[0].shape[1]
    heads = 12 if width == 768 else 3
    layers = []
    for number in range(w.count("encoder.layer.{}.")):
        at = f"encoder.layer.{number}"
        layers.append((
            w.linear(*(f"{at}.attention.self.{part}" for part in ("query", "key", "value"))),
            w.linear(f"{at}.attention.output.dense"), w.norm(f"{at}.attention.output.LayerNorm"),
            w.linear(f"{at}.intermediate.dense"), w.linear(f"{at}.output.dense"), w.norm(f"{at}.output.LayerNorm"),
        ))  # fmt: skip
    pooler, lowest = w.linear("pooler.dense"), torch.finfo(w.dtype).min

    def run(ids: Any, mask: Any, types: Any) -> tuple[Any, ...]:
        batch, sequence = ids.shape
        bias = (1 - mask[:, None, None, :].to(w.dtype)) * lowest
        x = f.embedding(ids, tables[0]) + f.embedding(types, tables[1]) + tables[2][:sequence]
        x = f.layer_norm(x, (width,), *norm, 1e-12)
        for qkv, out, first, up, down, second in layers:
            q, k, v = f.linear(x, *qkv).view(batch, sequence, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = f.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            y = y.transpose(1, 2).reshape(batch, sequence, width)
            x = f.layer_norm(f.linear(y, *out) + x, (width,), *first, 1e-12)
            x = f.layer_norm(f.linear(f.gelu(f.linear(x, *up)), *down) + x, (width,), *second, 1e-12)
        return x, torch.tanh(f.linear(x[:, 0], *pooler))

    return run


def vit_b16(w: Weights) -> Model:
    f, torch = w.torch.nn.functional, w.torch
    patch, token, positions = w.conv("patch_embed.proj"), w("cls_token"), w("pos_embed")
    width, size = positions.shape[-1], w.arrays["patch_embed.proj.weight"].shape[-1]
    heads = 12 if width == 768 else 5
    layers = [
        (w.norm(f"{at}.norm1"), w.linear(f"{at}.attn.qkv"), w.linear(f"{at}.attn.proj"), w.norm(f"{at}.norm2"),
         w.linear(f"{at}.mlp.fc1"), w.linear(f"{at}.mlp.fc2"))
        for at in (f"blocks.{n}" for n in range(w.count("blocks.{}.")))
    ]  # fmt: skip
    norm, head = w.norm("norm"), w.linear("head")

    def run(x: Any) -> tuple[Any, ...]:
        x = f.conv2d(x, *patch, stride=size).flatten(2).transpose(1, 2)
        x = torch.cat([token.expand(x.shape[0], -1, -1), x], 1) + positions
        batch, tokens, _ = x.shape
        for first, qkv, out, second, up, down in layers:
            y = f.linear(f.layer_norm(x, (width,), *first, 1e-6), *qkv)
            q, k, v = y.view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
            x = x + f.linear(y, *out)
            x = x + f.linear(f.gelu(f.linear(f.layer_norm(x, (width,), *second, 1e-6), *up)), *down)
        return (f.linear(f.layer_norm(x[:, 0], (width,), *norm, 1e-6), *head),)

    return run


MODELS: Mapping[str, Callable[[Weights], Model]] = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "vgg16": vgg16,
    "bert_base": bert_base,
    "vit_b16": vit_b16,
}


def arguments(model: ModelProto, feeds: Mapping[str, np.ndarray], w: Weights) -> list[Any]:
    """The feeds as tensors in the model's order; images in channels_last."""
    tensors = [w.tensor(feeds[value.name]) for value in model.graph.input]
    return [t.contiguous(memory_format=w.torch.channels_last) if t.dim() == 4 else t for t in tensors]
