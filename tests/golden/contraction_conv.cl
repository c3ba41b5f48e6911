// conv 3x3 16->32
// problem   batch=1 m=81 n=32 k=144 a_by_depth=1 a_wide=4 b_by_depth=0 b_wide=4 a_copied=1 b_copied=1 out_wide=4 acc_bytes=4 exact_f32=1 inputs=4 dot=1
// schedule  stages=1 asynchronous=0 fragments=1 slices=1 splits=1 lanes=1 tile_m=32 tile_n=32 tile_k=16 reg_m=4 reg_n=4
// engine    contraction/simt

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global const float* restrict x2,
    __global const float* restrict x3,
    __global float* restrict x4) {
  __local float tile_a[16][36];
  __local float tile_b[16][32];

  // the position of this work-item in the tile of the result, and that of the tile
  const int id = (int)get_local_id(0);
  const int my_row = id / 8, my_column = id % 8;
  const int tile = (int)get_group_id(0);
  const int first_row = tile * 32;

  // the sources of its parts of the tiles
  const int a_fast = id % 4, a_slow = id / 4;
  int a_at0[2];
  int a_at1[2];
  int a_at2[2];
  #pragma unroll
  for (int a_i = 0; a_i < 2; ++a_i) {
    int a_row = first_row + a_slow + a_i * 16;
    if (a_row > 80) a_row = 80;
    const int as1 = a_row / 9 - 1;
    const int as3 = a_row % 9 - 1;
    const int as5 = a_row * 16 - 160;
    a_at0[a_i] = as1;
    a_at1[a_i] = as3;
    a_at2[a_i] = as5;
  }

  const int b_fast = id % 8, b_slow = id / 8;
  const int b_column = b_fast * 4;

  // its sums
  float acc[4][4];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) acc[i][j] = 0.0f;
  }

  for (int depth = 0; depth < 144; depth += 16) {
    // the previous tile is free: the next one replaces it
    barrier(CLK_LOCAL_MEM_FENCE);
    const int a_depth = depth + a_fast * 4;
    const int a_depth_chunk = a_depth / 4;
    const int ad0 = a_depth_chunk / 12;
    const int ad2 = a_depth_chunk / 4 % 3;
    const int ad8 = ad0 * 144 + ad2 * 16 + a_depth_chunk % 4 * 4;
    #pragma unroll
    for (int a_i = 0; a_i < 2; ++a_i) {
      const int ae0 = a_at0[a_i] + ad0;
      const int ae4 = a_at1[a_i] + ad2;
      const bool ae8 = 0 <= ae0 && ae0 < 9 && 0 <= ae4 && ae4 < 9;
      const int ae9 = a_at2[a_i] + ad8;
      float aev0[4];
      vstore4(ae8 ? vload4(0, x0 + ae9) : (float4)(0), 0, aev0);
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        tile_a[a_fast * 4 + lane][a_slow + a_i * 16] = aev0[lane];
      }
    }
    #pragma unroll
    for (int b_t = 0; b_t < 2; ++b_t) {
      const int b_depth = depth + b_slow + b_t * 8;
      const int bd0 = b_depth * 32;
      vstore4(vload4(0, x1 + b_column + bd0), 0, &tile_b[b_slow + b_t * 8][b_fast * 4]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    // add its products to the sums
    float a_part[4];
    float b_part[4];
    #pragma unroll
    for (int k = 0; k < 16; ++k) {
      vstore4(vload4(0, &tile_a[k][my_row * 4]), 0, a_part);
      vstore4(vload4(0, &tile_b[k][my_column * 4]), 0, b_part);
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] += a_part[i] * b_part[j];
      }
    }
  }

  // store the sums
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = first_row + my_row * 4 + i;
    if (row < 81) {
      const int r0 = row * 32;
      const int column = my_column * 4;
      float ev0[4];
      vstore4(vload4(0, x3 + r0 + column), 0, ev0);
      float ev1[4];
      vstore4(vload4(0, x2 + column), 0, ev1);
      float ew0[4];
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const float e1 = acc[i][lane] + ev1[lane];
        const float e2 = e1 + ev0[lane];
        const float e3 = e2 < 0.0f ? 0.0f : e2;
        ew0[lane] = e3;
      }
      vstore4(vload4(0, ew0), 0, x4 + r0 + column);
    }
  }
}
