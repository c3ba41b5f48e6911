// softmax
// problem   rows=33 cols=70 rows_side_by_side=0 widest=1 kept=1 early=0 statistics=2 shared_per_item=8 element_bytes=4 element_stores=1 shuffles=1 splittable=0 aligned=1 most_cols=300  (an example: each run decides its sizes)
// schedule  lanes=32 rows_per_group=2 vector=1 keep=1 splits=1
// engine    rowwise

float max_f32(float a, float b) {
  return a > b || a != a ? a : b;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global float* restrict x1,
    __global float* restrict x2,
    long run_size0, long run_size1, long run_size2) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const int size2 = (int)run_size2;

  __local float shared_s0[64];
  __local float shared_s1[64];

  // the row of this work-item, and its position among those that share the row
  const int id = (int)get_local_id(0);
  const int local_row = id / 32;
  const int lane_id = id % 32;
  const int slot = local_row * 32 + lane_id;
  const int my_row = (int)get_group_id(0) * 2 + local_row;
  const int row = my_row < size2 ? my_row : size2;

  // values that stay in registers
  float kept0[10];

  // values that the whole row shares
  const int r0 = row * size0;

  // s0: the max over the row
  float s0 = (-INFINITY);
  #pragma unroll
  for (int step = 0; step < 10; ++step) {
    const int col = lane_id + step * 32;
    if (col < size0) {
      const float e1 = x0[r0 + col];
      kept0[step] = e1;
      s0 = max_f32(s0, e1);
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
  #pragma unroll
  for (int step = 0; step < 10; ++step) {
    const int col = lane_id + step * 32;
    if (col < size0) {
      const float e0 = kept0[step] - s0;
      const float e1 = exp(e0);
      s1 = s1 + e1;
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

  if (my_row >= size1) return;

  // store the results of the row
  if (lane_id == 0) {
    x2[row] = s0;
  }

  // compute and store the results of each element
  const float f0 = 1.0f / s1;
  #pragma unroll
  for (int step = 0; step < 10; ++step) {
    const int col = lane_id + step * 32;
    if (col < size0) {
      const float e1 = kept0[step] - s0;
      const float e2 = exp(e1);
      const float e3 = e2 * f0;
      x1[r0 + col] = e3;
    }
  }
}
