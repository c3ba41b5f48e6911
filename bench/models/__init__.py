"""The benchmark models: published architectures as ONNX, with deterministic random weights.

There are no trained weights, and nothing is downloaded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from bench.models import cnn, mobile, transformers
from bench.models.layers import NetworkBuilder


@dataclass(frozen=True)
class Builder:
    """One architecture: the function that writes it, its published sizes, and small sizes for fast tests.

    Both mappings are keyword arguments of ``network``; ``reduced`` overrides entries of ``published``.
    """

    network: Callable[..., None]
    opset: int
    published: Mapping[str, object]
    reduced: Mapping[str, object]

    def graph(
        self, name: str, *, batch: int = 1, reduced: bool = False, sizes: Mapping[str, object] | None = None
    ) -> NetworkBuilder:
        """The network's nodes and weight declarations; no weights are drawn."""
        g = NetworkBuilder(name, self.opset)
        arguments = {**self.published, **(self.reduced if reduced else {}), **(sizes or {})}
        self.network(g, batch=batch, **arguments)
        return g


MODELS: dict[str, Builder] = {
    "resnet18": Builder(
        cnn.resnet,
        17,
        {"size": 224, "blocks": (2, 2, 2, 2), "bottleneck": False},
        {"size": 45, "blocks": (2, 1, 1, 1), "width": 6, "classes": 11},
    ),
    "resnet50": Builder(
        cnn.resnet,
        17,
        {"size": 224, "blocks": (3, 4, 6, 3), "bottleneck": True},
        {"size": 37, "blocks": (2, 1, 2, 1), "width": 8, "classes": 10},
    ),
    "mobilenet_v1": Builder(
        mobile.mobilenet_v1,
        10,
        {
            "size": 224,
            "stages": ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))
            + 5 * ((512, 1),)
            + ((1024, 2), (1024, 1)),
        },
        {"size": 41, "stages": ((16, 1), (24, 2), (24, 1), (40, 2)), "width": 8, "classes": 13},
    ),
    "mobilenet_v2": Builder(
        mobile.mobilenet_v2,
        13,
        {
            "size": 224,
            "stages": (
                (1, 16, 1, 1),
                (6, 24, 2, 2),
                (6, 32, 3, 2),
                (6, 64, 4, 2),
                (6, 96, 3, 1),
                (6, 160, 3, 2),
                (6, 320, 1, 1),
            ),
        },
        {
            "size": 43,
            "stages": ((1, 8, 1, 1), (6, 12, 2, 2), (3, 20, 2, 2)),
            "width": 8,
            "head": 48,
            "classes": 10,
        },
    ),
    "vgg16": Builder(
        cnn.vgg,
        9,
        {"size": 224, "stages": ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3)},
        {"size": 38, "stages": ((6, 6), (10, 10), (14,) * 3), "hidden": 34, "classes": 10},
    ),
    "squeezenet1_1": Builder(
        mobile.squeezenet,
        11,
        {
            "size": 224,
            "stages": (
                ((16, 64), (16, 64)),
                ((32, 128), (32, 128)),
                ((48, 192), (48, 192), (64, 256), (64, 256)),
            ),
        },
        {"size": 46, "stages": (((4, 10), (4, 10)), ((6, 14),)), "width": 9, "classes": 10},
    ),
    "densenet121": Builder(
        cnn.densenet,
        13,
        {"size": 224, "blocks": (6, 12, 24, 16)},
        {"size": 50, "blocks": (2, 3, 2, 2), "growth": 6, "width": 14, "classes": 10},
    ),
    "inception_v3": Builder(cnn.inception_v3, 17, {"size": 299}, {"size": 79, "width": 0.11, "classes": 10}),
    "shufflenet_v2": Builder(
        mobile.shufflenet_v2,
        11,
        {"size": 224, "repeats": (4, 8, 4), "channels": (116, 232, 464)},
        {"size": 49, "repeats": (2, 3), "channels": (14, 28), "width": 6, "head": 36, "classes": 10},
    ),
    "efficientnet_b0": Builder(
        mobile.efficientnet,
        17,
        {
            "size": 224,
            "stages": (
                (1, 3, 1, 16, 1),
                (6, 3, 2, 24, 2),
                (6, 5, 2, 40, 2),
                (6, 3, 2, 80, 3),
                (6, 5, 1, 112, 3),
                (6, 5, 2, 192, 4),
                (6, 3, 1, 320, 1),
            ),
        },
        {
            "size": 39,
            "stages": ((1, 3, 1, 8, 1), (6, 3, 2, 12, 2), (4, 5, 2, 20, 2)),
            "width": 8,
            "head": 44,
            "classes": 10,
        },
    ),
    "unet_small": Builder(cnn.unet, 17, {"size": 128}, {"size": 28, "width": 6, "levels": 2, "classes": 3}),
    "bert_base": Builder(
        transformers.bert,
        14,
        {"sequence": 128, "layers": 12, "width": 768, "heads": 12},
        {"sequence": 11, "layers": 2, "width": 24, "heads": 3, "vocabulary": 97, "positions": 32},
    ),
    "vit_b16": Builder(
        transformers.vit,
        17,
        {"size": 224, "patch": 16, "layers": 12, "width": 768, "heads": 12},
        {"size": 35, "patch": 7, "layers": 2, "width": 40, "heads": 5, "classes": 10},
    ),
    "vit_tiny": Builder(
        transformers.vit,
        17,
        {"size": 224, "patch": 16, "layers": 12, "width": 192, "heads": 3},
        {"size": 24, "patch": 8, "layers": 2, "width": 21, "heads": 3, "classes": 10},
    ),
    "gpt2": Builder(
        transformers.gpt2,
        17,
        {"sequence": 64, "layers": 2, "width": 768, "heads": 12},
        {"sequence": 13, "layers": 2, "width": 28, "heads": 4, "vocabulary": 101, "positions": 24},
    ),
}


def build(name: str, *, batch: int = 1, reduced: bool = False, seed: int = 0, **sizes: Any) -> onnx.ModelProto:
    """The model ``name`` of ``MODELS``; the same arguments give the same bytes.

    ``reduced`` keeps the architecture but uses fewer layers, fewer channels and a smaller input. ``sizes`` overrides any argument
    of the network: ``build("resnet50", size=320)``, ``build("bert_base", sequence=384)``.
    """
    return MODELS[name].graph(name, batch=batch, reduced=reduced, sizes=sizes).model(seed)


def inputs(model_or_name: onnx.ModelProto | str, seed: int = 0) -> dict[str, np.ndarray]:
    """An array for each of a model's inputs; a name means the published sizes at batch 1.

    Float inputs are images of standard normal pixels. Integer inputs that index a table are drawn from its rows. Any other
    integer input is an attention mask: ones, then zeros in the last quarter of the sequence.
    """
    model = model_or_name
    if isinstance(model, str):
        model = MODELS[model].graph(model).model(draw_weights=False)
    rng = np.random.default_rng(seed)
    tables = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims}
    rows = {
        node.input[1]: tables[node.input[0]]
        for node in model.graph.node
        if node.op_type == "Gather" and node.input[0] in tables
    }
    drawn = {}
    weights = {tensor.name for tensor in model.graph.initializer}  # old files list weights as inputs too
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in tensor.shape.dim)
        if tensor.elem_type == TensorProto.FLOAT:
            drawn[value.name] = images(rng, shape)
        elif value.name in rows:
            drawn[value.name] = rng.integers(0, rows[value.name], shape)
        else:
            drawn[value.name] = np.ones(shape, np.int64)
            drawn[value.name][..., shape[-1] - shape[-1] // 4 :] = 0
    return drawn


def images(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Patches of 16 by 16 plus noise, of equal variance: white noise alone averages out in a deep network."""
    *planes, height, width = shape
    patches = rng.standard_normal((*planes, -(-height // 16), -(-width // 16)), np.float32)
    coarse = patches.repeat(16, axis=-2).repeat(16, axis=-1)[..., :height, :width]
    return (coarse + rng.standard_normal(shape, np.float32)) * np.float32(0.5**0.5)
