"""``exported(name, exporter)``: an ONNX model written by torch, and inputs for it."""

from __future__ import annotations

import io
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

from bench.exports import torch_nets, transformers_nets

EXPORTERS = ("dynamo", "script")
PLAIN = {
    "resnet": lambda: (torch_nets.ResNet(), (torch.randn(1, 3, 64, 64),)),
    "lstm": lambda: (torch_nets.Tagger(), (transformers_nets.tokens(2, 9),)),
    "unet": lambda: (torch_nets.UNet(), (torch.randn(1, 3, 32, 24),)),
    "detector": lambda: (torch_nets.Detector(), (torch.randn(1, 3, 32, 40),)),
    "spotter": lambda: (torch_nets.Spotter(), (torch.randn(1, 3, 32, 40),)),
}
MODELS = {**PLAIN, **transformers_nets.MODELS}


def exporters(name: str) -> tuple[str, ...]:
    """The exporters for model ``name``: torch's older exporter cannot trace the code of transformers."""
    return EXPORTERS if name in PLAIN else ("dynamo",)


def exported(name: str, exporter: str, *, opset: int | None = None) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Model ``name`` by one of ``EXPORTERS``; ``dynamo`` needs onnxscript. Weights and inputs are always the same."""
    torch.manual_seed(7)
    net, given = MODELS[name]()
    net.eval()
    with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            path = Path(folder) / "model.onnx"
            torch.onnx.export(net, given, path, dynamo=True, opset_version=opset, external_data=False, verbose=False)
            model = onnx.load(path)
        else:
            buffer = io.BytesIO()
            torch.onnx.export(net, given, buffer, dynamo=False, opset_version=opset)
            model = onnx.load_from_string(buffer.getvalue())
    if name == "detector":
        add_suppression(model)
    names = [info.name for info in model.graph.input]
    return model, {n: t.numpy() for n, t in zip(names, given, strict=False)}


def add_suppression(model: onnx.ModelProto) -> None:
    """Append NonMaxSuppression of a detector's boxes and scores, and a Gather of its boxes, as exporters of detectors do."""
    boxes, scores = (output.name for output in model.graph.output)
    limits = {
        "most": np.array([5], np.int64),
        "overlap": np.array([0.4], np.float32),
        "least": np.array([0.5], np.float32),
    }
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in limits.items())
    model.graph.initializer.append(numpy_helper.from_array(np.array([0, 2], np.int64), "columns"))
    node = helper.make_node
    model.graph.node.extend(
        [
            node("NonMaxSuppression", [boxes, scores, *limits], ["kept"], name="suppression"),
            node("Gather", ["kept", "columns"], ["where"], axis=1),
            node("GatherND", [boxes, "where"], ["kept_boxes"]),
        ]
    )
    info = helper.make_tensor_value_info
    model.graph.output.extend(
        [info("kept", onnx.TensorProto.INT64, ["n", 3]), info("kept_boxes", onnx.TensorProto.FLOAT, ["n", 4])]
    )
