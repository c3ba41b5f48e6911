"""Convolutional networks for small devices: MobileNet, SqueezeNet, ShuffleNet and EfficientNet.

Every function takes an empty builder, the batch and the network's sizes, and fills the builder.
"""

from collections.abc import Sequence

from bench.models.builder import Tensor
from bench.models.cnn import CLASSES, RESIDUAL, conv_bn
from bench.models.layers import AFTER_SILU, LINEAR, NetworkBuilder


def mobilenet_v1(
    g: NetworkBuilder,
    *,
    batch: int,
    size: int,
    stages: Sequence[tuple[int, int]],
    width: int = 32,
    classes: int = CLASSES,
) -> None:
    """Howard et al. 2017 (arXiv:1704.04861), with ReLU6 and the final softmax of its first release.

    ``stages`` are (channels, stride) of each depthwise-separable layer.
    """
    x = g.input("input", (batch, 3, size, size))
    x = g.relu6(conv_bn(g, x, "conv1", "bn1", width, 3, stride=2, gain=LINEAR))
    for index, (channels, stride) in enumerate(stages, 1):
        with g.scope(f"separable.{index}"):
            x = g.relu6(conv_bn(g, x, "dw", "dw_bn", x.shape[1], 3, stride=stride, groups=x.shape[1]))
            x = g.relu6(conv_bn(g, x, "pw", "pw_bn", channels, 1))
    x = g.dropout(g.flatten(g.global_average_pool(x)), 0.001)
    g.output(g.softmax(g.linear(x, "fc", classes)), "probabilities")


def mobilenet_v2(
    g: NetworkBuilder,
    *,
    batch: int,
    size: int,
    stages: Sequence[tuple[int, int, int, int]],
    width: int = 32,
    head: int = 1280,
    classes: int = CLASSES,
) -> None:
    """Sandler et al. 2018 (arXiv:1801.04381); ``stages`` are (expansion, channels, repeats, stride)."""
    x = g.input("input", (batch, 3, size, size))
    x = g.relu6(conv_bn(g, x, "features.0.0", "features.0.1", width, 3, stride=2, gain=LINEAR))
    index = 1
    for expansion, channels, repeats, stride in stages:
        for repeat in range(repeats):
            with g.scope(f"features.{index}"), g.scope("conv"):
                x = _inverted_residual(g, x, expansion, channels, 1 if repeat else stride)
            index += 1
    x = g.relu6(conv_bn(g, x, f"features.{index}.0", f"features.{index}.1", head, 1, gain=LINEAR))
    x = g.flatten(g.global_average_pool(x))
    g.output(g.linear(x, "classifier.1", classes), "output")


def _inverted_residual(g: NetworkBuilder, x: Tensor, expansion: int, channels: int, stride: int) -> Tensor:
    hidden = expansion * x.shape[1]
    y, layer = x, 0
    if expansion != 1:
        y = g.relu6(conv_bn(g, y, "0.0", "0.1", hidden, 1, gain=LINEAR))
        layer = 1
    y = g.relu6(conv_bn(g, y, f"{layer}.0", f"{layer}.1", hidden, 3, stride=stride, groups=hidden))
    residual = stride == 1 and x.shape[1] == channels
    y = conv_bn(g, y, f"{layer + 1}", f"{layer + 2}", channels, 1, scale=RESIDUAL if residual else 1.0)
    return g.add(x, y) if residual else y


def squeezenet(
    g: NetworkBuilder,
    *,
    batch: int,
    size: int,
    stages: Sequence[Sequence[tuple[int, int]]],
    width: int = 64,
    classes: int = CLASSES,
) -> None:
    """Iandola et al. 2016 (arXiv:1602.07360), release 1.1.

    ``stages`` are fires of (squeeze, expand) channels; each stage follows a max-pool that rounds up.
    """
    x = g.input("input", (batch, 3, size, size))
    x = g.relu(g.conv(x, "features.0", width, 3, stride=2, pad=0, bias=True, gain=LINEAR))
    index = 2
    for stage in stages:
        x = g.max_pool(x, 3, 2, ceil_mode=True)
        for squeeze, expand in stage:
            index += 1
            with g.scope(f"features.{index}"):
                x = g.relu(g.conv(x, "squeeze", squeeze, 1, bias=True))
                left = g.relu(g.conv(x, "expand1x1", expand, 1, bias=True))
                right = g.relu(g.conv(x, "expand3x3", expand, 3, bias=True))
                x = g.concat([left, right], 1)
        index += 1
    x = g.relu(g.conv(g.dropout(x, 0.5), "classifier.1", classes, 1, bias=True))
    g.output(g.flatten(g.global_average_pool(x)), "output")


def shufflenet_v2(
    g: NetworkBuilder,
    *,
    batch: int,
    size: int,
    repeats: Sequence[int],
    channels: Sequence[int],
    width: int = 24,
    head: int = 1024,
    classes: int = CLASSES,
) -> None:
    """Ma et al. 2018 (arXiv:1807.11164); the channel shuffle is Reshape, Transpose, Reshape."""
    x = g.input("input", (batch, 3, size, size))
    x = g.relu(conv_bn(g, x, "conv1.0", "conv1.1", width, 3, stride=2, gain=LINEAR))
    x = g.max_pool(x, 3, 2, pad=1)
    for stage, (count, wide) in enumerate(zip(repeats, channels, strict=True), 2):
        for index in range(count):
            with g.scope(f"stage{stage}.{index}"):
                x = _shuffle_unit(g, x, wide // 2, downsample=index == 0)
    x = g.relu(conv_bn(g, x, "conv5.0", "conv5.1", head, 1))
    x = g.reduce_mean(x, [2, 3], keepdims=False)
    g.output(g.linear(x, "fc", classes), "output")


def _shuffle_unit(g: NetworkBuilder, x: Tensor, half: int, *, downsample: bool) -> Tensor:
    if downsample:
        with g.scope("branch1"):
            left = conv_bn(g, x, "0", "1", x.shape[1], 3, stride=2, groups=x.shape[1])
            left = g.relu(conv_bn(g, left, "2", "3", half, 1, gain=LINEAR))
        right = x
    else:
        left, right = g.split(x, [half, half], 1)
    with g.scope("branch2"):
        right = g.relu(conv_bn(g, right, "0", "1", half, 1))
        right = conv_bn(g, right, "3", "4", half, 3, stride=2 if downsample else 1, groups=half)
        right = g.relu(conv_bn(g, right, "5", "6", half, 1, gain=LINEAR))
    n, c, h, w = (x := g.concat([left, right], 1)).shape
    x = g.transpose(g.reshape(x, (n, 2, c // 2, h, w)), 0, 2, 1, 3, 4)
    return g.reshape(x, (n, c, h, w))


def efficientnet(
    g: NetworkBuilder,
    *,
    batch: int,
    size: int,
    stages: Sequence[tuple[int, int, int, int, int]],
    width: int = 32,
    head: int = 1280,
    classes: int = CLASSES,
) -> None:
    """Tan and Le 2019 (arXiv:1905.11946); ``stages`` are (expansion, kernel, stride, channels, repeats)."""
    x = g.input("input", (batch, 3, size, size))
    x = g.silu(conv_bn(g, x, "features.0.0", "features.0.1", width, 3, stride=2, gain=LINEAR))
    source_gain = AFTER_SILU
    for stage, (expansion, kernel, stride, channels, repeats) in enumerate(stages, 1):
        for index in range(repeats):
            with g.scope(f"features.{stage}.{index}"), g.scope("block"):
                step = 1 if index else stride
                x = _mbconv(g, x, expansion, kernel, step, channels, source_gain)
            source_gain = LINEAR
    last = len(stages) + 1
    x = g.silu(conv_bn(g, x, f"features.{last}.0", f"features.{last}.1", head, 1, gain=LINEAR))
    x = g.flatten(g.global_average_pool(x))
    g.output(g.linear(x, "classifier.1", classes), "output")


def _mbconv(
    g: NetworkBuilder,
    x: Tensor,
    expansion: int,
    kernel: int,
    stride: int,
    channels: int,
    source_gain: float,
) -> Tensor:
    hidden = expansion * x.shape[1]
    y, layer, gain = x, 0, source_gain
    if expansion != 1:
        y = g.silu(conv_bn(g, y, "0.0", "0.1", hidden, 1, gain=gain))
        layer, gain = 1, AFTER_SILU
    y = conv_bn(g, y, f"{layer}.0", f"{layer}.1", hidden, kernel, stride=stride, groups=hidden, gain=gain)
    y = g.silu(y)
    with g.scope(f"{layer + 1}"):
        gate = g.global_average_pool(y)
        gate = g.silu(g.conv(gate, "fc1", max(1, x.shape[1] // 4), 1, bias=True, gain=LINEAR))
        gate = g.sigmoid(g.conv(gate, "fc2", hidden, 1, bias=True, gain=LINEAR))
        y = g.mul(gate, y)
    residual = stride == 1 and x.shape[1] == channels
    gain = 3.0 * AFTER_SILU  # the gate is near one half
    scale = RESIDUAL if residual else 1.0
    y = conv_bn(g, y, f"{layer + 2}.0", f"{layer + 2}.1", channels, 1, gain=gain, scale=scale)
    return g.add(y, x) if residual else y
