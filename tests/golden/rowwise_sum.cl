// sum over 13
// problem   rows=40 cols=13 rows_side_by_side=1 widest=4 kept=0 early=0 statistics=1 shared_per_item=4 element_bytes=4 element_stores=0 shuffles=1 splittable=1
// schedule  lanes=4 rows_per_group=16 vector=1 keep=0 splits=1
// engine    rowwise

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global float* restrict x1) {
  __local float shared_s0[64];

  // the row of this work-item, and its position among those that share the row
  const int id = (int)get_local_id(0);
  const int local_row = id % 16;
  const int lane_id = id / 16;
  const int slot = local_row * 4 + lane_id;
  const int my_row = (int)get_group_id(0) * 16 + local_row;
  const int row = my_row < 39 ? my_row : 39;

  // s0: the sum over the row
  float s0 = 0.0f;
  for (int col = lane_id; col < 13; col += 4) {
    const float e2 = x0[col * 40 + row];
    s0 = s0 + e2;
  }

  // combine the results of the 4 work-items that share the row
  shared_s0[slot] = s0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_way = 2; half_way > 0; half_way /= 2) {
    if (lane_id < half_way) {
      const float other = shared_s0[slot + half_way];
      s0 = s0 + other;
      shared_s0[slot] = s0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  s0 = shared_s0[local_row * 4];

  if (my_row >= 40) return;

  // store the results of the row
  if (lane_id == 0) {
    x1[row] = s0;
  }
}
