"""Every kind of kernel by every engine, held against the numpy reference in f64; and what engines say that cannot compute one."""

import importlib.util

import numpy as np
import pytest

from gpucomp import targets
from gpucomp.cli.compare import distance
from gpucomp.kernel_bench import engines, rounds
from gpucomp.kernel_bench.models import model
from gpucomp.kernel_bench.problem import Problem
from gpucomp.kernel_bench.reference import activated, in_f64, operands
from gpucomp.kernel_bench.specs import spec_of
from gpucomp.refusal import Refusal
from tests.kernel_bench.kernels import SMALL


def problem(text, target="cpu", arrays=None):
    spec = spec_of(text)
    arrays = arrays or operands(spec)
    wanted = in_f64(spec, arrays)
    return Problem(spec, arrays, model(spec, arrays).SerializeToString(), targets.resolve(target), 2, True), wanted


def error(name, text, target="cpu", arrays=None):
    given, wanted = problem(text, target, arrays)
    ready = engines.prepared(name, given)
    assert not isinstance(ready, Refusal), ready.reason
    return rounds.judged(ready, wanted, rounds.tolerance(given.spec))


@pytest.mark.parametrize("text", SMALL)
def test_onnxruntime_and_the_reference_agree(text):
    pytest.importorskip("onnxruntime")
    arrays = operands(spec_of(text))
    if text.startswith("batched_gemm") and "dtype=i8" in text:
        arrays["a"] //= 2  # without VNNI onnxruntime's pairs of products saturate for 8 bits, if no operand is constant

    assert error("onnxruntime", text, arrays=arrays)[1] == ""


@pytest.mark.parametrize("text", SMALL)
def test_gpucomp_computes_each_kind(text):
    assert error("gpucomp", text)[1] == ""


REFUSED = ("dtype", "nbits", "max_pool:c=3")  # by torch


@pytest.mark.parametrize("text", [text for text in SMALL if not any(part in text for part in REFUSED)])
def test_torch_computes_each_kind_of_floating_point(text):
    pytest.importorskip("torch")

    assert error("torch", text)[1] == ""


@pytest.mark.parametrize("text", [text for text in SMALL if "dtype" not in text and "nbits" not in text])
def test_numpy_computes_each_kind_of_f32(text):
    assert error("numpy", text)[1] == ""


@pytest.mark.parametrize("text", ["gemm:m=7,n=11,k=13,bias,dtype=f16", "softmax:rows=5,cols=17,dtype=bf16"])
@pytest.mark.parametrize("name", ["gpucomp", "torch"])
def test_kernels_in_16_bits(name, text):
    if name == "torch":
        pytest.importorskip("torch")

    assert error(name, text)[1] == ""


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("torch", "gemm:m=2,n=3,k=4,dtype=i8", "no public operator"),
        ("torch", "nbits_gemm:m=2,n=3,k=64", "no public operator"),
        ("torch", "max_pool:c=3,h=9,w=8,r=3,s=2,pad=0x0x1x1", "same padding on both sides"),
        ("numpy", "nbits_gemm:m=2,n=3,k=64", "no fast kernels of few bits"),
        ("numpy", "gemm:m=2,n=3,k=4,dtype=i8", "no fast kernels of i8"),
        ("onnxruntime", "gemm:m=2,n=3,k=4,dtype=bf16", "no arrays of bf16"),
        ("clblast", "gemm:m=2,n=3,k=4", "OpenCL devices only"),
    ],
)
def test_why_an_engine_has_no_kernel(name, text, why):
    if name not in ("numpy", "clblast"):
        pytest.importorskip(name)

    assert why in engines.prepared(name, problem(text)[0]).reason


@pytest.mark.skipif(importlib.util.find_spec("pyopencl") is None, reason="pyopencl is not installed")
def test_gpucomp_on_an_opencl_device():
    assert error("gpucomp", "gemm:m=7,n=11,k=13,bias,act=relu", "opencl:pocl")[1] == ""


CLBLAST = (
    "gemm:m=7,n=11,k=13",
    "gemm:m=7,n=11,k=13,trans_a,trans_b",
    "gemm:m=1,n=11,k=13",
    "gemm:m=1,n=11,k=13,trans_b",
)


@pytest.mark.parametrize("text", [*CLBLAST, *(f"batched_gemm:batch=3,m=5,n=7,k=9{flag}" for flag in ("", ",trans_b"))])
def test_clblast_computes_products_as_they_are(text):
    pytest.importorskip("pyclblast")

    assert error("clblast", text, "opencl:pocl")[1] == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [("gemm:m=2,n=3,k=4,act=relu", "no bias"), ("softmax:rows=2,cols=3", "products of f32 only")],
)
def test_why_clblast_has_no_kernel(text, why):
    assert why in engines.prepared("clblast", problem(text, "opencl:generic")[0]).reason


def test_gelu_is_the_exact_one():
    found = activated("gelu", np.array([-2.0, -0.5, 0.0, 0.5, 2.0]))

    assert found == pytest.approx([-0.0455002638963584, -0.1542687693629991, 0, 0.3457312306370009, 1.9544997361036416])


@pytest.mark.parametrize("text", [text for text in SMALL if "dtype=i8" in text])
def test_results_of_bytes_use_their_range(text):
    _, wanted = problem(text)

    assert len(np.unique(wanted)) > 0.3 * min(wanted.size, 256)
    assert distance(wanted, np.full_like(wanted, wanted.mean())).l2 > 0.1
