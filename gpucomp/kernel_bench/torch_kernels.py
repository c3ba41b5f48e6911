"""The kernels by PyTorch, which calls oneDNN on a processor, and cuBLASLt and cuDNN on a GPU. TF32 is off: f32 means f32."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from gpucomp.kernel_bench.problem import Called, Problem, Ready, Replayed
from gpucomp.kernel_bench.reference import EPSILON
from gpucomp.kernel_bench.specs import Spec
from gpucomp.refusal import Refusal

WARMUPS = 3
Tensors = Mapping[str, Any]


def prepared(problem: Problem) -> Ready | Refusal:
    """The kernel by torch on the target's device, or why there is none."""
    torch = importlib.import_module("torch")
    spec, on_gpu = problem.spec, not problem.on_processor
    if problem.target.kind == "opencl" and on_gpu:
        return Refusal("torch has no OpenCL devices")
    if on_gpu and not torch.cuda.is_available():
        return Refusal("this torch finds no CUDA device")
    if spec.dtype == "i8" or spec.kind == "nbits_gemm":
        return Refusal("torch has no public operator for it")
    if spec.kind in ("max_pool", "avg_pool") and spec.pad[:2] != spec.pad[2:]:
        return Refusal("torch's pools have the same padding on both sides")
    torch.set_num_threads(problem.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    tensors = {name: _tensor(torch, array).to("cuda" if on_gpu else "cpu") for name, array in problem.arrays.items()}
    call = partial(_call(torch, spec), torch, spec, tensors)

    def run() -> Any:
        with torch.inference_mode():
            return call()

    def output() -> np.ndarray:
        found: np.ndarray = run().cpu().float().numpy()
        return found

    if not on_gpu:
        return Called(run, output)
    replay = captured(torch, call)
    return Replayed(lambda: replay() / 1e3, output)


def _tensor(torch: Any, array: np.ndarray) -> Any:
    """numpy has no bf16 of its own: its bits are taken as they are."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def captured(torch: Any, call: Callable[[], object]) -> Callable[[], float]:
    """A function that replays a graph of the launches of ``call`` and returns its milliseconds."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(WARMUPS):
            call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        call()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def replay() -> float:
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    replay()
    return replay


def _call(torch: Any, spec: Spec) -> Callable[..., Any]:
    return {
        "gemm": _product,
        "batched_gemm": _product,
        "conv": _convolution,
        "depthwise": _convolution,
        "attention": _attention,
        "softmax": lambda torch, spec, t: torch.softmax(t["x"], -1),
        "layer_norm": lambda torch, spec, t: torch.layer_norm(t["x"], (spec.cols,), t["scale"], t["bias"], EPSILON),
        "rms_norm": lambda torch, spec, t: torch.rms_norm(t["x"], (spec.cols,), t["scale"], EPSILON),
        "group_norm": lambda torch, spec, t: torch.group_norm(t["x"], spec.groups, t["scale"], t["bias"], EPSILON),
        "batch_norm": _batch_norm,
        "max_pool": _pooled,
        "avg_pool": _pooled,
        "transpose": lambda torch, spec, t: t["x"].permute(spec.perm).contiguous(),
        "reduce": _reduced,
        "elementwise": _elementwise,
    }[spec.kind]


def _activated(torch: Any, name: str, x: Any) -> Any:
    if name == "none":
        return x
    functional = torch.nn.functional
    return {"relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "gelu": functional.gelu}.get(
        name, functional.silu
    )(x)


def _product(torch: Any, spec: Spec, t: Tensors) -> Any:
    a, b = t["a"], t["b"]
    b = b.mT if spec.trans_b else b
    if spec.kind == "batched_gemm":
        return torch.bmm(a, b)
    a = a.mT if spec.trans_a else a
    return _activated(torch, spec.act, torch.addmm(t["bias"], a, b) if spec.bias else a @ b)


def _convolution(torch: Any, spec: Spec, t: Tensors) -> Any:
    groups = spec.groups if spec.kind == "conv" else spec.c
    x, pad = t["x"], spec.pad[:2]
    if spec.pad[:2] != spec.pad[2:]:  # a copy, as for anyone who has such a layer in torch
        top, left, bottom, right = spec.pad
        x, pad = torch.nn.functional.pad(x, (left, right, top, bottom)), (0, 0)
    y = torch.conv2d(x, t["w"], t.get("bias"), spec.stride, pad, spec.dilation, groups)
    return _activated(torch, spec.act, y)


def _attention(torch: Any, spec: Spec, t: Tensors) -> Any:
    grouped = bool(spec.kv_heads) and spec.kv_heads != spec.heads
    attention = torch.nn.functional.scaled_dot_product_attention
    return attention(t["q"], t["k"], t["v"], is_causal=spec.causal, enable_gqa=grouped)


def _batch_norm(torch: Any, spec: Spec, t: Tensors) -> Any:
    return torch.nn.functional.batch_norm(t["x"], t["mean"], t["var"], t["scale"], t["bias"], eps=EPSILON)


def _pooled(torch: Any, spec: Spec, t: Tensors) -> Any:
    functional, window = torch.nn.functional, (spec.r, spec.s)
    if spec.kind == "max_pool":
        return functional.max_pool2d(t["x"], window, spec.stride, spec.pad[:2], spec.dilation)
    return functional.avg_pool2d(t["x"], window, spec.stride, spec.pad[:2], count_include_pad=False)


def _reduced(torch: Any, spec: Spec, t: Tensors) -> Any:
    if spec.op == "prod":
        x = t["x"]
        for axis in sorted(spec.axes, reverse=True):
            x = torch.prod(x, axis)
        return x
    return {"sum": torch.sum, "mean": torch.mean, "max": torch.amax, "min": torch.amin}[spec.op](t["x"], spec.axes)


def _elementwise(torch: Any, spec: Spec, t: Tensors) -> Any:
    binary = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
    return binary[spec.op](t["x"], t["y"]) if spec.op in binary else _activated(torch, spec.op, t["x"])
