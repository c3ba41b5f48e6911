"""Weights that are part of a compiled model: put into it, and watched for changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter, is_
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from onnx import TensorProto
from onnx.external_data_helper import set_external_data

from gpucomp.torch.tensors import array_of

IN_A_FILE = 1 << 30  # bytes of weights from which on a model is a file with its data beside it
_version = attrgetter("_version")
_NOTHING = np.zeros((), np.uint8)


def can_be_watched(tensor: torch.Tensor) -> bool:
    """Not so where writes are not counted: in tensors that were made in inference mode, and by other processes."""
    return not tensor.is_inference() and not (tensor.device.type == "cpu" and tensor.untyped_storage().is_shared())


class Watch:
    """Notices whether tensors are what they were: the same objects, in the same memory, in which nothing was written.

    Torch counts what it writes into a tensor. What is written through ``.data`` or numpy is not counted: for that, one element
    of each tensor on the CPU is compared too.
    """

    def __init__(self, tensors: Mapping[int, torch.Tensor]) -> None:
        """``tensors`` by their positions among the arguments of a call."""
        self.positions = tuple(tensors)
        self._tensors = tuple(tensors.values())
        self._versions = list(map(_version, self._tensors))
        self._addresses = list(map(torch.Tensor.data_ptr, self._tensors))
        self._elements = list(map(_middle, self._tensors))
        self._values = list(map(np.ndarray.item, self._elements))

    def same(self, args: Sequence[torch.Tensor]) -> bool:
        """Whether the weights among ``args`` are those that they were."""
        now = [args[position] for position in self.positions]
        return (
            all(map(is_, now, self._tensors))
            and list(map(_version, now)) == self._versions
            and list(map(torch.Tensor.data_ptr, now)) == self._addresses
            and list(map(np.ndarray.item, self._elements)) == self._values
        )

    def changed(self, args: Sequence[torch.Tensor]) -> list[int]:
        """The positions of those that are not."""
        now = [args[position] for position in self.positions]
        before = zip(self._tensors, self._versions, self._addresses, self._values, strict=True)
        after = zip(now, map(_version, now), map(torch.Tensor.data_ptr, now), self._elements, strict=True)
        return [
            position
            for position, (old, version, address, value), (new, *state, element) in zip(
                self.positions, before, after, strict=True
            )
            if new is not old or state != [version, address] or element.item() != value
        ]


def _middle(tensor: torch.Tensor) -> np.ndarray:
    """The bits of an element in the middle, as a view of the tensor's memory."""
    if tensor.device.type != "cpu" or not tensor.numel():
        return _NOTHING
    element = tensor.detach()[tuple(size // 2 for size in tensor.shape)]
    return element.view(getattr(torch, f"uint{8 * element.itemsize}")).numpy()


def with_weights(
    skeleton: bytes, weights: Mapping[str, torch.Tensor]
) -> tuple[onnx.ModelProto | Path, TemporaryDirectory[str] | None]:
    """The model whose inputs of these names are ``weights``. A large one is a file in a folder, which is to be kept as long."""
    model = onnx.load_model_from_string(skeleton)
    graph = model.graph
    kept = [info for info in graph.input if info.name not in weights]
    types = {info.name: info.type.tensor_type.elem_type for info in graph.input}
    del graph.input[:]
    graph.input.extend(kept)
    if sum(tensor.nbytes for tensor in weights.values()) < IN_A_FILE:
        for name, tensor in weights.items():
            graph.initializer.append(_proto(name, types[name], tensor, _bytes_of(tensor).tobytes()))
        return model, None
    folder = TemporaryDirectory(prefix="gpucomp-torch-")
    with open(Path(folder.name) / "weights", "wb") as file:
        for name, tensor in weights.items():
            proto = _proto(name, types[name], tensor, b"")
            set_external_data(proto, "weights", file.tell(), tensor.nbytes)
            proto.ClearField("raw_data")
            file.write(_bytes_of(tensor).data)
            graph.initializer.append(proto)
    path = Path(folder.name) / "model.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path, folder


def _proto(name: str, kind: int, tensor: torch.Tensor, content: bytes) -> TensorProto:
    return TensorProto(name=name, data_type=kind, dims=tuple(tensor.shape), raw_data=content)


def _bytes_of(tensor: torch.Tensor) -> np.ndarray:
    return array_of(tensor.detach().cpu()).reshape(-1).view(np.uint8)
