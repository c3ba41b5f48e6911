// softmax
// problem   rows=6 cols=100 rows_side_by_side=0 widest=4 kept=1 early=0 statistics=2 shared_per_item=8 element_bytes=4 element_stores=1 shuffles=1 splittable=0
// schedule  lanes=32 rows_per_group=4 vector=4 keep=1 splits=1
// engine    rowwise

float max_f32(float a, float b) {
  return a > b || a != a ? a : b;
}

__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global float* restrict x1,
    __global float* restrict x2) {
  __local float shared_s0[128];
  __local float shared_s1[128];

  // the row of this work-item, and its position among those that share the row
  const int id = (int)get_local_id(0);
  const int local_row = id / 32;
  const int lane_id = id % 32;
  const int slot = local_row * 32 + lane_id;
  const int my_row = (int)get_group_id(0) * 4 + local_row;
  const int row = my_row < 5 ? my_row : 5;

  // values that stay in registers
  float kept0[4];

  // values that the whole row shares
  const int r0 = row * 100;

  // s0: the max over the row
  float s0 = (-INFINITY);
  {
    const int step = 0;
    const int col = lane_id;
    if (col < 25) {
      const int e1 = r0 + col * 4;
      float ev0[4];
      vstore4(vload4(0, x0 + e1), 0, ev0);
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        kept0[step * 4 + lane] = ev0[lane];
        const float term = ev0[lane];
        s0 = max_f32(s0, term);
      }
    }
  }

  // combine the results of the 32 work-items that share the row
  shared_s0[slot] = s0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_way = 16; half_way > 0; half_way /= 2) {
    if (lane_id < half_way) {
      const float other = shared_s0[slot + half_way];
      s0 = max_f32(s0, other);
      shared_s0[slot] = s0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  s0 = shared_s0[local_row * 32];

  // s1: the sum over the row
  float s1 = 0.0f;
  {
    const int step = 0;
    const int col = lane_id;
    if (col < 25) {
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const float e0 = kept0[step * 4 + lane] - s0;
        const float e1 = exp(e0);
        s1 = s1 + e1;
      }
    }
  }

  // combine the results of the 32 work-items that share the row
  shared_s1[slot] = s1;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_way = 16; half_way > 0; half_way /= 2) {
    if (lane_id < half_way) {
      const float other = shared_s1[slot + half_way];
      s1 = s1 + other;
      shared_s1[slot] = s1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  s1 = shared_s1[local_row * 32];

  if (my_row >= 6) return;

  // store the results of the row
  if (lane_id == 0) {
    x2[row] = s0;
  }

  // compute and store the results of each element
  const float f0 = 1.0f / s1;
  {
    const int step = 0;
    const int col = lane_id;
    if (col < 25) {
      float ew0[4];
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const float e2 = kept0[step * 4 + lane] - s0;
        const float e3 = exp(e2);
        const float e4 = e3 * f0;
        ew0[lane] = e4;
      }
      vstore4(vload4(0, ew0), 0, x1 + r0 + col * 4);
    }
  }
}
