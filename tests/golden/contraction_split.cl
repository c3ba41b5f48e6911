// matmul 20x36x100
// problem   batch=1 m=20 n=36 k=100 a_by_depth=1 a_wide=4 b_by_depth=0 b_wide=4 out_wide=4 acc_bytes=4
// schedule  tile_m=16 tile_n=32 tile_k=8 reg_m=2 reg_n=4 stages=2 splits=4 lanes=1
// template  contraction/simt.j2

bool last_to_arrive(volatile __global uint* counter, uint last) {
  if (atomic_inc(counter) != last) return false;
  atomic_xchg(counter, 0);
  return true;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global const float* restrict x2,
    __global float* restrict x3,
    __global float* restrict x4,
    volatile __global float* workspace,
    __global uint* restrict counters) {

  __local float tile_a[2][8][20];
  __local float tile_b[2][8][32];
  __local int is_last[1];

  const int id = (int)get_local_id(0);
  const int my_row = id / 8, my_column = id % 8;
  const int tile = (int)get_group_id(0);
  const int first_column = (tile % 2) * 32;
  const int first_row = (tile / 2 % 2) * 16;
  const int batch = tile / 4;

  const int a_fast = id % 2;
  const int a_slow = id / 2;
  int a_span = first_row + a_slow;
  if (a_span > 19) a_span = 19;
  const int as0 = a_span * 100;

  const int b_fast = id % 8;
  const int b_slow = id / 8;
  int b_span = first_column / 4 + b_fast;
  if (b_span > 8) b_span = 8;
  const int bs0 = b_span * 4;

  float acc[2][4];
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] = 0.0f;
  }

  const int depth_begin = (int)get_group_id(1) * 32;
  const int depth_end = depth_begin + 32 < 104 ? depth_begin + 32 : 104;
  float a_next[1][1][4];
  float b_next[1][1][4];
  if (depth_begin < depth_end) {
    #pragma unroll
    for (int a_t = 0; a_t < 1; ++a_t) {
      const int a_depth = depth_begin / 4 + a_fast + a_t * 2;
      const bool ad0 = a_depth < 25;
      const int ad1 = a_depth * 4;
      #pragma unroll
      for (int a_i = 0; a_i < 1; ++a_i) {
        if (a_slow + a_i * 32 < 16) {
        const int ae0 = as0 + ad1;
        float aev0[4] = {0};
        if (ad0) {
          vstore4(vload4(0, x0 + ae0), 0, aev0);
        }
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float ae1 = ad0 ? aev0[lane] : 0.0f;
          a_next[a_t][a_i][lane] = ae1;
        }
        }
      }
    }
    #pragma unroll
    for (int b_t = 0; b_t < 1; ++b_t) {
      const int b_depth = depth_begin + b_slow + b_t * 8;
      const bool bd0 = b_depth < 100;
      const int bd1 = b_depth * 36;
      #pragma unroll
      for (int b_i = 0; b_i < 1; ++b_i) {
        const int be0 = bs0 + bd1;
        float bev0[4] = {0};
        if (bd0) {
          vstore4(vload4(0, x1 + be0), 0, bev0);
        }
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float be1 = bd0 ? bev0[lane] : 0.0f;
          b_next[b_t][b_i][lane] = be1;
        }
      }
    }
    #pragma unroll
    for (int a_t = 0; a_t < 1; ++a_t) {
      #pragma unroll
      for (int a_i = 0; a_i < 1; ++a_i) {
        if (a_slow + a_i * 32 < 16) {
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) tile_a[0][(a_fast + a_t * 2) * 4 + lane][a_slow + a_i * 32] = a_next[a_t][a_i][lane];
        }
      }
    }
    #pragma unroll
    for (int b_t = 0; b_t < 1; ++b_t) {
      #pragma unroll
      for (int b_i = 0; b_i < 1; ++b_i) {
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) tile_b[0][b_slow + b_t * 8][(b_fast + b_i * 8) * 4 + lane] = b_next[b_t][b_i][lane];
      }
    }
  }
  int now = 0;
  for (int depth0 = depth_begin; depth0 < depth_end; depth0 += 8) {
    barrier(CLK_LOCAL_MEM_FENCE);
    const int following = depth0 + 8;
    if (following < depth_end) {
    #pragma unroll
    for (int a_t = 0; a_t < 1; ++a_t) {
      const int a_depth = following / 4 + a_fast + a_t * 2;
      const bool ad0 = a_depth < 25;
      const int ad1 = a_depth * 4;
      #pragma unroll
      for (int a_i = 0; a_i < 1; ++a_i) {
        if (a_slow + a_i * 32 < 16) {
        const int ae0 = as0 + ad1;
        float aev0[4] = {0};
        if (ad0) {
          vstore4(vload4(0, x0 + ae0), 0, aev0);
        }
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float ae1 = ad0 ? aev0[lane] : 0.0f;
          a_next[a_t][a_i][lane] = ae1;
        }
        }
      }
    }
    #pragma unroll
    for (int b_t = 0; b_t < 1; ++b_t) {
      const int b_depth = following + b_slow + b_t * 8;
      const bool bd0 = b_depth < 100;
      const int bd1 = b_depth * 36;
      #pragma unroll
      for (int b_i = 0; b_i < 1; ++b_i) {
        const int be0 = bs0 + bd1;
        float bev0[4] = {0};
        if (bd0) {
          vstore4(vload4(0, x1 + be0), 0, bev0);
        }
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float be1 = bd0 ? bev0[lane] : 0.0f;
          b_next[b_t][b_i][lane] = be1;
        }
      }
    }
    }
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
      float a_part[2];
      float b_part[4];
      #pragma unroll
      for (int i = 0; i < 2; ++i) a_part[i] = tile_a[now][k][i / 2 * 16 + my_row * 2 + i % 2];
      #pragma unroll
      for (int j = 0; j < 4; ++j) b_part[j] = tile_b[now][k][j / 4 * 32 + my_column * 4 + j % 4];
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] += a_part[i] * b_part[j];
      }
    }
    now ^= 1;
    if (following < depth_end) {
    #pragma unroll
    for (int a_t = 0; a_t < 1; ++a_t) {
      #pragma unroll
      for (int a_i = 0; a_i < 1; ++a_i) {
        if (a_slow + a_i * 32 < 16) {
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) tile_a[now][(a_fast + a_t * 2) * 4 + lane][a_slow + a_i * 32] = a_next[a_t][a_i][lane];
        }
      }
    }
    #pragma unroll
    for (int b_t = 0; b_t < 1; ++b_t) {
      #pragma unroll
      for (int b_i = 0; b_i < 1; ++b_i) {
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) tile_b[now][b_slow + b_t * 8][(b_fast + b_i * 8) * 4 + lane] = b_next[b_t][b_i][lane];
      }
    }
    }
  }

  // every work-group leaves its sums; the last to arrive adds them up, first split first
  volatile __global float* partial = workspace + tile * 2048;
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) partial[(int)get_group_id(1) * 512 + (i * 4 + j) * 64 + id] = acc[i][j];
  }
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (id == 0) is_last[0] = last_to_arrive(counters + tile, 3);
  barrier(CLK_LOCAL_MEM_FENCE);
  if (!is_last[0]) return;
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      float total = 0.0f;
      for (int part = 0; part < 4; ++part) total += partial[part * 512 + (i * 4 + j) * 64 + id];
      acc[i][j] = total;
    }
  }

  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + i / 2 * 16 + my_row * 2 + i % 2;
    if (row < 20) {
      const int r0 = row * 36;
      #pragma unroll
      for (int j = 0; j < 4; j += 4) {
        const int col = (first_column + j / 4 * 32 + my_column * 4 + j % 4) / 4;
        if (col < 9) {
          float sums[4];
          #pragma unroll
          for (int lane = 0; lane < 4; ++lane) sums[lane] = acc[i][j + lane];
          const int e1 = r0 + col * 4;
          float ev0[4];
          vstore4(vload4(0, x2 + col * 4), 0, ev0);
          float ew0[4];
          float ew1[4];
          #pragma unroll
          for (int lane = 0; lane < 4; ++lane) {
            const float e2 = sums[lane] + ev0[lane];
            const float e3 = e2 < 0.0f ? 0.0f : e2;
            const float e4 = e3 + e3;
            ew0[lane] = e3;
            ew1[lane] = e4;
          }
          vstore4(vload4(0, ew0), 0, x3 + e1);
          vstore4(vload4(0, ew1), 0, x4 + e1);
        }
      }
    }
  }
}
