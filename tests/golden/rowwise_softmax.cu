// softmax
// problem   rows=6 cols=100 rows_side_by_side=0 shared_per_item=8 element_stores=1
// schedule  lanes=32 rows_per_group=4 keep=1
// template  rowwise/kernel.j2

__device__ __forceinline__ float max_f32(float a, float b) {
  return a > b || a != a ? a : b;
}

extern "C" __global__ void __launch_bounds__(128) kernel0(
    const float* __restrict__ x0,
    float* __restrict__ x1,
    float* __restrict__ x2) {
  const int id = (int)threadIdx.x;
  const int local_row = id / 32;
  const int lane_id = id % 32;
  const int slot = local_row * 32 + lane_id;
  __shared__ __align__(16) float shared_s0[128];
  __shared__ __align__(16) float shared_s1[128];
  const int my_row = (int)blockIdx.x * 4 + local_row;
  const int row = my_row < 5 ? my_row : 5;
  const int r0 = row * 100;
  float kept0[4];

  float s0 = (-__int_as_float(0x7f800000));
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int col = lane_id + step * 32;
    if (col < 100) {
      const float e1 = x0[r0 + col];
      kept0[step] = e1;
      const float term = e1;
      s0 = max_f32(s0, term);
    }
  }

  shared_s0[slot] = s0;
  __syncthreads();
  for (int half_way = 16; half_way > 0; half_way /= 2) {
    if (lane_id < half_way) {
      const float mine = shared_s0[slot];
      const float other = shared_s0[slot + half_way];
      shared_s0[slot] = max_f32(mine, other);
    }
    __syncthreads();
  }
  s0 = shared_s0[local_row * 32];

  float s1 = 0.0f;
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int col = lane_id + step * 32;
    if (col < 100) {
      const float e0 = kept0[step] - s0;
      const float e1 = expf(e0);
      const float term = e1;
      s1 = s1 + term;
    }
  }

  shared_s1[slot] = s1;
  __syncthreads();
  for (int half_way = 16; half_way > 0; half_way /= 2) {
    if (lane_id < half_way) {
      const float mine = shared_s1[slot];
      const float other = shared_s1[slot + half_way];
      shared_s1[slot] = mine + other;
    }
    __syncthreads();
  }
  s1 = shared_s1[local_row * 32];

  if (my_row >= 6) return;
  if (lane_id == 0) {
    x2[row] = s0;
  }
  #pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int col = lane_id + step * 32;
    if (col < 100) {
      const float e1 = kept0[step] - s0;
      const float e2 = expf(e1);
      const float e3 = e2 / s1;
      x1[r0 + col] = e3;
    }
  }
}
