// matmul mxqxq
// problem   batch=2 m=33 n=48 k=48 element_bytes=2 products=1 a_by_depth=1 a_wide=4 a_copied=1 b_by_depth=1 b_wide=4 b_copied=1 out_wide=4 inputs=3  (an example: each run decides its sizes)
// schedule  warp_m=16 warp_n=16 warps_m=1 warps_n=1 warps_k=4 k_steps=4 stages=4 splits=1 raster=4
// engine    contraction/mma

__device__ __forceinline__ int over_size(int a, unsigned int magic, int shift) {
  return (int)((unsigned long long)(unsigned int)a * magic >> shift);
}

__device__ __forceinline__ int modulo_size(int a, int size, unsigned int magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

extern "C" __global__ void __launch_bounds__(128, 1) kernel0(
    const gc_half* __restrict__ x0,
    const gc_half* __restrict__ x1,
    const gc_half* __restrict__ x2,
    gc_half* __restrict__ x3,
    gc_half* __restrict__ x4,
    long long run_size0, long long run_size1, long long run_size2, long long run_size3, long long run_size4, long long run_size5, long long run_size6, long long run_size7, long long run_magic7, long long run_shift7, long long run_size8, long long run_magic8, long long run_shift8, long long run_size9, long long run_size10) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const int size2 = (int)run_size2;
  const int size3 = (int)run_size3;
  const int size4 = (int)run_size4;
  const int size5 = (int)run_size5;
  const int size6 = (int)run_size6;
  const int size7 = (int)run_size7;
  const unsigned int magic7 = (unsigned int)run_magic7;
  const int shift7 = (int)run_shift7;
  const int size8 = (int)run_size8;
  const unsigned int magic8 = (unsigned int)run_magic8;
  const int shift8 = (int)run_shift8;
  const int size9 = (int)run_size9;
  const int size10 = (int)run_size10;

  unsigned char* const shared = gc_dynamic_shared();

  // the position of this thread's warp in the tile of the result, and of the tile in the result
  const int id = (int)threadIdx.x;
  const int my_lane = id % 32;
  const int warp = id / 32;
  const int warp_k = warp;
  const int tile = (int)blockIdx.x;
  const int batch = over_size(tile, magic7, shift7);
  const int first_column = (modulo_size(tile, size8, magic8, shift8)) * 16;
  const int first_row = (over_size((modulo_size(tile, size7, magic7, shift7)), magic8, shift8)) * 16;

  // the sources of its parts of the tiles, and their places in a stage of shared memory
  const int a_fast = id % 16, a_slow = id / 16;
  const int a_to = a_slow * 128 + (a_fast * 8 ^ (a_slow & 7) * 16);
  int a_at0[2];
  #pragma unroll
  for (int a_i = 0; a_i < 2; ++a_i) {
    int a_span = first_row + a_slow + a_i * 8;
    if (a_span > size4) a_span = size4;
    const int as2 = batch * size0 + a_span * size1;
    a_at0[a_i] = as2;
  }

  const int b_fast = id % 16, b_slow = id / 16;
  const int b_to = b_slow * 128 + (b_fast * 8 ^ (b_slow & 7) * 16);
  int b_at0[2];
  #pragma unroll
  for (int b_i = 0; b_i < 2; ++b_i) {
    int b_span = first_column + b_slow + b_i * 8;
    if (b_span > size5) b_span = size5;
    const int bs2 = batch * size3 + b_span * size1;
    b_at0[b_i] = bs2;
  }

  // the address of its lane's part of the first fragments in a stage
  const int a_row = my_lane / 8 % 2 * 8 + my_lane % 8;
  const int a_position = (warp_k * 2 + my_lane / 16) * 16;
  const int a_at = a_row * 128 + (a_position ^ (a_row & 7) * 16);
  const int b_row = my_lane / 16 * 8 + my_lane % 8;
  const int b_position = (warp_k * 2 + my_lane / 8 % 2) * 16;
  const int b_at = b_row * 128 + (b_position ^ (b_row & 7) * 16);

  // its sums, in blocks of 16 x 8, divided among lanes as in mma
  float acc[1][2][4];
  #pragma unroll
  for (int j = 0; j < 2; ++j) {
    #pragma unroll
    for (int r = 0; r < 4; ++r) acc[0][j][r] = 0.0f;
  }

  // load the first tiles, one into each stage but the last
  #pragma unroll
  for (int stage = 0; stage < 3; ++stage) {
    const int ahead = stage;
    if (ahead < size6) {
      unsigned char* const to = shared + stage * 4096;
      const bool ad2 = ahead * 16 + a_fast < size2;
      const int ad5 = ahead * 64 + a_fast * 4;
      #pragma unroll
      for (int a_i = 0; a_i < 2; ++a_i) {
        gc_cp_async8(to + a_to + a_i * 1024, &x0[a_at0[a_i] + ad5], ad2);
      }
      const bool bd2 = ahead * 16 + b_fast < size2;
      const int bd5 = ahead * 64 + b_fast * 4;
      #pragma unroll
      for (int b_i = 0; b_i < 2; ++b_i) {
        gc_cp_async8(to + 2048 + b_to + b_i * 1024, &x1[b_at0[b_i] + bd5], bd2);
      }
    }
    gc_cp_async_commit();
  }

  int reading = 0, writing = 3;
  unsigned a_part[1][4], b_part[4];
  #pragma unroll 1
  for (int step = 0; step < size6; ++step) {
    const int ahead = step + 3;
    // this tile has arrived, and the previous one is free
    gc_cp_async_wait<2>();
    __syncthreads();

    // load a later tile into the free stage
    unsigned char* const to = shared + writing * 4096;
    if (ahead < size6) {
      const bool ad2 = ahead * 16 + a_fast < size2;
      const int ad5 = ahead * 64 + a_fast * 4;
      #pragma unroll
      for (int a_i = 0; a_i < 2; ++a_i) {
        gc_cp_async8(to + a_to + a_i * 1024, &x0[a_at0[a_i] + ad5], ad2);
      }
      const bool bd2 = ahead * 16 + b_fast < size2;
      const int bd5 = ahead * 64 + b_fast * 4;
      #pragma unroll
      for (int b_i = 0; b_i < 2; ++b_i) {
        gc_cp_async8(to + 2048 + b_to + b_i * 1024, &x1[b_at0[b_i] + bd5], bd2);
      }
    }
    gc_cp_async_commit();

    // add the products of this tile to the sums
    const unsigned char* const from = shared + reading * 4096;
    gc_ldmatrix_x4(a_part[0], from + a_at);
    gc_ldmatrix_x4(b_part, from + 2048 + b_at);
    #pragma unroll
    for (int j = 0; j < 2; ++j) gc_mma_m16n8k16_f16(acc[0][j], a_part[0], b_part + j * 2);
    reading = reading == 3 ? 0 : reading + 1;
    writing = writing == 3 ? 0 : writing + 1;
  }
  __syncthreads();  // the ring is free

  // warps that share the depth: the first adds what the others leave
  float* const others = reinterpret_cast<float*>(shared);
  const int mine = id % 32;
  if (warp_k > 0) {
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) others[((warp_k - 1) * 8 + j * 4 + r) * 32 + mine] = acc[0][j][r];
    }
  }
  __syncthreads();
  if (warp_k == 0) {
    for (int part = 0; part < 3; ++part) {
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) acc[0][j][r] += others[(part * 8 + j * 4 + r) * 32 + mine];
      }
    }
  }
  __syncthreads();
  if (warp_k > 0) return;

  // a warp's rows, sixteen at a time, through shared memory of its own: neighbouring lanes then store neighbours
  float* const staged = reinterpret_cast<float*>(shared);
  {
    gc_syncwarp();
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) staged[(my_lane / 4 + r / 2 * 8) * 24 + my_lane % 4 * 2 + j * 8 + r % 2] = acc[0][j][r];
    }
    gc_syncwarp();

    // store runs of columns of a row
    for (int run = my_lane; run < 64; run += 32) {
      const int row = first_row + run / 4;
      const int col = first_column / 4 + run % 4;
      if (row < size10 && col < size2) {
        const int r2 = batch * size0 + row * size1;
        const float* const sums_from = staged + run / 4 * 24 + run % 4 * 4;
        __align__(16) float sums[4];
        *reinterpret_cast<uint4*>(sums) = *reinterpret_cast<const uint4*>(sums_from);
        const int e1 = r2 + col * 4;
        __align__(16) gc_half ev0[4];
        *reinterpret_cast<uint2*>(ev0) = *reinterpret_cast<const uint2*>(x2 + col * 4);
        __align__(16) gc_half ew0[4];
        __align__(16) gc_half ew1[4];
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float e2 = gc_half_to_float(ev0[lane]);
          const float e3 = sums[lane] + e2;
          const float e4 = gc_half_to_float(gc_float_to_half(e3));
          const float e5 = gc_max_nan(e4, 0.0f);
          const float e6 = gc_half_to_float(gc_float_to_half(e5 + e5));
          ew0[lane] = gc_float_to_half(e5);
          ew1[lane] = gc_float_to_half(e6);
        }
        *reinterpret_cast<uint2*>(x3 + e1) = *reinterpret_cast<const uint2*>(ew0);
        *reinterpret_cast<uint2*>(x4 + e1) = *reinterpret_cast<const uint2*>(ew1);
      }
    }
  }
}
