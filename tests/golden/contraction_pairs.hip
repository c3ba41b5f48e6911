// window of bytes
// problem   batch=1 m=72 n=40 k=108 a_by_depth=1 a_wide=4 b_by_depth=0 b_wide=4 a_copied=1 b_copied=1 out_wide=4 acc_bytes=4 exact_f32=0 inputs=2 dot=2
// schedule  stages=2 asynchronous=0 fragments=1 slices=1 splits=1 lanes=1 tile_m=32 tile_n=32 tile_k=8 reg_m=8 reg_n=8
// engine    contraction/simt_pairs

typedef _Float16 gc_half2 __attribute__((ext_vector_type(2)));
__device__ __forceinline__ float dot2(unsigned int a, unsigned int b, float c) {
  return __builtin_amdgcn_fdot2(__builtin_bit_cast(gc_half2, a), __builtin_bit_cast(gc_half2, b), c, false);
}

extern "C" __global__ void __launch_bounds__(16, 1) GC_WAVES_OF_RDNA(4) k0(
    const unsigned int* __restrict__ x0,
    const unsigned int* __restrict__ x1,
    float* __restrict__ x2) {
  __shared__ __align__(16) unsigned int tile_a[2][8][36];
  __shared__ __align__(16) unsigned int tile_b[2][8][32];

  // the position of this thread in the tile of the result, and that of the tile
  const int id = (int)threadIdx.x;
  const int my_row = id / 4, my_column = id % 4;
  const int tile = (int)blockIdx.x;
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
  __align__(16) unsigned int a_next[4][4];
  __align__(16) unsigned int b_next[4][4];
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
    gc_move<16>(a_next[a_i], x0 + a_at2[a_i] + ad9, ad0 && (0 <= ae1 && ae1 < 9 && 0 <= ae5 && ae5 < 8));
  }
  #pragma unroll
  for (int b_t = 0; b_t < 4; ++b_t) {
    const int b_depth = b_slow + b_t * 2;
    const bool bd0 = b_depth < 108;
    const int bd1 = b_depth * 40;
    gc_move<16>(b_next[b_t], x1 + b_column + bd1, bd0);
  }
  #pragma unroll
  for (int a_i = 0; a_i < 4; ++a_i) {
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) tile_a[0][a_fast * 4 + lane][a_slow + a_i * 8] = a_next[a_i][lane];
  }
  #pragma unroll
  for (int b_t = 0; b_t < 4; ++b_t) {
    gc_move<16>(&tile_b[0][b_slow + b_t * 2][b_fast * 4], b_next[b_t]);
  }

  int now = 0;
  #pragma unroll 1
  for (int depth = 0; depth < 112; depth += 8) {
    __syncthreads();

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
        gc_move<16>(a_next[a_i], x0 + a_at2[a_i] + ad9, ad0 && (0 <= ae1 && ae1 < 9 && 0 <= ae5 && ae5 < 8));
      }
      #pragma unroll
      for (int b_t = 0; b_t < 4; ++b_t) {
        const int b_depth = following + b_slow + b_t * 2;
        const bool bd0 = b_depth < 108;
        const int bd1 = b_depth * 40;
        gc_move<16>(b_next[b_t], x1 + b_column + bd1, bd0);
      }
    }

    // add the products of this tile to the sums
    __align__(16) unsigned int a_part[8];
    __align__(16) unsigned int b_part[8];
    #pragma unroll 4
    for (int k = 0; k < 8; ++k) {
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        gc_move<16>(a_part + i * 4, &tile_a[now][k][i * 16 + my_row * 4]);
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        gc_move<16>(b_part + i * 4, &tile_b[now][k][i * 16 + my_column * 4]);
      }
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) acc[i][j] = dot2(a_part[i], b_part[j], acc[i][j]);
      }
    }

    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int j = 0; j < 8; ++j) GC_COMPUTED(acc[i][j]);
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
        gc_move<16>(&tile_b[now][b_slow + b_t * 2][b_fast * 4], b_next[b_t]);
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
          __align__(16) float ew0[4];
          #pragma unroll
          for (int lane = 0; lane < 4; ++lane) {
            ew0[lane] = acc[i][j * 4 + lane];
          }
          gc_move<16>(x2 + r0 + column, ew0);
        }
      }
    }
  }
}
