"""AMD's matrix instructions written out in OpenCL C, so that kernels which use them run on a CPU, in f32 throughout.

The lane maps are those of AMD's instruction set documents (CDNA2 7.1.5, RDNA3 7.9), said here a second time on purpose:
each lane leaves its operands in local memory, and computes the elements of the result that it holds from the others'.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpucomp.codegen.source import KernelSource

# builtin: (lanes of a wave, size, depth, elements of an operand and of the result in a lane)
MATRICES = {
    "__builtin_amdgcn_mfma_f32_32x32x8f16": (64, 32, 8, 4, 16),
    "__builtin_amdgcn_mfma_f32_16x16x16f16": (64, 16, 16, 4, 4),
    "__builtin_amdgcn_mfma_f32_32x32x2f32": (64, 32, 2, 1, 16),
    "__builtin_amdgcn_mfma_f32_16x16x4f32": (64, 16, 4, 1, 4),
    "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32": (32, 16, 16, 16, 8),
}
AS_FLOAT = """
#define half float
#define half4 float4
#define half8 float8
#define half16 float16
#define vload_half(i, p) ((p)[i])
#define vstore_half_rte(v, i, p) (p)[i] = (v)
#define convert_half_rte(a) (a)
"""


def row_of(wave: int, size: int) -> str:
    if wave == 32:
        return "2 * r + lane / 16"
    return "8 * (r / 4) + 4 * (lane / 32) + r % 4" if size == 32 else "4 * (lane / 16) + r"


def function(builtin: str) -> str:
    wave, size, depth, held, results = MATRICES[builtin]
    operand = f"float{held}" if held > 1 else "float"
    leave = "vstore{0}({1}, lane, all_{1});" if held > 1 else "all_{1}[lane] = {1};"
    rest = ", x, y, z" if wave == 64 else ""
    return f"""{AS_FLOAT}
float{results} multiplied({operand} a, {operand} b, float{results} sums, __local float* all_a, __local float* all_b) {{
  const int lane = get_local_id(0) % {wave};
  all_a += get_local_id(0) / {wave} * {wave * held};
  all_b += get_local_id(0) / {wave} * {wave * held};
  barrier(CLK_LOCAL_MEM_FENCE);
  {leave.format(held, "a")}
  {leave.format(held, "b")}
  barrier(CLK_LOCAL_MEM_FENCE);
  float of[{results}];
  for (int r = 0; r < {results}; ++r) {{
    const int row = {row_of(wave, size)}, column = lane % {size};
    float total = 0;
    for (int k = 0; k < {depth}; ++k) {{
      const int group = k / {held} * {size}, part = k % {held};
      total += all_a[(group + row) * {held} + part] * all_b[(group + column) * {held} + part];
    }}
    of[r] = total;
  }}
  return sums + vload{results}(0, of);
}}
#define {builtin}(a, b, sums{rest}) multiplied(a, b, sums, all_a, all_b)
"""


def shape_only(source: KernelSource) -> KernelSource:
    """``source`` with a matrix instruction that adds up what its own lane gives it: no answer, but every access."""
    (builtin,) = set(re.findall(r"\b(__builtin_amdgcn_(?:mfma|wmma)\w+)\(a", source.text))
    held = MATRICES[builtin][3]
    own = " + ".join(f"(a).s{k:x} * (b).s{k:x}" for k in range(held)) if held > 1 else "(a) * (b)"
    rest = ", x, y, z" if MATRICES[builtin][0] == 64 else ""
    return replace(source, text=f"{AS_FLOAT}#define {builtin}(a, b, sums{rest}) ((sums) + ({own}))\n" + bare(source))


def bare(source: KernelSource) -> str:
    text = re.sub(r"#if !__has_builtin.*?#endif\n", "", source.text, flags=re.S)
    return text.replace("#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n", "")


def emulated(source: KernelSource) -> KernelSource:
    """``source`` with its matrix instruction written out."""
    builtins = set(re.findall(r"\b(__builtin_amdgcn_(?:mfma|wmma)\w+)\(a", source.text))
    text = bare(source)
    if not builtins:  # no depth, no products
        return replace(source, text=AS_FLOAT + text)
    (builtin,) = builtins
    scratch = source.geometry.items[0] * MATRICES[builtin][3]
    text = re.sub(r"(?m)^(  __local \w+ tile_a)", rf"  __local float all_a[{scratch}], all_b[{scratch}];\n\1", text)
    return replace(source, text=function(builtin) + text)
