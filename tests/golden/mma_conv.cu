// conv 3x3 16->24
// problem   batch=1 m=126 n=24 k=144 element_bytes=2 products=1 a_by_depth=1 a_wide=8 a_copied=1 b_by_depth=0 b_wide=8 b_copied=1 out_wide=8 inputs=4
// schedule  warp_m=16 warp_n=16 warps_m=2 warps_n=2 warps_k=1 k_steps=2 stages=3 splits=1 raster=1
// engine    contraction/mma

extern "C" __global__ void __launch_bounds__(128, 1) k0(
    const gc_half* __restrict__ x0,
    const gc_half* __restrict__ x1,
    const gc_half* __restrict__ x2,
    const gc_half* __restrict__ x3,
    gc_half* __restrict__ x4) {
  unsigned char* const shared = gc_dynamic_shared();

  // the position of this thread's warp in the tile of the result, and of the tile in the result
  const int id = (int)threadIdx.x;
  const int my_lane = id % 32;
  const int warp = id / 32;
  const int a_warp = warp / 2, b_warp = warp % 2;
  const int tile = (int)blockIdx.x;
  const int first_column = 0;
  const int first_row = tile * 32;

  // the sources of its parts of the tiles, and their places in a stage of shared memory
  const int a_fast = id % 4, a_slow = id / 4;
  const int a_to = a_slow * 64 + (a_fast * 16 ^ (a_slow >> 1 & 3) * 16);
  int a_span = first_row + a_slow;
  if (a_span > 125) a_span = 125;
  const int as2 = a_span / 7 % 9 - 1;
  const int as4 = a_span % 7 - 1;
  const int as6 = a_span * 16 - 128;

  const int b_fast = id % 4, b_slow = id / 4;
  const int b_to = b_slow * 64 + (b_fast * 16 ^ (b_slow >> 1 & 3) * 16);
  int b_span = first_column / 8 + b_fast;
  if (b_span > 2) b_span = 2;
  const int bs0 = b_span * 8;

  // the address of its lane's part of the first fragments in a stage
  const int a_row = a_warp * 16 + my_lane / 8 % 2 * 8 + my_lane % 8;
  const int a_position = my_lane / 16 * 16;
  const int a_at = a_row * 64 + (a_position ^ (a_row >> 1 & 3) * 16);
  const int b_row = my_lane / 8 % 2 * 8 + my_lane % 8;
  const int b_position = (b_warp * 2 + my_lane / 16) * 16;
  const int b_at = b_row * 64 + (b_position ^ (b_row >> 1 & 3) * 16);

  // its sums, in blocks of 16 x 8, divided among lanes as in mma
  float acc[1][2][4];
  #pragma unroll
  for (int j = 0; j < 2; ++j) {
    #pragma unroll
    for (int r = 0; r < 4; ++r) acc[0][j][r] = 0.0f;
  }

  // load the first tiles, one into each stage but the last
  #pragma unroll
  for (int stage = 0; stage < 2; ++stage) {
    const int ahead = stage;
    if (ahead < 5) {
      unsigned char* const to = shared + stage * 4096;
      const int ad1 = ahead * 4 + a_fast;
      const bool ad2 = ad1 < 18;
      const int ad3 = ad1 / 6;
      const int ad7 = (ahead * 2 + a_fast / 2) % 3;
      const int ad13 = ad3 * 112 + ad7 * 16 + a_fast % 2 * 8;
      const int ae1 = as2 + ad3;
      const int ae5 = as4 + ad7;
      gc_cp_async16(to + a_to, &x0[as6 + ad13], ad2 && (0 <= ae1 && ae1 < 9 && 0 <= ae5 && ae5 < 7));
      const bool bd2 = ahead * 32 + b_slow < 144;
      const int bd5 = ahead * 768 + b_slow * 24;
      gc_cp_async16(to + 2048 + b_to, &x1[bs0 + bd5], bd2);
    }
    gc_cp_async_commit();
  }

  int reading = 0, writing = 2;
  unsigned a_part[2][1][4], b_part[2][4];
  gc_cp_async_wait<1>();
  __syncthreads();
  gc_ldmatrix_x4(a_part[0][0], shared + a_at);
  gc_ldmatrix_x4_trans(b_part[0], shared + 2048 + b_at);

  #pragma unroll 1
  for (int step = 0; step < 5; ++step) {
    // load a later tile into the free stage
    const int ahead = step + 2;
    unsigned char* const to = shared + writing * 4096;
    if (ahead < 5) {
      const int ad1 = ahead * 4 + a_fast;
      const bool ad2 = ad1 < 18;
      const int ad3 = ad1 / 6;
      const int ad7 = (ahead * 2 + a_fast / 2) % 3;
      const int ad13 = ad3 * 112 + ad7 * 16 + a_fast % 2 * 8;
      const int ae1 = as2 + ad3;
      const int ae5 = as4 + ad7;
      gc_cp_async16(to + a_to, &x0[as6 + ad13], ad2 && (0 <= ae1 && ae1 < 9 && 0 <= ae5 && ae5 < 7));
      const bool bd2 = ahead * 32 + b_slow < 144;
      const int bd5 = ahead * 768 + b_slow * 24;
      gc_cp_async16(to + 2048 + b_to, &x1[bs0 + bd5], bd2);
    }
    gc_cp_async_commit();

    // add the products of this tile to the sums
    #pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (k == 1) {
        // the next tile has arrived, and this one is free
        gc_cp_async_wait<1>();
        __syncthreads();
        reading = reading == 2 ? 0 : reading + 1;
        writing = writing == 2 ? 0 : writing + 1;
      }
      // the next step's fragments; past the last tile they are not used
      const unsigned char* const from = shared + reading * 4096;
      const int next = (k + 1) % 2;
      gc_ldmatrix_x4(a_part[(k + 1) % 2][0], from + (a_at ^ next * 32));
      gc_ldmatrix_x4_trans(b_part[(k + 1) % 2], from + 2048 + b_at + next * 1024);

      #pragma unroll
      for (int j = 0; j < 2; ++j) gc_mma_m16n8k16_f16(acc[0][j], a_part[k % 2][0], b_part[k % 2] + j * 2);
    }
  }
  __syncthreads();  // the ring is free

  // what the stores read besides the sums is on its way, all at once
  uint4 read_early[1][1][1];
  #pragma unroll
  for (int round = 0; round < 1; ++round) {
    const int run = my_lane + round * 32;
    const int row = first_row + a_warp * 16 + run / 2;
    const int col = (first_column + b_warp * 16) / 8 + run % 2;
    if (row < 126 && col < 3) {
      const int r0 = row * 24;
      uint4* const early = read_early[0][round];
      early[0] = *reinterpret_cast<const uint4*>(x3 + r0 + col * 8);
    }
  }

  // a warp's rows, sixteen at a time, through shared memory of its own: neighbouring lanes then store neighbours
  float* const staged = reinterpret_cast<float*>(shared) + (a_warp * 2 + b_warp) * 384;
  {
    gc_syncwarp();
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) staged[(my_lane / 4 + r / 2 * 8) * 24 + (my_lane % 4 * 2 ^ my_lane / 4 % 2 * 4) + j * 8 + r % 2] = acc[0][j][r];
    }
    gc_syncwarp();

    // store runs of columns of a row
    {
      const int run = my_lane;
      const int row = first_row + a_warp * 16 + run / 2;
      const int col = (first_column + b_warp * 16) / 8 + run % 2;
      if (row < 126 && col < 3) {
        const int r0 = row * 24;
        const float* const sums_from = staged + run / 2 * 24 + run % 2 * 8;
        __align__(16) float sums[8];
        *reinterpret_cast<uint4*>(sums) = *reinterpret_cast<const uint4*>(sums_from + run / 2 % 2 * 4);
        *reinterpret_cast<uint4*>(sums + 4) = *reinterpret_cast<const uint4*>(sums_from + (run / 2 % 2 * 4 ^ 4));
        const uint4* const early = read_early[0][0];
        __align__(16) gc_half early0[8];
        *reinterpret_cast<uint4*>(early0) = early[0];
        __align__(16) gc_half ev0[8];
        *reinterpret_cast<uint4*>(ev0) = *reinterpret_cast<const uint4*>(x2 + col * 8);
        __align__(16) gc_half ew0[8];
        #pragma unroll
        for (int lane = 0; lane < 8; ++lane) {
          const float e2 = gc_half_to_float(ev0[lane]);
          const float e3 = sums[lane] + e2;
          const float e4 = gc_half_to_float(early0[lane]);
          const float e5 = e3 + e4;
          const float e6 = gc_max_nan(e5, 0.0f);
          ew0[lane] = gc_float_to_half(e6);
        }
        *reinterpret_cast<uint4*>(x4 + r0 + col * 8) = *reinterpret_cast<const uint4*>(ew0);
      }
    }
  }
}
