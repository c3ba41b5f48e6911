// Kernels with one mistake each, for the errors that the runtime must report. Lines are named in the tests.
extern "C" __global__ void k_some_wait(float* y) {
  if (threadIdx.x < 13) __syncthreads();
  y[threadIdx.x] = 1.0f;
}

extern "C" __global__ void k_wait_in_two_places(float* y) {
  if (threadIdx.x < 13) {
    __syncthreads();
    y[threadIdx.x] = 1.0f;
  } else {
    __syncthreads();
    y[threadIdx.x] = 2.0f;
  }
}

extern "C" __global__ void k_half_warp_shuffles(float* y) {
  if (threadIdx.x % 32 < 16) {
    y[threadIdx.x] = gc_warp_sum(1.0f);
  } else {
    __syncthreads();
  }
}

extern "C" __global__ void k_two_collectives(float* y) {
  if (threadIdx.x % 2) {
    y[threadIdx.x] = gc_shfl_xor(1.0f, 1);
  } else {
    y[threadIdx.x] = gc_shfl_down(1.0f, 1u);
  }
}

extern "C" __global__ void k_waits_for_a_flag(int* flag) {
  if (threadIdx.x == 0) {
    while (gc_atomic_add(flag, 0) == 0) {
    }
  }
  __syncthreads();
}

extern "C" __global__ void k_loops_forever(volatile int* flag) {
  while (*flag == 0) {
  }
}

extern "C" __global__ void k_divide(int* y) { y[0] = y[0] / y[1]; }

extern "C" __global__ void k_copies_misaligned(const float* x, float* y) {
  __shared__ __align__(16) float tile[8];
  gc_cp_async16(tile, x + 1, true);
  gc_cp_async_commit();
  gc_cp_async_wait<0>();
  y[0] = tile[0];
}

extern "C" __global__ void k_copies_to_global(const float* x, float* y) {
  gc_cp_async4(y, x, true);
  gc_cp_async_commit();
  gc_cp_async_wait<0>();
}

extern "C" __global__ void k_reads_a_copy_in_flight(const float* x, float* y) {
  __shared__ float tile[1];
  tile[0] = 1.0f;
  y[0] = tile[0];
  gc_cp_async4(tile, x, true);
  gc_cp_async_commit();
  y[1] = tile[0];
  gc_cp_async_wait<0>();
  y[2] = tile[0];
}

extern "C" __global__ void k_reads_a_lane_that_left(float* y) {
  const float first = gc_shfl(3.0f, 5), second = gc_shfl(4.0f, 5);
  if (threadIdx.x == 5) return;
  y[threadIdx.x] = first + second;
  y[32 + threadIdx.x] = gc_shfl(5.0f, 5);
}

// block 0 writes the tile, and every block reads it
extern "C" __global__ void k_reads_what_it_did_not_write(float* f32, gc_half* f16, double* f64,
                                                         float* dynamic) {
  __shared__ float tile_f32[2];
  __shared__ gc_half tile_f16[2];
  __shared__ double tile_f64[2];
  float* tile_dynamic = reinterpret_cast<float*>(gc_dynamic_shared());
  if (blockIdx.x == 0) {
    tile_f32[threadIdx.x] = 1.0f;
    tile_f16[threadIdx.x] = gc_float_to_half(1.0f);
    tile_f64[threadIdx.x] = 1.0;
    tile_dynamic[threadIdx.x] = 1.0f;
  }
  __syncthreads();
  const int i = blockIdx.x * 2 + threadIdx.x;
  f32[i] = tile_f32[threadIdx.x];
  f16[i] = tile_f16[threadIdx.x];
  f64[i] = tile_f64[threadIdx.x];
  dynamic[i] = tile_dynamic[threadIdx.x];
}

extern "C" __global__ void k_writes_undefined_memory_at(float* y, int at) {
  __shared__ float tile[2];
  if (at < 0) tile[0] = 1.0f;
  y[at] = tile[0];
}
