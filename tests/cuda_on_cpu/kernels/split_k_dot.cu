// out[0] = sum of x[i] y[i]; each block sums a slice, and the block that arrives last adds up the slices.
extern "C" __global__ void __launch_bounds__(64)
    k_split_k_dot(const float* __restrict__ x, const float* __restrict__ y, float* partial, unsigned* arrived,
                  float* __restrict__ out, int n) {
  __shared__ float parts[2];
  __shared__ bool last;
  float sum = 0.0f;
  for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64) sum = fmaf(x[i], y[i], sum);
  sum = gc_warp_sum(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    gc_store16_volatile(partial + 4 * blockIdx.x, make_uint4(__float_as_uint(parts[0]), __float_as_uint(parts[1]), 0, 0));
    gc_threadfence();
    last = gc_atomic_inc_wrap(arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    gc_threadfence();
    float total = 0.0f;
#pragma unroll 1
    for (int i = 0; i < gridDim.x; ++i) {
      const uint4 left = gc_load16_volatile(partial + 4 * i);
      total += __uint_as_float(left.x) + __uint_as_float(left.y);
    }
    out[0] = total;
  }
}

// out[i] = x[0] + ... + x[i], a block an element. A block leaves its element and looks at what those before it left; of
// the first whose flag it does not find, and of those behind, it reads the elements themselves. The last to have looked
// takes the flags down.
extern "C" __global__ void __launch_bounds__(32)
    k_look_back(const float* __restrict__ x, volatile float* left, unsigned* flags, unsigned* arrived, float* out) {
  __shared__ int missing;
  __shared__ bool last;
  const int own = blockIdx.x;
  if (threadIdx.x == 0) {
    missing = own;
    left[own] = x[own];
    gc_store_release(flags + own, 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < own; i += 32)
    if (!gc_is_set(flags + i, 3)) gc_atomic_min(&missing, i);
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = x[own];
    for (int i = 0; i < own; ++i) total += i < missing ? left[i] : x[i];
    out[own] = total;
    last = gc_atomic_inc_wrap_release(arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last) {
    gc_load_acquire(arrived);
    for (int i = threadIdx.x; i < gridDim.x; i += 32) flags[i] = 0;
  }
}
