"""onnxruntime's execution providers: which this machine has, and the target that each of them is here."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from gpucomp.errors import GpucompError
from gpucomp.targets import require_device, resolve

CPU, CUDA, OWN = "CPUExecutionProvider", "CUDAExecutionProvider", "GpucompExecutionProvider"
ELSEWHERE = (  # onnxruntime's other providers: none is here, and each is passed over as there
    "TensorrtExecutionProvider",
    "NvTensorRTRTXExecutionProvider",
    "MIGraphXExecutionProvider",
    "ROCMExecutionProvider",
    "OpenVINOExecutionProvider",
    "DnnlExecutionProvider",
    "VitisAIExecutionProvider",
    "QNNExecutionProvider",
    "NnapiExecutionProvider",
    "VSINPUExecutionProvider",
    "JsExecutionProvider",
    "WebGpuExecutionProvider",
    "CoreMLExecutionProvider",
    "ArmNNExecutionProvider",
    "ACLExecutionProvider",
    "DmlExecutionProvider",
    "RknpuExecutionProvider",
    "WebNNExecutionProvider",
    "XnnpackExecutionProvider",
    "CANNExecutionProvider",
    "AzureExecutionProvider",
)
OPTIONS = ("target", "precision", "keep_fp32", "records", "specialise")  # of ``GpucompExecutionProvider``
Given = Sequence[str | tuple[str, Mapping[Any, Any]]]


def get_available_providers() -> list[str]:
    """The providers that run here, the fastest first. ``GpucompExecutionProvider`` takes its target as an option."""
    return [*([CUDA] if _has_cuda() else []), CPU, OWN]


def get_all_providers() -> list[str]:
    """The names of all providers, also of those that are not here."""
    return [CUDA, CPU, OWN, *ELSEWHERE]


@cache
def _has_cuda() -> bool:
    if find_spec("cupy") is None:
        return False
    try:
        require_device(resolve("cuda"))
    except GpucompError:
        return False
    return True


def normalized(providers: Given | None, options: Sequence[Mapping[Any, Any]] | None) -> dict[str, dict[str, str]]:
    """The options of each provider that is here, in the order of ``providers``. Others are warned of and passed over.

    Raises ``ValueError`` for arguments of other forms.
    """
    if providers is None:
        return {}
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    if options is not None:
        if isinstance(options, str) or not isinstance(options, Sequence):
            raise ValueError("'provider_options' should be a sequence.")
        if len(providers) != len(options):
            raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
        if not all(isinstance(provider, str) for provider in providers):
            raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
        if not all(isinstance(one, Mapping) for one in options):
            raise ValueError("'provider_options' values must be dicts.")
    pairs = [_pair(one) for one in providers] if options is None else list(zip(providers, options, strict=True))
    available, found = get_available_providers(), dict[str, dict[str, str]]()
    for name, given in pairs:
        if name not in available:
            listed = ", ".join(available)
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. Available providers: '{listed}'",
                stacklevel=4,
            )
        elif name in found:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=4)
        else:
            found[name] = {str(key): str(value) for key, value in given.items()}
    return found


def _pair(provider: object) -> tuple[str, Mapping[Any, Any]]:
    match provider:
        case str():
            return provider, {}
        case (str() as name, Mapping() as options):
            return name, options
        case _:
            raise ValueError("'providers' values must be either strings or (string, dict) tuples.")


def provider_of(target: str) -> str:
    """The provider whose models are compiled for ``target``."""
    return {"cpu": CPU, "cuda": CUDA}.get(target.partition(":")[0], OWN)


def arguments(chosen: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Arguments of ``gpucomp.compile`` for the first of the ``chosen`` providers: all of a model runs on one device.

    Raises ``ValueError`` for an option that ``GpucompExecutionProvider`` does not have.
    """
    name = next(iter(chosen), CPU)
    if name == OWN:
        options = dict(chosen[OWN])
        if unknown := sorted(set(options) - set(OPTIONS)):
            raise ValueError(f"{OWN} has no option '{unknown[0]}': one of {', '.join(OPTIONS)} expected")
        keep = options.pop("keep_fp32", "")
        return {"target": "auto", **options} | ({"keep_fp32": keep.split(",")} if keep else {})
    return {"target": "cuda" if name == CUDA else "cpu"}
