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
    partial[blockIdx.x] = parts[0] + parts[1];
    gc_threadfence();
    last = gc_atomic_inc_wrap(arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    gc_threadfence();
    float total = 0.0f;
    for (int i = 0; i < gridDim.x; ++i) total += partial[i];
    out[0] = total;
  }
}
