// matmul 33x40x72
// problem   batch=1 m=33 n=40 k=72 element_bytes=4 products=3 a_by_depth=1 a_wide=4 a_copied=1 b_by_depth=1 b_wide=4 b_copied=1 out_wide=4 inputs=3
// schedule  warp_m=16 warp_n=16 warps_m=1 warps_n=1 warps_k=4 k_steps=8 stages=3 splits=2 raster=1
// engine    contraction/mma

extern "C" __global__ void __launch_bounds__(128, 1) k0(
    const float* __restrict__ x0,
    const float* __restrict__ x1,
    const float* __restrict__ x2,
    float* __restrict__ x3,
    float* __restrict__ x4,
    volatile float* workspace,
    unsigned int* __restrict__ counters) {
  __shared__ __align__(16) int is_last[1];
  unsigned char* const shared = gc_dynamic_shared();

  // the position of this thread's warp in the tile of the result, and of the tile in the result
  const int id = (int)threadIdx.x;
  const int my_lane = id % 32;
  const int warp = id / 32;
  const int warp_k = warp;
  const int tile = (int)blockIdx.x;
  // tiles are walked down column by column
  const int band = tile / 3, in_band = tile % 3;
  const int first_column = band * 16;
  const int first_row = in_band * 16;

  // the sources of its parts of the tiles, and their places in a stage of shared memory
  const int a_fast = id % 16, a_slow = id / 16;
  const int a_to = a_slow * 256 + (a_fast * 16 ^ (a_slow & 7) * 16);
  int a_at0[2];
  #pragma unroll
  for (int a_i = 0; a_i < 2; ++a_i) {
    int a_span = first_row + a_slow + a_i * 8;
    if (a_span > 32) a_span = 32;
    const int as0 = a_span * 72;
    a_at0[a_i] = as0;
  }

  const int b_fast = id % 16, b_slow = id / 16;
  const int b_to = b_slow * 256 + (b_fast * 16 ^ (b_slow & 7) * 16);
  int b_at0[2];
  #pragma unroll
  for (int b_i = 0; b_i < 2; ++b_i) {
    int b_span = first_column + b_slow + b_i * 8;
    if (b_span > 39) b_span = 39;
    const int bs0 = b_span * 72;
    b_at0[b_i] = bs0;
  }

  // the address of its lane's part of the first fragments in a stage
  const int a_row = my_lane / 8 % 2 * 8 + my_lane % 8;
  const int a_position = (warp_k * 4 + my_lane / 16) * 16;
  const int a_at = a_row * 256 + (a_position ^ (a_row & 7) * 16);
  const int b_row = my_lane / 16 * 8 + my_lane % 8;
  const int b_position = (warp_k * 4 + my_lane / 8 % 2) * 16;
  const int b_at = b_row * 256 + (b_position ^ (b_row & 7) * 16);

  // its sums, in blocks of 16 x 8, divided among lanes as in mma
  __align__(16) float acc[1][2][4];
  #pragma unroll
  for (int j = 0; j < 2; ++j) {
    #pragma unroll
    for (int r = 0; r < 4; ++r) acc[0][j][r] = 0.0f;
  }

  // the part of the depth of this block, in tiles
  const int begin = (int)blockIdx.y;
  const int end = begin + 1 < 2 ? begin + 1 : 2;

  // load the first tiles, one into each stage but the last
  #pragma unroll
  for (int stage = 0; stage < 2; ++stage) {
    const int ahead = begin + stage;
    if (ahead < end) {
      unsigned char* const to = shared + stage * 8192;
      const bool ad2 = ahead * 16 + a_fast < 18;
      const int ad5 = ahead * 64 + a_fast * 4;
      #pragma unroll
      for (int a_i = 0; a_i < 2; ++a_i) {
        gc_cp_async16(to + a_to + a_i * 2048, &x0[a_at0[a_i] + ad5], ad2);
      }
      const bool bd2 = ahead * 16 + b_fast < 18;
      const int bd5 = ahead * 64 + b_fast * 4;
      #pragma unroll
      for (int b_i = 0; b_i < 2; ++b_i) {
        gc_cp_async16(to + 4096 + b_to + b_i * 2048, &x1[b_at0[b_i] + bd5], bd2);
      }
    }
    gc_cp_async_commit();
  }

  int reading = 0, writing = 2;
  unsigned a_part[2][1][4], b_part[2][4];
  gc_cp_async_wait<1>();
  __syncthreads();
  gc_ldmatrix_x4(a_part[0][0], shared + a_at);
  gc_ldmatrix_x4(b_part[0], shared + 4096 + b_at);

  #pragma unroll 1
  for (int step = begin; step < end; ++step) {
    // load a later tile into the free stage
    const int ahead = step + 2;
    unsigned char* const to = shared + writing * 8192;
    if (ahead < end) {
      const bool ad2 = ahead * 16 + a_fast < 18;
      const int ad5 = ahead * 64 + a_fast * 4;
      #pragma unroll
      for (int a_i = 0; a_i < 2; ++a_i) {
        gc_cp_async16(to + a_to + a_i * 2048, &x0[a_at0[a_i] + ad5], ad2);
      }
      const bool bd2 = ahead * 16 + b_fast < 18;
      const int bd5 = ahead * 64 + b_fast * 4;
      #pragma unroll
      for (int b_i = 0; b_i < 2; ++b_i) {
        gc_cp_async16(to + 4096 + b_to + b_i * 2048, &x1[b_at0[b_i] + bd5], bd2);
      }
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
      const unsigned char* const from = shared + reading * 8192;
      const int next = (k + 1) % 2;
      gc_ldmatrix_x4(a_part[(k + 1) % 2][0], from + (a_at ^ next * 32));
      gc_ldmatrix_x4(b_part[(k + 1) % 2], from + 4096 + (b_at ^ next * 32));

      unsigned b_big[4], b_small[4];
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        b_big[j] = gc_float_to_tf32(__uint_as_float(b_part[k % 2][j]));
        b_small[j] = gc_float_to_tf32(__uint_as_float(b_part[k % 2][j]) - __uint_as_float(b_big[j]));
      }
      unsigned a_big[4], a_small[4];
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        a_big[r] = gc_float_to_tf32(__uint_as_float(a_part[k % 2][0][r]));
        a_small[r] = gc_float_to_tf32(__uint_as_float(a_part[k % 2][0][r]) - __uint_as_float(a_big[r]));
      }
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        // matrix units truncate their sums: those of one step are rounded into the whole
        float part[4] = {};
        gc_mma_m16n8k8_tf32(part, a_small, b_big + j * 2);
        gc_mma_m16n8k8_tf32(part, a_big, b_small + j * 2);
        gc_mma_m16n8k8_tf32(part, a_big, b_big + j * 2);
        #pragma unroll
        for (int r = 0; r < 4; ++r) acc[0][j][r] += part[r];
      }
    }
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

  // every block stores its sums, four at a time; the last to arrive adds them in the order of splits
  volatile float* partial = workspace + (long long)tile * 512 + mine * 4;
  if (warp_k == 0) {
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      gc_store16_volatile(partial + (int)blockIdx.y * 256 + j * 128, *reinterpret_cast<const uint4*>(acc[0][j]));
    }
  }
  gc_threadfence();
  __syncthreads();
  if (id == 0) is_last[0] = gc_atomic_inc_wrap(counters + tile, 1) == 1;
  __syncthreads();
  if (!is_last[0] || warp_k > 0) return;
  gc_threadfence();
  #pragma unroll
  for (int j = 0; j < 2; ++j) {
    #pragma unroll
    for (int r = 0; r < 4; ++r) acc[0][j][r] = 0.0f;
  }
  for (int part = 0; part < 2; ++part) {
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      __align__(16) float left[4];
      *reinterpret_cast<uint4*>(left) = gc_load16_volatile(partial + part * 256 + j * 128);
      #pragma unroll
      for (int r = 0; r < 4; ++r) acc[0][j][r] += left[r];
    }
  }

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
      if (row < 33 && col < 10) {
        const int r0 = row * 40;
        const float* const sums_from = staged + run / 4 * 24 + run % 4 * 4;
        __align__(16) float sums[4];
        *reinterpret_cast<uint4*>(sums) = *reinterpret_cast<const uint4*>(sums_from);
        const int e1 = r0 + col * 4;
        __align__(16) float ev0[4];
        *reinterpret_cast<uint4*>(ev0) = *reinterpret_cast<const uint4*>(x2 + col * 4);
        __align__(16) float ew0[4];
        __align__(16) float ew1[4];
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float e2 = sums[lane] + ev0[lane];
          const float e3 = gc_max_nan(e2, 0.0f);
          const float e4 = e3 + e3;
          ew0[lane] = e3;
          ew1[lane] = e4;
        }
        *reinterpret_cast<uint4*>(x3 + e1) = *reinterpret_cast<const uint4*>(ew0);
        *reinterpret_cast<uint4*>(x4 + e1) = *reinterpret_cast<const uint4*>(ew1);
      }
    }
  }
}
