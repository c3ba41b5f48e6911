"""Runs a case on the CPU, CUDA and HIP with the harness and OpenCL with PoCL, and describes any difference from float64."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.gpu.checks import relative_error, terms_of
from bench.kernel_sweep.cases import HIP_PREFIX, LARGEST, LONGEST, Case, problem_of, target_of, work
from bench.kernel_sweep.points import Points, sampled
from gpucomp.device.target import Target
from gpucomp.errors import GpucompError
from gpucomp.expr.core import walk
from gpucomp.ir.types import F16, F32, TensorType
from gpucomp.kernel import Attention, Contraction, Kernel, Rowwise, Scan, Scatter, Separable, is_kernel_of
from gpucomp.kernel.interpreter import UNWRITTEN, expected, row_statistics
from gpucomp.kernel.passes.pack_weights import pack, packed_constant
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.contraction.simt.space import is_copied
from gpucomp.kernels_templates.render import render
from gpucomp.refusal import Refusal
from gpucomp.tuning.checks import error_of
from testing import opencl_device
from testing.amd_emulation import emulated, with_pairs
from testing.cuda_on_cpu.harness import CudaOnCpu, CudaOnCpuError, compile_many
from testing.kernels import random_inputs
from testing.launches import in_any_order, launched
from testing.tolerance import assert_matches, assert_rounded_once, winograd_bound

FEW = 16  # elements of a result; in so small a one none may be as large as the terms of its sum
OPTIMISED = 4  # one in so many kernels is built with PoCL's optimiser, which takes as long as everything else
MOST_POINTS = 512  # of a kernel that is too large to compute completely


@dataclass(frozen=True, eq=False)
class Ready:
    """A rendered case.

    kernel, inputs  as the engine packed them, and changed for PoCL if necessary: see ``for_pocl``
    given           the case's inputs, before packing
    wanted          expected results for ``given``, except row statistics
    """

    case: Case
    kernel: Kernel
    source: KernelSource
    inputs: tuple[np.ndarray, ...]
    given: tuple[np.ndarray, ...]
    wanted: tuple[Points, ...]


def prepared(case: Case, name: str = "k0", target: Target | None = None, *, on_pocl: bool = True) -> Ready | None:
    """``None`` if the source is too long for a CPU compiler; the oracle is computed only if it is not.

    The source is rendered for ``target``, by default the cell's. With ``on_pocl``, OpenCL source is changed so that PoCL can
    run it.
    """
    s, p = case.cell.family.schedule(case.schedule), problem_of(case.cell.engine, case.kernel)
    wanted = case.cell.family.packing(case.kernel, s, p)
    packed = pack(case.kernel, wanted) if wanted else None
    kernel = packed.kernel if packed else case.kernel
    source = render(kernel, case.schedule, target or target_of(case.cell), name, case.cell.family)
    if len(source.text) > LONGEST:
        return None
    given = random_inputs(case.kernel, seed=case.number)
    if sums(case.kernel) and case.kernel.params[case.kernel.stores[-1].target].size < FEW:
        given = [np.abs(x) for x in given]  # a sum that cancels is no measure of its error, and there are no other sums
    if isinstance(case.kernel.body, Contraction) and case.kernel.body.math == "tf32":
        given = [to_tf32(x) if x.dtype == np.float32 else x for x in given]
    if work(case.kernel) <= LARGEST or isinstance(case.kernel.body, Scan | Scatter | Separable):
        first = case.kernel.inputs
        right = [Points(first + n, (), array) for n, array in enumerate(expected(case.kernel, given))]
        right = [points for points in right if points.target not in row_results(case.kernel)]
    else:
        right = sampled(case.kernel, given, MOST_POINTS)
    inputs = [*(given[k] for k in packed.kept), packed_constant(packed, given)] if packed else given
    if source.language == "opencl" and on_pocl:
        kernel, source, inputs = for_pocl(case.cell.engine, kernel, source, inputs)
    return Ready(case, kernel, source, tuple(np.ascontiguousarray(x) for x in inputs), tuple(given), tuple(right))


def for_pocl(
    engine: str, kernel: Kernel, source: KernelSource, inputs: Sequence[np.ndarray]
) -> tuple[Kernel, KernelSource, Sequence[np.ndarray]]:
    """The kernel, source and inputs, changed if PoCL cannot run them as they are."""
    if engine == "contraction/amd":  # matrix instructions are expanded; f16 is stored as f32
        source = emulated(source)
        kernel = replace(kernel, params=tuple(TensorType(F32, t.shape) if t.dtype is F16 else t for t in kernel.params))
        inputs = [x.astype(np.float32) if x.dtype == np.float16 else x for x in inputs]
    elif engine == "contraction/simt_pairs":
        source = with_pairs(source)
    elif engine == "contraction/winograd":
        # when PoCL unrolls loops around barriers, it writes past its storage for work-items
        source = replace(source, text=re.sub(r"^ *#pragma unroll.*\n", "", source.text, flags=re.M))
    return kernel, source, inputs


def sums(kernel: Kernel) -> bool:
    """Whether results are sums of terms with signs; a maximum is not, and its inputs keep their signs."""
    body = kernel.body
    return isinstance(body, Contraction) or (isinstance(body, Rowwise) and all(s.op == "sum" for s in body.statistics))


def to_tf32(x: np.ndarray) -> np.ndarray:
    """``x`` rounded to 10 bits of fraction: products of such numbers are exact in f64, whichever way a device rounds."""
    return (x.view(np.uint32) + np.uint32(0x1000) & np.uint32(0xFFFFE000)).view(np.float32)


def compiled(batch: Sequence[Ready], races: bool = False) -> list[CudaOnCpu | Refusal]:
    """All kernels, of one target's ``device_of``, compiled by one run of g++, or of clang for HIP. If that fails each is compiled
    by itself; the compiler's error replaces a failing one.

    With ``races`` they are built with ThreadSanitizer.
    """
    try:
        pairs = [(r.source.text, r.source.name) for r in batch]
        target = batch[0].case.cell.target
        arch = target.removeprefix(HIP_PREFIX) if target.startswith(HIP_PREFIX) else ""
        return list(compile_many(pairs, sanitizer="thread" if races else None, arch=arch))
    except CudaOnCpuError as error:
        if len(batch) == 1:
            return [Refusal(str(error))]
        return [found for ready in batch for found in compiled([ready], races)]


def by_harness(ready: Ready, built: CudaOnCpu) -> str:
    """What is wrong in any of three thread orders, or "". To find a race one order is enough."""
    arguments = ready.kernel, ready.source, built, ready.inputs
    try:
        return difference(
            ready, in_any_order(*arguments) if built.sanitizer is None else launched(*arguments, "shuffled")
        )
    except CudaOnCpuError as error:
        return str(error)


def built_by_pocl(batch: Sequence[Ready]) -> list[Any]:
    """A program for each case, several from one run of PoCL's compiler; ``None`` for all if it refuses any of them. The refused
    case gives the error when it is built alone."""
    plain = {r.source.name for r in batch if r.case.number % OPTIMISED}
    try:
        built = opencl_device.built_together([ready.source for ready in batch], plain)
    except GpucompError:
        built = {}
    return [built.get(ready.source.name) for ready in batch]


def by_opencl(ready: Ready, built: Any = None, device: str = "pocl") -> str:
    """What is wrong after one launch, or ""."""
    try:
        found = opencl_device.run(ready.kernel, ready.source, ready.inputs, device=device, built=built)
    except opencl_device.OutOfBoundsError as error:
        return str(error)
    with np.errstate(over="ignore"):
        kernel = ready.case.kernel
        types = kernel.params[kernel.inputs :]
        return difference(ready, [a.astype(t.dtype.numpy) for a, t in zip(found, types, strict=True)])


def difference(ready: Ready, found: Sequence[np.ndarray]) -> str:
    """Which result is further from the oracle than its dtype and the length of its sums allow, or ""."""
    kernel = ready.case.kernel
    for right in ready.wanted:
        actual = found[right.target - kernel.inputs][right.index]
        if ready.case.cell.engine == "contraction/winograd":
            fault = far_from(actual, right.values, ready.case)
        elif rounds_inside(kernel, ready.case.cell.engine):
            _, fault = error_of(actual, right.values, terms_of(kernel), "tf32")
        else:
            fault = unlike(actual, right.values, terms_of(kernel))
        if fault:
            return told(right.target, fault)
    return difference_of_rows(ready, found)


def difference_of_rows(ready: Ready, found: Sequence[np.ndarray]) -> str:
    """The same for row statistics. They are compared with statistics of the stored results, because an allowed difference in
    the rounding of a result changes them."""
    kernel = ready.case.kernel
    body, targets = kernel.body, row_results(kernel)
    if not targets:
        return ""
    assert isinstance(body, Contraction)
    known = [array.copy() for array in found]
    row_statistics(kernel, ready.given, known)
    columns = math.prod(v.extent for v in body.n)
    for target in sorted(targets):
        actual, right = found[target - kernel.inputs], known[target - kernel.inputs]
        if fault := unlike(actual, right, columns, assert_rounded_once):
            return told(target, fault)
    return ""


def row_results(kernel: Kernel) -> set[int]:
    """The parameters that row statistics are stored in."""
    body = kernel.body
    return {s.target for s in body.tail.stores} if isinstance(body, Contraction) and body.tail else set()


def told(target: int, fault: str) -> str:
    return f"parameter {target}: {' '.join(fault.split())[:300]}"


def rounds_inside(kernel: Kernel, engine: str) -> bool:
    """Whether the kernel rounds values that it computes, in addition to inputs that ``to_tf32`` has rounded: the weights of an
    attention, or computed operands of a product, in tf32; or in f16, equally coarse, which PoCL runs as f32."""
    if is_kernel_of(kernel, Attention):
        return kernel.body.math == "tf32"
    if not is_kernel_of(kernel, Contraction):
        return False
    operands = (kernel.body.a, kernel.body.b)
    if engine == "contraction/amd":
        return any(F16 in {n.dtype for n in walk(x)} and not is_copied(kernel, x) for x in operands)
    return kernel.body.math == "tf32" and not all(is_copied(kernel, x) for x in operands)


def unlike(actual: np.ndarray, right: np.ndarray, terms: int, check: Callable[..., None] = assert_matches) -> str:
    try:
        check(actual, right, terms=terms)
    except AssertionError as error:
        return str(error)
    return ""


def far_from(actual: np.ndarray, right: np.ndarray, case: Case) -> str:
    """Winograd's errors are measured over all elements together; elements that no store reaches must be unchanged."""
    written = right != UNWRITTEN
    depth = problem_of(case.cell.engine, case.kernel).depth
    bound = winograd_bound(case.schedule["outputs"], depth, case.cell.type.numpy.name)
    if not np.array_equal(actual[~written], right[~written]):
        return "elements are written that no store reaches"
    # the bound is for many elements: the root mean square of n elements has a standard deviation of 1 / sqrt(2 n) of itself
    bound *= 1 + 3 / math.sqrt(2 * max(1, np.count_nonzero(right[written])))
    error = relative_error(actual[written], right[written])
    return f"relative error {error:.3g}, {bound:.3g} is expected" if error > bound else ""
