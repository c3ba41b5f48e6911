"""Emulates AMD's matrix instructions in OpenCL C, so that kernels with them run on a CPU, with f32 instead of f16; and its dot
products of two f16.

The lane maps are those of AMD's instruction set documents (CDNA2 7.1.5, RDNA3 7.9, RDNA4 7.12.2), deliberately written down
a second time.
Each lane stores its operands in local memory, and computes its elements of the result from those of all lanes.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpucomp.kernel.source import KernelSource
from gpucomp.kernels_templates.contraction.amd.emit import BFLOAT8

# builtin: (lanes of a wave, size, depth, elements of an operand in a lane, elements of the result in a lane)
MATRICES = {
    "__builtin_amdgcn_mfma_f32_32x32x8f16": (64, 32, 8, 4, 16),
    "__builtin_amdgcn_mfma_f32_16x16x16f16": (64, 16, 16, 4, 4),
    "__builtin_amdgcn_mfma_f32_32x32x4bf16": (64, 32, 4, 2, 16),
    "__builtin_amdgcn_mfma_f32_16x16x8bf16": (64, 16, 8, 2, 4),
    "__builtin_amdgcn_mfma_f32_32x32x8bf16_1k": (64, 32, 8, 4, 16),
    "__builtin_amdgcn_mfma_f32_16x16x16bf16_1k": (64, 16, 16, 4, 4),
    "__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32": (32, 16, 16, 16, 8),
    "__builtin_amdgcn_mfma_f32_32x32x2f32": (64, 32, 2, 1, 16),
    "__builtin_amdgcn_mfma_f32_16x16x4f32": (64, 16, 4, 1, 4),
    "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32": (32, 16, 16, 16, 8),
    "__builtin_amdgcn_mfma_i32_32x32x8i8": (64, 32, 8, 4, 16),
    "__builtin_amdgcn_mfma_i32_16x16x16i8": (64, 16, 16, 4, 4),
    "__builtin_amdgcn_mfma_i32_32x32x16_i8": (64, 32, 16, 8, 16),
    "__builtin_amdgcn_mfma_i32_16x16x32_i8": (64, 16, 32, 8, 4),
    "__builtin_amdgcn_mfma_f32_32x32x16_f16": (64, 32, 16, 8, 16),
    "__builtin_amdgcn_mfma_f32_16x16x32_f16": (64, 16, 32, 8, 4),
    "__builtin_amdgcn_mfma_f32_32x32x16_bf16": (64, 32, 16, 8, 16),
    "__builtin_amdgcn_mfma_f32_16x16x32_bf16": (64, 16, 32, 8, 4),
    "__builtin_amdgcn_mfma_i32_32x32x32_i8": (64, 32, 32, 16, 16),
    "__builtin_amdgcn_mfma_i32_16x16x64_i8": (64, 16, 64, 16, 4),
    "__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32": (32, 16, 16, 16, 8),
    "__builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12": (32, 16, 16, 8, 8),
    "__builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12": (32, 16, 16, 8, 8),
    "__builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12": (32, 16, 16, 8, 8),
}
BUILTIN = re.compile(r"\b(__builtin_amdgcn_(?:mfma|wmma)\w+)\((?:true, )?(?:as_(?:long|bfloat8)\()?a")
FENCE = "#define __builtin_amdgcn_fence(order, scope) mem_fence(CLK_GLOBAL_MEM_FENCE)\n"
AS_FLOAT = f"""{FENCE}
#define half float
#define half4 float4
#define half8 float8
#define half16 float16
#define vload_half(i, p) ((p)[i])
#define vstore_half_rte(v, i, p) (p)[i] = (v)
#define convert_half_rte(a) (a)
#define as_bfloat8(a) (a)
"""


# PoCL has half in memory alone: a pair is its word, and a rounded number comes from memory
PAIRS = f"""{FENCE}
#define as_half2(word) (word)
float __builtin_amdgcn_fdot2(uint a, uint b, float c, bool clamp) {{
  const float2 x = vload_half2(0, (const __private half*)&a), y = vload_half2(0, (const __private half*)&b);
  return x.s0 * y.s0 + x.s1 * y.s1 + c;
}}
float rounded(float a) {{
  ushort bits;
  vstore_half_rte(a, 0, (__private half*)&bits);
  return vload_half(0, (const __private half*)&bits);
}}
#define convert_half_rte(a) rounded(a)
"""


def row_of(builtin: str) -> str:
    wave, size, *_ = MATRICES[builtin]
    if wave == 32:
        return "8 * (lane / 16) + r" if builtin.endswith("_gfx12") else "2 * r + lane / 16"
    return "8 * (r / 4) + 4 * (lane / 32) + r % 4" if size == 32 else "4 * (lane / 16) + r"


def types_of(builtin: str) -> tuple[str, str, str]:
    """The type of its sums, that of its elements, and an element's value as a sum."""
    if "_i32_" in builtin:
        return "int", "char", "(int){}"
    return ("float", "short", "as_float((int){} << 16)") if "bf16" in builtin else ("float", "float", "{}")


def function(builtin: str) -> str:
    wave, size, depth, held, results = MATRICES[builtin]
    number, element, value = types_of(builtin)
    operand = f"{element}{held}" if held > 1 else element
    other = f"__local {element}*"
    return f"""{AS_FLOAT}
void multiplied(const {element}* a, const {element}* b, {number}* sums, {other} all_a, {other} all_b) {{
  const int lane = get_local_id(0) % {wave};
  all_a += get_local_id(0) / {wave} * {wave * held};
  all_b += get_local_id(0) / {wave} * {wave * held};
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int k = 0; k < {held}; ++k) {{
    all_a[lane * {held} + k] = a[k];
    all_b[lane * {held} + k] = b[k];
  }}
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int r = 0; r < {results}; ++r) {{
    const int row = {row_of(builtin)}, column = lane % {size};
    {number} total = 0;
    for (int k = 0; k < {depth}; ++k) {{
      const int group = k / {held} * {size}, part = k % {held};
      const {element} of_row = all_a[(group + row) * {held} + part], of_column = all_b[(group + column) * {held} + part];
      total += {value.format("of_row")} * {value.format("of_column")};
    }}
    sums[r] += total;
  }}
}}
#define {builtin}({_arguments(builtin)}) ({{ \\
  const {operand} of_a = {_read(builtin, "a")}, of_b = {_read(builtin, "b")}; \\
  {number}{results} of = sums; \\
  multiplied((const {element}*)&of_a, (const {element}*)&of_b, ({number}*)&of, all_a, all_b); \\
  of; }})
"""


def _arguments(builtin: str) -> str:
    if "wmma_i32" in builtin:
        return "sign_a, a, sign_b, b, sums, clamp"
    return "a, b, sums, x, y, z" if "mfma" in builtin else "a, b, sums"


def _read(builtin: str, operand: str) -> str:
    """The elements of an operand; bytes are passed as integers."""
    return f"as_char{MATRICES[builtin][3]}({operand})" if "_i32_" in builtin else operand


def shape_only(source: KernelSource) -> KernelSource:
    """``source`` with a stand-in that uses only its own lane's operands: the results are wrong, the accesses are the same."""
    (builtin,) = set(BUILTIN.findall(source.text))
    held = MATRICES[builtin][3]
    a, b = (_read(builtin, f"({o})") for o in "ab")
    value = types_of(builtin)[2]
    lanes = [f".s{k:x}" if held > 1 else "" for k in range(held)]
    own = " + ".join(f"{value.format(f'{a}{lane}')} * {value.format(f'{b}{lane}')}" for lane in lanes)
    return replace(
        source, text=f"{AS_FLOAT}#define {builtin}({_arguments(builtin)}) ((sums) + ({own}))\n" + bare(source)
    )


def bare(source: KernelSource) -> str:
    text = re.sub(r"#if !__has_builtin.*?#endif\n", "", source.text, flags=re.S)
    return text.replace("#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n", "").replace(f"{BFLOAT8}\n", "")


def with_pairs(source: KernelSource) -> KernelSource:
    """``source`` with its dot products of f16 written out."""
    return replace(source, text=PAIRS + bare(source))


def emulated(source: KernelSource) -> KernelSource:
    """``source`` with its matrix instruction emulated."""
    builtins = set(BUILTIN.findall(source.text))
    text = bare(source)
    if not builtins:  # a kernel of depth 0 has no products
        return replace(source, text=AS_FLOAT + text)
    (builtin,) = builtins
    element = types_of(builtin)[1]
    scratch = source.geometry.items[0] * MATRICES[builtin][3]
    text = re.sub(r"(?m)^(  __local \w+ tile_a)", rf"  __local {element} all_a[{scratch}], all_b[{scratch}];\n\1", text)
    return replace(source, text=function(builtin) + text)
