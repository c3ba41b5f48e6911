"""Trains the digits network on the CPU and writes digits.onnx; needs torch, which nothing else here does.

Run as ``python -m examples.digits.train`` from the repository's root. The number of epochs is fixed: the
held-back digits choose nothing, they only measure.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from examples.digits.data import held_back, training

MODEL = Path(__file__).with_name("digits.onnx")
WIDTHS = (24, 48)
HIDDEN = 96
EPOCHS = 60
BATCH = 64
SEED = 7


class DigitsNet(nn.Module):
    """Two blocks of convolution, BatchNorm, ReLU and max-pool, then two fully connected layers."""

    def __init__(self) -> None:
        super().__init__()
        first, second = WIDTHS
        self.conv1 = nn.Conv2d(1, first, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        self.conv2 = nn.Conv2d(first, second, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(second)
        self.fc1 = nn.Linear(second * 2 * 2, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, 10)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.bn1(self.conv1(image))))
        x = self.pool(torch.relu(self.bn2(self.conv2(x))))
        return self.fc2(self.dropout(torch.relu(self.fc1(x.flatten(1)))))


def warp(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each image turned by up to 0.2 rad, scaled by up to 12 % and moved by up to 0.8 pixel."""
    angle, scale, right, down = (torch.rand(4, len(images), generator=generator) * 2 - 1).unbind()
    angle, scale = 0.2 * angle, 1 + 0.12 * scale
    cos, sin = scale * torch.cos(angle), scale * torch.sin(angle)
    rows = [torch.stack([cos, -sin, 0.2 * right], 1), torch.stack([sin, cos, 0.2 * down], 1)]
    grid = nn.functional.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False)


def train() -> DigitsNet:
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)  # the order of a sum must not depend on the machine's cores
    generator = torch.Generator().manual_seed(SEED)
    images, labels = (torch.from_numpy(array) for array in training())
    net = DigitsNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=1e-2)
    steps = EPOCHS * -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(images), generator=generator).split(BATCH):
            optimizer.zero_grad()
            logits = net(warp(images[chosen], generator))
            nn.functional.cross_entropy(logits, labels[chosen], label_smoothing=0.05).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def accuracy(net: DigitsNet, images: np.ndarray, labels: np.ndarray) -> float:
    with torch.no_grad():
        return float((net(torch.from_numpy(images)).argmax(1).numpy() == labels).mean())


def to_onnx(net: DigitsNet) -> onnx.ModelProto:
    """The network with a symbolic batch, its BatchNorms as nodes with their running statistics."""
    arrays = {name: array.numpy() for name, array in net.state_dict().items() if array.dtype == torch.float32}
    nodes: list[onnx.NodeProto] = []

    def layer(op: str, name: str, *operands: str, output: str = "", **attributes: Any) -> str:
        output = output or f"/{name}/{op}_output_0"
        nodes.append(helper.make_node(op, operands, [output], f"/{name}/{op}", **attributes))
        return output

    x = "image"
    for index in (1, 2):
        conv, bn = f"conv{index}", f"bn{index}"
        terms = [f"{bn}.{term}" for term in ("weight", "bias", "running_mean", "running_var")]
        x = layer("Conv", conv, x, f"{conv}.weight", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        x = layer("BatchNormalization", bn, x, *terms, epsilon=getattr(net, bn).eps)
        x = layer("Relu", f"relu{index}", x)
        x = layer("MaxPool", f"pool{index}", x, kernel_shape=[2, 2], strides=[2, 2])
    x = layer("Flatten", "flatten", x, axis=1)
    x = layer("Relu", "relu3", layer("Gemm", "fc1", x, "fc1.weight", "fc1.bias", transB=1))
    layer("Gemm", "fc2", x, "fc2.weight", "fc2.bias", transB=1, output="logits")
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(
        graph, producer_name="gpucomp.examples", ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train the digits network and write it as ONNX.")
    parser.add_argument("-o", "--output", type=Path, default=MODEL)
    options = parser.parse_args(arguments)
    net = train()
    model = to_onnx(net)
    onnx.checker.check_model(model, full_check=True)
    options.output.write_bytes(model.SerializeToString(deterministic=True))
    images, labels = held_back()
    print(f"training digits:  {accuracy(net, *training()):.2%} right")
    print(f"held-back digits: {accuracy(net, images, labels):.2%} of {len(labels)} right")
    print(f"{options.output}: {options.output.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
