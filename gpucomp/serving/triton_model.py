"""A compiled model in Triton's Python backend. ``gpucomp export --triton`` puts a copy of this file beside the model.

Triton calls ``initialize``, ``execute`` and ``finalize``. gpucomp has to be installed where Triton's Python finds it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

import gpucomp
from gpucomp.serving.datatypes import text_of


class TritonPythonModel:
    """One instance: a process of Triton's, with the model in it."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model. Errors end up in Triton's log, and the model is not ready."""
        config = json.loads(args["model_config"])
        self.inputs: list[str] = [one["name"] for one in config["input"]]
        self.outputs: list[str] = [one["name"] for one in config["output"]]
        self.texts = {one["name"] for one in config["input"] if one["data_type"] == "TYPE_STRING"}
        self.batched = config.get("max_batch_size", 0) > 0
        exe = gpucomp.load(Path(args["model_repository"]) / args["model_version"] / "model.gpuc")
        exe.open()
        self.context = exe.context()

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response for each request. Triton's batches are run as one; if that fails, each request alone."""
        if self.batched and len(requests) > 1:
            try:
                feeds = [self._feed(request) for request in requests]
                if len({tuple(array.shape[1:] for array in feed.values()) for feed in feeds}) == 1:
                    return self._together(requests, feeds)
            except gpucomp.GpucompError:
                pass  # which of them it is, is found below
        return [self._alone(request) for request in requests]

    def finalize(self) -> None:
        """Free the model's memory."""
        self.context.close()

    def _feed(self, request: Any) -> dict[str, np.ndarray]:
        feed = {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs}
        for name in self.texts:  # Triton gives bytes
            where = f"input {name!r}"
            flat = [text_of(text, where) if isinstance(text, bytes) else text for text in feed[name].reshape(-1)]
            feed[name] = np.array(flat, object).reshape(feed[name].shape)
        return feed

    def _together(self, requests: list[Any], feeds: list[dict[str, np.ndarray]]) -> list[Any]:
        results = self.context.run({name: np.concatenate([feed[name] for feed in feeds]) for name in self.inputs})
        ends = np.cumsum([len(feed[self.inputs[0]]) for feed in feeds])[:-1]
        parts = {name: np.split(array, ends) for name, array in results.items()}
        return [
            self._response(request, {name: pieces[number] for name, pieces in parts.items()})
            for number, request in enumerate(requests)
        ]

    def _alone(self, request: Any) -> Any:
        try:
            return self._response(request, self.context.run(self._feed(request)))
        except gpucomp.GpucompError as error:
            return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(str(error)))

    def _response(self, request: Any, results: dict[str, np.ndarray]) -> Any:
        wanted = set(request.requested_output_names())
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor(name, results[name]) for name in self.outputs if name in wanted]
        )
