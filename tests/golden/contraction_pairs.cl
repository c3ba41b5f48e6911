// window of bytes
// problem   batch=1 m=72 n=40 k=108 a_by_depth=1 a_wide=4 b_by_depth=0 b_wide=4 a_copied=1 b_copied=1 out_wide=4 acc_bytes=4 exact_f32=0 inputs=2 dot=2
// schedule  stages=2 asynchronous=0 fragments=1 slices=1 splits=1 lanes=1 tile_m=32 tile_n=32 tile_k=8 reg_m=8 reg_n=8
// engine    contraction/simt_pairs

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
float dot2(uint a, uint b, float c) {
  return __builtin_amdgcn_fdot2(as_half2(a), as_half2(b), c, false);
}

__kernel __attribute__((reqd_work_group_size(16, 1, 1))) void k0(
    __global const uint* restrict x0,
    __global const uint* restrict x1,
    __global float* restrict x2) {
  __local uint tile_a[2][8][36];
  __local uint tile_b[2][8][32];

  // the position of this work-item in the tile of the result, and that of the tile
  const int id = (int)get_local_id(0);
  const int my_row = id / 4, my_column = id % 4;
  const int tile = (int)get_group_id(0);
  const int first_column = (tile % 2) * 32;
  const int first_row = (tile / 2) * 32;

  // the sources of its parts of the tiles
  const int a_fast = id % 2, a_slow = id / 2;
  int a_at0[4];
  int a_at1[4];
  int a_at2[4];
  #pragma unroll
  for (int a_i = 0; a_i < 4; ++a_i) {
    int a_row = first_row + a_slow + a_i * 8;
    if (a_row > 71) a_row = 71;
    const int as1 = a_row / 8 - 1;
    const int as3 = a_row % 8 - 1;
    const int as5 = a_row * 12 - 108;
    a_at0[a_i] = as1;
    a_at1[a_i] = as3;
    a_at2[a_i] = as5;
  }

  const int b_fast = id % 8, b_slow = id / 8;
  int b_column = first_column + b_fast * 4;
  if (b_column > 36) b_column = 36;

  // its sums
  float acc[8][8];
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    #pragma unroll
    for (int j = 0; j < 8; ++j) acc[i][j] = 0.0f;
  }

  // the first tile, through registers
  uint a_next[4][4];
  uint b_next[4][4];
  const int a_depth = a_fast * 4;
  const int a_depth_chunk = a_depth / 4;
  const bool ad0 = a_depth < 108;
  const int ad1 = a_depth_chunk / 9;
  const int ad3 = a_depth_chunk / 3 % 3;
  const int ad9 = ad1 * 96 + ad3 * 12 + a_depth_chunk % 3 * 4;
  #pragma unroll
  for (int a_i = 0; a_i < 4; ++a_i) {
    const int ae1 = a_at0[a_i] + ad1;
    const int ae5 = a_at1[a_i] + ad3;
    vstore4(ad0 && (0 <= ae1 && ae1 < 9 && 0 <= ae5 && ae5 < 8) ? vload4(0, x0 + a_at2[a_i] + ad9) : (uint4)(0), 0, a_next[a_i]);
  }
  #pragma unroll
  for (int b_t = 0; b_t < 4; ++b_t) {
    const int b_depth = b_slow + b_t * 2;
    const bool bd0 = b_depth < 108;
    const int bd1 = b_depth * 40;
    vstore4(bd0 ? vload4(0, x1 + b_column + bd1) : (uint4)(0), 0, b_next[b_t]);
  }
  #pragma unroll
  for (int a_i = 0; a_i < 4; ++a_i) {
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) tile_a[0][a_fast * 4 + lane][a_slow + a_i * 8] = a_next[a_i][lane];
  }
  #pragma unroll
  for (int b_t = 0; b_t < 4; ++b_t) {
    vstore4(vload4(0, b_next[b_t]), 0, &tile_b[0][b_slow + b_t * 2][b_fast * 4]);
  }

  int now = 0;
  for (int depth = 0; depth < 112; depth += 8) {
    barrier(CLK_LOCAL_MEM_FENCE);

    // load the next tile into registers while this one is multiplied
    const int following = depth + 8;
    if (following < 112) {
      const int a_depth = following + a_fast * 4;
      const int a_depth_chunk = a_depth / 4;
      const bool ad0 = a_depth < 108;
      const int ad1 = a_depth_chunk / 9;
      const int ad3 = a_depth_chunk / 3 % 3;
      const int ad9 = ad1 * 96 + ad3 * 12 + a_depth_chunk % 3 * 4;
      #pragma unroll
      for (int a_i = 0; a_i < 4; ++a_i) {
        const int ae1 = a_at0[a_i] + ad1;
        const int ae5 = a_at1[a_i] + ad3;
        vstore4(ad0 && (0 <= ae1 && ae1 < 9 && 0 <= ae5 && ae5 < 8) ? vload4(0, x0 + a_at2[a_i] + ad9) : (uint4)(0), 0, a_next[a_i]);
      }
      #pragma unroll
      for (int b_t = 0; b_t < 4; ++b_t) {
        const int b_depth = following + b_slow + b_t * 2;
        const bool bd0 = b_depth < 108;
        const int bd1 = b_depth * 40;
        vstore4(bd0 ? vload4(0, x1 + b_column + bd1) : (uint4)(0), 0, b_next[b_t]);
      }
    }

    // add the products of this tile to the sums
    uint a_part[8];
    uint b_part[8];
    #pragma unroll 4
    for (int k = 0; k < 8; ++k) {
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        vstore4(vload4(0, &tile_a[now][k][i * 16 + my_row * 4]), 0, a_part + i * 4);
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        vstore4(vload4(0, &tile_b[now][k][i * 16 + my_column * 4]), 0, b_part + i * 4);
      }
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) acc[i][j] = dot2(a_part[i], b_part[j], acc[i][j]);
      }
    }

    // move the next one to shared memory
    now ^= 1;
    if (following < 112) {
      #pragma unroll
      for (int a_i = 0; a_i < 4; ++a_i) {
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) tile_a[now][a_fast * 4 + lane][a_slow + a_i * 8] = a_next[a_i][lane];
      }
      #pragma unroll
      for (int b_t = 0; b_t < 4; ++b_t) {
        vstore4(vload4(0, b_next[b_t]), 0, &tile_b[now][b_slow + b_t * 2][b_fast * 4]);
      }
    }
  }

  // store the sums
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = first_row + (i / 4) * 16 + my_row * 4 + i % 4;
    if (row < 72) {
      const int r0 = row * 40;
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = first_column + j * 16 + my_column * 4;
        if (column < 40) {
          float ew0[4];
          #pragma unroll
          for (int lane = 0; lane < 4; ++lane) {
            ew0[lane] = acc[i][j * 4 + lane];
          }
          vstore4(vload4(0, ew0), 0, x2 + r0 + column);
        }
      }
    }
  }
}
