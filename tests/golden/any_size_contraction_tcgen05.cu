// matmul nx40x72
// problem   batch=2 m=70 n=40 k=72 taps=0 element_bytes=2 out_wide=8 b_known=0 out_bytes=0 out_reads=1  (an example: each run decides its sizes)
// schedule  tile_m=64 tile_n=32 stages=2 splits=1 overlap=1 multicast=1 tma_store=0 turns=1
// engine    contraction/tcgen05

__device__ __forceinline__ int over_size(int a, unsigned int magic, int shift) {
  return (int)((unsigned long long)(unsigned int)a * magic >> shift);
}

__device__ __forceinline__ int modulo_size(int a, int size, unsigned int magic, int shift) {
  return a - over_size(a, magic, shift) * size;
}

extern "C" __global__ void __launch_bounds__(192, 1) __cluster_dims__(2, 1, 1) kernel0(
    const gc_half* x0,
    const gc_half* x1,
    const gc_half* x2,
    gc_half* __restrict__ x3,
    gc_half* __restrict__ x4,
    const __grid_constant__ gc_tensor_map map_a,
    const __grid_constant__ gc_tensor_map map_b,
    long long run_size0, long long run_size1, long long run_magic1, long long run_shift1, long long run_magic2, long long run_shift2, long long run_size3, long long run_size4) {
  const int size0 = (int)run_size0;
  const int size1 = (int)run_size1;
  const unsigned int magic1 = (unsigned int)run_magic1;
  const int shift1 = (int)run_shift1;
  const unsigned int magic2 = (unsigned int)run_magic2;
  const int shift2 = (int)run_shift2;
  const int size3 = (int)run_size3;
  const int size4 = (int)run_size4;
  unsigned char* const shared = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(shared + 24576);
  unsigned long long* const empty = full + 2;
  unsigned long long* const done = empty + 2;
  unsigned* const allocated = reinterpret_cast<unsigned*>(done + 1);

  // the position of the tile in the result
  const int id = (int)threadIdx.x;
  const int tile = (int)blockIdx.x;
  const int first_column = ((tile / 2) % 2) * 32;
  const int first_row = (modulo_size((tile / 2) / 2, size1, magic1, shift1) * 2 + tile % 2) * 64;
  const int batch = over_size(tile, magic2, shift2);
  const int rank = (int)gc_cluster_rank();

  // two barriers for each stage, full and empty, and one for all products; tensor memory for the sums
  if (id == 0) {
    for (int stage = 0; stage < 2; ++stage) {
      gc_mbarrier_init(full + stage, 1);
      gc_mbarrier_init(empty + stage, 2);
    }
    gc_mbarrier_init(done, 1);
    gc_fence_barrier_init();
  }
  if (id / 32 == 1) gc_tcgen05_alloc(allocated, 32);
  gc_tcgen05_fence_before();
  gc_cluster_sync();
  gc_tcgen05_fence_after();
  const unsigned sums_at = *allocated;
  gc_grid_wait();  // what follows reads and writes memory that the launches before this one use

  // the producer: one thread of the warp after the consumers loads tiles of both operands into the ring
  if (id >= 128 && id < 160) {
    if (gc_elect_one()) {
      gc_tma_prefetch(&map_a);
      gc_tma_prefetch(&map_b);
      gc_grid_launch_dependents();
      int stage = 0;
      unsigned parity = 1;
      for (int step = 0; step < 2; ++step) {
        unsigned char* const to = shared + stage * 12288;
        gc_mbarrier_wait_cluster(empty + stage, parity);
        gc_mbarrier_arrive_expect_tx(full + stage, 12288);
        gc_tma_load_3d(to, &map_a, full + stage, step * 64, first_row, batch);
        gc_tma_load_3d_multicast(to + 8192 + rank * 2048, &map_b, full + stage, step * 64, first_column + rank * 16, batch, 3);
        if (++stage == 2) {
          stage = 0;
          parity ^= 1;
        }
      }
    }
    return;
  }

  // one thread of the last warp asks for the products of each stage
  if (id >= 160) {
    if (gc_elect_one()) {
      int stage = 0;
      unsigned parity = 0;
      for (int step = 0; step < 2; ++step) {
        gc_mbarrier_wait(full + stage, parity);
        const unsigned long long rows = gc_tcgen05_operand(shared + stage * 12288);
        const unsigned long long columns = gc_tcgen05_operand(shared + stage * 12288 + 8192);
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
          gc_tcgen05_f16<64, 32>(sums_at, rows + 2 * k, columns + 2 * k, step > 0 || k > 0);
        }
        // both work-groups load into this one's ring; an arrival that no load waits for could come after the other one has ended
        if (step < 0) gc_tcgen05_commit_multicast(empty + stage, 3);
        if (++stage == 2) {
          stage = 0;
          parity ^= 1;
        }
      }
      gc_tcgen05_commit(done);
    }
    return;
  }

  // the consumers: the sums are there when all products are done
  gc_mbarrier_wait(done, 0);
  gc_tcgen05_fence_after();
  const unsigned my_sums = sums_at + (id / 32 % 4 << 21);

  // the ring is free: it receives the sums, row by row
  float* const staged = reinterpret_cast<float*>(shared);
  {
    const int line = id / 32 * 16 + id % 32 / 4;
    float* const to = staged + line * 40;
    #pragma unroll
    for (int first = 0; first < 32; first += 32) {
      float acc[16];
      gc_tcgen05_load<32>(acc, my_sums + first);
      gc_tcgen05_wait_load<32>(acc);
      #pragma unroll
      for (int j = 0; j < 16; j += 2) {
        *reinterpret_cast<float2*>(to + first + j % 4 * 160 + j / 4 * 8 + (id % 4 * 2 ^ line % 2 * 4)) = make_float2(acc[j], acc[j + 1]);
      }
    }
  }
  gc_tcgen05_fence_before();
  gc_named_barrier(1, 128);
  if (id / 32 == 1) {
    gc_tcgen05_fence_after();
    gc_tcgen05_free(sums_at, 32);
  }

  for (int i = id; i < 256; i += 128) {
    const int local_row = i / 4;
    const int local_column = i % 4 * 8;
    const int row = first_row + local_row;
    const int col = (first_column + local_column) / 8;
    if (row < size4 && col < 5) {
      const float* const from = staged + local_row * 40 + local_column;
      const int first_half = local_row % 2 * 4;  // some runs have their halves exchanged
      __align__(16) float sums[8];
      *reinterpret_cast<uint4*>(sums) = *reinterpret_cast<const uint4*>(from + first_half);
      *reinterpret_cast<uint4*>(sums + 4) = *reinterpret_cast<const uint4*>(from + (first_half ^ 4));
      const int r2 = batch * size0 + row * 40;
      const int e1 = r2 + col * 8;
      __align__(16) gc_half ev0[8];
      *reinterpret_cast<uint4*>(ev0) = *reinterpret_cast<const uint4*>(x2 + col * 8);
      __align__(16) gc_half ew0[8];
      __align__(16) gc_half ew1[8];
      #pragma unroll
      for (int lane = 0; lane < 8; ++lane) {
        const float e2 = gc_half_to_float(ev0[lane]);
        const float e3 = sums[lane] + e2;
        const float e4 = gc_half_to_float(gc_float_to_half(e3));
        const float e5 = gc_max_nan(e4, 0.0f);
        const float e6 = gc_half_to_float(gc_float_to_half(e5 + e5));
        ew0[lane] = gc_float_to_half(e5);
        ew1[lane] = gc_float_to_half(e6);
      }
      *reinterpret_cast<uint4*>(x3 + e1) = *reinterpret_cast<const uint4*>(ew0);
      *reinterpret_cast<uint4*>(x4 + e1) = *reinterpret_cast<const uint4*>(ew1);
    }
  }
}
