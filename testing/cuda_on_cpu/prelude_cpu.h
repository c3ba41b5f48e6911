// The gc_* device functions with portable C++ bodies, and the CUDA built-ins that templates use, for g++.
// kernels_templates/dialect/prelude_cuda.h declares the same functions in the same order, with PTX.
#pragma once

#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // use C's math.h: g++ takes ten times as long to parse C++'s
#include <math.h>
#include <string.h>

#include "kernel_table.h"
#include "runtime.h"

// ---- built-ins of NVRTC ---------------------------------------------------------------------------

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// The harness sets GC_SHARED_SECTION for each source: the runtime poisons that section for every block
#define __shared__ static __attribute__((section(GC_SHARED_SECTION)))

#define threadIdx (gc_current->thread_index)
#define blockIdx (gc_launch.block_index)
#define blockDim (gc_launch.block_size)
#define gridDim (gc_launch.grid_size)
constexpr int warpSize = 32;

#define __syncthreads() gc_runtime_barrier(__LINE__)
#define __syncwarp() gc_syncwarp()
#define __threadfence() gc_threadfence()

#define GC_VECTOR_2_4(scalar, name, alignment2, alignment4)            \
  struct __align__(alignment2) name##2 {                               \
    scalar x, y;                                                       \
  };                                                                   \
  struct __align__(alignment4) name##4 {                               \
    scalar x, y, z, w;                                                 \
  };                                                                   \
  inline name##2 make_##name##2(scalar x, scalar y) { return {x, y}; } \
  inline name##4 make_##name##4(scalar x, scalar y, scalar z, scalar w) { return {x, y, z, w}; }
GC_VECTOR_2_4(float, float, 8, 16)
GC_VECTOR_2_4(int, int, 8, 16)
GC_VECTOR_2_4(unsigned, uint, 8, 16)
GC_VECTOR_2_4(short, short, 4, 8)
GC_VECTOR_2_4(unsigned short, ushort, 4, 8)
GC_VECTOR_2_4(signed char, char, 2, 4)
GC_VECTOR_2_4(unsigned char, uchar, 2, 4)
GC_VECTOR_2_4(double, double, 16, 16)
GC_VECTOR_2_4(long long, longlong, 16, 16)

#define GC_VECTOR_3(scalar, name) \
  struct name {                   \
    scalar x, y, z;               \
  };                              \
  inline name make_##name(scalar x, scalar y, scalar z) { return {x, y, z}; }
GC_VECTOR_3(float, float3)
GC_VECTOR_3(int, int3)
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

#define GC_MIN_MAX(type)                                           \
  inline type min(type a, type b) { return b < a ? b : a; }        \
  inline type max(type a, type b) { return a < b ? b : a; }
GC_MIN_MAX(int)
GC_MIN_MAX(unsigned)
GC_MIN_MAX(long long)
GC_MIN_MAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }

template <class To, class From>
inline To gc_bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline int __float_as_int(float x) { return gc_bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return gc_bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return gc_bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return gc_bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return gc_bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return gc_bit_cast<double>(x); }

// ---- storage types --------------------------------------------------------------------------------

struct gc_half {
  unsigned short bits;
};

struct gc_bf16 {
  unsigned short bits;
};

struct gc_f8e4m3 {
  unsigned char bits;
};

struct gc_f8e5m2 {
  unsigned char bits;
};

// ---- conversions ----------------------------------------------------------------------------------

__device__ __forceinline__ float gc_half_to_float(gc_half x) {
  const unsigned sign = (x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
  if (magnitude > 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (magnitude << 13));
  if (magnitude == 0x7c00u) return __uint_as_float(sign | 0x7f800000u);
  if (magnitude >= 0x0400u) return __uint_as_float(sign | ((magnitude << 13) + (112u << 23)));
  const float subnormal = (float)magnitude * 5.9604644775390625e-8f;  // 2^-24
  return sign ? -subnormal : subnormal;
}

__device__ __forceinline__ gc_half gc_float_to_half(float x) {
  const unsigned bits = __float_as_uint(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7fff};
  unsigned y;
  if (magnitude >= 0x477ff000u) {  // 65520, midway between 65504 and 65536: infinity
    y = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14, the least normal
    y = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {
    y = (unsigned)rintf(__uint_as_float(magnitude) * 16777216.0f);
  }
  return {(unsigned short)(sign | y)};
}

__device__ __forceinline__ float gc_bf16_to_float(gc_bf16 x) {
  return __uint_as_float((unsigned)x.bits << 16);
}

__device__ __forceinline__ gc_bf16 gc_float_to_bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return {(unsigned short)(is_nan ? 0x7fffu : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

__device__ __forceinline__ unsigned gc_pair_of_f16(float low, float high) {
  return gc_float_to_half(low).bits | (unsigned)gc_float_to_half(high).bits << 16;
}

__device__ __forceinline__ unsigned gc_pair_of_bf16(float low, float high) {
  return gc_float_to_bf16(low).bits | (unsigned)gc_float_to_bf16(high).bits << 16;
}

__device__ __forceinline__ float gc_f8e4m3_to_float(gc_f8e4m3 x) {
  const unsigned magnitude = x.bits & 0x7fu;
  const float y = magnitude == 0x7fu ? NAN
                  : magnitude >= 8u  ? ldexpf((float)(8u + (magnitude & 7u)), (int)(magnitude >> 3) - 10)
                                     : ldexpf((float)magnitude, -9);
  return x.bits & 0x80u ? -y : y;
}

__device__ __forceinline__ gc_f8e4m3 gc_float_to_f8e4m3(float x) {
  const unsigned char sign = signbit(x) ? 0x80 : 0;
  if (isnan(x)) return {(unsigned char)(sign | 0x7f)};
  const float magnitude = fminf(fabsf(x), 448.0f);
  // the spacing of f8 values around x; a carry out of the mantissa goes into the exponent
  const int exponent = magnitude < 0.015625f ? -6 : ilogbf(magnitude);
  const int steps = (int)rintf(ldexpf(magnitude, 3 - exponent));
  return {(unsigned char)(sign | ((exponent + 6) * 8 + steps))};
}

__device__ __forceinline__ float gc_f8e5m2_to_float(gc_f8e5m2 x) {
  return gc_half_to_float(gc_half{(unsigned short)(x.bits << 8)});
}

__device__ __forceinline__ gc_f8e5m2 gc_float_to_f8e5m2(float x) {
  const unsigned char sign = signbit(x) ? 0x80 : 0;
  if (isnan(x)) return {(unsigned char)(sign | 0x7f)};
  const float magnitude = fminf(fabsf(x), 57344.0f);
  const int exponent = magnitude < 6.103515625e-5f ? -14 : ilogbf(magnitude);
  const int steps = (int)rintf(ldexpf(magnitude, 2 - exponent));
  return {(unsigned char)(sign | ((exponent + 14) * 4 + steps))};
}

// ---- warp collectives -----------------------------------------------------------------------------

template <class T>
inline T gc_exchange(const char* kind, T value, int source_lane) {
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = gc_runtime_warp_exchange(kind, bits, source_lane);
  memcpy(&value, &bits, sizeof value);
  return value;
}

inline int gc_lane_below(unsigned delta) {
  const unsigned lane = (unsigned)gc_runtime_lane();
  return (int)(delta < 32u - lane ? lane + delta : lane);
}

__device__ __forceinline__ void gc_syncwarp() { gc_exchange("gc_syncwarp", 0, gc_runtime_lane()); }

__device__ __forceinline__ bool gc_any(bool is) {
  unsigned found = is;
  for (int lanes = 16; lanes > 0; lanes >>= 1)
    found |= gc_exchange("gc_any", found, (gc_runtime_lane() ^ lanes) & 31);
  return found != 0;
}

__device__ __forceinline__ float gc_shfl_xor(float value, int lane_mask) {
  return gc_exchange("gc_shfl_xor", value, (gc_runtime_lane() ^ lane_mask) & 31);
}
__device__ __forceinline__ double gc_shfl_xor(double value, int lane_mask) {
  return gc_exchange("gc_shfl_xor", value, (gc_runtime_lane() ^ lane_mask) & 31);
}
__device__ __forceinline__ int gc_shfl_xor(int value, int lane_mask) {
  return gc_exchange("gc_shfl_xor", value, (gc_runtime_lane() ^ lane_mask) & 31);
}
__device__ __forceinline__ unsigned gc_shfl_xor(unsigned value, int lane_mask) {
  return gc_exchange("gc_shfl_xor", value, (gc_runtime_lane() ^ lane_mask) & 31);
}
__device__ __forceinline__ long long gc_shfl_xor(long long value, int lane_mask) {
  return gc_exchange("gc_shfl_xor", value, (gc_runtime_lane() ^ lane_mask) & 31);
}

__device__ __forceinline__ float gc_shfl_down(float value, unsigned delta) {
  return gc_exchange("gc_shfl_down", value, gc_lane_below(delta));
}
__device__ __forceinline__ double gc_shfl_down(double value, unsigned delta) {
  return gc_exchange("gc_shfl_down", value, gc_lane_below(delta));
}
__device__ __forceinline__ int gc_shfl_down(int value, unsigned delta) {
  return gc_exchange("gc_shfl_down", value, gc_lane_below(delta));
}
__device__ __forceinline__ unsigned gc_shfl_down(unsigned value, unsigned delta) {
  return gc_exchange("gc_shfl_down", value, gc_lane_below(delta));
}
__device__ __forceinline__ long long gc_shfl_down(long long value, unsigned delta) {
  return gc_exchange("gc_shfl_down", value, gc_lane_below(delta));
}

__device__ __forceinline__ float gc_shfl(float value, int lane) {
  return gc_exchange("gc_shfl", value, lane & 31);
}
__device__ __forceinline__ double gc_shfl(double value, int lane) {
  return gc_exchange("gc_shfl", value, lane & 31);
}
__device__ __forceinline__ int gc_shfl(int value, int lane) {
  return gc_exchange("gc_shfl", value, lane & 31);
}
__device__ __forceinline__ unsigned gc_shfl(unsigned value, int lane) {
  return gc_exchange("gc_shfl", value, lane & 31);
}
__device__ __forceinline__ long long gc_shfl(long long value, int lane) {
  return gc_exchange("gc_shfl", value, lane & 31);
}

template <class T>
__device__ __forceinline__ T gc_warp_sum(T value) {
  for (int lane_mask = 16; lane_mask > 0; lane_mask >>= 1) value += gc_shfl_xor(value, lane_mask);
  return value;
}

__device__ __forceinline__ float gc_max_nan(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float gc_min_nan(float a, float b) { return a < b || a != a ? a : b; }

__device__ __forceinline__ float gc_exp2(float x) {
  const float power = exp2f(x);
  return power < 0x1p-126f ? 0.0f : power;
}

__device__ __forceinline__ float gc_exp2_polynomial(float x) {
  const float magic = 12582912.0f;
  const float bounded = gc_max_nan(x, -127.0f);
  const float sum = bounded + magic;
  const float r = bounded - (sum - magic);
  const float part = fmaf(fmaf(fmaf(fmaf(9.5828539e-3f, r, 5.5906426e-2f), r, 2.4024099e-1f), r, 6.9312418e-1f), r, 1.0f);
  return part * __int_as_float((__float_as_int(sum) << 23) + 0x3f800000);
}

template <class T>
__device__ __forceinline__ T gc_warp_max(T value) {
  for (int lane_mask = 16; lane_mask > 0; lane_mask >>= 1) {
    const T other = gc_shfl_xor(value, lane_mask);
    value = value > other || value != value ? value : other;
  }
  return value;
}

template <class T>
__device__ __forceinline__ T gc_warp_min(T value) {
  for (int lane_mask = 16; lane_mask > 0; lane_mask >>= 1) {
    const T other = gc_shfl_xor(value, lane_mask);
    value = value < other || value != value ? value : other;
  }
  return value;
}

__device__ __forceinline__ bool gc_elect_one() {
  gc_runtime_warp_exchange("gc_elect_one", 0, 0);
  return gc_runtime_lane() == 0;
}

// ---- barriers of a part of the block --------------------------------------------------------------

__device__ __forceinline__ void gc_named_barrier(int number, int threads) { gc_runtime_named_barrier(number, threads); }

// ---- asynchronous copies, global to shared --------------------------------------------------------
// The destination is poisoned from the call until the wait that covers its group.

__device__ __forceinline__ void gc_cp_async4(void* shared_dst, const void* global_src, bool valid) {
  gc_runtime_copy_async(shared_dst, global_src, 4, valid);
}

__device__ __forceinline__ void gc_cp_async8(void* shared_dst, const void* global_src, bool valid) {
  gc_runtime_copy_async(shared_dst, global_src, 8, valid);
}

__device__ __forceinline__ void gc_cp_async16(void* shared_dst, const void* global_src, bool valid) {
  gc_runtime_copy_async(shared_dst, global_src, 16, valid);
}

__device__ __forceinline__ void gc_cp_async_commit() { gc_runtime_copy_commit(); }

template <int pending>
__device__ __forceinline__ void gc_cp_async_wait() {
  gc_runtime_copy_wait(pending);
}

// ---- dynamic shared memory ------------------------------------------------------------------------

__device__ __forceinline__ unsigned char* gc_dynamic_shared() { return gc_runtime_dynamic_shared(); }

// ---- atomics and fences ---------------------------------------------------------------------------

template <int order = __ATOMIC_RELAXED, class T>
inline T gc_atomic_update(T* address, T (*next)(T, T), T operand) {
  T before, after;
  __atomic_load(address, &before, __ATOMIC_RELAXED);
  do after = next(before, operand);
  while (!__atomic_compare_exchange(address, &before, &after, false, order, __ATOMIC_RELAXED));
  gc_runtime_atomic_done(address, memcmp(&before, &after, sizeof before) != 0);
  return before;
}

__device__ __forceinline__ float gc_atomic_add(float* address, float value) {
  return gc_atomic_update(address, +[](float x, float y) { return x + y; }, value);
}
__device__ __forceinline__ int gc_atomic_add(int* address, int value) {
  return gc_atomic_update(address, +[](int x, int y) { return (int)((unsigned)x + (unsigned)y); }, value);
}
__device__ __forceinline__ unsigned gc_atomic_add(unsigned* address, unsigned value) {
  return gc_atomic_update(address, +[](unsigned x, unsigned y) { return x + y; }, value);
}

inline unsigned gc_next_or_zero(unsigned x, unsigned last) { return x >= last ? 0u : x + 1u; }

__device__ __forceinline__ unsigned gc_atomic_inc_wrap(unsigned* address, unsigned limit) {
  return gc_atomic_update(address, gc_next_or_zero, limit);
}

__device__ __forceinline__ unsigned gc_atomic_inc_wrap_release(unsigned* address, unsigned limit) {
  return gc_atomic_update<__ATOMIC_RELEASE>(address, gc_next_or_zero, limit);
}

__device__ __forceinline__ int gc_atomic_min(int* address, int value) {
  return gc_atomic_update(address, +[](int x, int y) { return x < y ? x : y; }, value);
}

__device__ __forceinline__ void gc_store_release(unsigned* flag, unsigned value) {
  const unsigned before = __atomic_load_n(flag, __ATOMIC_RELAXED);
  __atomic_store_n(flag, value, __ATOMIC_RELEASE);
  gc_runtime_atomic_done(flag, before != value);
}
__device__ __forceinline__ unsigned gc_load_acquire(const unsigned* address) {
  return __atomic_load_n(address, __ATOMIC_ACQUIRE);
}
__device__ __forceinline__ bool gc_is_set(const unsigned* flag, int attempts) {
  bool found;
  do {
    found = gc_load_acquire(flag) != 0;
    gc_runtime_atomic_done(flag, false);
  } while (!found && --attempts > 0);
  return found;
}

__device__ __forceinline__ void gc_threadfence() { gc_runtime_fence(); }

__device__ __forceinline__ void gc_store16_volatile(volatile void* to, uint4 value) {
  *static_cast<uint4*>(const_cast<void*>(to)) = value;
}
__device__ __forceinline__ uint4 gc_load16_volatile(const volatile void* from) {
  return *static_cast<const uint4*>(const_cast<const void*>(from));
}

// ---- matrix fragments: ldmatrix, mma --------------------------------------------------------------

// The rows' addresses are gathered; then each lane reads its own part of the matrices.

template <int matrices, bool transposed>
inline void gc_load_matrices(const char* kind, unsigned* r, const void* row) {
  const unsigned char* rows[32];
  const int lane = gc_runtime_lane(), g = lane / 4, t = lane % 4;
  if (lane < 8 * matrices) gc_runtime_require_shared(kind, row, 16);
  gc_runtime_warp_gather(kind, &row, sizeof row, rows);
  for (int i = 0; i < matrices; ++i) {
    const unsigned char *low = transposed ? rows[8 * i + 2 * t] + 2 * g : rows[8 * i + g] + 4 * t,
                        *high = transposed ? rows[8 * i + 2 * t + 1] + 2 * g : low + 2;
    r[i] = *reinterpret_cast<const unsigned short*>(low) |
           (unsigned)*reinterpret_cast<const unsigned short*>(high) << 16;
  }
}

__device__ __forceinline__ void gc_ldmatrix_x1(unsigned* r, const void* row) {
  gc_load_matrices<1, false>("gc_ldmatrix_x1", r, row);
}
__device__ __forceinline__ void gc_ldmatrix_x2(unsigned* r, const void* row) {
  gc_load_matrices<2, false>("gc_ldmatrix_x2", r, row);
}
__device__ __forceinline__ void gc_ldmatrix_x4(unsigned* r, const void* row) {
  gc_load_matrices<4, false>("gc_ldmatrix_x4", r, row);
}
__device__ __forceinline__ void gc_ldmatrix_x1_trans(unsigned* r, const void* row) {
  gc_load_matrices<1, true>("gc_ldmatrix_x1_trans", r, row);
}
__device__ __forceinline__ void gc_ldmatrix_x2_trans(unsigned* r, const void* row) {
  gc_load_matrices<2, true>("gc_ldmatrix_x2_trans", r, row);
}
__device__ __forceinline__ void gc_ldmatrix_x4_trans(unsigned* r, const void* row) {
  gc_load_matrices<4, true>("gc_ldmatrix_x4_trans", r, row);
}

__device__ __forceinline__ unsigned gc_float_to_tf32(float x) {
  const unsigned bits = __float_as_uint(x);
  return isfinite(x) ? (bits + 0x1000u) & 0xffffe000u : bits;
}

__device__ __forceinline__ void gc_mma_m16n8k8_f16(float* c, const unsigned* a, const unsigned* b) {
  gc_runtime_mma("gc_mma_m16n8k8_f16", {GcFragment::F16, GcFragment::F16, 2, 1}, c, a, b);
}

__device__ __forceinline__ void gc_mma_m16n8k16_f16(float* c, const unsigned* a, const unsigned* b) {
  gc_runtime_mma("gc_mma_m16n8k16_f16", {GcFragment::F16, GcFragment::F16, 2, 2}, c, a, b);
}

__device__ __forceinline__ void gc_mma_m16n8k16_bf16(float* c, const unsigned* a, const unsigned* b) {
  gc_runtime_mma("gc_mma_m16n8k16_bf16", {GcFragment::BF16, GcFragment::BF16, 2, 2}, c, a, b);
}

__device__ __forceinline__ void gc_mma_m16n8k8_tf32(float* c, const unsigned* a, const unsigned* b) {
  gc_runtime_mma("gc_mma_m16n8k8_tf32", {GcFragment::TF32, GcFragment::TF32, 2, 2}, c, a, b);
}

constexpr GcFragment gc_bytes(bool is_signed) { return is_signed ? GcFragment::S8 : GcFragment::U8; }

template <bool a_signed, bool b_signed>
__device__ __forceinline__ void gc_mma_m8n8k16_i8(int* c, const unsigned* a, const unsigned* b) {
  gc_runtime_mma("gc_mma_m8n8k16_i8", {gc_bytes(a_signed), gc_bytes(b_signed), 1, 1}, c, a, b);
}

template <bool a_signed, bool b_signed>
__device__ __forceinline__ void gc_mma_m16n8k32_i8(int* c, const unsigned* a, const unsigned* b) {
  gc_runtime_mma("gc_mma_m16n8k32_i8", {gc_bytes(a_signed), gc_bytes(b_signed), 2, 2}, c, a, b);
}

// ---- dot products of bytes ------------------------------------------------------------------------

template <bool a_signed, bool b_signed>
__device__ __forceinline__ int gc_dot4(int a, int b, int c) {
  unsigned sum = c;
  for (int shift = 0; shift < 32; shift += 8) {
    const unsigned char x = (unsigned char)((unsigned)a >> shift), y = (unsigned char)((unsigned)b >> shift);
    sum += (unsigned)((a_signed ? (signed char)x : x) * (b_signed ? (signed char)y : y));
  }
  return (int)sum;
}

// ---- mbarrier and TMA -----------------------------------------------------------------------------
// The destination of a load is poisoned until a waiter sees its phase complete; that of a store until the wait for its group.

struct gc_tensor_map : GcTensorMap {};

__device__ __forceinline__ void gc_mbarrier_init(unsigned long long* barrier, unsigned count) { gc_runtime_mbarrier_init(barrier, count); }

__device__ __forceinline__ void gc_mbarrier_invalidate(unsigned long long* barrier) { gc_runtime_mbarrier_invalidate(barrier); }

__device__ __forceinline__ void gc_mbarrier_arrive(unsigned long long* barrier) { gc_runtime_mbarrier_arrive(barrier, 0); }

__device__ __forceinline__ void gc_mbarrier_arrive_expect_tx(unsigned long long* barrier, unsigned bytes) {
  gc_runtime_mbarrier_arrive(barrier, bytes);
}

__device__ __forceinline__ void gc_mbarrier_wait(unsigned long long* barrier, unsigned parity) { gc_runtime_mbarrier_wait(barrier, parity); }

__device__ __forceinline__ void gc_mbarrier_arrive_cluster(unsigned long long* barrier, unsigned rank) {
  gc_runtime_mbarrier_arrive_cluster(barrier, rank);
}

__device__ __forceinline__ void gc_mbarrier_wait_cluster(unsigned long long* barrier, unsigned parity) {
  gc_runtime_mbarrier_wait_cluster(barrier, parity);
}

__device__ __forceinline__ void gc_fence_barrier_init() { gc_runtime_fence_barrier_init(); }

__device__ __forceinline__ void gc_fence_proxy_async() { gc_runtime_fence_proxy_async(); }

__device__ __forceinline__ unsigned char* gc_swizzled_shared() { return gc_runtime_dynamic_shared(); }

__device__ __forceinline__ void gc_tma_prefetch(const gc_tensor_map* map) { (void)map; }

__device__ __forceinline__ void gc_tma_load_2d(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y) {
  gc_runtime_tma_load(shared_dst, map, barrier, {2, {x, y}, false, {}});
}

__device__ __forceinline__ void gc_tma_load_3d(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y, int z) {
  gc_runtime_tma_load(shared_dst, map, barrier, {3, {x, y, z}, false, {}});
}

__device__ __forceinline__ void gc_tma_load_4d(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y, int z,
                       int w) {
  gc_runtime_tma_load(shared_dst, map, barrier, {4, {x, y, z, w}, false, {}});
}

__device__ __forceinline__ void gc_tma_load_im2col_4d(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int channel,
                              int w, int h, int n, unsigned short offset_w, unsigned short offset_h) {
  gc_runtime_tma_load(shared_dst, map, barrier, {4, {channel, w, h, n}, true, {offset_w, offset_h}});
}

__device__ __forceinline__ void gc_tma_load_2d_multicast(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y,
                                 unsigned short ranks) {
  gc_runtime_tma_load_multicast(shared_dst, map, barrier, {2, {x, y}, false, {}}, ranks);
}

__device__ __forceinline__ void gc_tma_load_3d_multicast(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y,
                                 int z, unsigned short ranks) {
  gc_runtime_tma_load_multicast(shared_dst, map, barrier, {3, {x, y, z}, false, {}}, ranks);
}

__device__ __forceinline__ void gc_tma_load_im2col_4d_multicast(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier,
                                        int channel, int w, int h, int n, unsigned short offset_w,
                                        unsigned short offset_h, unsigned short ranks) {
  gc_runtime_tma_load_multicast(shared_dst, map, barrier, {4, {channel, w, h, n}, true, {offset_w, offset_h}}, ranks);
}

__device__ __forceinline__ void gc_tma_load_2d_pair(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y) {
  gc_runtime_tma_load_pair(shared_dst, map, barrier, {2, {x, y}, false, {}});
}

__device__ __forceinline__ void gc_tma_load_3d_pair(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y,
                            int z) {
  gc_runtime_tma_load_pair(shared_dst, map, barrier, {3, {x, y, z}, false, {}});
}

__device__ __forceinline__ void gc_tma_load_im2col_4d_pair(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier,
                                   int channel, int w, int h, int n, unsigned short offset_w, unsigned short offset_h) {
  gc_runtime_tma_load_pair(shared_dst, map, barrier, {4, {channel, w, h, n}, true, {offset_w, offset_h}});
}

__device__ __forceinline__ void gc_tma_store_2d(const gc_tensor_map* map, const void* shared_src, int x, int y) {
  gc_runtime_tma_store(map, shared_src, {2, {x, y}, false, {}});
}

__device__ __forceinline__ void gc_tma_store_3d(const gc_tensor_map* map, const void* shared_src, int x, int y, int z) {
  gc_runtime_tma_store(map, shared_src, {3, {x, y, z}, false, {}});
}

__device__ __forceinline__ void gc_tma_store_commit() { gc_runtime_tma_store_commit(); }

template <int pending>
__device__ __forceinline__ void gc_tma_store_wait() {
  gc_runtime_tma_store_wait(pending);
}

template <int pending>
__device__ __forceinline__ void gc_tma_store_wait_read() {
  gc_runtime_tma_store_wait_read(pending);
}

// ---- wgmma ----------------------------------------------------------------------------------------
// Sums are poisoned from the call until the wait that covers their group.

__device__ __forceinline__ void gc_wgmma_fence() { gc_runtime_wgmma_fence(); }

__device__ __forceinline__ void gc_wgmma_commit() { gc_runtime_wgmma_commit(); }

template <int pending>
__device__ __forceinline__ void gc_wgmma_wait() {
  gc_runtime_wgmma_wait(pending);
}

__device__ __forceinline__ void gc_wgmma_before(float& value) { (void)value; }

__device__ __forceinline__ unsigned long long gc_wgmma_operand(const void* shared_tile) {
  const unsigned long long start = gc_runtime_shared_offset(shared_tile) >> 4;
  return start | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ unsigned long long gc_wgmma_along(unsigned long long operand, unsigned chunks) {
  return (operand & 0xffffffff00000000ull) | (unsigned)((unsigned)operand + chunks);
}

__device__ __forceinline__ unsigned long long gc_wgmma_turned(const void* shared_tile, unsigned panel_bytes) {
  const unsigned long long start = gc_runtime_shared_offset(shared_tile) >> 4;
  return start | (unsigned long long)(panel_bytes >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

template <int n>
__device__ __forceinline__ void gc_wgmma_f16(float* acc, unsigned long long a, unsigned long long b) {
  gc_runtime_wgmma(GcElement::F16, n, acc, a, b, false);
}

template <int n>
__device__ __forceinline__ void gc_wgmma_bf16(float* acc, unsigned long long a, unsigned long long b) {
  gc_runtime_wgmma(GcElement::BF16, n, acc, a, b, false);
}

template <int n>
__device__ __forceinline__ void gc_wgmma_tf32(float* acc, unsigned long long a, unsigned long long b) {
  gc_runtime_wgmma(GcElement::TF32, n, acc, a, b, false);
}

template <int n>
__device__ __forceinline__ void gc_wgmma_s8(int* acc, unsigned long long a, unsigned long long b) {
  gc_runtime_wgmma(GcElement::S8, n, acc, a, b, false);
}

template <int n>
__device__ __forceinline__ void gc_wgmma_f16_first(float* acc, unsigned long long a, unsigned long long b) {
  gc_runtime_wgmma(GcElement::F16, n, acc, a, b, true);
}

template <int n>
__device__ __forceinline__ void gc_wgmma_bf16_first(float* acc, unsigned long long a, unsigned long long b) {
  gc_runtime_wgmma(GcElement::BF16, n, acc, a, b, true);
}

template <int n>
__device__ __forceinline__ void gc_wgmma_f16_registers(float* acc, const unsigned* a, unsigned long long b) {
  gc_runtime_wgmma_registers(GcElement::F16, n, acc, a, b);
}

template <int n>
__device__ __forceinline__ void gc_wgmma_bf16_registers(float* acc, const unsigned* a, unsigned long long b) {
  gc_runtime_wgmma_registers(GcElement::BF16, n, acc, a, b);
}

template <int registers>
__device__ __forceinline__ void gc_setmaxnreg_inc() {
  gc_runtime_setmaxnreg("gc_setmaxnreg_inc", registers);
}

template <int registers>
__device__ __forceinline__ void gc_setmaxnreg_dec() {
  gc_runtime_setmaxnreg("gc_setmaxnreg_dec", registers);
}

__device__ __forceinline__ void gc_stmatrix_x4(void* shared_row, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
  const unsigned elements[4] = {r0, r1, r2, r3};
  const int lane = gc_runtime_lane();
  gc_runtime_require_shared("gc_stmatrix_x4", shared_row, 16);
  for (int i = 0; i < 4; ++i) {
    unsigned char* row = static_cast<unsigned char*>(gc_exchange("gc_stmatrix_x4", shared_row, 8 * i + lane / 4));
    *reinterpret_cast<unsigned*>(row + lane % 4 * 4) = elements[i];
  }
}

// ---- tcgen05 --------------------------------------------------------------------------------------
// Products are carried out when somebody sees the phase of a barrier complete at which they arrive; loaded sums are poison until
// the wait.

__device__ __forceinline__ void gc_tcgen05_alloc(unsigned* shared_address, unsigned columns) {
  gc_runtime_tcgen05_alloc(shared_address, columns, false);
}

__device__ __forceinline__ void gc_tcgen05_alloc_pair(unsigned* shared_address, unsigned columns) {
  gc_runtime_tcgen05_alloc(shared_address, columns, true);
}

__device__ __forceinline__ void gc_tcgen05_free(unsigned address, unsigned columns) { gc_runtime_tcgen05_free(address, columns, false); }

__device__ __forceinline__ void gc_tcgen05_free_pair(unsigned address, unsigned columns) {
  gc_runtime_tcgen05_free(address, columns, true);
}

__device__ __forceinline__ void gc_tcgen05_fence_before() { gc_runtime_tcgen05_fence_before(); }

__device__ __forceinline__ void gc_tcgen05_fence_after() { gc_runtime_tcgen05_fence_after(); }

__device__ __forceinline__ unsigned long long gc_tcgen05_operand(const void* shared_tile) {
  const unsigned long long start = gc_runtime_shared_offset(shared_tile) >> 4;
  return start | 1ull << 16 | 64ull << 32 | 1ull << 46 | 2ull << 61;
}

__device__ __forceinline__ unsigned long long gc_tcgen05_turned(const void* shared_tile, unsigned panel_bytes) {
  const unsigned long long start = gc_runtime_shared_offset(shared_tile) >> 4;
  return start | (unsigned long long)(panel_bytes >> 4) << 16 | 64ull << 32 | 1ull << 46 | 2ull << 61;
}

__device__ __forceinline__ constexpr unsigned gc_tcgen05_instruction(unsigned format, int m, int n) {
  return 1u << 4 | format << 7 | format << 10 | (unsigned)(n / 8) << 17 | (unsigned)(m / 16) << 24;
}

template <int m, int n>
__device__ __forceinline__ void gc_tcgen05_f16(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  gc_runtime_tcgen05(2, sums, a, b, gc_tcgen05_instruction(0, m, n), add, false);
}

template <int n>
__device__ __forceinline__ void gc_tcgen05_f16_pair(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  gc_runtime_tcgen05(2, sums, a, b, gc_tcgen05_instruction(0, 256, n), add, true);
}

template <int m, int n>
__device__ __forceinline__ void gc_tcgen05_bf16(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  gc_runtime_tcgen05(2, sums, a, b, gc_tcgen05_instruction(1, m, n), add, false);
}

template <int n>
__device__ __forceinline__ void gc_tcgen05_bf16_pair(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  gc_runtime_tcgen05(2, sums, a, b, gc_tcgen05_instruction(1, 256, n), add, true);
}

template <int m, int n>
__device__ __forceinline__ void gc_tcgen05_tf32(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  gc_runtime_tcgen05(4, sums, a, b, gc_tcgen05_instruction(2, m, n), add, false);
}

template <int n>
__device__ __forceinline__ void gc_tcgen05_tf32_pair(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  gc_runtime_tcgen05(4, sums, a, b, gc_tcgen05_instruction(2, 256, n), add, true);
}

template <int n>
__device__ __forceinline__ void gc_tcgen05_f16_weights(unsigned sums, unsigned a, unsigned long long b, bool add) {
  gc_runtime_tcgen05_weights(sums, a, b, gc_tcgen05_instruction(0, 128, n) | 1u << 16, add);
}

template <int n>
__device__ __forceinline__ void gc_tcgen05_bf16_weights(unsigned sums, unsigned a, unsigned long long b, bool add) {
  gc_runtime_tcgen05_weights(sums, a, b, gc_tcgen05_instruction(1, 128, n) | 1u << 16, add);
}

__device__ __forceinline__ void gc_tcgen05_commit(unsigned long long* barrier) { gc_runtime_tcgen05_commit(barrier); }

__device__ __forceinline__ void gc_tcgen05_commit_multicast(unsigned long long* barrier, unsigned short ranks) {
  gc_runtime_tcgen05_commit_multicast(barrier, ranks);
}

__device__ __forceinline__ void gc_tcgen05_commit_pair(unsigned long long* barrier) { gc_runtime_tcgen05_commit_pair(barrier); }

template <int columns>
__device__ __forceinline__ void gc_tcgen05_load(float* values, unsigned from) {
  gc_runtime_tcgen05_load(columns, values, from);
}

template <int columns>
__device__ __forceinline__ void gc_tcgen05_wait_load(float* values) {
  gc_runtime_tcgen05_wait_load(values);
}

template <int columns>
__device__ __forceinline__ void gc_tcgen05_load_row(float* values, unsigned from) {
  gc_runtime_tcgen05_load_row(columns, values, from);
}

template <int columns>
__device__ __forceinline__ void gc_tcgen05_wait_row(float* values) {
  gc_runtime_tcgen05_wait_load(values);
}

template <int columns>
__device__ __forceinline__ void gc_tcgen05_store_row(unsigned to, const unsigned* words) {
  gc_runtime_tcgen05_store_row(columns, to, words);
}

template <int columns>
__device__ __forceinline__ void gc_tcgen05_store_row(unsigned to, const float* values) {
  gc_runtime_tcgen05_store_row(columns, to, values);
}

__device__ __forceinline__ void gc_tcgen05_wait_store() { gc_runtime_tcgen05_wait_store(); }

// ---- clusters and programmatic launch -------------------------------------------------------------

__device__ __forceinline__ unsigned gc_cluster_rank() { return gc_runtime_cluster_rank(); }

__device__ __forceinline__ void gc_cluster_sync() { gc_runtime_cluster_sync(); }

__device__ __forceinline__ float gc_cluster_load(const float* shared_address, unsigned rank) {
  return *static_cast<const float*>(gc_runtime_cluster_address(shared_address, rank));
}
__device__ __forceinline__ int gc_cluster_load(const int* shared_address, unsigned rank) {
  return *static_cast<const int*>(gc_runtime_cluster_address(shared_address, rank));
}

__device__ __forceinline__ uint4 gc_cluster_load16(const void* shared_address, unsigned rank) {
  return *static_cast<const uint4*>(gc_runtime_cluster_address(shared_address, rank));
}

__device__ __forceinline__ void gc_grid_wait() { gc_runtime_grid_wait(); }

__device__ __forceinline__ void gc_grid_launch_dependents() {}
