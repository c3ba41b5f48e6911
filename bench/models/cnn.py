"""Convolutional networks for accuracy: ResNet, VGG, DenseNet, Inception and U-Net.

Networks for small devices are in mobile.py. Weight names and the order of nodes are torchvision's if it has the network.
Every function takes an empty builder, the batch and the network's sizes, and fills the builder.
"""

from collections.abc import Callable, Sequence
from typing import Any

from bench.models.builder import Pair, Tensor
from bench.models.layers import LINEAR, NetworkBuilder

CLASSES = 1000
RESIDUAL = 0.25  # BatchNorm scale at the end of a residual branch, so that the sums grow by an eighth in each block


def conv_bn(
    g: NetworkBuilder,
    x: Tensor,
    conv: str,
    bn: str,
    channels: int,
    kernel: Pair,
    *,
    scale: float = 1.0,
    epsilon: float = 1e-5,
    **how: Any,
) -> Tensor:
    return g.batch_norm(g.conv(x, conv, channels, kernel, **how), bn, scale=scale, epsilon=epsilon)


def resnet(
    g: NetworkBuilder,
    *,
    batch: int,
    size: int,
    blocks: Sequence[int],
    bottleneck: bool,
    width: int = 64,
    classes: int = CLASSES,
) -> None:
    """He et al. 2015 (arXiv:1512.03385); the bottleneck is v1.5, its stride in the 3x3 convolution."""
    block = _bottleneck if bottleneck else _basic_block
    x = g.input("input", (batch, 3, size, size))
    x = g.relu(conv_bn(g, x, "conv1", "bn1", width, 7, stride=2, gain=LINEAR))
    x = g.max_pool(x, 3, 2, pad=1)
    for stage, count in enumerate(blocks):
        for index in range(count):
            with g.scope(f"layer{stage + 1}.{index}"):
                x = block(g, x, width << stage, 2 if stage and not index else 1)
    x = g.flatten(g.global_average_pool(x))
    g.output(g.linear(x, "fc", classes), "output")


def _basic_block(g: NetworkBuilder, x: Tensor, channels: int, stride: int) -> Tensor:
    y = g.relu(conv_bn(g, x, "conv1", "bn1", channels, 3, stride=stride))
    y = conv_bn(g, y, "conv2", "bn2", channels, 3, scale=RESIDUAL)
    return g.relu(g.add(y, _shortcut(g, x, channels, stride)))


def _bottleneck(g: NetworkBuilder, x: Tensor, channels: int, stride: int) -> Tensor:
    y = g.relu(conv_bn(g, x, "conv1", "bn1", channels, 1))
    y = g.relu(conv_bn(g, y, "conv2", "bn2", channels, 3, stride=stride))
    y = conv_bn(g, y, "conv3", "bn3", 4 * channels, 1, scale=RESIDUAL)
    return g.relu(g.add(y, _shortcut(g, x, 4 * channels, stride)))


def _shortcut(g: NetworkBuilder, x: Tensor, channels: int, stride: int) -> Tensor:
    if stride == 1 and x.shape[1] == channels:
        return x
    return conv_bn(g, x, "downsample.0", "downsample.1", channels, 1, stride=stride)


def vgg(
    g: NetworkBuilder,
    *,
    batch: int,
    size: int,
    stages: Sequence[Sequence[int]],
    hidden: int = 4096,
    classes: int = CLASSES,
) -> None:
    """Simonyan and Zisserman 2014 (arXiv:1409.1556), without BatchNorm; exported with its Dropout nodes."""
    x = g.input("input", (batch, 3, size, size))
    index = 0
    for stage in stages:
        for channels in stage:
            x = g.relu(g.conv(x, f"features.{index}", channels, 3, bias=True, gain=2.0 if index else LINEAR))
            index += 2
        x = g.max_pool(x, 2, 2)
        index += 1
    x = g.flatten(x)
    for layer in ("classifier.0", "classifier.3"):
        x = g.dropout(g.relu(g.linear(x, layer, hidden, gain=2.0 if layer[-1] != "0" else 0.5)), 0.5)
    g.output(g.linear(x, "classifier.6", classes), "output")


def densenet(
    g: NetworkBuilder,
    *,
    batch: int,
    size: int,
    blocks: Sequence[int],
    growth: int = 32,
    width: int = 64,
    classes: int = CLASSES,
) -> None:
    """Huang et al. 2016 (arXiv:1608.06993), with bottleneck layers and halving transitions."""
    x = g.input("input", (batch, 3, size, size))
    with g.scope("features"):
        x = g.relu(conv_bn(g, x, "conv0", "norm0", width, 7, stride=2, gain=LINEAR))
        x = g.max_pool(x, 3, 2, pad=1)
        for number, layers in enumerate(blocks, 1):
            with g.scope(f"denseblock{number}"):
                x = _dense_block(g, x, layers, growth)
            if number < len(blocks):
                with g.scope(f"transition{number}"):
                    x = g.relu(g.batch_norm(x, "norm"))
                    x = g.average_pool(g.conv(x, "conv", x.shape[1] // 2, 1), 2, 2)
        x = g.batch_norm(x, "norm5")
    x = g.flatten(g.global_average_pool(g.relu(x)))
    g.output(g.linear(x, "classifier", classes), "output")


def _dense_block(g: NetworkBuilder, x: Tensor, layers: int, growth: int) -> Tensor:
    features = [x]
    for layer in range(1, layers + 1):
        with g.scope(f"denselayer{layer}"):
            y = g.concat(features, 1) if layer > 1 else x
            y = g.conv(g.relu(g.batch_norm(y, "norm1")), "conv1", 4 * growth, 1)
            features.append(g.conv(g.relu(g.batch_norm(y, "norm2")), "conv2", growth, 3))
    return g.concat(features, 1)


class _Inception:
    """The five kinds of Inception-v3 block; ``width`` scales every channel count."""

    def __init__(self, g: NetworkBuilder, width: float) -> None:
        self.g = g
        self.width = width

    def conv(self, x: Tensor, name: str, channels: int, kernel: Pair, stride: int = 1, pad: Pair = 0) -> Tensor:
        g = self.g
        gain = LINEAR if x.shape[1] == 3 else 2.0
        with g.scope(name):
            channels = round(channels * self.width)
            return g.relu(
                conv_bn(g, x, "conv", "bn", channels, kernel, stride=stride, pad=pad, gain=gain, epsilon=1e-3)
            )

    def chain(self, x: Tensor, name: str, *layers: tuple[int, Pair]) -> Tensor:
        """Convolutions of stride 1 that keep the size, numbered from 1."""
        for number, (channels, kernel) in enumerate(layers, 1):
            pad = kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)
            x = self.conv(x, f"{name}_{number}", channels, kernel, pad=pad)
        return x

    def pooled(self, x: Tensor, channels: int) -> Tensor:
        return self.conv(self.g.average_pool(x, 3, 1, pad=1), "branch_pool", channels, 1)

    def a(self, x: Tensor, pool_channels: int) -> Tensor:
        branches = [
            self.conv(x, "branch1x1", 64, 1),
            self.chain(x, "branch5x5", (48, 1), (64, 5)),
            self.chain(x, "branch3x3dbl", (64, 1), (96, 3), (96, 3)),
            self.pooled(x, pool_channels),
        ]
        return self.g.concat(branches, 1)

    def b(self, x: Tensor) -> Tensor:
        y = self.chain(x, "branch3x3dbl", (64, 1), (96, 3))
        branches = [
            self.conv(x, "branch3x3", 384, 3, stride=2),
            self.conv(y, "branch3x3dbl_3", 96, 3, stride=2),
            self.g.max_pool(x, 3, 2),
        ]
        return self.g.concat(branches, 1)

    def c(self, x: Tensor, channels: int) -> Tensor:
        row, column = (1, 7), (7, 1)
        narrow = [(channels, kernel) for kernel in (1, column, row, column)]
        branches = [
            self.conv(x, "branch1x1", 192, 1),
            self.chain(x, "branch7x7", (channels, 1), (channels, row), (192, column)),
            self.chain(x, "branch7x7dbl", *narrow, (192, row)),
            self.pooled(x, 192),
        ]
        return self.g.concat(branches, 1)

    def d(self, x: Tensor) -> Tensor:
        y = self.chain(x, "branch3x3", (192, 1))
        z = self.chain(x, "branch7x7x3", (192, 1), (192, (1, 7)), (192, (7, 1)))
        branches = [
            self.conv(y, "branch3x3_2", 320, 3, stride=2),
            self.conv(z, "branch7x7x3_4", 192, 3, stride=2),
            self.g.max_pool(x, 3, 2),
        ]
        return self.g.concat(branches, 1)

    def e(self, x: Tensor) -> Tensor:
        y = self.conv(x, "branch3x3_1", 384, 1)
        z = self.chain(x, "branch3x3dbl", (448, 1), (384, 3))
        branches = [
            self.conv(x, "branch1x1", 320, 1),
            self._fork(y, "branch3x3_2"),
            self._fork(z, "branch3x3dbl_3"),
            self.pooled(x, 192),
        ]
        return self.g.concat(branches, 1)

    def _fork(self, x: Tensor, name: str) -> Tensor:
        return self.g.concat(
            [
                self.conv(x, f"{name}a", 384, (1, 3), pad=(0, 1)),
                self.conv(x, f"{name}b", 384, (3, 1), pad=(1, 0)),
            ],
            1,
        )


def inception_v3(g: NetworkBuilder, *, batch: int, size: int, width: float = 1.0, classes: int = CLASSES) -> None:
    """Szegedy et al. 2015 (arXiv:1512.00567), without the auxiliary classifier; ``size`` is at least 75."""
    net = _Inception(g, width)
    x = g.input("input", (batch, 3, size, size))
    x = net.conv(x, "Conv2d_1a_3x3", 32, 3, stride=2)
    x = net.conv(x, "Conv2d_2a_3x3", 32, 3)
    x = net.conv(x, "Conv2d_2b_3x3", 64, 3, pad=1)
    x = g.max_pool(x, 3, 2)
    x = net.conv(x, "Conv2d_3b_1x1", 80, 1)
    x = net.conv(x, "Conv2d_4a_3x3", 192, 3)
    x = g.max_pool(x, 3, 2)
    blocks: list[tuple[str, Callable[..., Tensor], tuple[int, ...]]] = [
        ("Mixed_5b", net.a, (32,)),
        ("Mixed_5c", net.a, (64,)),
        ("Mixed_5d", net.a, (64,)),
        ("Mixed_6a", net.b, ()),
        ("Mixed_6b", net.c, (128,)),
        ("Mixed_6c", net.c, (160,)),
        ("Mixed_6d", net.c, (160,)),
        ("Mixed_6e", net.c, (192,)),
        ("Mixed_7a", net.d, ()),
        ("Mixed_7b", net.e, ()),
        ("Mixed_7c", net.e, ()),
    ]
    for name, block, channels in blocks:
        with g.scope(name):
            x = block(x, *channels)
    x = g.flatten(g.dropout(g.global_average_pool(x), 0.5))
    g.output(g.linear(x, "fc", classes), "output")


def unet(g: NetworkBuilder, *, batch: int, size: int, width: int = 32, levels: int = 3, classes: int = 2) -> None:
    """Ronneberger et al. 2015 (arXiv:1505.04597), padded and with BatchNorm; per-pixel probabilities.

    ``size`` is a multiple of 2 ** levels.
    """
    x = g.input("input", (batch, 3, size, size))
    skips = []
    for level in range(levels):
        x = _double_conv(g, x, f"down{level + 1}", width << level)
        skips.append(x)
        x = g.max_pool(x, 2, 2)
    x = _double_conv(g, x, "bottleneck", width << levels)
    for level in reversed(range(levels)):
        x = g.conv_transpose(x, f"up{level + 1}", width << level, 2, 2)
        x = _double_conv(g, g.concat([skips[level], x], 1), f"decoder{level + 1}", width << level)
    x = g.conv(x, "head", classes, 1, bias=True, gain=0.3)  # keeps the sigmoid out of saturation
    g.output(g.sigmoid(x), "output")


def _double_conv(g: NetworkBuilder, x: Tensor, name: str, channels: int) -> Tensor:
    gain = LINEAR if x.shape[1] == 3 else 2.0
    with g.scope(name):
        x = g.relu(conv_bn(g, x, "conv1", "bn1", channels, 3, bias=True, gain=gain))
        return g.relu(conv_bn(g, x, "conv2", "bn2", channels, 3))
