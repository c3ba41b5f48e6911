// running sum
// problem   rows=2 cols=331 rows_side_by_side=0 widest=1 value_bytes=4 element_bytes=4 shuffles=1 exclusive=0 reverse=0
// schedule  look_back=1 lanes=64 rows_per_group=1 vector=1 accesses=2
// engine    scan

void release_to_device() {
  atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, memory_scope_device);
}

void acquire_from_device() {
  atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_device);
}

bool last_to_arrive(volatile __global uint* counter, uint last) {
  release_to_device();
  if (atomic_inc(counter) != last) return false;
  atomic_xchg(counter, 0);
  acquire_from_device();
  return true;
}

void set_flag(volatile __global uint* flag) {
  release_to_device();
  atomic_xchg(flag, 1);
}
bool is_set(volatile __global uint* flag, int attempts) {
  while (atomic_or(flag, 0) == 0) {
    if (--attempts == 0) return false;
  }
  return true;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global float* restrict x2,
    __global float* workspace,
    __global uint* restrict counters) {
  __local float totals[64];
  __local int missing[1];
  __local int takes_down[1];

  // the row of this work-item, and its position among those that share the row
  const int id = (int)get_local_id(0);
  const int lane_id = id;
  const int row = (int)get_group_id(0);
  const int r0 = row * 331;
  // tile by tile along the row; carry is the result of all previous tiles
  const int flags = 2 + (int)get_group_id(0) * 3;  // this row's flags come after the arrival counters
  const int own = (int)get_group_id(1);
  for (int tile = own;;) {
    float carry = 0.0f;
    const int first = tile * 128 + lane_id * 2;

    // load this work-item's elements of the tile
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

    // the result of the work-items before this one
    float total = kept[1];
    const int slot = lane_id;
    totals[slot] = total;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int reach = 1; reach < 64; reach *= 2) {
      float other = 0.0f;
      if (lane_id >= reach) other = totals[slot - reach];
      barrier(CLK_LOCAL_MEM_FENCE);
      total = other + total;
      totals[slot] = total;
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    float before = 0.0f;
    if (lane_id > 0) before = totals[slot - 1];
    float prefix = carry + before;
    total = totals[63];
    carry = carry + total;
    // every work-group publishes its tile's total, then waits for those of the previous tiles
    if (lane_id == 0) workspace[row * 3 + tile] = carry;
    release_to_device();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (id == 0) {
      set_flag(counters + flags + tile);
      missing[0] = own;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int part = id; part < own; part += 64) {
      if (is_set(counters + flags + part, tile == own ? 1024 : 1)) continue;
      atomic_min(missing, part);
      break;
    }
    acquire_from_device();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const int next = missing[0];
    if (tile != own || next != own) {
      tile = next;
      continue;
    }
    int is_last = 0;  // the work-item with the fewest totals to read finds out
    if (id == 63) is_last = last_to_arrive(counters + (int)get_group_id(0), 2);
    carry = 0.0f;
    for (int part = lane_id; part < own; part += 64) {
      const float other = workspace[row * 3 + part];
      carry = carry + other;
    }
    if (id == 63) takes_down[0] = is_last;
    totals[slot] = carry;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int half_way = 32; half_way > 0; half_way /= 2) {
      if (lane_id < half_way) {
        const float other = totals[slot + half_way];
        carry = carry + other;
        totals[slot] = carry;
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    carry = totals[0];
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
      acquire_from_device();
      #pragma unroll 1
      for (int part = id; part < 3; part += 64) atomic_xchg(counters + flags + part, 0);
    }
    break;
  }
}
