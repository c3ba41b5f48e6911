"""A model's configuration in Triton's terms: for the configuration extension, and as a ``config.pbtxt``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpucomp.serving.model import Loaded
from gpucomp.serving.protocol import Tensor

PLATFORM = "gpucomp"


def model_config(model: Loaded, versions: Sequence[int]) -> dict[str, Any]:
    """The fields of ``ModelConfig`` that are known. Dims leave out the batch, as Triton's do, if requests are joined."""
    batched = model.max_batch > 1
    # without gpus, Triton would start an instance for each of them, all on the first: the device that gpucomp opens
    on = {"kind": "KIND_GPU", "gpus": [0]} if model.exe.target.startswith("cuda") else {"kind": "KIND_CPU"}
    config: dict[str, Any] = {
        "name": model.name,
        "platform": "",
        "backend": PLATFORM,
        "version_policy": {"specific": {"versions": list(versions)}},
        "max_batch_size": model.max_batch if batched else 0,
        "input": [_tensor(one, batched) for one in model.inputs],
        "output": [_tensor(one, batched) for one in model.outputs],
        "instance_group": [{**on, "count": model.instances}],
    }
    if batched:
        config["dynamic_batching"] = {"max_queue_delay_microseconds": model.delay_us}
    return config


def _tensor(tensor: Tensor, batched: bool) -> dict[str, Any]:
    kind = "STRING" if tensor.datatype.name == "BYTES" else tensor.datatype.name
    return {"name": tensor.name, "data_type": f"TYPE_{kind}", "dims": list(tensor.shape[int(batched) :])}


ENUMS = ("data_type", "kind")


def pbtxt(config: Mapping[str, Any], indent: str = "") -> str:
    """``config`` in protobuf's text format."""
    lines = []
    for key, value in config.items():
        repeated = value if isinstance(value, list) else [value]
        if isinstance(value, list) and not any(isinstance(one, Mapping) for one in value):
            lines.append(f"{indent}{key}: [{', '.join(map(str, value))}]")
            continue
        for one in repeated:
            if isinstance(one, Mapping):
                lines.append(f"{indent}{key} {{\n{pbtxt(one, indent + '  ')}{indent}}}")
            else:
                text = str(one) if key in ENUMS or not isinstance(one, str) else json.dumps(one, ensure_ascii=False)
                lines.append(f"{indent}{key}: {text}")
    return "\n".join([*lines, ""])
