"""The smallest kernels that show a device's limits: copies, arithmetic in registers, empty kernels, a grid barrier.

Each is a plan of the runtime, like everything else that is timed. ``per_launch`` is the work of a launch, in the unit of the
figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpucomp.artifact.plan import INPUT, OUTPUT, TEMP, Buffer, Launch, Plan
from gpucomp.device.target import Target
from gpucomp.ir.types import BF16, F16, F32, I8, I32, DType
from gpucomp.kernel import Kernel, Loops
from gpucomp.kernel.geometry import Geometry
from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.contraction.amd.emit import ELEMENTS, has_instruction, instruction_of
from gpucomp.kernels_templates.loops.space import FAMILY
from gpucomp.planning import Rendered, compiled_kernel
from gpucomp.schedule.choose import Choice

THREADS = 256
SUMS = 8  # independent chains of arithmetic in a thread or a warp


@dataclass(frozen=True)
class Loop:
    """``groups`` blocks of the kernel ``k0(x, y)``, with ``nbytes`` each for ``x`` and ``y``; ``counters`` adds those of a
    barrier; ``shared`` is dynamic shared memory in bytes.
    """

    text: str
    groups: int
    nbytes: int
    per_launch: float
    unit: str
    threads: int = THREADS
    launches: int = 1
    counters: bool = False
    programmatic: bool = False
    shared: int = 0


COPY = {
    "cuda": """extern "C" __global__ void __launch_bounds__({threads}) k0(const float4* __restrict__ x, float4* __restrict__ y) {{
  for (int i = blockIdx.x * {threads} + threadIdx.x; i < {count}; i += {stride}) y[i] = x[i];
}}
""",
    "opencl": """__kernel __attribute__((reqd_work_group_size({threads}, 1, 1)))
void k0(__global const float4* restrict x, __global float4* restrict y) {{
  for (int i = get_global_id(0); i < {count}; i += {stride}) y[i] = x[i];
}}
""",
}
FMA = {
    "cuda": """extern "C" __global__ void __launch_bounds__({threads}) k0(const float* __restrict__ x, float* __restrict__ y) {{
  const int i = blockIdx.x * {threads} + threadIdx.x;
  const float a = x[i % {count}], b = x[(i + 1) % {count}];
  float sum[{sums}];
#pragma unroll
  for (int j = 0; j < {sums}; ++j) sum[j] = a * j;
#pragma unroll 4
  for (int n = 0; n < {steps}; ++n) {{
#pragma unroll
    for (int j = 0; j < {sums}; ++j) sum[j] = sum[j] * a + b;
  }}
  float total = 0.0f;
#pragma unroll
  for (int j = 0; j < {sums}; ++j) total += sum[j];
  y[i % {count}] = total;
}}
""",
    "opencl": """__kernel __attribute__((reqd_work_group_size({threads}, 1, 1)))
void k0(__global const float* restrict x, __global float* restrict y) {{
  const int i = get_global_id(0);
  const float a = x[i % {count}], b = x[(i + 1) % {count}];
  float8 sum = (float8)(0, 1, 2, 3, 4, 5, 6, 7) * a;
  for (int n = 0; n < {steps}; ++n) sum = mad(sum, a, b);
  y[i % {count}] = sum.s0 + sum.s1 + sum.s2 + sum.s3 + sum.s4 + sum.s5 + sum.s6 + sum.s7;
}}
""",
}
NOTHING = {
    "cuda": 'extern "C" __global__ void k0(const float* x, float* y) {{{body}}}\n',
    "opencl": "__kernel void k0(__global const float* x, __global float* y) {{{body}}}\n",
}
MMA = """extern "C" __global__ void __launch_bounds__({threads}) k0(const unsigned* __restrict__ x, {type}* __restrict__ y) {{
  const int i = blockIdx.x * {threads} + threadIdx.x;
  unsigned a[4], b[2];
#pragma unroll
  for (int j = 0; j < 4; ++j) a[j] = x[(i * 4 + j) % {count}];
#pragma unroll
  for (int j = 0; j < 2; ++j) b[j] = x[(i * 2 + j) % {count}];
  {type} sum[{sums}][4] = {{}};
  for (int n = 0; n < {steps}; ++n) {{
#pragma unroll
    for (int j = 0; j < {sums}; ++j) {function}(sum[j], a, b);
  }}
  {type} total = 0;
#pragma unroll
  for (int j = 0; j < {sums}; ++j) total += sum[j][0] + sum[j][1] + sum[j][2] + sum[j][3];
  y[i % {count}] = total;
}}
"""
MMA_FUNCTIONS = {  # the function, its depth, the type of a sum
    "f16": ("gc_mma_m16n8k16_f16", 16, "float"),
    "bf16": ("gc_mma_m16n8k16_bf16", 16, "float"),
    "tf32": ("gc_mma_m16n8k8_tf32", 8, "float"),
    "s8": ("gc_mma_m16n8k32_i8<true, true>", 32, "int"),
}
# a lane's 16 or 32 bytes of either operand are words of x; the sums are a vector
AMD_MMA = """extern "C" __global__ void __launch_bounds__({threads}) k0(const unsigned* __restrict__ x, {type}* __restrict__ y) {{
  typedef unsigned words __attribute__((ext_vector_type({words})));
  const int i = blockIdx.x * {threads} + threadIdx.x;
  words first, second;
#pragma unroll
  for (int j = 0; j < {words}; ++j) {{
    first[j] = x[(i * {words} + j) % {count}];
    second[j] = x[(i * {words} + j + 1) % {count}];
  }}
  const {vector} a = __builtin_bit_cast({vector}, first), b = __builtin_bit_cast({vector}, second);
  gc_{type}{held} sum[{sums}] = {{}};
  for (int n = 0; n < {steps}; ++n) {{
#pragma unroll
    for (int j = 0; j < {sums}; ++j) {{ {calls} }}
  }}
  {type} total = 0;
#pragma unroll
  for (int j = 0; j < {sums}; ++j) {{
#pragma unroll
    for (int r = 0; r < {held}; ++r) total += sum[j][r];
  }}
  y[i % {count}] = total;
}}
"""
AMD_OPERANDS = {"f16": F16, "bf16": BF16, "f32": F32, "s8": I8}
BARRIER = """extern "C" __global__ void k0(const float* x, float* y, unsigned* counters) {{
  for (unsigned n = 1; n <= {rounds}u; ++n) {{
    __syncthreads();
    if (threadIdx.x == 0) {{
      gc_atomic_inc_wrap_release(counters, ~0u);
      while (gc_load_acquire(counters) < n * {groups}u) {{
      }}
    }}
    __syncthreads();
  }}
  if (threadIdx.x == 0 && gc_atomic_inc_wrap(counters + 1, {groups}u - 1) == {groups}u - 1) counters[0] = 0;
}}
"""
SHARED = """extern "C" __global__ void __launch_bounds__({threads}) k0(const unsigned* x, unsigned* y) {{
  __shared__ __align__(16) unsigned few[{few}];
  unsigned* const many = reinterpret_cast<unsigned*>(gc_dynamic_shared());
  if (threadIdx.x < {few}) few[threadIdx.x] = x[threadIdx.x];
  for (int i = threadIdx.x; i < {count}; i += {threads}) many[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < {count}; i += {threads}) y[i] = many[{count} - 1 - i] + few[i % {few}];
}}
"""
OVERLAP = "gc_grid_launch_dependents(); gc_grid_wait();"
FEW = 32  # words of static shared memory
# the input is not const: otherwise the compiler could load it before the wait
CHAIN = """extern "C" __global__ void __launch_bounds__({threads}) k0(unsigned* x, unsigned* y) {{
  {wait}
  const int i = blockIdx.x * {threads} + threadIdx.x;
  unsigned value = x[i];
  for (int n = 0; n < {steps}; ++n) value = value * 1664525u + 1013904223u;
  y[i] = value;
}}
"""
ROUNDS = 200


def copy(target: Target, nbytes: int, *, launches: int = 1) -> Loop:
    """Reads ``nbytes`` and writes as many, 16 bytes at a time."""
    count = nbytes // 16
    groups = max(1, min(target.limits.units * 16, count // THREADS))
    text = _text(COPY, target).format(threads=THREADS, count=count, stride=groups * THREADS)
    return Loop(text, groups, nbytes, 2 * nbytes / 1e9, "GB/s", launches=launches)


def fma(target: Target, steps: int) -> Loop:
    """f32 multiply-adds in registers; each counts as two operations."""
    groups, count = target.limits.units * 8, 1 << 14
    text = _text(FMA, target).format(threads=THREADS, count=count, sums=SUMS, steps=steps)
    return Loop(text, groups, 4 * count, 2.0 * groups * THREADS * SUMS * steps / 1e12, "TFLOP/s")


def _text(texts: Mapping[str, str], target: Target) -> str:
    """The text in the target's language. HIP's is that of CUDA C++: ``gpucomp`` puts another prelude in front of it."""
    return texts["opencl" if target.language == "opencl" else "cuda"]


def operands(target: Target) -> tuple[str, ...]:
    """The operands of the target's matrix instructions."""
    if target.language == "hip":
        return tuple(name for name, dtype in AMD_OPERANDS.items() if has_instruction(dtype, target.features))
    return ("f16", "tf32", "bf16", "s8") if "mma_sm80" in target.features else ("f16", "s8")


def mma(target: Target, operands: str, steps: int) -> Loop:
    """A warp's or wave's matrix instructions on registers; a multiply-add counts as two operations."""
    if target.language == "hip":
        return _amd_mma(target, AMD_OPERANDS[operands], steps)
    function, depth, type = MMA_FUNCTIONS[operands]
    groups, count = target.limits.units * 4, 1 << 14
    text = MMA.format(threads=THREADS, count=count, sums=SUMS, steps=steps, function=function, type=type)
    work = 2.0 * 16 * 8 * depth * groups * (THREADS // 32) * SUMS * steps
    return Loop(text, groups, 4 * count, work / 1e12, "TFLOP/s")


def _amd_mma(target: Target, dtype: DType, steps: int) -> Loop:
    wave = target.limits.warp
    size = 32 if wave == 64 else 16
    found, element = instruction_of(dtype, wave, size, target.features), ELEMENTS[dtype]
    type = "int" if element.sums is I32 else "float"
    name, lanes = element.chunk
    groups, count, words = target.limits.units * 4, 1 << 14, 4 * found.chunks
    text = AMD_MMA.format(
        threads=THREADS,
        count=count,
        sums=SUMS,
        steps=steps,
        words=words,
        type=type,
        held=found.sums,
        vector=f"gc_{name}{lanes * found.chunks}",
        calls=" ".join(f"sum[j] = {call};" for call in found.calls("a", "b", "sum[j]")),
    )
    # lanes hold a row's chunks side by side, or all of them the same ones
    depth = 16 // dtype.numpy.itemsize * (wave // size if found.beside else found.chunks)
    work = 2.0 * size * size * depth * groups * (THREADS // wave) * SUMS * steps
    return Loop(text, groups, 4 * count, work / 1e12, "TFLOP/s")


def nothing(target: Target, launches: int, *, programmatic: bool = False) -> Loop:
    """Empty kernels in a chain; with ``programmatic`` each may start before the previous one has ended."""
    body = f" {OVERLAP} " if programmatic else ""
    text = _text(NOTHING, target).format(body=body)
    return Loop(text, 1, 256, 1.0, "us", threads=32, launches=launches, programmatic=programmatic)


def barrier(target: Target, groups: int, rounds: int = ROUNDS) -> Loop:
    """``groups`` blocks, all resident at once, wait for each other ``rounds`` times."""
    return Loop(BARRIER.format(rounds=rounds, groups=groups), groups, 256, rounds, "us", 32, counters=True)


def shared(target: Target, nbytes: int) -> Loop:
    """``nbytes`` of dynamic shared memory and a little static: reverses x and adds its first words."""
    text = SHARED.format(threads=THREADS, count=nbytes // 4, few=FEW)
    return Loop(text, 1, nbytes, 1.0, "us", shared=nbytes)


def chain(target: Target, groups: int, steps: int) -> Loop:
    """``steps`` of a random number generator for each word; each launch reads the output of the previous one."""
    overlaps = "pdl" in target.features
    text = CHAIN.format(threads=THREADS, steps=steps, wait=OVERLAP if overlaps else "")
    return Loop(text, groups, 4 * groups * THREADS, 1.0, "us", launches=2, programmatic=overlaps)


def source_of(loop: Loop, target: Target) -> KernelSource:
    geometry = Geometry((loop.groups, 1, 1), (loop.threads, 1, 1), loop.shared)
    source = KernelSource("k0", target.language, loop.text, geometry)
    return replace(source, programmatic=True) if loop.programmatic else source


def plan_of(loop: Loop, target: Target) -> tuple[Plan, Mapping[str, str], dict[str, np.ndarray]]:
    """The plan, its sources, and inputs: words that are small numbers in every type of matrix units."""
    source = source_of(loop, target)
    item = Rendered(source, Choice({}, "probe", FAMILY))
    compiled = compiled_kernel(Kernel("loops", (), 0, Loops(()), ()), item)
    words = loop.nbytes // 4
    buffers = [
        Buffer(INPUT, "x", "u32", (words,), loop.nbytes),
        Buffer(OUTPUT if not loop.counters else TEMP, "y", "u32", (words,), loop.nbytes, 0),
    ]
    arguments: tuple[int, ...] = (0, 1)
    outputs, inputs = (1,), (0,)
    rng = np.random.default_rng(3)
    halves = (0x3800 + rng.integers(0, 1 << 10, 2 * min(words, 1 << 16)) + (rng.integers(0, 2) << 15)).astype(np.uint16)
    given: dict[str, Any] = {"x": np.resize(halves.view(np.uint32), words)}
    if loop.counters:
        buffers.append(Buffer(INPUT, "counters", "u32", (2,), 8))
        arguments, outputs, inputs = (0, 1, 2), (2,), (0, 2)
        given["counters"] = np.zeros(2, np.uint32)
    plan = Plan(
        target=target.name,
        kind=target.kind,
        arch=target.arch,
        buffers=tuple(buffers),
        kernels=(compiled,),
        launches=tuple(Launch(0, arguments, f"k0_{n}") for n in range(loop.launches)),
        inputs=inputs,
        outputs=outputs,
        output_names=("out",),
        arena_bytes=loop.nbytes if loop.counters else 0,
        features=tuple(sorted(target.features)),
    )
    return plan, {compiled.source: loop.text}, given
