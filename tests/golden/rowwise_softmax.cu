// softmax
// problem   rows=6 cols=100 rows_side_by_side=0 widest=4 kept=1 early=0 statistics=2 shared_per_item=8 element_bytes=4 element_stores=1 shuffles=1 splittable=0
// schedule  lanes=32 rows_per_group=4 vector=4 keep=1 splits=1
// engine    rowwise

extern "C" __global__ void __launch_bounds__(128, 6) kernel0(
    const float* __restrict__ x0,
    float* __restrict__ x1,
    float* __restrict__ x2) {
  // the row of this thread, and its position among those that share the row
  const int id = (int)threadIdx.x;
  const int local_row = id / 32;
  const int lane_id = id % 32;
  const int my_row = (int)blockIdx.x * 4 + local_row;
  const int row = my_row < 5 ? my_row : 5;

  // values that stay in registers
  float kept0[4];

  // values that the whole row shares
  const int r0 = row * 100;

  // s0: the max over the row
  float s0 = (-__int_as_float(0x7f800000));
  {
    const int step = 0;
    const int col = lane_id;
    if (col < 25) {
      const int e1 = r0 + col * 4;
      __align__(16) float ev0[4];
      *reinterpret_cast<uint4*>(ev0) = *reinterpret_cast<const uint4*>(x0 + e1);
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        kept0[step * 4 + lane] = ev0[lane];
        const float term = ev0[lane];
        s0 = gc_max_nan(s0, term);
      }
    }
  }

  // combine the results of the 32 threads that share the row
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other = gc_shfl_xor(s0, mask);
    s0 = gc_max_nan(s0, other);
  }

  // s1: the sum over the row
  float s1 = 0.0f;
  {
    const int step = 0;
    const int col = lane_id;
    if (col < 25) {
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const float e0 = kept0[step * 4 + lane] - s0;
        const float e1 = expf(e0);
        s1 = s1 + e1;
      }
    }
  }

  // combine the results of the 32 threads that share the row
  for (int mask = 16; mask > 0; mask /= 2) {
    const float other = gc_shfl_xor(s1, mask);
    s1 = s1 + other;
  }

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
      __align__(16) float ew0[4];
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const float e2 = kept0[step * 4 + lane] - s0;
        const float e3 = expf(e2);
        const float e4 = e3 * f0;
        ew0[lane] = e4;
      }
      *reinterpret_cast<uint4*>(x1 + r0 + col * 4) = *reinterpret_cast<const uint4*>(ew0);
    }
  }
}
