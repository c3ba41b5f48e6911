// conv of bytes
// problem   batch=1 m=20 n=12 k=36 a_by_depth=1 a_wide=4 b_by_depth=0 b_wide=4 a_copied=0 b_copied=0 out_wide=4 acc_bytes=4 exact_f32=0 inputs=2 dot=4
// schedule  stages=2 asynchronous=0 fragments=1 slices=1 splits=1 lanes=1 tile_m=16 tile_n=8 tile_k=8 reg_m=2 reg_n=2
// engine    contraction/simt

extern "C" __global__ void __launch_bounds__(32) kernel0(
    const int* __restrict__ x0,
    const signed char* __restrict__ x1,
    int* __restrict__ x2) {
  __shared__ __align__(16) int tile_a[2][8][20];
  __shared__ __align__(16) int tile_b[2][8][8];

  // the position of this thread in the tile of the result, and that of the tile
  const int id = (int)threadIdx.x;
  const int my_row = id / 4, my_column = id % 4;
  const int tile = (int)blockIdx.x;
  const int first_column = (tile % 2) * 8;
  const int first_row = (tile / 2) * 16;

  // the sources of its parts of the tiles
  const int a_fast = id % 2, a_slow = id / 2;
  int a_row = first_row + a_slow;
  if (a_row > 19) a_row = 19;
  const int as1 = a_row / 4 - 1;
  const int as3 = a_row % 4 - 1;
  const int as5 = a_row * 4 - 20;

  const int b_fast = id % 2, b_slow = id / 2;
  int b_column = first_column + b_fast * 4;
  if (b_column > 8) b_column = 8;
  const int bs0 = b_column + 12;
  const int bs1 = b_column + 24;
  const int bs2 = b_column + 36;

  // its sums
  int acc[2][2];
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 2; ++j) acc[i][j] = 0;
  }

  // the first tile, through registers
  __align__(16) int a_next[4];
  __align__(16) int b_next[4];
  const int a_depth = a_fast * 4;
  const int a_depth_chunk = a_depth / 4;
  const bool ad0 = a_depth < 36;
  const int ad1 = a_depth_chunk / 3;
  const int ad2 = a_depth_chunk % 3;
  const int ad5 = ad1 * 16 + ad2 * 4;
  const int ae0 = as1 + ad1;
  const int ae4 = as3 + ad2;
  const bool ae8 = 0 <= ae0 && ae0 < 5 && 0 <= ae4 && ae4 < 4;
  const int ae9 = as5 + ad5;
  __align__(16) int aev0[4];
  *reinterpret_cast<uint4*>(aev0) = ad0 && ae8 ? *reinterpret_cast<const uint4*>(x0 + ae9) : make_uint4(0u, 0u, 0u, 0u);
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    a_next[lane] = ad0 ? (ae8 ? aev0[lane] : (-134744073)) : 0;
  }
  const int b_depth = b_slow;
  const bool bd0 = b_depth < 36;
  const int bd1 = b_depth * 48;
  if (b_slow < 8) {
    const int be0 = b_column + bd1;
    const int be1 = bs0 + bd1;
    const int be2 = bs1 + bd1;
    const int be3 = bs2 + bd1;
    __align__(16) signed char bev0[4];
    *reinterpret_cast<unsigned int*>(bev0) = bd0 ? *reinterpret_cast<const unsigned int*>(x1 + be3) : 0;
    __align__(16) signed char bev1[4];
    *reinterpret_cast<unsigned int*>(bev1) = bd0 ? *reinterpret_cast<const unsigned int*>(x1 + be2) : 0;
    __align__(16) signed char bev2[4];
    *reinterpret_cast<unsigned int*>(bev2) = bd0 ? *reinterpret_cast<const unsigned int*>(x1 + be1) : 0;
    __align__(16) signed char bev3[4];
    *reinterpret_cast<unsigned int*>(bev3) = bd0 ? *reinterpret_cast<const unsigned int*>(x1 + be0) : 0;
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      const int be19 = bd0 ? (int)((unsigned int)(unsigned char)bev3[lane] + (unsigned int)(unsigned char)bev2[lane] * 256U + (unsigned int)(unsigned char)bev1[lane] * 65536U + (unsigned int)(unsigned char)bev0[lane] * 16777216U) : 0;
      b_next[lane] = be19;
    }
  }
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) tile_a[0][a_fast * 4 + lane][a_slow] = a_next[lane];
  if (b_slow < 8) {
    *reinterpret_cast<uint4*>(&tile_b[0][b_slow][b_fast * 4]) = *reinterpret_cast<const uint4*>(b_next);
  }

  int now = 0;
  for (int depth = 0; depth < 40; depth += 8) {
    __syncthreads();

    // load the next tile into registers while this one is multiplied
    const int following = depth + 8;
    if (following < 40) {
      const int a_depth = following + a_fast * 4;
      const int a_depth_chunk = a_depth / 4;
      const bool ad0 = a_depth < 36;
      const int ad1 = a_depth_chunk / 3;
      const int ad2 = a_depth_chunk % 3;
      const int ad5 = ad1 * 16 + ad2 * 4;
      const int ae0 = as1 + ad1;
      const int ae4 = as3 + ad2;
      const bool ae8 = 0 <= ae0 && ae0 < 5 && 0 <= ae4 && ae4 < 4;
      const int ae9 = as5 + ad5;
      __align__(16) int aev0[4];
      *reinterpret_cast<uint4*>(aev0) = ad0 && ae8 ? *reinterpret_cast<const uint4*>(x0 + ae9) : make_uint4(0u, 0u, 0u, 0u);
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        a_next[lane] = ad0 ? (ae8 ? aev0[lane] : (-134744073)) : 0;
      }
      const int b_depth = following + b_slow;
      const bool bd0 = b_depth < 36;
      const int bd1 = b_depth * 48;
      if (b_slow < 8) {
        const int be0 = b_column + bd1;
        const int be1 = bs0 + bd1;
        const int be2 = bs1 + bd1;
        const int be3 = bs2 + bd1;
        __align__(16) signed char bev0[4];
        *reinterpret_cast<unsigned int*>(bev0) = bd0 ? *reinterpret_cast<const unsigned int*>(x1 + be3) : 0;
        __align__(16) signed char bev1[4];
        *reinterpret_cast<unsigned int*>(bev1) = bd0 ? *reinterpret_cast<const unsigned int*>(x1 + be2) : 0;
        __align__(16) signed char bev2[4];
        *reinterpret_cast<unsigned int*>(bev2) = bd0 ? *reinterpret_cast<const unsigned int*>(x1 + be1) : 0;
        __align__(16) signed char bev3[4];
        *reinterpret_cast<unsigned int*>(bev3) = bd0 ? *reinterpret_cast<const unsigned int*>(x1 + be0) : 0;
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const int be19 = bd0 ? (int)((unsigned int)(unsigned char)bev3[lane] + (unsigned int)(unsigned char)bev2[lane] * 256U + (unsigned int)(unsigned char)bev1[lane] * 65536U + (unsigned int)(unsigned char)bev0[lane] * 16777216U) : 0;
          b_next[lane] = be19;
        }
      }
    }

    // add the products of this tile to the sums
    __align__(16) int a_part[2];
    __align__(16) int b_part[2];
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
      *reinterpret_cast<uint2*>(a_part) = *reinterpret_cast<const uint2*>(&tile_a[now][k][my_row * 2]);
      *reinterpret_cast<uint2*>(b_part) = *reinterpret_cast<const uint2*>(&tile_b[now][k][my_column * 2]);
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) acc[i][j] = gc_dot4<true, true>(a_part[i], b_part[j], acc[i][j]);
      }
    }

    // move the next one to shared memory
    now ^= 1;
    if (following < 40) {
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) tile_a[now][a_fast * 4 + lane][a_slow] = a_next[lane];
      if (b_slow < 8) {
        *reinterpret_cast<uint4*>(&tile_b[now][b_slow][b_fast * 4]) = *reinterpret_cast<const uint4*>(b_next);
      }
    }
  }

  // store the sums
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + my_row * 2 + i;
    if (row < 20) {
      const int r0 = row * 12;
      const int column = first_column + my_column * 2;
      if (column < 12) {
        __align__(16) int ew0[2];
        #pragma unroll
        for (int lane = 0; lane < 2; ++lane) {
          ew0[lane] = acc[i][lane];
        }
        *reinterpret_cast<uint2*>(x2 + r0 + column) = *reinterpret_cast<const uint2*>(ew0);
      }
    }
  }
}
