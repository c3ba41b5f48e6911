// Every conversion of the prelude, one element a thread, on a launch of exactly as many threads as elements.
extern "C" __global__ void k_half_to_float(const gc_half* __restrict__ x, float* __restrict__ y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_half_to_float(x[i]);
}

extern "C" __global__ void k_float_to_half(const float* __restrict__ x, gc_half* __restrict__ y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_float_to_half(x[i]);
}

extern "C" __global__ void k_bf16_to_float(const gc_bf16* __restrict__ x, float* __restrict__ y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_bf16_to_float(x[i]);
}

extern "C" __global__ void k_float_to_bf16(const float* __restrict__ x, gc_bf16* __restrict__ y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_float_to_bf16(x[i]);
}

extern "C" __global__ void k_f8e4m3_to_float(const gc_f8e4m3* __restrict__ x, float* __restrict__ y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_f8e4m3_to_float(x[i]);
}

extern "C" __global__ void k_float_to_f8e4m3(const float* __restrict__ x, gc_f8e4m3* __restrict__ y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_float_to_f8e4m3(x[i]);
}

extern "C" __global__ void k_f8e5m2_to_float(const gc_f8e5m2* __restrict__ x, float* __restrict__ y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_f8e5m2_to_float(x[i]);
}

extern "C" __global__ void k_float_to_f8e5m2(const float* __restrict__ x, gc_f8e5m2* __restrict__ y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = gc_float_to_f8e5m2(x[i]);
}

extern "C" __global__ void k_pairs(const float* low, const float* high, unsigned* f16, unsigned* bf16) {
  f16[threadIdx.x] = gc_pair_of_f16(low[threadIdx.x], high[threadIdx.x]);
  bf16[threadIdx.x] = gc_pair_of_bf16(low[threadIdx.x], high[threadIdx.x]);
}
