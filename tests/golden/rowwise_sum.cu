// sum over 13
// problem   rows=40 cols=13 rows_side_by_side=1 widest=4 kept=0 early=0 statistics=1 shared_per_item=4 element_bytes=4 element_stores=0 shuffles=1 splittable=1
// schedule  lanes=4 rows_per_group=16 vector=1 keep=0 splits=1
// engine    rowwise

extern "C" __global__ void __launch_bounds__(64) kernel0(
    const float* __restrict__ x0,
    float* __restrict__ x1) {
  __shared__ __align__(16) float shared_s0[32];

  // the row of this thread, and its position among those that share the row
  const int id = (int)threadIdx.x;
  const int local_row = id % 16;
  const int lane_id = id / 16;
  const int my_row = (int)blockIdx.x * 16 + local_row;
  const int row = my_row < 39 ? my_row : 39;

  // s0: the sum over the row
  float s0 = 0.0f;
  for (int col = lane_id; col < 13; col += 4) {
    const float e2 = x0[col * 40 + row];
    s0 = s0 + e2;
  }

  // combine the results of the 4 threads that share the row
  {
    const float other = gc_shfl_xor(s0, 16);
    s0 = s0 + other;
  }
  if (lane_id % 2 == 0) {
    shared_s0[local_row * 2 + lane_id / 2] = s0;
  }
  __syncthreads();
  s0 = shared_s0[local_row * 2];

  for (int warp = 1; warp < 2; ++warp) {
    const float other = shared_s0[local_row * 2 + warp];
    s0 = s0 + other;
  }

  if (my_row >= 40) return;

  // store the results of the row
  if (lane_id == 0) {
    x1[row] = s0;
  }
}
