// attention 2x1xqxnx32x16
// problem   batch=2 m=48 n=70 depth=32 values=16 q_inside=1 q_wide=8 k_inside=1 k_wide=8 v_inside=1 v_wide=8 causal=3 out_wide=8  (an example: each run decides its sizes)
// schedule  consumers=1 tile_n=64 stages=2 polynomials=1
// engine    attention/tcgen05

extern "C" __global__ void __launch_bounds__(192, 1) kernel0(
    const gc_half* x0,
    const gc_half* x1,
    const gc_half* x2,
    const gc_half* x3,
    gc_half* __restrict__ x4,
    const __grid_constant__ gc_tensor_map map_q,
    const __grid_constant__ gc_tensor_map map_k,
    const __grid_constant__ gc_tensor_map map_v,
    long long run_size0, long long run_size1, long long run_size2, long long run_size3) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const int size2 = (int)run_size2;
  const int size3 = (int)run_size3;
  unsigned char* const shared = gc_swizzled_shared();
  unsigned char* const tile_q = shared;
  unsigned char* const tile_k = shared + 16384;
  unsigned char* const tile_v = shared + 32768;
  unsigned long long* const full_q = reinterpret_cast<unsigned long long*>(shared + 49152);
  unsigned long long* const full_k = full_q + 1;
  unsigned long long* const full_v = full_k + 2;
  unsigned long long* const empty_k = full_v + 2;
  unsigned long long* const empty_v = empty_k + 2;
  unsigned long long* const scored = empty_v + 2;
  unsigned long long* const weighed = scored + 1;
  unsigned* const allocated = reinterpret_cast<unsigned*>(weighed + 1);

  // the rows of the block, and the columns that they see
  const int id = (int)threadIdx.x;
  const int tile = (int)blockIdx.x;
  const int first_row = 0;
  const int batch = tile;
  const int seen = first_row + 131;
  const int columns = seen < size1 ? seen : size1;

  // barriers: of the queries; for each stage of keys and of values when it is full and when it is empty; for each consumer when its
  // scores and sums are done, and when its weights are there. Tensor memory for scores and sums
  if (id == 0) {
    gc_mbarrier_init(full_q, 1);
    for (int stage = 0; stage < 2; ++stage) {
      gc_mbarrier_init(full_k + stage, 1);
      gc_mbarrier_init(full_v + stage, 1);
      gc_mbarrier_init(empty_k + stage, 1);
      gc_mbarrier_init(empty_v + stage, 1);
    }
    for (int consumer = 0; consumer < 1; ++consumer) {
      gc_mbarrier_init(scored + consumer, 1);
      gc_mbarrier_init(weighed + consumer, 4);
    }
    gc_fence_barrier_init();
  }
  if (id / 32 == 1) gc_tcgen05_alloc(allocated, 128);
  gc_tcgen05_fence_before();
  __syncthreads();
  gc_tcgen05_fence_after();
  const unsigned scores = *allocated, sums = scores + 64;
  gc_grid_wait();  // what follows reads and writes memory that the launches before this one use
  gc_grid_launch_dependents();

  if (id >= 128) {
    // the producer: one thread of the warp after the consumers
    if (id < 160) {
      if (gc_elect_one()) {
        gc_tma_prefetch(&map_q);
        gc_tma_prefetch(&map_k);
        gc_tma_prefetch(&map_v);
        gc_mbarrier_arrive_expect_tx(full_q, 16384);
        for (int panel = 0; panel < 1; ++panel) {
          gc_tma_load_3d(tile_q + panel * 16384, &map_q, full_q, panel * 64, first_row, batch);
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
    // one thread of the warp after that asks for the products
    if (gc_elect_one()) {
      const unsigned long long queries = gc_tcgen05_operand(tile_q), keys = gc_tcgen05_operand(tile_k);
      const unsigned long long values = gc_tcgen05_turned(tile_v, 8192);
      gc_mbarrier_wait(full_q, 0);
      gc_mbarrier_wait(full_k, 0);
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        gc_tcgen05_f16<128, 64>(scores + 0, queries + (c / 4 * 1024 + c % 4 * 2), keys + 0 * 512 + (c / 4 * 512 + c % 4 * 2), c > 0);
      }
      gc_tcgen05_commit(scored + 0);
      gc_tcgen05_commit(empty_k);
      int stage = 0, next_stage = 1;
      unsigned parity = 0, next_parity = 0, turn = 0;
      for (int first_column = 0; first_column < columns; first_column += 64) {
        const bool more = first_column + 64 < columns;
        if (more) gc_mbarrier_wait(full_k + next_stage, next_parity);
        gc_mbarrier_wait(full_v + stage, parity);
        gc_mbarrier_wait(weighed + 0, turn);
        gc_tcgen05_fence_after();
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          gc_tcgen05_f16_weights<16>(sums + 0, scores + 0 + 8 * j, values + stage * 512 + 128 * j, first_column > 0 || j > 0);
        }
        // the next scores are written over the weights: the matrix unit takes products in the order in which they are asked for
        if (more) {
          #pragma unroll
          for (int c = 0; c < 2; ++c) {
            gc_tcgen05_f16<128, 64>(scores + 0, queries + (c / 4 * 1024 + c % 4 * 2), keys + next_stage * 512 + (c / 4 * 512 + c % 4 * 2), c > 0);
          }
        }
        gc_tcgen05_commit(scored + 0);
        if (more) {  // no load waits for the last ones, and an arrival must not come after the block has ended
          gc_tcgen05_commit(empty_v + stage);
          gc_tcgen05_commit(empty_k + next_stage);
        }
        if (++stage == 2) {
          stage = 0;
          parity ^= 1;
        }
        if (++next_stage == 2) {
          next_stage = 0;
          next_parity ^= 1;
        }
        turn ^= 1;
      }
    }
    return;
  }

  // a consumer's thread has a row: the largest score that weights are relative to, and the total of its weights in four parts
  const int my_row = id;
  unsigned long long* const my_scored = scored;
  unsigned long long* const my_weighed = weighed;
  const unsigned my_scores = scores + (id / 32 % 4 << 21);
  const unsigned my_sums = sums + (id / 32 % 4 << 21);
  const int last_row = size2;
  const int row = first_row + my_row < last_row ? first_row + my_row : last_row;
  const int sr0 = row + 3;
  float top = (-__int_as_float(0x7f800000)), total[4] = {};
  unsigned turn = 0;
  for (int first_column = 0; first_column < columns; first_column += 64) {
    float s[64];
    gc_mbarrier_wait(my_scored, turn);
    gc_syncwarp();
    gc_tcgen05_fence_after();
    turn ^= 1;
    #pragma unroll
    for (int j = 0; j < 64; j += 32) gc_tcgen05_load_row<32>(s + j, my_scores + j);
    gc_tcgen05_wait_row<64>(s);

    // the largest score, in four parts
    float high[4] = { (-__int_as_float(0x7f800000)), (-__int_as_float(0x7f800000)), (-__int_as_float(0x7f800000)), (-__int_as_float(0x7f800000)) };
    #pragma unroll
    for (int j = 0; j < 64; ++j) {
      const int col = first_column + j;
      const float dot = s[j];
      const float s2 = col <= sr0 ? dot : (-__int_as_float(0x7f800000));
      const float s3 = col < size1 ? s2 : (-__int_as_float(0x7f800000));
      s[j] = s3;
      high[j % 4] = fmaxf(high[j % 4], s[j]);
    }
    const float highest = fmaxf(fmaxf(high[0], high[1]), fmaxf(high[2], high[3])) * 0.25503486f;
    if (gc_any(highest > top + 8.0f)) {
      const float grown = fmaxf(top, highest);
      const float factor = grown == (-__int_as_float(0x7f800000)) ? 1.0f : gc_exp2(top - grown);
      top = grown;
      #pragma unroll
      for (int i = 0; i < 4; ++i) total[i] *= factor;
      if (first_column > 0) {
        for (int first = 0; first < 16; first += 16) {
          float part[16];
          gc_tcgen05_load_row<16>(part, my_sums + first);
          gc_tcgen05_wait_row<16>(part);
          #pragma unroll
          for (int j = 0; j < 16; ++j) part[j] *= factor;
          gc_tcgen05_store_row<16>(my_sums + first, part);
        }
      }
    }

    // the weights, in pairs
    const float shift = top == (-__int_as_float(0x7f800000)) ? 0.0f : top;
    #pragma unroll
    for (int first = 0; first < 64; first += 32) {
      unsigned w[16];
      #pragma unroll
      for (int j = 0; j < 32; ++j) {
        float& weight = s[first + j];
        const float order = fmaf(weight, 0.25503486f, -shift);
        weight = j % 8 == 7 ? gc_exp2_polynomial(order) : gc_exp2(order);
        total[j % 4] += weight;
      }
      #pragma unroll
      for (int j = 0; j < 16; ++j) w[j] = gc_pair_of_f16(s[first + 2 * j], s[first + 2 * j + 1]);
      gc_tcgen05_store_row<16>(my_scores + first / 2, w);
    }
    gc_tcgen05_wait_store();
    gc_tcgen05_fence_before();
    gc_syncwarp();
    if (id % 32 == 0) gc_mbarrier_arrive(my_weighed);
  }

  // store the values divided by the row's total
  gc_mbarrier_wait(my_scored, turn);
  gc_syncwarp();
  gc_tcgen05_fence_after();
  const float share = 1.0f / (total[0] + total[1] + (total[2] + total[3]));
  const bool inside = first_row + my_row < size3;
  #pragma unroll
  for (int first = 0; first < 16; first += 16) {
    float acc[16];
    gc_tcgen05_load_row<16>(acc, my_sums + first);
    gc_tcgen05_wait_row<16>(acc);
    if (inside) {
      const int r2 = batch * size0 + row * 16;
      #pragma unroll
      for (int j = 0; j < 16; j += 8) {
        const int col = (first + j) / 8;
        float means[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i) means[i] = acc[j + i] * share;
        __align__(16) gc_half ev0[8];
        *reinterpret_cast<uint4*>(ev0) = *reinterpret_cast<const uint4*>(x3 + r2 + col * 8);
        __align__(16) gc_half ew0[8];
        #pragma unroll
        for (int lane = 0; lane < 8; ++lane) {
          const float e2 = gc_half_to_float(ev0[lane]);
          const float e3 = means[lane] + e2;
          const float e4 = gc_max_nan(e3, 0.0f);
          ew0[lane] = gc_float_to_half(e4);
        }
        *reinterpret_cast<uint4*>(x4 + r2 + col * 8) = *reinterpret_cast<const uint4*>(ew0);
      }
    }
    gc_syncwarp();
  }
  gc_tcgen05_fence_before();
  gc_named_barrier(1, 128);
  if (id / 32 == 1) {
    gc_tcgen05_fence_after();
    gc_tcgen05_free(scores, 128);
  }
}
