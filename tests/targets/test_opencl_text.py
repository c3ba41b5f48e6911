"""Loads of an OpenCL text by width, and what only looks like one."""

from __future__ import annotations

from collections import Counter

from gpucomp.ir.types import F16
from gpucomp.kernels_templates.engines import FAMILIES
from gpucomp.kernels_templates.render import render
from gpucomp.targets import opencl, opencl_text
from testing.kernels import add_relu, joined, matmul, scatter, transposed

TARGET = opencl.manifest("mali")
TEXT = """__kernel void k0(
    __global const float* restrict x0,
    __global const half* restrict x1,
    __read_only image2d_t x2,
    __global float* restrict x3) {
  __local float tile[8];
  float kept[4];
  vstore4(vload4(0, x0 + 4 * i), 0, kept);
  const float a = vload_half(i, x1) + x0[kept[1] > 0.0f ? 3 : i];
  const float4 b = vload_half4(0, x1 + i);
  const float4 c = read_imagef(x2, (int2)(0, i));
  x3[i] = a == 0.0f ? kept[2] : tile[0];
  x3[i] += x3[j] == x0[2] ? vload2(0, kept) : 1.0f;
}
"""


def test_every_form_of_a_load_is_counted_with_its_bytes():
    found = opencl_text.loads(TEXT)

    # x0 by four, a pixel | four halves | x0 twice, x3 for += (it is read), x3 | one half
    assert found == Counter({16: 2, 8: 1, 4: 4, 2: 1})
    assert opencl_text.wide_share(found) == 2 / 8


def test_a_kernel_without_loads_reads_nothing_narrow():
    assert opencl_text.loads("__kernel void k0(__global float* restrict x0) { x0[0] = 1.0f; }") == Counter()
    assert opencl_text.wide_share(Counter()) == 1.0


def loads(kernel, family, **schedule):
    return opencl_text.loads(render(kernel, schedule, TARGET, "k0", FAMILIES[family]).text)


def test_rendered_kernels_are_read_as_their_schedules_say():
    points = {"threads": 32, "items": 1}

    assert loads(add_relu(4, 8), "loops", vector=4, **points) == Counter({16: 2})
    assert loads(add_relu(4, 8, dtype=F16), "loops", vector=8, **points) == Counter({16: 2})
    assert loads(add_relu(4, 8), "loops", vector=1, **points) == Counter({4: 2})
    assert loads(joined(7, 3, 1, 5), "loops", vector=1, **points) == Counter({4: 1})
    assert loads(transposed(16, 8), "loops/transpose", tile=8, threads=32) == Counter({4: 1})
    assert loads(matmul(4, 8, 16), "contraction/mali", m0=1, n0=4, k0=4, image=0, lws_x=4, lws_y=4)[16] > 0
    slices = loads(scatter((5, 8), (3, 1), "add"), "scatter", line_items=2, part_items=1, parts=1, vector=4)
    assert slices == Counter({16: 3, 8: 1})  # what is copied, what is changed, what it is changed by; an index
