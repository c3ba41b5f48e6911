// mbarriers, TMA, clusters and programmatic launch: sm_90 and later

// Each of the stages of a ring is filled by thread 0 and doubled by all: boxes of 8 x 32 floats, unswizzled.
extern "C" __global__ void __launch_bounds__(64) k_ring(const __grid_constant__ gc_tensor_map map, float* y, int steps) {
  float* const tiles = reinterpret_cast<float*>(gc_swizzled_shared());
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(gc_swizzled_shared() + 2 * 1024);
  unsigned long long* const empty = full + 2;
  if (threadIdx.x == 0) {
    gc_tma_prefetch(&map);
    for (int stage = 0; stage < 2; ++stage) {
      gc_mbarrier_init(full + stage, 1);
      gc_mbarrier_init(empty + stage, 2);
    }
    gc_fence_barrier_init();
  }
  __syncthreads();
  for (int step = 0; step < steps; ++step) {
    const int stage = step % 2, round = step / 2;
    if (threadIdx.x == 0) {
      gc_mbarrier_wait(empty + stage, (round & 1) ^ 1);
      gc_mbarrier_arrive_expect_tx(full + stage, 1024);
      gc_tma_load_2d(tiles + stage * 256, &map, full + stage, 0, step * 8);
    }
    gc_mbarrier_wait(full + stage, round & 1);
    for (int i = threadIdx.x; i < 256; i += 64) y[step * 256 + i] = 2.0f * tiles[stage * 256 + i];
    gc_syncwarp();
    if (threadIdx.x % 32 == 0) gc_mbarrier_arrive(empty + stage);
  }
  __syncthreads();
  if (threadIdx.x == 0) gc_mbarrier_invalidate(full);
}

// The last two of three warps exchange what they read; the first exits at once.
extern "C" __global__ void __launch_bounds__(96) k_named_barrier(const float* x, float* y) {
  float* const shared = reinterpret_cast<float*>(gc_swizzled_shared());
  if (threadIdx.x < 32) return;
  const int i = threadIdx.x - 32;
  shared[i] = x[i];
  gc_named_barrier(3, 64);
  y[i] = shared[63 - i];
  gc_named_barrier(3, 64);
  shared[i] = 2.0f * x[i];
  gc_named_barrier(3, 64);
  y[64 + i] = shared[63 - i];
}

// One box each of three and four dimensions, and of a convolution's pixels, as they lie in shared memory.
extern "C" __global__ void __launch_bounds__(32) k_boxes(const __grid_constant__ gc_tensor_map three,
                                                         const __grid_constant__ gc_tensor_map four,
                                                         const __grid_constant__ gc_tensor_map pixels, const int* at,
                                                         unsigned char* y, int bytes) {
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(gc_swizzled_shared() + 3 * bytes);
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_fence_barrier_init();
    gc_mbarrier_arrive_expect_tx(full, 3 * bytes);
    gc_tma_load_3d(gc_swizzled_shared(), &three, full, at[0], at[1], at[2]);
    gc_tma_load_4d(gc_swizzled_shared() + bytes, &four, full, at[0], at[1], at[2], at[3]);
    gc_tma_load_im2col_4d(gc_swizzled_shared() + 2 * bytes, &pixels, full, at[0], at[4], at[5], at[3],
                          (unsigned short)at[6], (unsigned short)at[7]);
  }
  __syncthreads();
  gc_mbarrier_wait(full, 0);
  for (int i = threadIdx.x; i < 3 * bytes; i += 32) y[i] = gc_swizzled_shared()[i];
}

// y = 3 x by a tile of 8 x 32 floats, out by TMA.
extern "C" __global__ void __launch_bounds__(32) k_store(const float* x, const __grid_constant__ gc_tensor_map map) {
  float* const tile = reinterpret_cast<float*>(gc_swizzled_shared());
  for (int i = threadIdx.x; i < 256; i += 32) tile[i] = 3.0f * x[i];
  gc_fence_proxy_async();
  gc_syncwarp();
  if (threadIdx.x == 0) {
    gc_tma_store_2d(&map, tile, 0, 0);
    gc_tma_store_commit();
    gc_tma_store_wait<0>();
  }
}

// y = 3 x, and below it 5 x, by one tile of 8 x 32 floats, out by TMA: it is written again when TMA has read it.
extern "C" __global__ void __launch_bounds__(32) k_store_twice(const float* x, const __grid_constant__ gc_tensor_map map) {
  float* const tile = reinterpret_cast<float*>(gc_swizzled_shared());
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = threadIdx.x; i < 256; i += 32) tile[i] = (3.0f + 2.0f * turn) * x[i];
    gc_fence_proxy_async();
    gc_syncwarp();
    if (threadIdx.x == 0) {
      gc_tma_store_2d(&map, tile, 0, 8 * turn);
      gc_tma_store_commit();
      gc_tma_store_wait_read<0>();
    }
    gc_syncwarp();
  }
  if (threadIdx.x == 0) gc_tma_store_wait<0>();
}

// y = 3 x by a tile of 2 x 4 x 32 floats, out by TMA.
extern "C" __global__ void __launch_bounds__(32) k_store_3d(const float* x, const __grid_constant__ gc_tensor_map map) {
  float* const tile = reinterpret_cast<float*>(gc_swizzled_shared());
  for (int i = threadIdx.x; i < 256; i += 32) tile[i] = 3.0f * x[i];
  gc_fence_proxy_async();
  gc_syncwarp();
  if (threadIdx.x == 0) {
    gc_tma_store_3d(&map, tile, 0, 2, 1);
    gc_tma_store_commit();
    gc_tma_store_wait<0>();
  }
}

// y[rank] = sum over the cluster of x, times 10 to the power of the other's rank; the same in integers, and by fours.
extern "C" __global__ void __launch_bounds__(32) __cluster_dims__(4, 1, 1) k_cluster(
    const float* x, float* y, int* z, float* by_four) {
  float* const mine = reinterpret_cast<float*>(gc_swizzled_shared());
  int* const count = reinterpret_cast<int*>(gc_swizzled_shared() + 128);
  gc_grid_wait();
  const int rank = (int)gc_cluster_rank();
  mine[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
  if (threadIdx.x == 0) count[0] = 100 + rank;
  gc_cluster_sync();
  float sum = 0.0f, four = 0.0f;
  int total = 0;
  for (unsigned other = 0; other < 4; ++other) {
    sum = 10.0f * sum + gc_cluster_load(mine + threadIdx.x, other);
    total = 1000 * (total % 1000) + gc_cluster_load(count, other);
    __align__(16) float part[4];
    *reinterpret_cast<uint4*>(part) = gc_cluster_load16(mine + threadIdx.x / 4 * 4, other);
    four = 10.0f * four + part[threadIdx.x % 4];
  }
  gc_cluster_sync();
  gc_grid_launch_dependents();
  y[blockIdx.x * 32 + threadIdx.x] = sum;
  by_four[blockIdx.x * 32 + threadIdx.x] = four;
  if (threadIdx.x == 0) z[blockIdx.x] = total;
}

// An 8 x 32 tile of 16-bit elements: lane l has the pairs that a matrix fragment gives it.
extern "C" __global__ void __launch_bounds__(32) k_stmatrix(const unsigned* fragments, unsigned* y) {
  unsigned* const tile = reinterpret_cast<unsigned*>(gc_swizzled_shared());
  const int lane = threadIdx.x;
  const unsigned* mine = fragments + lane * 4;
  gc_stmatrix_x4(tile + lane % 8 * 16 + lane / 8 * 4, mine[0], mine[1], mine[2], mine[3]);
  gc_syncwarp();
  for (int i = lane; i < 128; i += 32) y[i] = tile[i];
}

// Both blocks of a cluster double the same tiles of 8 x 32 floats: each loads half of every tile for both.
extern "C" __global__ void __launch_bounds__(64) __cluster_dims__(2, 1, 1) k_multicast(
    const __grid_constant__ gc_tensor_map map, float* y, int steps) {
  float* const tile = reinterpret_cast<float*>(gc_swizzled_shared());
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(gc_swizzled_shared() + 1024);
  unsigned long long* const empty = full + 1;
  const int rank = (int)gc_cluster_rank(), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_mbarrier_init(empty, 2);
    gc_fence_barrier_init();
  }
  gc_cluster_sync();
  if (threadIdx.x >= 32) {
    for (int step = 0; lane == 0 && step < steps; ++step) {
      gc_mbarrier_wait_cluster(empty, (step & 1) ^ 1);
      gc_mbarrier_arrive_expect_tx(full, 1024);
      gc_tma_load_2d_multicast(tile + rank * 128, &map, full, 0, step * 8 + rank * 4, 3);
    }
    return;
  }
  for (int step = 0; step < steps; ++step) {
    gc_mbarrier_wait(full, step & 1);
    for (int i = lane; i < 256; i += 32) y[(step * 2 + rank) * 256 + i] = 2.0f * tile[i];
    gc_syncwarp();
    for (int other = 0; lane == 0 && step + 1 < steps && other < 2; ++other) gc_mbarrier_arrive_cluster(empty, other);
  }
}

// A box of three dimensions from the first block of a cluster, pixels from the second, each for both.
extern "C" __global__ void __launch_bounds__(32) __cluster_dims__(2, 1, 1) k_multicast_boxes(
    const __grid_constant__ gc_tensor_map three, const __grid_constant__ gc_tensor_map pixels, const int* at,
    unsigned char* y, int bytes) {
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(gc_swizzled_shared() + 2 * bytes);
  const int rank = (int)gc_cluster_rank();
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_fence_barrier_init();
    gc_mbarrier_arrive_expect_tx(full, 2 * bytes);
  }
  gc_cluster_sync();
  if (threadIdx.x == 0 && rank == 0)
    gc_tma_load_3d_multicast(gc_swizzled_shared(), &three, full, at[0], at[1], at[2], 3);
  if (threadIdx.x == 0 && rank == 1)
    gc_tma_load_im2col_4d_multicast(gc_swizzled_shared() + bytes, &pixels, full, at[0], at[4], at[5], at[3],
                                    (unsigned short)at[6], (unsigned short)at[7], 3);
  gc_mbarrier_wait(full, 0);
  for (int i = threadIdx.x; i < 2 * bytes; i += 32) y[rank * 2 * bytes + i] = gc_swizzled_shared()[i];
}
