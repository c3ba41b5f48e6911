// Warp collectives, small async copies, atomics, dynamic shared memory and math by name, on one warp or more.
template <class T>
__device__ __forceinline__ void shuffle_all(const T* __restrict__ x, T* __restrict__ y) {
  const int i = threadIdx.x, n = blockDim.x;
  y[i] = gc_shfl_xor(x[i], 5);
  y[n + i] = gc_shfl_down(x[i], 3u);
  y[2 * n + i] = gc_shfl(x[i], 11);
  y[3 * n + i] = gc_warp_sum(x[i]);
  y[4 * n + i] = gc_warp_max(x[i]);
  y[5 * n + i] = gc_warp_min(x[i]);
}

extern "C" __global__ void k_shuffle_f32(const float* x, float* y) { shuffle_all(x, y); }
extern "C" __global__ void k_shuffle_f64(const double* x, double* y) { shuffle_all(x, y); }
extern "C" __global__ void k_shuffle_i32(const int* x, int* y) { shuffle_all(x, y); }
extern "C" __global__ void k_shuffle_u32(const unsigned* x, unsigned* y) { shuffle_all(x, y); }
extern "C" __global__ void k_shuffle_i64(const long long* x, long long* y) { shuffle_all(x, y); }

// y[i] = x[n - 1 - i], through the shared memory asked for at launch; n = blockDim.x is at most 32
extern "C" __global__ void k_reverse_in_warp(const float* __restrict__ x, float* __restrict__ y) {
  float* tile = reinterpret_cast<float*>(gc_dynamic_shared());
  tile[threadIdx.x] = x[threadIdx.x];
  gc_syncwarp();
  y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

// 4-byte copies into y[0:64], 8-byte ones into y[64:128]; every third is not valid and leaves zeros
extern "C" __global__ void k_small_copies(const float* __restrict__ x, float* __restrict__ y) {
  __shared__ float tile[64];
  __shared__ float2 pairs[32];
  const int i = threadIdx.x;
  gc_cp_async4(&tile[i], x + i, i % 3 != 0);
  gc_cp_async4(&tile[i + 32], x + i + 32, (i + 32) % 3 != 0);
  gc_cp_async8(&pairs[i], x + 2 * i, i % 3 != 0);
  gc_cp_async_commit();
  gc_cp_async_wait<0>();
  __syncthreads();
  y[i] = tile[i];
  y[i + 32] = tile[i + 32];
  const float2 pair = pairs[31 - i];
  y[64 + 2 * (31 - i)] = pair.x;
  y[64 + 2 * (31 - i) + 1] = pair.y;
}

// each thread's turn, as an atomic counter hands it out
extern "C" __global__ void k_turns(int* turns, int* counter, unsigned* histogram, float* total) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  turns[i] = gc_atomic_add(counter, 1);
  gc_atomic_add(&histogram[i % 3], 2u);
  gc_atomic_add(total, 0.5f);
}

extern "C" __global__ void k_math(const float* __restrict__ x, float* __restrict__ y,
                                  double* __restrict__ z) {
  const float a = x[threadIdx.x];
  const double d = a;
  float s = expf(a) + logf(fabsf(a) + 1.0f) + tanhf(a) + erff(a) + sqrtf(fabsf(a)) + rsqrtf(fabsf(a) + 1.0f);
  s += powf(fabsf(a), 1.5f) + floorf(a) + ceilf(a) + rintf(a) + fmodf(a, 0.7f) + fminf(a, 0.25f);
  s += fmaxf(a, -0.5f) + fmaf(a, a, 1.0f) + (isnan(a) ? 1.0f : 0.0f) + (isinf(a) ? 1.0f : 0.0f);
  s += (float)min(3, (int)a) + max(a, 0.1f);
  y[threadIdx.x] = s;
  z[threadIdx.x] = exp(d) + log(fabs(d) + 1.0) + tanh(d) + erf(d) + sqrt(fabs(d)) + rsqrt(fabs(d) + 1.0) +
                   pow(fabs(d), 1.5) + floor(d) + ceil(d) + rint(d) + fmod(d, 0.7) + fmin(d, 0.25) +
                   fmax(d, -0.5) + fma(d, d, 1.0);
}

extern "C" __global__ void k_larger_and_smaller(const float* a, const float* b, float* larger, float* smaller) {
  larger[threadIdx.x] = gc_max_nan(a[threadIdx.x], b[threadIdx.x]);
  smaller[threadIdx.x] = gc_min_nan(a[threadIdx.x], b[threadIdx.x]);
}

extern "C" __global__ void k_powers_of_two(const float* x, float* y) { y[threadIdx.x] = gc_exp2(x[threadIdx.x]); }

extern "C" __global__ void k_powers_by_multiply_adds(const float* x, float* y) {
  y[threadIdx.x] = gc_exp2_polynomial(x[threadIdx.x]);
}

// y[thread]: whether x is above 1 in any lane of its warp
extern "C" __global__ void k_any(const float* x, int* y) { y[threadIdx.x] = gc_any(x[threadIdx.x] > 1.0f); }
