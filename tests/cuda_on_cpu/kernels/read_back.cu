// A TMA store whose result threads of the same launch read: sm_90 and later

// y = 3 x by a tile of 8 x 32 floats, out by TMA; z is what all threads then read of y.
extern "C" __global__ void __launch_bounds__(64) k_store_and_read(const float* x, const __grid_constant__ gc_tensor_map map,
                                                                  const float* y, float* z) {
  float* const tile = reinterpret_cast<float*>(gc_swizzled_shared());
  for (int i = threadIdx.x; i < 256; i += 64) tile[i] = 3.0f * x[i];
  gc_fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    gc_tma_store_2d(&map, tile, 0, 0);
    gc_tma_store_commit();
    gc_tma_store_wait<0>();
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += 64) z[i] = y[i];
}
