// tcgen05 and tensor memory: sm_100f alone

// y[128, 48] = a[128, depth] b[48, depth]^T of f16, 64 deep a stage: warp 4 loads, warp 5 multiplies, the others store.
extern "C" __global__ void __launch_bounds__(192) k_tcgen05_f16(const __grid_constant__ gc_tensor_map a,
                                                             const __grid_constant__ gc_tensor_map b, float* y,
                                                             int depth) {
  unsigned char* const tiles = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(tiles + 2 * 22528);
  unsigned long long* const empty = full + 2;
  unsigned long long* const done = empty + 2;
  unsigned* const allocated = reinterpret_cast<unsigned*>(done + 1);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2; ++stage) {
      gc_mbarrier_init(full + stage, 1);
      gc_mbarrier_init(empty + stage, 1);
    }
    gc_mbarrier_init(done, 1);
    gc_fence_barrier_init();
  }
  if (threadIdx.x / 32 == 1) gc_tcgen05_alloc(allocated, 64);
  gc_tcgen05_fence_before();
  __syncthreads();
  gc_tcgen05_fence_after();
  const unsigned sums = *allocated;
  if (threadIdx.x / 32 == 4 && gc_elect_one()) {
    for (int step = 0; step < depth / 64; ++step) {
      const int stage = step % 2;
      gc_mbarrier_wait(empty + stage, (step / 2 & 1) ^ 1);
      gc_mbarrier_arrive_expect_tx(full + stage, 22528);
      gc_tma_load_2d(tiles + stage * 22528, &a, full + stage, step * 64, 0);
      gc_tma_load_2d(tiles + stage * 22528 + 16384, &b, full + stage, step * 64, 0);
    }
  }
  if (threadIdx.x / 32 == 5 && gc_elect_one()) {
    for (int step = 0; step < depth / 64; ++step) {
      const int stage = step % 2;
      gc_mbarrier_wait(full + stage, step / 2 & 1);
      const unsigned long long rows = gc_tcgen05_operand(tiles + stage * 22528);
      const unsigned long long columns = gc_tcgen05_operand(tiles + stage * 22528 + 16384);
#pragma unroll
      for (int k = 0; k < 4; ++k) gc_tcgen05_f16<128, 48>(sums, rows + 2 * k, columns + 2 * k, step > 0 || k > 0);
      gc_tcgen05_commit(empty + stage);
    }
    gc_tcgen05_commit(done);
  }
  if (threadIdx.x >= 128) return;
  gc_mbarrier_wait(done, 0);
  gc_tcgen05_fence_after();
  for (int half = 0; half < 2; ++half) {
    const int row = threadIdx.x / 32 * 32 + half * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    const unsigned from = sums + ((threadIdx.x / 32 * 32 + half * 16) << 16);
    float upper[16], lower[8];
    gc_tcgen05_load<32>(upper, from);
    gc_tcgen05_load<16>(lower, from + 32);
    gc_tcgen05_wait_load<32>(upper);
    gc_tcgen05_wait_load<16>(lower);
#pragma unroll
    for (int i = 0; i < 24; ++i)
      y[(row + (i & 2 ? 8 : 0)) * 48 + column + i / 4 * 8 + (i & 1)] = i < 16 ? upper[i] : lower[i - 16];
  }
  gc_tcgen05_fence_before();
  gc_named_barrier(1, 128);
  if (threadIdx.x / 32 == 2) {
    gc_tcgen05_fence_after();
    gc_tcgen05_free(sums, 64);
  }
}

// y[64, 64] = a[64, 128 bytes] b[64, 128 bytes]^T of bf16, then of tf32: one warp does everything but the loads of sums
extern "C" __global__ void __launch_bounds__(128) k_tcgen05_types(
    const __grid_constant__ gc_tensor_map a_bf16, const __grid_constant__ gc_tensor_map b_bf16,
    const __grid_constant__ gc_tensor_map a_tf32, const __grid_constant__ gc_tensor_map b_tf32, float* y) {
  unsigned char* const tiles = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(tiles + 32768);
  unsigned* const allocated = reinterpret_cast<unsigned*>(full + 2);
  if (threadIdx.x / 32 == 0) gc_tcgen05_alloc(allocated, 128);
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_mbarrier_init(full + 1, 1);
    gc_fence_barrier_init();
    gc_mbarrier_arrive_expect_tx(full, 32768);
    gc_tma_load_2d(tiles, &a_bf16, full, 0, 0);
    gc_tma_load_2d(tiles + 8192, &b_bf16, full, 0, 0);
    gc_tma_load_2d(tiles + 16384, &a_tf32, full, 0, 0);
    gc_tma_load_2d(tiles + 24576, &b_tf32, full, 0, 0);
    gc_mbarrier_wait(full, 0);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      gc_tcgen05_bf16<64, 64>(*allocated, gc_tcgen05_operand(tiles) + 2 * k, gc_tcgen05_operand(tiles + 8192) + 2 * k, k > 0);
      gc_tcgen05_tf32<64, 64>(*allocated + 64, gc_tcgen05_operand(tiles + 16384) + 2 * k,
                              gc_tcgen05_operand(tiles + 24576) + 2 * k, k > 0);
    }
    gc_tcgen05_commit(full + 1);
  }
  gc_tcgen05_fence_before();
  __syncthreads();
  gc_mbarrier_wait(full + 1, 0);
  gc_tcgen05_fence_after();
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int type = 0; type < 2; ++type) {
    float sums[32];
    gc_tcgen05_load<64>(sums, *allocated + type * 64 + (threadIdx.x / 32 << 21));
    gc_tcgen05_wait_load<64>(sums);
#pragma unroll
    for (int i = 0; i < 32; ++i) y[type * 4096 + (row + (i & 2 ? 8 : 0)) * 64 + column + i / 4 * 8 + (i & 1)] = sums[i];
  }
  gc_tcgen05_fence_before();
  __syncthreads();
  gc_tcgen05_fence_after();
  if (threadIdx.x / 32 == 0) gc_tcgen05_free(*allocated, 128);
}

// y[rank, 64, 16] = a[64 rank + 64, 64 deep] b[16, 64 deep]^T of f16, twice: two blocks load half of `b` each, for both
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)
    k_tcgen05_pair(const __grid_constant__ gc_tensor_map a, const __grid_constant__ gc_tensor_map b, float* y) {
  unsigned char* const tiles = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(tiles + 10240);
  unsigned long long* const empty = full + 1;
  unsigned long long* const done = full + 2;
  unsigned* const allocated = reinterpret_cast<unsigned*>(full + 3);
  const int rank = (int)gc_cluster_rank();
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_mbarrier_init(empty, 2);
    gc_mbarrier_init(done, 1);
    gc_fence_barrier_init();
  }
  if (threadIdx.x / 32 == 1) gc_tcgen05_alloc(allocated, 32);
  gc_tcgen05_fence_before();
  gc_cluster_sync();
  gc_tcgen05_fence_after();
  const unsigned sums = *allocated;
  if (threadIdx.x == 0) {
    for (int step = 0; step < 2; ++step) {
      gc_mbarrier_wait_cluster(empty, (step & 1) ^ 1);
      gc_mbarrier_arrive_expect_tx(full, 10240);
      gc_tma_load_2d(tiles, &a, full, step * 64, rank * 64);
      gc_tma_load_2d_multicast(tiles + 8192 + rank * 1024, &b, full, step * 64, rank * 8, 3);
      gc_mbarrier_wait(full, step & 1);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        gc_tcgen05_f16<64, 16>(sums, gc_tcgen05_operand(tiles) + 2 * k, gc_tcgen05_operand(tiles + 8192) + 2 * k, step + k > 0);
      if (step == 0) gc_tcgen05_commit_multicast(empty, 3);
    }
    gc_tcgen05_commit(done);
  }
  __syncthreads();
  gc_mbarrier_wait(done, 0);
  gc_tcgen05_fence_after();
  float part[8];
  gc_tcgen05_load<16>(part, sums + (threadIdx.x / 32 << 21));
  gc_tcgen05_wait_load<16>(part);
  const int row = rank * 64 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 8; ++i) y[(row + (i & 2 ? 8 : 0)) * 16 + column + i / 4 * 8 + (i & 1)] = part[i];
  gc_tcgen05_fence_before();
  __syncthreads();
  gc_tcgen05_fence_after();
  if (threadIdx.x / 32 == 1) gc_tcgen05_free(sums, 32);
}

// y[256, 48] = a[256, 64 deep] b[48, 64 deep]^T of f16, twice: two blocks multiply as one, with 128 rows and 24 columns each
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)
    k_tcgen05_as_one(const __grid_constant__ gc_tensor_map a, const __grid_constant__ gc_tensor_map b, float* y) {
  unsigned char* const tiles = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(tiles + 19456);
  unsigned long long* const empty = full + 1;
  unsigned long long* const done = full + 2;
  unsigned* const allocated = reinterpret_cast<unsigned*>(full + 3);
  const int rank = (int)gc_cluster_rank();
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_mbarrier_init(empty, 1);
    gc_mbarrier_init(done, 1);
    gc_fence_barrier_init();
  }
  gc_cluster_sync();
  if (threadIdx.x / 32 == 1) gc_tcgen05_alloc_pair(allocated, 64);
  gc_tcgen05_fence_before();
  gc_cluster_sync();
  gc_tcgen05_fence_after();
  const unsigned sums = *allocated;
  if (threadIdx.x == 0) {
    for (int step = 0; step < 2; ++step) {
      gc_mbarrier_wait_cluster(empty, (step & 1) ^ 1);
      if (rank == 0) gc_mbarrier_arrive_expect_tx(full, 38912);
      gc_tma_load_2d_pair(tiles, &a, full, step * 64, rank * 128);
      gc_tma_load_2d_pair(tiles + 16384, &b, full, step * 64, rank * 24);
      if (rank == 0) {
        gc_mbarrier_wait(full, step & 1);
#pragma unroll
        for (int k = 0; k < 4; ++k)
          gc_tcgen05_f16_pair<48>(sums, gc_tcgen05_operand(tiles) + 2 * k, gc_tcgen05_operand(tiles + 16384) + 2 * k, step + k > 0);
        if (step == 0) gc_tcgen05_commit_pair(empty);
      }
    }
    if (rank == 0) gc_tcgen05_commit_pair(done);
  }
  __syncthreads();
  gc_mbarrier_wait_cluster(done, 0);
  gc_tcgen05_fence_after();
  for (int half = 0; half < 2; ++half) {
    const int row = rank * 128 + threadIdx.x / 32 * 32 + half * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    const unsigned from = sums + ((threadIdx.x / 32 * 32 + half * 16) << 16);
    for (int first = 0; first < 48; first += 16) {
      float part[8];
      gc_tcgen05_load<16>(part, from + first);
      gc_tcgen05_wait_load<16>(part);
#pragma unroll
      for (int i = 0; i < 8; ++i) y[(row + (i & 2 ? 8 : 0)) * 48 + first + column + i / 4 * 8 + (i & 1)] = part[i];
    }
  }
  gc_tcgen05_fence_before();
  gc_cluster_sync();
  gc_tcgen05_fence_after();
  if (threadIdx.x / 32 == 1) gc_tcgen05_free_pair(sums, 64);
  gc_cluster_sync();
}

// y[2, 256, 32] = a[256, 128 bytes] b[32, 128 bytes]^T of bf16, where `a` are pixels of an image of 16 x 16 and `b` is the second
// matrix of a batch; and of tf32. Two blocks multiply as one
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) k_tcgen05_as_one_types(
    const __grid_constant__ gc_tensor_map pixels, const __grid_constant__ gc_tensor_map b_bf16,
    const __grid_constant__ gc_tensor_map a_tf32, const __grid_constant__ gc_tensor_map b_tf32, float* y) {
  unsigned char* const tiles = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(tiles + 36864);
  unsigned long long* const done = full + 1;
  unsigned* const allocated = reinterpret_cast<unsigned*>(full + 2);
  const int rank = (int)gc_cluster_rank();
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_mbarrier_init(done, 1);
    gc_fence_barrier_init();
  }
  gc_cluster_sync();
  if (threadIdx.x / 32 == 1) gc_tcgen05_alloc_pair(allocated, 64);
  gc_tcgen05_fence_before();
  gc_cluster_sync();
  gc_tcgen05_fence_after();
  const unsigned sums = *allocated;
  if (threadIdx.x == 0) {
    if (rank == 0) gc_mbarrier_arrive_expect_tx(full, 73728);
    gc_tma_load_im2col_4d_pair(tiles, &pixels, full, 0, 0, rank * 8, 0, 0, 0);
    gc_tma_load_3d_pair(tiles + 16384, &b_bf16, full, 0, rank * 16, 1);
    gc_tma_load_2d_pair(tiles + 18432, &a_tf32, full, 0, rank * 128);
    gc_tma_load_2d_pair(tiles + 34816, &b_tf32, full, 0, rank * 16);
    if (rank == 0) {
      gc_mbarrier_wait(full, 0);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        gc_tcgen05_bf16_pair<32>(sums, gc_tcgen05_operand(tiles) + 2 * k, gc_tcgen05_operand(tiles + 16384) + 2 * k, k > 0);
        gc_tcgen05_tf32_pair<32>(sums + 32, gc_tcgen05_operand(tiles + 18432) + 2 * k,
                                 gc_tcgen05_operand(tiles + 34816) + 2 * k, k > 0);
      }
      gc_tcgen05_commit_pair(done);
    }
  }
  __syncthreads();
  gc_mbarrier_wait_cluster(done, 0);
  gc_tcgen05_fence_after();
  const int row = rank * 128 + threadIdx.x / 32 * 32 + threadIdx.x % 32;
  for (int type = 0; type < 2; ++type) {
    float part[32];
    gc_tcgen05_load_row<32>(part, sums + type * 32 + (threadIdx.x / 32 << 21));
    gc_tcgen05_wait_row<32>(part);
#pragma unroll
    for (int i = 0; i < 32; ++i) y[(type * 256 + row) * 32 + i] = part[i];
  }
  gc_tcgen05_fence_before();
  gc_cluster_sync();
  gc_tcgen05_fence_after();
  if (threadIdx.x / 32 == 1) gc_tcgen05_free_pair(sums, 64);
  gc_cluster_sync();
}

// what the descriptor of an instruction is: y[i] of m, n, format
extern "C" __global__ void k_tcgen05_instruction(unsigned* y) {
  y[0] = gc_tcgen05_instruction(0, 128, 256);
  y[1] = gc_tcgen05_instruction(1, 64, 48);
  y[2] = gc_tcgen05_instruction(2, 128, 16);
  y[3] = gc_tcgen05_instruction(0, 256, 96);
}

// y[128, 80] = w[128, 32] v[32, 80] of f16 or bf16: threads store rows of w to tensor memory; v is read across, in panels of 64 columns.
// Then the sums of each row are doubled where they are, and the product is added once more
template <bool is_bf16>
__device__ __forceinline__ void weighted(const unsigned* w, const gc_tensor_map& v, float* y) {
  unsigned char* const tiles = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(tiles + 8192);
  unsigned long long* const stored = full + 1;
  unsigned long long* const done = full + 2;
  unsigned* const allocated = reinterpret_cast<unsigned*>(full + 3);
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_mbarrier_init(stored, 4);
    gc_mbarrier_init(done, 1);
    gc_fence_barrier_init();
  }
  if (threadIdx.x / 32 == 1) gc_tcgen05_alloc(allocated, 128);
  gc_tcgen05_fence_before();
  __syncthreads();
  gc_tcgen05_fence_after();
  const unsigned sums = *allocated, weights = sums + 96;
  if (threadIdx.x / 32 == 4) {
    if (gc_elect_one()) {
      gc_mbarrier_arrive_expect_tx(full, 8192);
      gc_tma_load_2d(tiles, &v, full, 0, 0);
      gc_tma_load_2d(tiles + 4096, &v, full, 64, 0);
      gc_mbarrier_wait(full, 0);
      for (int turn = 0; turn < 2; ++turn) {
        gc_mbarrier_wait(stored, turn);
        gc_tcgen05_fence_after();
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const unsigned long long values = gc_tcgen05_turned(tiles, 4096) + 128 * j;
          if constexpr (is_bf16) gc_tcgen05_bf16_weights<80>(sums, weights + 8 * j, values, turn > 0 || j > 0);
          else gc_tcgen05_f16_weights<80>(sums, weights + 8 * j, values, turn > 0 || j > 0);
        }
        gc_tcgen05_commit(done);
      }
    }
    return;
  }
  const unsigned mine = threadIdx.x / 32 << 21;
  unsigned words[16];
  for (int i = 0; i < 16; ++i) words[i] = w[threadIdx.x * 16 + i];
  gc_tcgen05_store_row<16>(weights + mine, words);
  gc_tcgen05_wait_store();
  gc_tcgen05_fence_before();
  gc_syncwarp();
  if (threadIdx.x % 32 == 0) gc_mbarrier_arrive(stored);
  gc_mbarrier_wait(done, 0);
  gc_tcgen05_fence_after();
  for (int first = 0; first < 80; first += 16) {
    float part[16];
    gc_tcgen05_load_row<16>(part, sums + mine + first);
    gc_tcgen05_wait_row<16>(part);
    for (int i = 0; i < 16; ++i) part[i] *= 2.0f;
    gc_tcgen05_store_row<16>(sums + mine + first, part);
  }
  gc_tcgen05_wait_store();
  gc_tcgen05_fence_before();
  gc_syncwarp();
  if (threadIdx.x % 32 == 0) gc_mbarrier_arrive(stored);
  gc_mbarrier_wait(done, 1);
  gc_tcgen05_fence_after();
  float upper[32], lower[48];
  gc_tcgen05_load_row<32>(upper, sums + mine);
  gc_tcgen05_wait_row<32>(upper);
  for (int i = 0; i < 32; ++i) y[threadIdx.x * 80 + i] = upper[i];
  gc_tcgen05_load_row<32>(lower, sums + mine + 32);
  gc_tcgen05_load_row<16>(lower + 32, sums + mine + 64);
  gc_tcgen05_wait_row<48>(lower);
  for (int i = 0; i < 48; ++i) y[threadIdx.x * 80 + 32 + i] = lower[i];
  gc_tcgen05_fence_before();
  gc_named_barrier(1, 128);
  if (threadIdx.x / 32 == 2) {
    gc_tcgen05_fence_after();
    gc_tcgen05_free(sums, 128);
  }
}

extern "C" __global__ void __launch_bounds__(160) k_tcgen05_weights(const unsigned* w, const __grid_constant__ gc_tensor_map v,
                                                                  float* y) {
  weighted<false>(w, v, y);
}

extern "C" __global__ void __launch_bounds__(160) k_tcgen05_weights_bf16(const unsigned* w,
                                                                       const __grid_constant__ gc_tensor_map v, float* y) {
  weighted<true>(w, v, y);
}
