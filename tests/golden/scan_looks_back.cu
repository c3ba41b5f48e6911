// running sum
// problem   rows=2 cols=331 rows_side_by_side=0 widest=1 value_bytes=4 element_bytes=4 shuffles=1 exclusive=0 reverse=0
// schedule  look_back=1 lanes=64 rows_per_group=1 vector=1 accesses=2
// engine    scan

extern "C" __global__ void __launch_bounds__(64, 16) kernel0(
    const float* __restrict__ x0,
    const float* __restrict__ x1,
    float* __restrict__ x2,
    volatile float* workspace,
    unsigned int* __restrict__ counters) {
  __shared__ __align__(16) float totals[2];
  __shared__ __align__(16) int missing[1];
  __shared__ __align__(16) int takes_down[1];

  // the row of this thread, and its position among those that share the row
  const int id = (int)threadIdx.x;
  const int lane_id = id;
  const int row = (int)blockIdx.x;
  const int r0 = row * 331;
  // tile by tile along the row; carry is the result of all previous tiles
  const int flags = 2 + (int)blockIdx.x * 3;  // this row's flags come after the arrival counters
  const int own = (int)blockIdx.y;
  for (int tile = own;;) {
    float carry = 0.0f;
    const int first = tile * 128 + lane_id * 2;

    // load this thread's elements of the tile
    float kept[2];
    #pragma unroll
    for (int access = 0; access < 2; ++access) {
      const int place = first + access;
      if (place < 331) {
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
      carry = carry + other;
    }
    prefix = prefix + before;
    // every work-group publishes its tile's total, then waits for those of the previous tiles
    if (lane_id == 0) workspace[row * 3 + tile] = carry;
    __syncthreads();
    if (id == 0) {
      gc_store_release(counters + flags + tile, 1);
      missing[0] = own;
    }
    __syncthreads();
    for (int part = id; part < own; part += 64) {
      if (gc_is_set(counters + flags + part, tile == own ? 1024 : 1)) continue;
      gc_atomic_min(missing, part);
      break;
    }
    __syncthreads();
    const int next = missing[0];
    if (tile != own || next != own) {
      tile = next;
      continue;
    }
    int is_last = 0;  // the work-item with the fewest totals to read finds out
    if (id == 63) is_last = gc_atomic_inc_wrap_release(counters + (int)blockIdx.x, 2) == 2;
    carry = 0.0f;
    for (int part = lane_id; part < own; part += 64) {
      const float other = workspace[row * 3 + part];
      carry = carry + other;
    }
    if (id == 63) takes_down[0] = is_last;
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = gc_shfl_xor(carry, mask);
      carry = carry + other;
    }
    if (warp_lane == 0) totals[warp_number] = carry;
    __syncthreads();
    carry = totals[0];
    for (int part = 1; part < 2; ++part) {
      const float other = totals[part];
      carry = carry + other;
    }
    prefix = carry + prefix;

    // combine the elements with all before them
    #pragma unroll
    for (int element = 0; element < 2; ++element) kept[element] = prefix + kept[element];

    // store the results
    #pragma unroll
    for (int access = 0; access < 2; ++access) {
      const int place = first + access;
      if (place < 331) {
        const int col = place;
        const int o0 = r0 + col;
        const float o1 = kept[access] * 2.0f;
        const float o2 = x1[o0];
        const float o3 = o1 + o2;
        x2[o0] = o3;
      }
    }

    // the last tile of the row clears the flags for the next launch
    if (takes_down[0]) {
      gc_load_acquire(counters + (int)blockIdx.x);
      #pragma unroll 1
      for (int part = id; part < 3; part += 64) *(counters + flags + part) = 0;
    }
    break;
  }
}
