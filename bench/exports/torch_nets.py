"""Networks in plain torch, as a user would write them, with random weights."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """ResNet's basic block."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.down = (
            nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if stride != 1 or channels != out
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.down(x))


class ResNet(nn.Module):
    """A stem, four stages of two blocks, 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        sizes = [(16, 16, 1), (16, 32, 2), (32, 64, 2), (64, 72, 2)]
        self.stages = nn.Sequential(*(nn.Sequential(Block(a, b, s), Block(b, b, 1)) for a, b, s in sizes))
        self.head = nn.Linear(72, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stages(self.stem(x))
        return self.head(torch.flatten(functional.adaptive_avg_pool2d(y, 1), 1))


class Tagger(nn.Module):
    """Embedding, two bidirectional LSTM layers, a GRU, a label for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(101, 24)
        self.lstm = nn.LSTM(24, 20, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(40, 12, batch_first=True)
        self.head = nn.Linear(12, 7)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, (hidden, _) = self.lstm(self.embed(tokens))
        y, _ = self.gru(y)
        return torch.log_softmax(self.head(y), -1), hidden


class UNet(nn.Module):
    """Three levels; one upsamples by a transposed convolution, one by bilinear resampling."""

    def __init__(self) -> None:
        super().__init__()

        def double(a: int, b: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1), nn.GELU()
            )

        self.down1, self.down2, self.bottom = double(3, 12), double(12, 24), double(24, 48)
        self.up = nn.ConvTranspose2d(48, 24, 2, 2)
        self.up2, self.up1 = double(48, 24), double(36, 12)
        self.head = nn.Conv2d(12, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(functional.max_pool2d(a, 2))
        c = self.bottom(functional.avg_pool2d(b, 2))
        d = self.up2(torch.cat([self.up(c), b], 1))
        e = functional.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.sigmoid(self.head(self.up1(torch.cat([e, a], 1))))


class Detector(nn.Module):
    """A backbone and an anchor head: corners of boxes, and scores for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.Hardswish(), nn.Conv2d(16, 32, 3, 2, 1, groups=16), nn.LeakyReLU(0.1)
        )
        self.head = nn.Conv2d(32, 3 + 4, 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.head(self.backbone(image))
        n, _, h, w = y.shape
        y = y.reshape(n, 7, h * w)
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        centre = torch.stack([rows, columns]).reshape(1, 2, h * w) + torch.sigmoid(y[:, :2])
        half = torch.exp(y[:, 2:4].clamp(-1, 1)) * 1.5
        corners = torch.cat([centre - half, centre + half], 1)
        return corners.transpose(1, 2), torch.sigmoid(y[:, 4:])


class Spotter(nn.Module):
    """A detector that ends in torch: the boxes above a threshold, the best of them, and features of a crop for each."""

    def __init__(self) -> None:
        super().__init__()
        self.detector = Detector()
        self.embed = nn.Linear(5, 8)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        corners, scores = self.detector(image)
        best, label = scores[0].max(0)
        chosen = best > best.mean()
        boxes, best, label = corners[0][chosen], best[chosen], label[chosen]
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        where = torch.nonzero(areas > areas.mean())[:, 0]
        rows = torch.cat([boxes[where], best[where].unsqueeze(1)], 1)
        return rows, label[where], torch.softmax(self.embed(rows), -1)
