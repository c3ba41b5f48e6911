// running sum
// problem   rows=33 cols=70 rows_side_by_side=0 widest=1 value_bytes=4 element_bytes=4 shuffles=1 exclusive=0 reverse=0 any_size=1  (an example: each run decides its sizes)
// schedule  look_back=0 lanes=32 rows_per_group=1 vector=1 accesses=4
// engine    scan

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global float* restrict x2,
    long run_size0, long run_size1) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;

  __local float totals[32];

  // the row of this work-item, and its position among those that share the row
  const int id = (int)get_local_id(0);
  const int lane_id = id;
  const int row = (int)get_group_id(0);
  const int r0 = row * size0;
  // tile by tile along the row; carry is the result of all previous tiles
  float carry = 0.0f;
  for (int tile = 0; tile < size1; ++tile) {
    const int first = tile * 128 + lane_id * 4;

    // load this work-item's elements of the tile
    float kept[4];
    #pragma unroll
    for (int access = 0; access < 4; ++access) {
      const int place = first + access;
      if (place < size0) {
        const int col = place;
        const float e1 = x0[r0 + col];
        kept[access] = e1;
      } else {
        for (int lane = 0; lane < 1; ++lane) kept[access * 1 + lane] = 0.0f;
      }
    }

    // scan them
    #pragma unroll
    for (int element = 1; element < 4; ++element) kept[element] = kept[element - 1] + kept[element];

    // the result of the work-items before this one
    float total = kept[3];
    const int slot = lane_id;
    totals[slot] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int reach = 1; reach < 32; reach *= 2) {
      float other = 0.0f;
      if (lane_id >= reach) other = totals[slot - reach];
      barrier(CLK_LOCAL_MEM_FENCE);
      total = other + total;
      totals[slot] = total;
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    float before = 0.0f;
    if (lane_id > 0) before = totals[slot - 1];
    const float prefix = carry + before;
    total = totals[31];
    carry = carry + total;
    barrier(CLK_LOCAL_MEM_FENCE);

    // combine the elements with all before them
    #pragma unroll
    for (int element = 0; element < 4; ++element) kept[element] = prefix + kept[element];

    // store the results
    #pragma unroll
    for (int access = 0; access < 4; ++access) {
      const int place = first + access;
      if (place < size0) {
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
