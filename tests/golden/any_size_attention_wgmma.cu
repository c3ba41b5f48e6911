// attention 2x1xqxnx32x16
// problem   batch=2 m=48 n=70 depth=32 values=16 q_inside=1 q_wide=8 k_inside=1 k_wide=8 v_inside=1 v_wide=8 causal=3 out_wide=8  (an example: each run decides its sizes)
// schedule  consumers=1 tile_n=64 stages=2 overlap=1
// engine    attention/wgmma

__device__ __forceinline__ int over_size(int a, unsigned int magic, int shift) {
  return (int)((unsigned long long)(unsigned int)a * magic >> shift);
}

__device__ __forceinline__ int modulo_size(int a, int size, unsigned int magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

extern "C" __global__ void __launch_bounds__(160, 1) kernel0(
    const gc_half* x0,
    const gc_half* x1,
    const gc_half* x2,
    const gc_half* x3,
    gc_half* __restrict__ x4,
    const __grid_constant__ gc_tensor_map map_q,
    const __grid_constant__ gc_tensor_map map_k,
    const __grid_constant__ gc_tensor_map map_v,
    long long run_size0, long long run_size1, long long run_size2, long long run_magic2, long long run_shift2, long long run_size3, long long run_size4) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const int size2 = (int)run_size2;
  const unsigned int magic2 = (unsigned int)run_magic2;
  const int shift2 = (int)run_shift2;
  const int size3 = (int)run_size3;
  const int size4 = (int)run_size4;
  unsigned char* const shared = gc_swizzled_shared();
  unsigned char* const tile_q = shared;
  unsigned char* const tile_k = shared + 8192;
  unsigned char* const tile_v = shared + 24576;
  unsigned long long* const full_q = reinterpret_cast<unsigned long long*>(shared + 40960);
  unsigned long long* const full_k = full_q + 1;
  unsigned long long* const full_v = full_k + 2;
  unsigned long long* const empty_k = full_v + 2;
  unsigned long long* const empty_v = empty_k + 2;

  // the rows of the block, and the columns that they see
  const int id = (int)threadIdx.x;
  const int tile = (int)blockIdx.x;
  const int first_row = (modulo_size(tile, size2, magic2, shift2)) * 64;
  const int batch = over_size(tile, magic2, shift2);
  const int seen = first_row + 67;
  const int columns = seen < size1 ? seen : size1;

  // barriers: of the queries, and for each stage of keys and of values when it is full and when it is empty
  if (id == 0) {
    gc_mbarrier_init(full_q, 1);
    for (int stage = 0; stage < 2; ++stage) {
      gc_mbarrier_init(full_k + stage, 1);
      gc_mbarrier_init(full_v + stage, 1);
      gc_mbarrier_init(empty_k + stage, 4);
      gc_mbarrier_init(empty_v + stage, 4);
    }
    gc_fence_barrier_init();
  }
  __syncthreads();
  gc_grid_wait();  // what follows reads and writes memory that the launches before this one use
  gc_grid_launch_dependents();

  // the producer
  if (id >= 128) {
    if (id == 128) {
      gc_tma_prefetch(&map_q);
      gc_tma_prefetch(&map_k);
      gc_tma_prefetch(&map_v);
      gc_mbarrier_arrive_expect_tx(full_q, 8192);
      for (int panel = 0; panel < 1; ++panel) {
        gc_tma_load_3d(tile_q + panel * 8192, &map_q, full_q, panel * 64, first_row, batch);
      }
      int stage = 0;
      unsigned parity = 1;
      for (int first_column = 0; first_column < columns; first_column += 64) {
        gc_mbarrier_wait(empty_k + stage, parity);
        gc_mbarrier_arrive_expect_tx(full_k + stage, 8192);
        for (int panel = 0; panel < 1; ++panel) {
          gc_tma_load_3d(tile_k + stage * 8192 + panel * 64 * 128, &map_k, full_k + stage, panel * 64, first_column, batch);
        }
        gc_mbarrier_wait(empty_v + stage, parity);
        gc_mbarrier_arrive_expect_tx(full_v + stage, 8192);
        for (int panel = 0; panel < 1; ++panel) {
          gc_tma_load_3d(tile_v + stage * 8192 + panel * 64 * 128, &map_v, full_v + stage, panel * 64, first_column, batch);
        }
        if (++stage == 2) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
    return;
  }

  // a consumer's thread has two rows, and two columns of every eight
  const int my_lane = id % 32;
  const int my_row = id / 32 * 16 + my_lane / 4, my_pair = my_lane % 4 * 2;
  // descriptors of the operands, in units of 16 bytes
  const unsigned long long my_q = gc_wgmma_operand(tile_q);
  const unsigned long long keys = gc_wgmma_operand(tile_k), values = gc_wgmma_turned(tile_v, 8192);
  // scores, weights in pairs; for each row the largest score, the total of the weights, the weighted sum of the values
  float s[32];
  unsigned w[16];
  float top[2] = { (-__int_as_float(0x7f800000)), (-__int_as_float(0x7f800000)) }, total[2] = {};
  float acc[8] = {};
  int stage = 0;
  unsigned parity = 0;
  gc_mbarrier_wait(full_q, 0);

  // the weights of the first columns
  int next_stage = 0;
  unsigned next_parity = 0;
  gc_mbarrier_wait(full_k, 0);
  gc_wgmma_fence();
  gc_wgmma_f16_first<64>(s, my_q, keys + next_stage * 512);
  #pragma unroll
  for (int c = 1; c < 2; ++c) {
    gc_wgmma_f16<64>(s, my_q + (c / 4 * 512 + c % 4 * 2), keys + next_stage * 512 + (c / 4 * 512 + c % 4 * 2));
  }
  gc_wgmma_commit();
  gc_wgmma_wait<0>();
  if (id % 32 == 0) gc_mbarrier_arrive(empty_k);
  if (++next_stage == 2) {
    next_stage = 0;
    next_parity ^= 1;
  }
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    int row = first_row + my_row + i * 8;
    if (row > size3) row = size3;
    const int sr0 = row + 3;
    float highest = (-__int_as_float(0x7f800000));
    #pragma unroll
    for (int j = 0; j < 16; ++j) {
      float& weight = s[j / 2 * 4 + i * 2 + j % 2];
      const int col = 0 + j / 2 * 8 + my_pair + j % 2;
      const float dot = weight;
      const float s2 = col <= sr0 ? dot : (-__int_as_float(0x7f800000));
      const float s3 = col < size1 ? s2 : (-__int_as_float(0x7f800000));
      weight = s3;
      highest = fmaxf(highest, weight);
    }
    #pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) {
      highest = fmaxf(highest, gc_shfl_xor(highest, lanes));
    }
    highest = fmaxf(top[i], highest * 0.25503486f);
    const float shift = highest == (-__int_as_float(0x7f800000)) ? 0.0f : highest;
    const float factor = gc_exp2(top[i] - shift);
    top[i] = highest;
    total[i] *= factor;
    #pragma unroll
    for (int j = 0; j < 16; ++j) {
      float& weight = s[j / 2 * 4 + i * 2 + j % 2];
      weight = gc_exp2(fmaf(weight, 0.25503486f, -shift));
      total[i] += weight;
    }
  }
  #pragma unroll
  for (int j = 0; j < 16; ++j) w[j] = gc_pair_of_f16(s[2 * j], s[2 * j + 1]);
  if (64 < columns) gc_mbarrier_wait(full_k + next_stage, next_parity);
  for (int first_column = 64; first_column < columns; first_column += 64) {
    // the products of the next keys and of these values, and meanwhile the next weights
    float factors[2];
    gc_wgmma_fence();
    gc_wgmma_f16_first<64>(s, my_q, keys + next_stage * 512);
    #pragma unroll
    for (int c = 1; c < 2; ++c) {
      gc_wgmma_f16<64>(s, my_q + (c / 4 * 512 + c % 4 * 2), keys + next_stage * 512 + (c / 4 * 512 + c % 4 * 2));
    }
    gc_wgmma_commit();
    gc_mbarrier_wait(full_v + stage, parity);
    gc_wgmma_fence();
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      gc_wgmma_f16_registers<16>(acc, w + 4 * j, values + stage * 512 + 128 * j);
    }
    gc_wgmma_commit();
    gc_wgmma_wait<1>();
    if (id % 32 == 0) gc_mbarrier_arrive(empty_k + next_stage);
    if (++next_stage == 2) {
      next_stage = 0;
      next_parity ^= 1;
    }
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      int row = first_row + my_row + i * 8;
      if (row > size3) row = size3;
      const int sr0 = row + 3;
      float highest = (-__int_as_float(0x7f800000));
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        float& weight = s[j / 2 * 4 + i * 2 + j % 2];
        const int col = first_column + j / 2 * 8 + my_pair + j % 2;
        const float dot = weight;
        const float s2 = col <= sr0 ? dot : (-__int_as_float(0x7f800000));
        const float s3 = col < size1 ? s2 : (-__int_as_float(0x7f800000));
        weight = s3;
        highest = fmaxf(highest, weight);
      }
      #pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        highest = fmaxf(highest, gc_shfl_xor(highest, lanes));
      }
      highest = fmaxf(top[i], highest * 0.25503486f);
      const float shift = highest == (-__int_as_float(0x7f800000)) ? 0.0f : highest;
      const float factor = gc_exp2(top[i] - shift);
      top[i] = highest;
      total[i] *= factor;
      factors[i] = factor;
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        float& weight = s[j / 2 * 4 + i * 2 + j % 2];
        weight = gc_exp2(fmaf(weight, 0.25503486f, -shift));
        total[i] += weight;
      }
    }
    // before the wait for the values: ptxas would move the wait in front of the weights if there were no branch between them
    #pragma unroll
    for (int j = 0; j < 32; ++j) gc_wgmma_before(s[j]);
    if (first_column + 64 < columns) gc_mbarrier_wait(full_k + next_stage, next_parity);
    gc_wgmma_wait<0>();
    if (id % 32 == 0) gc_mbarrier_arrive(empty_v + stage);
    if (++stage == 2) {
      stage = 0;
      parity ^= 1;
    }
    // the sums so far are scaled down where the largest score of a row has grown
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) acc[j / 2 * 4 + i * 2 + j % 2] *= factors[i];
    }
    #pragma unroll
    for (int j = 0; j < 16; ++j) w[j] = gc_pair_of_f16(s[2 * j], s[2 * j + 1]);
  }
  gc_mbarrier_wait(full_v + stage, parity);
  gc_wgmma_fence();
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    gc_wgmma_f16_registers<16>(acc, w + 4 * j, values + stage * 512 + 128 * j);
  }
  gc_wgmma_commit();
  gc_wgmma_wait<0>();

  // store the values divided by the totals of their rows
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    float sum = total[i];
    sum += gc_shfl_xor(sum, 1);
    sum += gc_shfl_xor(sum, 2);
    const float share = 1.0f / sum;
    const int row = first_row + my_row + i * 8;
    if (row < size4) {
      const int r2 = batch * size0 + row * 16;
      #pragma unroll
      for (int j = 0; j < 4; j += 2) {
        const int col = j / 2 * 4 + my_lane % 4;
        const float means[2] = {acc[j / 2 * 4 + i * 2] * share, acc[j / 2 * 4 + i * 2 + 1] * share};
        __align__(16) gc_half ev0[2];
        *reinterpret_cast<unsigned int*>(ev0) = *reinterpret_cast<const unsigned int*>(x3 + r2 + col * 2);
        __align__(16) gc_half ew0[2];
        #pragma unroll
        for (int lane = 0; lane < 2; ++lane) {
          const float e2 = gc_half_to_float(ev0[lane]);
          const float e3 = means[lane] + e2;
          const float e4 = gc_max_nan(e3, 0.0f);
          ew0[lane] = gc_float_to_half(e4);
        }
        *reinterpret_cast<unsigned int*>(x4 + r2 + col * 2) = *reinterpret_cast<const unsigned int*>(ew0);
      }
    }
  }
}
