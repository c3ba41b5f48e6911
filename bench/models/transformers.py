"""Transformers: BERT, ViT and GPT-2, with attention decomposed into the nodes that exporters write.

Every function takes an empty builder, the batch and the network's sizes, and fills the builder.
"""

import math

import numpy as np
from onnx import TensorProto

from bench.models.builder import Tensor, normal
from bench.models.layers import LINEAR, NetworkBuilder

FLOAT_MIN = float(np.finfo(np.float32).min)  # exporters add it to a masked score, or replace the score by it


def bert(
    g: NetworkBuilder,
    *,
    batch: int,
    sequence: int,
    layers: int,
    width: int,
    heads: int,
    vocabulary: int = 30522,
    positions: int = 512,
) -> None:
    """Devlin et al. 2018 (arXiv:1810.04805) with its pooler, as transformers' BertModel is exported.

    The shapes for splitting the heads are computed in the graph, as exporters do for dynamic axes.
    """
    ids, mask, types = (
        g.input(name, (batch, sequence), TensorProto.INT64)
        for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    bias = _additive_mask(g, mask)
    with g.scope("embeddings"):
        x = g.embedding(ids, "word_embeddings", vocabulary, width, 1.0)
        x = g.add(x, g.embedding(types, "token_type_embeddings", 2, width, 0.3))
        table = g.buffer("position_ids", np.arange(positions, dtype=np.int64)[None])
        used = g.slice(table, sequence, 1)
        x = g.add(x, g.embedding(used, "position_embeddings", positions, width, 0.5))
        x = g.layer_norm_in_pieces(x, "LayerNorm", 1e-12)
    for layer in range(layers):
        with g.scope(f"encoder.layer.{layer}"):
            x = _bert_layer(g, x, bias, heads)
    with g.scope("pooler"):
        first = g.gather(x, g.constant(0, np.int64), axis=1)
        pooled = g.unary("Tanh", g.linear(first, "dense", width))
    g.output(x, "last_hidden_state")
    g.output(pooled, "pooler_output")


def _additive_mask(g: NetworkBuilder, mask: Tensor) -> Tensor:
    """1 where attended, 0 where padded -> 0 and the least float, as [batch, 1, 1, sequence]."""
    kept = g.unary("Cast", g.unsqueeze(g.unsqueeze(mask, 1), 2), to=TensorProto.FLOAT)
    return g.mul(g.binary("Sub", g.constant(1.0), kept), g.constant(FLOAT_MIN))


def _bert_layer(g: NetworkBuilder, x: Tensor, bias: Tensor, heads: int) -> Tensor:
    width = x.shape[-1]
    with g.scope("attention"):
        with g.scope("self"):
            query = _heads_by_shape(g, g.linear(x, "query", width), x, heads, (0, 2, 1, 3))
            key = _heads_by_shape(g, g.linear(x, "key", width), x, heads, (0, 2, 3, 1))
            value = _heads_by_shape(g, g.linear(x, "value", width), x, heads, (0, 2, 1, 3))
            scores = g.binary("Div", g.matmul(query, key), g.constant(math.sqrt(width // heads)))
            attended = _merge_heads(g, g.matmul(g.softmax(g.add(scores, bias)), value))
        with g.scope("output"):
            x = g.add(g.linear(attended, "dense", width), x)
            x = g.layer_norm_in_pieces(x, "LayerNorm", 1e-12)
    with g.scope("intermediate"):
        y = g.gelu(g.linear(x, "dense", 4 * width))
    with g.scope("output"):
        y = g.add(g.linear(y, "dense", width, gain=2.4), x)
        return g.layer_norm_in_pieces(y, "LayerNorm", 1e-12)


def _heads_by_shape(g: NetworkBuilder, y: Tensor, x: Tensor, heads: int, perm: tuple[int, ...]) -> Tensor:
    """[b, s, h d] -> [b, s, h, d], with b and s read from the shape of ``x``, then transposed."""
    batch, sequence, width = y.shape
    sizes = [g.unsqueeze(g.gather(g.emit("Shape", [x], (3,)), g.constant(axis, np.int64)), 0) for axis in (0, 1)]
    fixed = [g.constant([size], np.int64) for size in (heads, width // heads)]
    split = (batch, sequence, heads, width // heads)
    return g.transpose(g.emit("Reshape", [y, g.concat([*sizes, *fixed], 0)], split), *perm)


def _merge_heads(g: NetworkBuilder, x: Tensor) -> Tensor:
    """[b, h, s, d] -> [b, s, h d]"""
    batch, heads, sequence, depth = x.shape
    return g.reshape(g.transpose(x, 0, 2, 1, 3), (batch, sequence, heads * depth))


def vit(
    g: NetworkBuilder,
    *,
    batch: int,
    size: int,
    patch: int,
    layers: int,
    width: int,
    heads: int,
    classes: int = 1000,
) -> None:
    """Dosovitskiy et al. 2020 (arXiv:2010.11929); ``size`` is a multiple of ``patch``."""
    x = g.input("input", (batch, 3, size, size))
    x = g.conv(x, "patch_embed.proj", width, patch, stride=patch, pad=0, bias=True, gain=LINEAR)
    n, c, h, w = x.shape
    x = g.transpose(g.reshape(x, (n, c, h * w)), 0, 2, 1)
    token = g.weight("cls_token", (1, 1, width), normal(1.0))
    token = g.emit("Expand", [token, g.constant((n, 1, width), np.int64)], (n, 1, width))
    x = g.concat([token, x], 1)
    x = g.add(x, g.weight("pos_embed", (1, h * w + 1, width), normal(0.5)))
    for layer in range(layers):
        with g.scope(f"blocks.{layer}"):
            x = _vit_block(g, x, heads)
    x = g.layer_norm(x, "norm", 1e-6)
    x = g.gather(x, g.constant(0, np.int64), axis=1)
    g.output(g.linear(x, "head", classes), "output")


def _vit_block(g: NetworkBuilder, x: Tensor, heads: int) -> Tensor:
    batch, tokens, width = x.shape
    y = g.layer_norm(x, "norm1", 1e-6)
    with g.scope("attn"):
        qkv = g.reshape(g.linear(y, "qkv", 3 * width), (batch, tokens, 3, heads, width // heads))
        qkv = g.transpose(qkv, 2, 0, 3, 1, 4)
        query, key, value = (g.squeeze(part, 0) for part in g.split(qkv, [1, 1, 1], 0))
        scores = g.matmul(query, g.transpose(key, 0, 1, 3, 2))
        scores = g.binary("Div", scores, g.constant(math.sqrt(width // heads)))
        attended = _merge_heads(g, g.matmul(g.softmax(scores), value))
        x = g.add(x, g.linear(attended, "proj", width))
    y = g.layer_norm(x, "norm2", 1e-6)
    with g.scope("mlp"):
        return g.add(x, g.linear(g.gelu(g.linear(y, "fc1", 4 * width)), "fc2", width, gain=2.4))


def gpt2(
    g: NetworkBuilder,
    *,
    batch: int,
    sequence: int,
    layers: int,
    width: int,
    heads: int,
    vocabulary: int = 50257,
    positions: int = 1024,
) -> None:
    """Radford et al. 2019, 'Language models are unsupervised multitask learners', as transformers exports it.

    The embedding is also the output projection: one initialiser is read by a Gather and by a Transpose.
    """
    ids = g.input("input_ids", (batch, sequence), TensorProto.INT64)
    embedding = g.weight("wte.weight", (vocabulary, width), normal(width**-0.5))
    table = g.buffer("position_ids", np.arange(positions, dtype=np.int64)[None])
    used = g.slice(table, sequence, 1)
    x = g.add(g.gather(embedding, ids), g.embedding(used, "wpe", positions, width, 0.5 * width**-0.5))
    causal = g.buffer("bias", np.tril(np.ones((1, 1, positions, positions), np.bool_)))
    for layer in range(layers):
        with g.scope(f"h.{layer}"):
            x = _gpt2_block(g, x, causal, heads)
    x = g.layer_norm_in_pieces(x, "ln_f", 1e-5)
    with g.scope("lm_head"):
        g.output(g.matmul(x, g.transpose(embedding, 1, 0)), "logits")


def _gpt2_block(g: NetworkBuilder, x: Tensor, causal: Tensor, heads: int) -> Tensor:
    batch, sequence, width = x.shape
    depth = width // heads
    y = g.layer_norm_in_pieces(x, "ln_1", 1e-5)
    with g.scope("attn"):
        parts = g.split(_conv1d(g, y, "c_attn", 3 * width), [width] * 3, 2)
        query, key, value = (g.reshape(part, (batch, sequence, heads, depth)) for part in parts)
        scores = g.matmul(g.transpose(query, 0, 2, 1, 3), g.transpose(key, 0, 2, 3, 1))
        scores = g.binary("Div", scores, g.constant(math.sqrt(depth)))
        seen = g.slice(g.slice(causal, sequence, 2), sequence, 3)
        scores = g.emit("Where", [seen, scores, g.constant(FLOAT_MIN)], scores.shape)
        attended = g.matmul(g.softmax(scores), g.transpose(value, 0, 2, 1, 3))
        x = g.add(_conv1d(g, _merge_heads(g, attended), "c_proj", width), x)
    y = g.layer_norm_in_pieces(x, "ln_2", 1e-5)
    with g.scope("mlp"):
        return g.add(x, _conv1d(g, g.gelu_tanh(_conv1d(g, y, "c_fc", 4 * width)), "c_proj", width, gain=2.4))


def _conv1d(g: NetworkBuilder, x: Tensor, name: str, features: int, gain: float = LINEAR) -> Tensor:
    """GPT-2's linear layer: a Gemm between two Reshapes, its weight stored [in, out]."""
    batch, sequence, fan_in = x.shape
    with g.scope(name):
        weight = g.weight("weight", (fan_in, features), normal((gain / fan_in) ** 0.5))
        bias = g.weight("bias", (features,), normal(0.1))
        rows = g.reshape(x, (batch * sequence, fan_in))
        rows = g.gemm(rows, weight, bias)
        return g.reshape(rows, (batch, sequence, features))
