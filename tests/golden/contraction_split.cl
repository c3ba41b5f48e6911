// matmul 20x36x100
// problem   batch=1 m=20 n=36 k=100 a_by_depth=1 a_wide=4 b_by_depth=0 b_wide=4 a_copied=1 b_copied=1 out_wide=4 acc_bytes=4 exact_f32=1 inputs=3 dot=1
// schedule  stages=2 asynchronous=0 fragments=1 slices=1 splits=4 lanes=1 tile_m=16 tile_n=32 tile_k=8 reg_m=2 reg_n=4
// engine    contraction/simt

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

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global const float* restrict x2,
    __global float* restrict x3,
    __global float* restrict x4,
    __global float* workspace,
    __global uint* restrict counters) {
  __local float tile_a[2][8][20];
  __local float tile_b[2][8][32];
  __local int is_last[1];

  // the position of this work-item in the tile of the result, and that of the tile
  const int id = (int)get_local_id(0);
  const int my_row = id / 8, my_column = id % 8;
  const int tile = (int)get_group_id(0);
  const int first_column = (tile % 2) * 32;
  const int first_row = (tile / 2) * 16;

  // the sources of its parts of the tiles
  const int a_fast = id % 2, a_slow = id / 2;
  int a_row = first_row + a_slow;
  if (a_row > 19) a_row = 19;
  const int as0 = a_row * 100;

  const int b_fast = id % 8, b_slow = id / 8;
  int b_column = first_column + b_fast * 4;
  if (b_column > 32) b_column = 32;

  // its sums
  float acc[2][4];
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] = 0.0f;
  }

  // the part of the depth of this work-group
  const int depth_begin = (int)get_group_id(1) * 32;
  const int depth_end = depth_begin + 32 < 104 ? depth_begin + 32 : 104;

  // the first tile, through registers
  float a_next[4];
  float b_next[4];
  if (depth_begin < depth_end) {
    const int a_depth = depth_begin + a_fast * 4;
    const bool ad0 = a_depth < 100;
    if (a_slow < 16) {
      vstore4(ad0 ? vload4(0, x0 + as0 + a_depth) : (float4)(0), 0, a_next);
    }
    const int b_depth = depth_begin + b_slow;
    const bool bd0 = b_depth < 100;
    const int bd1 = b_depth * 36;
    vstore4(bd0 ? vload4(0, x1 + b_column + bd1) : (float4)(0), 0, b_next);
    if (a_slow < 16) {
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) tile_a[0][a_fast * 4 + lane][a_slow] = a_next[lane];
    }
    vstore4(vload4(0, b_next), 0, &tile_b[0][b_slow][b_fast * 4]);
  }

  int now = 0;
  for (int depth = depth_begin; depth < depth_end; depth += 8) {
    barrier(CLK_LOCAL_MEM_FENCE);

    // load the next tile into registers while this one is multiplied
    const int following = depth + 8;
    if (following < depth_end) {
      const int a_depth = following + a_fast * 4;
      const bool ad0 = a_depth < 100;
      if (a_slow < 16) {
        vstore4(ad0 ? vload4(0, x0 + as0 + a_depth) : (float4)(0), 0, a_next);
      }
      const int b_depth = following + b_slow;
      const bool bd0 = b_depth < 100;
      const int bd1 = b_depth * 36;
      vstore4(bd0 ? vload4(0, x1 + b_column + bd1) : (float4)(0), 0, b_next);
    }

    // add the products of this tile to the sums
    float a_part[2];
    float b_part[4];
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
      vstore2(vload2(0, &tile_a[now][k][my_row * 2]), 0, a_part);
      vstore4(vload4(0, &tile_b[now][k][my_column * 4]), 0, b_part);
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] += a_part[i] * b_part[j];
      }
    }

    // move the next one to shared memory
    now ^= 1;
    if (following < depth_end) {
      if (a_slow < 16) {
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) tile_a[now][a_fast * 4 + lane][a_slow] = a_next[lane];
      }
      vstore4(vload4(0, b_next), 0, &tile_b[now][b_slow][b_fast * 4]);
    }
  }

  // every work-group stores its sums; the last to arrive adds them in the order of splits
  __global float* partial = workspace + tile * 2048;
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    vstore4(vload4(0, acc[i]), 0, partial + (int)get_group_id(1) * 512 + (i * 64 + id) * 4);
  }
  release_to_device();
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (id == 0) is_last[0] = last_to_arrive(counters + tile, 3);
  barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  if (!is_last[0]) return;
  acquire_from_device();
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] = 0.0f;
  }
  #pragma unroll 1
  for (int part = 0; part < 4; ++part) {
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      float left[4];
      vstore4(vload4(0, partial + part * 512 + (i * 64 + id) * 4), 0, left);
      #pragma unroll
      for (int r = 0; r < 4; ++r) acc[i][r] += left[r];
    }
  }

  // store the sums
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + my_row * 2 + i;
    if (row < 20) {
      const int r0 = row * 36;
      const int column = first_column + my_column * 4;
      if (column < 36) {
        const int e0 = r0 + column;
        float ev0[4];
        vstore4(vload4(0, x2 + column), 0, ev0);
        float ew0[4];
        float ew1[4];
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float e1 = acc[i][lane] + ev0[lane];
          const float e2 = e1 < 0.0f ? 0.0f : e1;
          const float e3 = e2 + e2;
          ew0[lane] = e2;
          ew1[lane] = e3;
        }
        vstore4(vload4(0, ew0), 0, x3 + e0);
        vstore4(vload4(0, ew1), 0, x4 + e0);
      }
    }
  }
}
