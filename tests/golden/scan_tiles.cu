// running sum
// problem   rows=5 cols=37 rows_side_by_side=0 widest=1 value_bytes=4 element_bytes=4 shuffles=1 exclusive=0 reverse=0
// schedule  look_back=0 lanes=64 rows_per_group=1 vector=1 accesses=2
// engine    scan

extern "C" __global__ void __launch_bounds__(64, 16) kernel0(
    const float* __restrict__ x0,
    const float* __restrict__ x1,
    float* __restrict__ x2) {
  __shared__ __align__(16) float totals[2];

  // the row of this thread, and its position among those that share the row
  const int id = (int)threadIdx.x;
  const int lane_id = id;
  const int row = (int)blockIdx.x;
  const int r0 = row * 37;
  // tile by tile along the row; carry is the result of all previous tiles
  float carry = 0.0f;
  for (int tile = 0; tile < 1; ++tile) {
    const int first = tile * 128 + lane_id * 2;

    // load this thread's elements of the tile
    float kept[2];
    #pragma unroll
    for (int access = 0; access < 2; ++access) {
      const int place = first + access;
      if (place < 37) {
        const int col = place;
        const float e1 = x0[r0 + col];
        kept[access] = e1;
      } else {
        for (int lane = 0; lane < 1; ++lane) kept[access * 1 + lane] = 0.0f;
      }
    }

    // scan them
    #pragma unroll
    for (int element = 1; element < 2; ++element) kept[element] = kept[element - 1] + kept[element];

    // the result of the threads before this one
    float total = kept[1];
    const int warp_lane = lane_id % 32;
    const int warp_place = id % 32;
    #pragma unroll
    for (int reach = 1; reach < 32; reach *= 2) {
      const float other = gc_shfl(total, warp_lane < reach ? warp_place : warp_place - reach);
      if (warp_lane >= reach) total = other + total;
    }
    float before = gc_shfl(total, warp_lane == 0 ? warp_place : warp_place - 1);
    if (warp_lane == 0) before = 0.0f;
    const int warp_number = lane_id / 32;
    if (warp_lane == 31) totals[warp_number] = total;
    __syncthreads();
    float prefix = carry;
    for (int part = 0; part < 2; ++part) {
      const float other = totals[part];
      if (part < warp_number) prefix = prefix + other;
    }
    prefix = prefix + before;

    // combine the elements with all before them
    #pragma unroll
    for (int element = 0; element < 2; ++element) kept[element] = prefix + kept[element];

    // store the results
    #pragma unroll
    for (int access = 0; access < 2; ++access) {
      const int place = first + access;
      if (place < 37) {
        const int col = place;
        const int o0 = r0 + col;
        const float o1 = kept[access] * 2.0f;
        const float o2 = x1[o0];
        const float o3 = o1 + o2;
        x2[o0] = o3;
      }
    }
  }
}
