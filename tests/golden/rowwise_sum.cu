// sum over 13
// problem   rows=40 cols=13 rows_side_by_side=1 shared_per_item=4 element_stores=0
// schedule  lanes=4 rows_per_group=16 keep=0
// template  rowwise/kernel.j2

extern "C" __global__ void __launch_bounds__(64) kernel0(
    const float* __restrict__ x0,
    float* __restrict__ x1) {
  const int id = (int)threadIdx.x;
  const int local_row = id % 16;
  const int lane_id = id / 16;
  const int slot = local_row * 4 + lane_id;
  __shared__ __align__(16) float shared_s0[64];
  const int my_row = (int)blockIdx.x * 16 + local_row;
  const int row = my_row < 39 ? my_row : 39;

  float s0 = 0.0f;
  for (int col = lane_id; col < 13; col += 4) {
    const float e2 = x0[col * 40 + row];
    const float term = e2;
    s0 = s0 + term;
  }

  shared_s0[slot] = s0;
  __syncthreads();
  for (int half_way = 2; half_way > 0; half_way /= 2) {
    if (lane_id < half_way) {
      const float mine = shared_s0[slot];
      const float other = shared_s0[slot + half_way];
      shared_s0[slot] = mine + other;
    }
    __syncthreads();
  }
  s0 = shared_s0[local_row * 4];

  if (my_row >= 40) return;
  if (lane_id == 0) {
    x1[row] = s0;
  }
}
