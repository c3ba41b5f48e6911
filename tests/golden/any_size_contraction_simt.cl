// conv 3x3 8->12
// problem   batch=1 m=264 n=12 k=72 a_by_depth=1 a_wide=4 b_by_depth=0 b_wide=4 a_copied=1 b_copied=1 out_wide=4 acc_bytes=4 exact_f32=1 inputs=4 dot=1  (an example: each run decides its sizes)
// schedule  tile_m=16 tile_n=16 tile_k=16 reg_m=2 reg_n=2 stages=2 asynchronous=0 fragments=1 slices=1 splits=1 lanes=1
// engine    contraction/simt

int over_size(int a, uint magic, int shift) {
  return (int)((ulong)(uint)a * magic >> shift);
}

int modulo_size(int a, int size, uint magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void kernel0(
    __global const float* restrict x0,
    __global const float* restrict x1,
    __global const float* restrict x2,
    __global const float* restrict x3,
    __global float* restrict x4,
    long run_size0, long run_magic0, long run_shift0, long run_size1, long run_size2) {
  const int size0 = (int)run_size0;
  const uint magic0 = (uint)run_magic0;
  const int shift0 = (int)run_shift0;
  const int size1 = (int)run_size1;
  const int size2 = (int)run_size2;

  __local float tile_a[2][16][20];
  __local float tile_b[2][16][16];

  // the position of this work-item in the tile of the result, and that of the tile
  const int id = (int)get_local_id(0);
  const int my_row = id / 8, my_column = id % 8;
  const int tile = (int)get_group_id(0);
  const int first_row = tile * 16;

  // the sources of its parts of the tiles
  const int a_fast = id % 4, a_slow = id / 4;
  int a_row = first_row + a_slow;
  if (a_row > size2) a_row = size2;
  const int as2 = modulo_size(a_row / 11, size0, magic0, shift0) - 1;
  const int as4 = a_row % 11 - 1;
  const int as6 = a_row * 8 - 96;

  const int b_fast = id % 4, b_slow = id / 4;
  int b_column = b_fast * 4;
  if (b_column > 8) b_column = 8;

  // its sums
  float acc[2][2];
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 2; ++j) acc[i][j] = 0.0f;
  }

  // the first tile, through registers
  float a_next[4];
  float b_next[4];
  const int a_depth = a_fast * 4;
  const int a_depth_chunk = a_depth / 4;
  const bool ad0 = a_depth < 72;
  const int ad1 = a_depth_chunk / 6;
  const int ad3 = a_depth_chunk / 2 % 3;
  const int ad9 = ad1 * 88 + ad3 * 8 + a_depth_chunk % 2 * 4;
  const int ae1 = as2 + ad1;
  const int ae5 = as4 + ad3;
  vstore4(ad0 && (0 <= ae1 && ae1 < size0 && 0 <= ae5 && ae5 < 11) ? vload4(0, x0 + as6 + ad9) : (float4)(0), 0, a_next);
  const int b_depth = b_slow;
  const bool bd0 = b_depth < 72;
  const int bd1 = b_depth * 12;
  vstore4(bd0 ? vload4(0, x1 + b_column + bd1) : (float4)(0), 0, b_next);
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) tile_a[0][a_fast * 4 + lane][a_slow] = a_next[lane];
  vstore4(vload4(0, b_next), 0, &tile_b[0][b_slow][b_fast * 4]);

  int now = 0;
  for (int depth = 0; depth < 80; depth += 16) {
    barrier(CLK_LOCAL_MEM_FENCE);

    // load the next tile into registers while this one is multiplied
    const int following = depth + 16;
    if (following < 80) {
      const int a_depth = following + a_fast * 4;
      const int a_depth_chunk = a_depth / 4;
      const bool ad0 = a_depth < 72;
      const int ad1 = a_depth_chunk / 6;
      const int ad3 = a_depth_chunk / 2 % 3;
      const int ad9 = ad1 * 88 + ad3 * 8 + a_depth_chunk % 2 * 4;
      const int ae1 = as2 + ad1;
      const int ae5 = as4 + ad3;
      vstore4(ad0 && (0 <= ae1 && ae1 < size0 && 0 <= ae5 && ae5 < 11) ? vload4(0, x0 + as6 + ad9) : (float4)(0), 0, a_next);
      const int b_depth = following + b_slow;
      const bool bd0 = b_depth < 72;
      const int bd1 = b_depth * 12;
      vstore4(bd0 ? vload4(0, x1 + b_column + bd1) : (float4)(0), 0, b_next);
    }

    // add the products of this tile to the sums
    float a_part[2];
    float b_part[2];
    #pragma unroll
    for (int k = 0; k < 16; ++k) {
      vstore2(vload2(0, &tile_a[now][k][my_row * 2]), 0, a_part);
      vstore2(vload2(0, &tile_b[now][k][my_column * 2]), 0, b_part);
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) acc[i][j] += a_part[i] * b_part[j];
      }
    }

    // move the next one to shared memory
    now ^= 1;
    if (following < 80) {
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) tile_a[now][a_fast * 4 + lane][a_slow] = a_next[lane];
      vstore4(vload4(0, b_next), 0, &tile_b[now][b_slow][b_fast * 4]);
    }
  }

  // store the sums
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + my_row * 2 + i;
    if (row < size1) {
      const int r0 = row * 12;
      const int column = my_column * 2;
      if (column < 12) {
        float ev0[2];
        vstore2(vload2(0, x3 + r0 + column), 0, ev0);
        float ev1[2];
        vstore2(vload2(0, x2 + column), 0, ev1);
        float ew0[2];
        #pragma unroll
        for (int lane = 0; lane < 2; ++lane) {
          const float e1 = acc[i][lane] + ev1[lane];
          const float e2 = e1 + ev0[lane];
          const float e3 = e2 < 0.0f ? 0.0f : e2;
          ew0[lane] = e3;
        }
        vstore2(vload2(0, ew0), 0, x4 + r0 + column);
      }
    }
  }
}
