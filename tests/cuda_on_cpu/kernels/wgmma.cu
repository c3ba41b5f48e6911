// wgmma and setmaxnreg: sm_90a alone

// y[64, 32] = a[64, depth] b[32, depth]^T of f16 by two warpgroups, the second of which loads, 64 deep a stage.
extern "C" __global__ void __launch_bounds__(256, 2) k_wgmma_f16(const __grid_constant__ gc_tensor_map a,
                                                              const __grid_constant__ gc_tensor_map b, float* y,
                                                              int depth) {
  unsigned char* const tiles = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(tiles + 2 * 12288);
  unsigned long long* const empty = full + 2;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2; ++stage) {
      gc_mbarrier_init(full + stage, 1);
      gc_mbarrier_init(empty + stage, 4);
    }
    gc_fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= 128) {
    gc_setmaxnreg_dec<40>();
    if (threadIdx.x == 128) {
      for (int step = 0; step < depth / 64; ++step) {
        const int stage = step % 2;
        gc_mbarrier_wait(empty + stage, (step / 2 & 1) ^ 1);
        gc_mbarrier_arrive_expect_tx(full + stage, 12288);
        gc_tma_load_2d(tiles + stage * 12288, &a, full + stage, step * 64, 0);
        gc_tma_load_2d(tiles + stage * 12288 + 8192, &b, full + stage, step * 64, 0);
      }
    }
    return;
  }
  gc_setmaxnreg_inc<216>();
  float acc[16];
  for (int i = 0; i < 16; ++i) acc[i] = 0.0f;
  for (int step = 0; step < depth / 64; ++step) {
    const int stage = step % 2;
    gc_mbarrier_wait(full + stage, step / 2 & 1);
    const unsigned long long rows = gc_wgmma_operand(tiles + stage * 12288);
    const unsigned long long columns = gc_wgmma_operand(tiles + stage * 12288 + 8192);
    gc_wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) gc_wgmma_f16<32>(acc, gc_wgmma_along(rows, 2 * k), columns + 2 * k);
    gc_wgmma_commit();
    gc_wgmma_wait<0>();
    if (threadIdx.x % 32 == 0) gc_mbarrier_arrive(empty + stage);
  }
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int i = 0; i < 16; ++i) y[(row + (i & 2 ? 8 : 0)) * 32 + column + i / 4 * 8 + (i & 1)] = acc[i];
}

// y[64, 8] = a[64, 128 bytes] b[8, 128 bytes]^T of the other types of elements
extern "C" __global__ void __launch_bounds__(128) k_wgmma_types(
    const __grid_constant__ gc_tensor_map a_bf16, const __grid_constant__ gc_tensor_map b_bf16,
    const __grid_constant__ gc_tensor_map a_tf32, const __grid_constant__ gc_tensor_map b_tf32,
    const __grid_constant__ gc_tensor_map a_s8, const __grid_constant__ gc_tensor_map b_s8, float* y, int* z) {
  unsigned char* const tiles = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(tiles + 27648);
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_fence_barrier_init();
    gc_mbarrier_arrive_expect_tx(full, 27648);
    gc_tma_load_2d(tiles, &a_bf16, full, 0, 0);
    gc_tma_load_2d(tiles + 8192, &b_bf16, full, 0, 0);
    gc_tma_load_2d(tiles + 9216, &a_tf32, full, 0, 0);
    gc_tma_load_2d(tiles + 17408, &b_tf32, full, 0, 0);
    gc_tma_load_2d(tiles + 18432, &a_s8, full, 0, 0);
    gc_tma_load_2d(tiles + 26624, &b_s8, full, 0, 0);
  }
  __syncthreads();
  gc_mbarrier_wait(full, 0);
  float bf16[4], tf32[4];
  int s8[4];
  for (int i = 0; i < 4; ++i) {
    bf16[i] = tf32[i] = 0.0f;
    s8[i] = 0;
  }
  gc_wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    gc_wgmma_bf16<8>(bf16, gc_wgmma_operand(tiles) + 2 * k, gc_wgmma_operand(tiles + 8192) + 2 * k);
    gc_wgmma_tf32<8>(tf32, gc_wgmma_operand(tiles + 9216) + 2 * k, gc_wgmma_operand(tiles + 17408) + 2 * k);
    gc_wgmma_s8<8>(s8, gc_wgmma_operand(tiles + 18432) + 2 * k, gc_wgmma_operand(tiles + 26624) + 2 * k);
  }
  gc_wgmma_commit();
  gc_wgmma_wait<0>();
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    const int at = (row + (i & 2 ? 8 : 0)) * 8 + column + (i & 1);
    y[at] = bf16[i];
    y[512 + at] = tf32[i];
    z[at] = s8[i];
  }
}

// y[64, 96] = (a[64, 128 bytes] b[32, 128 bytes]^T) c[32, 96], of f16 and then of bf16: the first product is the left operand
// of the second in registers, and `c` is contiguous along its columns, in panels of 64
extern "C" __global__ void __launch_bounds__(128) k_wgmma_chained(
    const __grid_constant__ gc_tensor_map a_f16, const __grid_constant__ gc_tensor_map b_f16,
    const __grid_constant__ gc_tensor_map c_f16, const __grid_constant__ gc_tensor_map a_bf16,
    const __grid_constant__ gc_tensor_map b_bf16, const __grid_constant__ gc_tensor_map c_bf16, float* y) {
  unsigned char* const tiles = gc_swizzled_shared();
  unsigned long long* const full = reinterpret_cast<unsigned long long*>(tiles + 40960);
  if (threadIdx.x == 0) {
    gc_mbarrier_init(full, 1);
    gc_fence_barrier_init();
    gc_mbarrier_arrive_expect_tx(full, 40960);
    gc_tma_load_2d(tiles, &a_f16, full, 0, 0);
    gc_tma_load_2d(tiles + 8192, &b_f16, full, 0, 0);
    gc_tma_load_2d(tiles + 12288, &c_f16, full, 0, 0);
    gc_tma_load_2d(tiles + 16384, &c_f16, full, 64, 0);
    gc_tma_load_2d(tiles + 20480, &a_bf16, full, 0, 0);
    gc_tma_load_2d(tiles + 28672, &b_bf16, full, 0, 0);
    gc_tma_load_2d(tiles + 32768, &c_bf16, full, 0, 0);
    gc_tma_load_2d(tiles + 36864, &c_bf16, full, 64, 0);
  }
  __syncthreads();
  gc_mbarrier_wait(full, 0);
  float first[2][16], second[2][48];
  unsigned left[2][8];
  for (int i = 0; i < 48; ++i) second[0][i] = second[1][i] = 0.0f;
  gc_wgmma_fence();
  gc_wgmma_f16_first<32>(first[0], gc_wgmma_operand(tiles), gc_wgmma_operand(tiles + 8192));
  gc_wgmma_bf16_first<32>(first[1], gc_wgmma_operand(tiles + 20480), gc_wgmma_operand(tiles + 28672));
#pragma unroll
  for (int k = 1; k < 4; ++k) {
    gc_wgmma_f16<32>(first[0], gc_wgmma_operand(tiles) + 2 * k, gc_wgmma_operand(tiles + 8192) + 2 * k);
    gc_wgmma_bf16<32>(first[1], gc_wgmma_operand(tiles + 20480) + 2 * k, gc_wgmma_operand(tiles + 28672) + 2 * k);
  }
  gc_wgmma_commit();
  gc_wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    left[0][i] = gc_float_to_half(first[0][2 * i]).bits | (unsigned)gc_float_to_half(first[0][2 * i + 1]).bits << 16;
    left[1][i] = gc_float_to_bf16(first[1][2 * i]).bits | (unsigned)gc_float_to_bf16(first[1][2 * i + 1]).bits << 16;
  }
  gc_wgmma_fence();
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    gc_wgmma_f16_registers<96>(second[0], left[0] + 4 * k, gc_wgmma_turned(tiles + 12288, 4096) + 128 * k);
    gc_wgmma_bf16_registers<96>(second[1], left[1] + 4 * k, gc_wgmma_turned(tiles + 32768, 4096) + 128 * k);
  }
  gc_wgmma_commit();
  float meanwhile = first[0][0] * 2.0f;
  gc_wgmma_before(meanwhile);
  gc_wgmma_wait<0>();
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int t = 0; t < 2; ++t)
    for (int i = 0; i < 48; ++i) y[(t * 64 + row + (i & 2 ? 8 : 0)) * 96 + column + i / 4 * 8 + (i & 1)] = second[t][i];
  y[2 * 64 * 96 + threadIdx.x] = meanwhile;
}
