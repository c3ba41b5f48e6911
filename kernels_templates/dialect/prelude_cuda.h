// The gc_* device functions that CUDA templates call, for NVRTC: PTX bodies, no headers needed.
// A template never contains asm or #include; this text is put in front of what it renders.
// testing/cuda_on_cpu/prelude_cpu.h declares the same functions, in the same order, with portable bodies.

// ---- storage types --------------------------------------------------------------------------------
// Structs, not typedefs of unsigned short: the two formats must not overload alike or convert silently.
// Both are plain 2-byte data without constructors, so they may stand in __shared__ arrays and be moved
// 16 bytes at a time through reinterpret_cast.

struct gc_half {  // IEEE binary16
  unsigned short bits;
};

struct gc_bf16 {  // the upper half of an IEEE binary32
  unsigned short bits;
};

struct gc_f8e4m3 {  // ONNX FLOAT8E4M3FN: bias 7, no infinities, NaN is S.1111.111, largest value 448
  unsigned char bits;
};

struct gc_f8e5m2 {  // ONNX FLOAT8E5M2: bias 15, infinities and NaN as in IEEE, largest value 57344
  unsigned char bits;
};

// ---- conversions ----------------------------------------------------------------------------------
// Narrowing rounds to nearest, ties to even; NaN narrows to 0x7fff (f16, bf16). The two f8 formats
// saturate, infinities included, as ONNX Cast does by default.

__device__ __forceinline__ float gc_half_to_float(gc_half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

__device__ __forceinline__ gc_half gc_float_to_half(float x) {
  gc_half y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

__device__ __forceinline__ float gc_bf16_to_float(gc_bf16 x) {
  return __uint_as_float((unsigned)x.bits << 16);
}

__device__ __forceinline__ gc_bf16 gc_float_to_bf16(float x) {
  gc_bf16 y;
#if __CUDA_ARCH__ >= 1000  // ptxas converts one number in the unit of exponentials, a fourth as fast as two at once
  unsigned two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(0.0f), "f"(x));
  y.bits = (unsigned short)two;
#elif __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
  const unsigned bits = __float_as_uint(x);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  y.bits = (unsigned short)(is_nan ? 0x7fffu : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
  return y;
}

// Two numbers as the halves of 32 bits, the first one in the low half.
__device__ __forceinline__ unsigned gc_pair_of_f16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return gc_float_to_half(low).bits | (unsigned)gc_float_to_half(high).bits << 16;
#endif
}

__device__ __forceinline__ unsigned gc_pair_of_bf16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return gc_float_to_bf16(low).bits | (unsigned)gc_float_to_bf16(high).bits << 16;
#endif
}

__device__ __forceinline__ float gc_f8e4m3_to_float(gc_f8e4m3 x) {
  const unsigned sign = (unsigned)(x.bits & 0x80u) << 24, magnitude = x.bits & 0x7fu;
  if (magnitude == 0x7fu) return __uint_as_float(sign | 0x7fc00000u);
  if (magnitude >= 8u) return __uint_as_float(sign | ((magnitude << 20) + (120u << 23)));
  const float subnormal = (float)magnitude * 0.001953125f;  // 2^-9
  return sign ? -subnormal : subnormal;
}

__device__ __forceinline__ gc_f8e4m3 gc_float_to_f8e4m3(float x) {
  const unsigned bits = __float_as_uint(x), sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  unsigned y;
  if (magnitude > 0x7f800000u) {
    y = 0x7fu;
  } else if (magnitude >= 0x43e80000u) {  // 464, midway between 448 and the 480 that does not exist
    y = 0x7eu;
  } else if (magnitude >= 0x3c800000u) {  // 2^-6, the least normal
    y = (magnitude - (120u << 23) + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  } else {
    y = (unsigned)rintf(__uint_as_float(magnitude) * 512.0f);
  }
  gc_f8e4m3 result;
  result.bits = (unsigned char)(sign | y);
  return result;
}

__device__ __forceinline__ float gc_f8e5m2_to_float(gc_f8e5m2 x) {
  gc_half wide;
  wide.bits = (unsigned short)(x.bits << 8);
  return gc_half_to_float(wide);
}

__device__ __forceinline__ gc_f8e5m2 gc_float_to_f8e5m2(float x) {
  const unsigned bits = __float_as_uint(x), sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  unsigned y;
  if (magnitude > 0x7f800000u) {
    y = 0x7fu;
  } else if (magnitude >= 0x47700000u) {  // 61440, midway between 57344 and the 65536 that does not exist
    y = 0x7bu;
  } else if (magnitude >= 0x38800000u) {  // 2^-14, the least normal
    y = (magnitude - (112u << 23) + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21;
  } else {
    y = (unsigned)rintf(__uint_as_float(magnitude) * 65536.0f);
  }
  gc_f8e5m2 result;
  result.bits = (unsigned char)(sign | y);
  return result;
}

// ---- warp collectives -----------------------------------------------------------------------------
// A warp is 32 threads of consecutive linear index; all of them take part. A shuffle orders no memory
// accesses: use gc_syncwarp between a write to shared memory and another lane's read of it.

__device__ __forceinline__ void gc_syncwarp() { __syncwarp(); }

// Whether it is so in any lane.
__device__ __forceinline__ bool gc_any(bool is) { return __any_sync(0xffffffffu, is); }

__device__ __forceinline__ float gc_shfl_xor(float value, int lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}
__device__ __forceinline__ double gc_shfl_xor(double value, int lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}
__device__ __forceinline__ int gc_shfl_xor(int value, int lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}
__device__ __forceinline__ unsigned gc_shfl_xor(unsigned value, int lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}
__device__ __forceinline__ long long gc_shfl_xor(long long value, int lane_mask) {
  return __shfl_xor_sync(0xffffffffu, value, lane_mask);
}

// lane + delta, or the lane's own value where that is past the warp
__device__ __forceinline__ float gc_shfl_down(float value, unsigned delta) {
  return __shfl_down_sync(0xffffffffu, value, delta);
}
__device__ __forceinline__ double gc_shfl_down(double value, unsigned delta) {
  return __shfl_down_sync(0xffffffffu, value, delta);
}
__device__ __forceinline__ int gc_shfl_down(int value, unsigned delta) {
  return __shfl_down_sync(0xffffffffu, value, delta);
}
__device__ __forceinline__ unsigned gc_shfl_down(unsigned value, unsigned delta) {
  return __shfl_down_sync(0xffffffffu, value, delta);
}
__device__ __forceinline__ long long gc_shfl_down(long long value, unsigned delta) {
  return __shfl_down_sync(0xffffffffu, value, delta);
}

__device__ __forceinline__ float gc_shfl(float value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
__device__ __forceinline__ double gc_shfl(double value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
__device__ __forceinline__ int gc_shfl(int value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
__device__ __forceinline__ unsigned gc_shfl(unsigned value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
__device__ __forceinline__ long long gc_shfl(long long value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

// The butterfly leaves the same bits in every lane. T: float, double, int, unsigned, long long.
template <class T>
__device__ __forceinline__ T gc_warp_sum(T value) {
  for (int lane_mask = 16; lane_mask > 0; lane_mask >>= 1) value += gc_shfl_xor(value, lane_mask);
  return value;
}

// The larger and the smaller of two; a NaN on either side is the result, as in numpy.
__device__ __forceinline__ float gc_max_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a > b || a != a ? a : b;
#endif
}
__device__ __forceinline__ float gc_min_nan(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
#else
  return a < b || a != a ? a : b;
#endif
}

// 2 to the power of x, within 2 ulp as exp2f, but zero where that is denormal.
__device__ __forceinline__ float gc_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// The same within 3e-6 of itself for x up to 126, zero below -126.5, by multiply-adds: the unit of exponentials is for other powers.
// 2^r of a remainder r of at most a half is a polynomial that is 1 at 0; its coefficients have the least largest relative error.
__device__ __forceinline__ float gc_exp2_polynomial(float x) {
  const float magic = 12582912.0f;  // 1.5 * 2^23: a sum with it is rounded to a whole number, which is in its last bits
  const float bounded = gc_max_nan(x, -127.0f);
  const float sum = bounded + magic;
  const float r = bounded - (sum - magic);
  const float part = fmaf(fmaf(fmaf(fmaf(9.5828539e-3f, r, 5.5906426e-2f), r, 2.4024099e-1f), r, 6.9312418e-1f), r, 1.0f);
  return part * __int_as_float((__float_as_int(sum) << 23) + 0x3f800000);
}

// A NaN in any lane is the result, as in numpy.
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

// True for one lane, always the same; all lanes call. sm_90 and later. ptxas knows that one thread does what depends on it, and
// issues its asynchronous instructions once: for a thread that is found otherwise it writes a loop around each of them.
__device__ __forceinline__ bool gc_elect_one() {
  unsigned elected;
  asm volatile(
      "{\n.reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n}"
      : "=r"(elected));
  return elected;
}

// ---- barriers of a part of the block --------------------------------------------------------------

// Waits for `threads` threads of the block, a multiple of 32, in whole warps; `number` is from 1 to 15, 0 is
// __syncthreads. The others may have exited.
__device__ __forceinline__ void gc_named_barrier(int number, int threads) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// ---- asynchronous copies, global to shared --------------------------------------------------------
// 4, 8 or 16 bytes, both addresses aligned to that; zeros are stored where not valid, and the source is
// not read. Bytes arrive at the wait that leaves at most `pending` of the thread's committed groups open;
// other threads see them after a barrier that follows. sm_75 has no such copies: plain load and store.

__device__ __forceinline__ void gc_cp_async4(void* shared_dst, const void* global_src, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(shared_dst)),
               "l"(__cvta_generic_to_global(global_src)), "r"(valid ? 4 : 0)
               : "memory");
#else
  *reinterpret_cast<unsigned*>(shared_dst) = valid ? *reinterpret_cast<const unsigned*>(global_src) : 0u;
#endif
}

__device__ __forceinline__ void gc_cp_async8(void* shared_dst, const void* global_src, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(shared_dst)),
               "l"(__cvta_generic_to_global(global_src)), "r"(valid ? 8 : 0)
               : "memory");
#else
  *reinterpret_cast<uint2*>(shared_dst) =
      valid ? *reinterpret_cast<const uint2*>(global_src) : make_uint2(0u, 0u);
#endif
}

__device__ __forceinline__ void gc_cp_async16(void* shared_dst, const void* global_src, bool valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(shared_dst)),
               "l"(__cvta_generic_to_global(global_src)), "r"(valid ? 16 : 0)
               : "memory");
#else
  *reinterpret_cast<uint4*>(shared_dst) =
      valid ? *reinterpret_cast<const uint4*>(global_src) : make_uint4(0u, 0u, 0u, 0u);
#endif
}

__device__ __forceinline__ void gc_cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int pending>
__device__ __forceinline__ void gc_cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

// ---- dynamic shared memory ------------------------------------------------------------------------

extern __shared__ __align__(128) unsigned char gc_dynamic_shared_bytes[];

// Start of the bytes asked for at launch, 128-byte aligned; undefined content when a block starts.
__device__ __forceinline__ unsigned char* gc_dynamic_shared() { return gc_dynamic_shared_bytes; }

// ---- atomics and fences ---------------------------------------------------------------------------
// Device scope, relaxed; each returns what stood there before.

__device__ __forceinline__ float gc_atomic_add(float* address, float value) {
  return atomicAdd(address, value);
}
__device__ __forceinline__ int gc_atomic_add(int* address, int value) {
  return atomicAdd(address, value);
}
__device__ __forceinline__ unsigned gc_atomic_add(unsigned* address, unsigned value) {
  return atomicAdd(address, value);
}

// Counts 0, 1, ... limit, 0, ...: the block that gets `limit` back is the last to arrive, and the counter
// is ready for the next launch.
__device__ __forceinline__ unsigned gc_atomic_inc_wrap(unsigned* address, unsigned limit) {
  return atomicInc(address, limit);
}

// As gc_atomic_inc_wrap. What the thread read and wrote before it, and threads that it has met at a barrier, comes before what
// follows a gc_load_acquire of the counter by who got `limit` back, and by threads that meet that one at a barrier.
__device__ __forceinline__ unsigned gc_atomic_inc_wrap_release(unsigned* address, unsigned limit) {
  unsigned before;
  asm volatile("atom.release.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(__cvta_generic_to_global(address)), "r"(limit)
               : "memory");
  return before;
}

__device__ __forceinline__ int gc_atomic_min(int* address, int value) { return atomicMin(address, value); }

// A flag in global memory that thread blocks of one launch leave for each other. What was written before it is set, also by
// threads that the setting one has met at a barrier, is seen by who finds it set. Whoever asks gives up after so many
// attempts: nothing promises that the block that is to set it runs meanwhile. Vain attempts acquire nothing: each would
// empty the first cache of the multiprocessor, which other blocks of it read by.
__device__ __forceinline__ void gc_store_release(unsigned* flag, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(flag)), "r"(value) : "memory");
}
__device__ __forceinline__ unsigned gc_load_acquire(const unsigned* address) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(address)) : "memory");
  return value;
}
__device__ __forceinline__ bool gc_is_set(const unsigned* flag, int attempts) {
  unsigned value = gc_load_acquire(flag);
#pragma unroll 1
  while (value == 0 && --attempts > 0) {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(flag))
                 : "memory");
    if (value != 0) value = gc_load_acquire(flag);
  }
  return value != 0;
}

// Writes before it are seen, by every block, before writes after it.
__device__ __forceinline__ void gc_threadfence() { __threadfence(); }

// 16 bytes, which are aligned, that thread blocks of one launch leave for each other: no cache of a single unit is asked.
__device__ __forceinline__ void gc_store16_volatile(volatile void* to, uint4 value) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                   __cvta_generic_to_global(const_cast<const void*>(to))),
               "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ uint4 gc_load16_volatile(const volatile void* from) {
  uint4 value;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(__cvta_generic_to_global(const_cast<const void*>(from)))
               : "memory");
  return value;
}

// ---- matrix fragments: ldmatrix, mma --------------------------------------------------------------

// A warp's collectives; g = lane / 4 and t = lane % 4 below. One element a register for tf32, two neighbours
// in depth for f16 and bf16, four for i8.

// One, two or four 8x8 matrices of 2-byte elements from shared memory: lanes 8i to 8i+7 give the addresses of
// the rows of matrix i, 16 bytes each and aligned to that. Register i gets row g, elements 2t and 2t+1 of
// matrix i; with trans column g, elements 2t and 2t+1.
__device__ __forceinline__ void gc_ldmatrix_x1(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(r[0])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}
__device__ __forceinline__ void gc_ldmatrix_x2(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}
__device__ __forceinline__ void gc_ldmatrix_x4(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}
__device__ __forceinline__ void gc_ldmatrix_x1_trans(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(r[0])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}
__device__ __forceinline__ void gc_ldmatrix_x2_trans(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}
__device__ __forceinline__ void gc_ldmatrix_x4_trans(unsigned* r, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
}

// tf32 as mma takes it: rounded to 10 bits of fraction, halves away from zero, in the upper bits.
__device__ __forceinline__ unsigned gc_float_to_tf32(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
#else
  const unsigned bits = __float_as_uint(x);
  return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
#endif
}

// c[16][8] += a[16][k] * b[k][8]. With p elements a register, a holds row g depth pt.., row g+8 depth pt..,
// then both at depth 4p + pt..; b column g depth pt.., then depth 4p + pt..; c row g columns 2t and 2t+1,
// then row g+8. Sums of floats are truncated, not rounded.

// for sm_75, half the depth: a holds two registers, b one
__device__ __forceinline__ void gc_mma_m16n8k8_f16(float* c, const unsigned* a, const unsigned* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}

__device__ __forceinline__ void gc_mma_m16n8k16_f16(float* c, const unsigned* a, const unsigned* b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  gc_mma_m16n8k8_f16(c, a, b);
  gc_mma_m16n8k8_f16(c, a + 2, b + 1);
#endif
}

// sm_80 and later; a kernel that calls it on sm_75 ends with an error
__device__ __forceinline__ void gc_mma_m16n8k16_bf16(float* c, const unsigned* a, const unsigned* b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

// sm_80 and later, as above
__device__ __forceinline__ void gc_mma_m16n8k8_tf32(float* c, const unsigned* a, const unsigned* b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}

#define GC_MMA_M8N8K16(a_type, b_type)                                                          \
  asm("mma.sync.aligned.m8n8k16.row.col.s32." a_type "." b_type ".s32 {%0, %1}, {%2}, {%3}, {%0, %1};" \
      : "+r"(c[0]), "+r"(c[1])                                                                  \
      : "r"(a[0]), "r"(b[0]))

// for sm_75, a quarter: eight rows, so that c and a have no second half, and half the depth
template <bool a_signed, bool b_signed>
__device__ __forceinline__ void gc_mma_m8n8k16_i8(int* c, const unsigned* a, const unsigned* b) {
  if constexpr (a_signed && b_signed)
    GC_MMA_M8N8K16("s8", "s8");
  else if constexpr (a_signed)
    GC_MMA_M8N8K16("s8", "u8");
  else if constexpr (b_signed)
    GC_MMA_M8N8K16("u8", "s8");
  else
    GC_MMA_M8N8K16("u8", "u8");
}

#define GC_MMA_M16N8K32(a_type, b_type)                                         \
  asm("mma.sync.aligned.m16n8k32.row.col.s32." a_type "." b_type                \
      ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"    \
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                          \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <bool a_signed, bool b_signed>
__device__ __forceinline__ void gc_mma_m16n8k32_i8(int* c, const unsigned* a, const unsigned* b) {
#if __CUDA_ARCH__ >= 800
  if constexpr (a_signed && b_signed)
    GC_MMA_M16N8K32("s8", "s8");
  else if constexpr (a_signed)
    GC_MMA_M16N8K32("s8", "u8");
  else if constexpr (b_signed)
    GC_MMA_M16N8K32("u8", "s8");
  else
    GC_MMA_M16N8K32("u8", "u8");
#else
  for (int part = 0; part < 4; ++part)
    gc_mma_m8n8k16_i8<a_signed, b_signed>(c + part % 2 * 2, a + part, b + part / 2);
#endif
}

// ---- dot products of bytes ------------------------------------------------------------------------
// c plus the four products of the bytes of a and b, lowest first, each read as signed or not; the sum wraps.

#define GC_DP4A(a_type, b_type) \
  asm("dp4a." a_type "." b_type " %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c))

template <bool a_signed, bool b_signed>
__device__ __forceinline__ int gc_dot4(int a, int b, int c) {
  int sum;
  if constexpr (a_signed && b_signed)
    GC_DP4A("s32", "s32");
  else if constexpr (a_signed)
    GC_DP4A("s32", "u32");
  else if constexpr (b_signed)
    GC_DP4A("u32", "s32");
  else
    GC_DP4A("u32", "u32");
  return sum;
}

// ---- mbarrier and TMA -----------------------------------------------------------------------------
// sm_90 and later. An mbarrier is 8 bytes of shared memory. A phase of it is complete when `count` threads have
// arrived and every byte that was announced has landed; phases are told apart by their parity, the first has 0.

// A CUtensorMap, made by the driver. Kernels take it as `const __grid_constant__ gc_tensor_map`.
struct __align__(64) gc_tensor_map {
  unsigned long long words[16];
};

__device__ __forceinline__ void gc_mbarrier_init(unsigned long long* barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((unsigned)__cvta_generic_to_shared(barrier)),
               "r"(count)
               : "memory");
}

// Its memory may be used for something else afterwards.
__device__ __forceinline__ void gc_mbarrier_invalidate(unsigned long long* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"((unsigned)__cvta_generic_to_shared(barrier))
               : "memory");
}

__device__ __forceinline__ void gc_mbarrier_arrive(unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(
                   (unsigned)__cvta_generic_to_shared(barrier))
               : "memory");
}

// Arrives and announces `bytes` that TMA loads bring in the same phase.
__device__ __forceinline__ void gc_mbarrier_arrive_expect_tx(unsigned long long* barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(barrier)),
               "r"(bytes)
               : "memory");
}

// Waits until the phase of this parity is complete; returns at once while the phase after it is current.
__device__ __forceinline__ void gc_mbarrier_wait(unsigned long long* barrier, unsigned parity) {
  unsigned done = 0;
  while (!done)
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}"
        : "=r"(done)
        : "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(parity)
        : "memory");
}

// Arrives at the barrier that stands at the same place in the shared memory of the cluster's block `rank`, which may
// not have exited. Whoever waits for it there takes gc_mbarrier_wait_cluster.
__device__ __forceinline__ void gc_mbarrier_arrive_cluster(unsigned long long* barrier, unsigned rank) {
  asm volatile(
      "{\n.reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(
          (unsigned)__cvta_generic_to_shared(barrier)),
      "r"(rank)
      : "memory");
}

// gc_mbarrier_wait that also orders what threads of other blocks did before they arrived.
__device__ __forceinline__ void gc_mbarrier_wait_cluster(unsigned long long* barrier, unsigned parity) {
  unsigned done = 0;
  while (!done)
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}"
        : "=r"(done)
        : "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(parity)
        : "memory");
}

// Makes initialised barriers known to TMA and to the cluster; a __syncthreads or gc_cluster_sync has to follow.
__device__ __forceinline__ void gc_fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Plain writes to shared memory before it are seen by TMA stores and wgmma after it.
__device__ __forceinline__ void gc_fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Dynamic shared memory, 1024-byte aligned as the 128-byte swizzle wants its tiles.
extern __shared__ __align__(1024) unsigned char gc_swizzled_shared_bytes[];

__device__ __forceinline__ unsigned char* gc_swizzled_shared() { return gc_swizzled_shared_bytes; }

// Fetches the descriptor ahead of its first use.
__device__ __forceinline__ void gc_tma_prefetch(const gc_tensor_map* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// One thread starts the copy of a box; `x` counts elements of the innermost axis. Elements outside of the tensor
// are zeros, and count as bytes like the others.
__device__ __forceinline__ void gc_tma_load_2d(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          (unsigned)__cvta_generic_to_shared(shared_dst)),
      "l"(map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void gc_tma_load_3d(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"((unsigned)__cvta_generic_to_shared(shared_dst)),
      "l"(map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void gc_tma_load_4d(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y, int z,
                       int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"((unsigned)__cvta_generic_to_shared(shared_dst)),
      "l"(map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// Channels from `channel` on of as many pixels of an NHWC image as the map says, the first at (w, h, n); the walk
// runs over the map's window of pixels. The offsets, of a filter's tap, are added to every pixel.
__device__ __forceinline__ void gc_tma_load_im2col_4d(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int channel,
                              int w, int h, int n, unsigned short offset_w, unsigned short offset_h) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2], {%7, %8};" ::"r"((unsigned)__cvta_generic_to_shared(shared_dst)),
      "l"(map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(channel), "r"(w), "r"(h), "r"(n),
      "h"(offset_w), "h"(offset_h)
      : "memory");
}

// The same box to the same place in every block of the cluster whose bit of `ranks` is set; each block's barrier at
// the same place counts the bytes that land there.
__device__ __forceinline__ void gc_tma_load_2d_multicast(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y,
                                 unsigned short ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4}], [%2], %5;" ::"r"((unsigned)__cvta_generic_to_shared(shared_dst)),
      "l"(map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(x), "r"(y), "h"(ranks)
      : "memory");
}

__device__ __forceinline__ void gc_tma_load_3d_multicast(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y,
                                 int z, unsigned short ranks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4, %5}], [%2], %6;" ::"r"((unsigned)__cvta_generic_to_shared(shared_dst)),
      "l"(map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(x), "r"(y), "r"(z), "h"(ranks)
      : "memory");
}

__device__ __forceinline__ void gc_tma_load_im2col_4d_multicast(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier,
                                        int channel, int w, int h, int n, unsigned short offset_w,
                                        unsigned short offset_h, unsigned short ranks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"((unsigned)__cvta_generic_to_shared(shared_dst)),
      "l"(map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(channel), "r"(w), "r"(h), "r"(n),
      "h"(offset_w), "h"(offset_h), "h"(ranks)
      : "memory");
}

#define GC_FIRST_OF_PAIR "{\n.reg .u32 first;\nmapa.shared::cluster.u32 first, %2, 0;\n"

// The same to this block, of a pair of which tcgen05 multiplies as of one (sm_100): the barrier at the same place in the block of
// rank 0 counts the bytes. PTX ISA, .cta_group::2 of cp.async.bulk.tensor; CUTLASS, SM100_TMA_2SM_LOAD.
__device__ __forceinline__ void gc_tma_load_2d_pair(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y) {
  asm volatile(
      GC_FIRST_OF_PAIR
      "cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
      "[first];\n}" ::"r"((unsigned)__cvta_generic_to_shared(shared_dst)),
      "l"(map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void gc_tma_load_3d_pair(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier, int x, int y,
                            int z) {
  asm volatile(
      GC_FIRST_OF_PAIR
      "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5}], [first];\n}" ::"r"((unsigned)__cvta_generic_to_shared(shared_dst)),
      "l"(map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void gc_tma_load_im2col_4d_pair(void* shared_dst, const gc_tensor_map* map, unsigned long long* barrier,
                                   int channel, int w, int h, int n, unsigned short offset_w, unsigned short offset_h) {
  asm volatile(
      GC_FIRST_OF_PAIR
      "cp.async.bulk.tensor.4d.cta_group::2.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4, %5, %6}], [first], {%7, %8};\n}" ::"r"((unsigned)__cvta_generic_to_shared(shared_dst)),
      "l"(map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(channel), "r"(w), "r"(h), "r"(n),
      "h"(offset_w), "h"(offset_h)
      : "memory");
}

#undef GC_FIRST_OF_PAIR

// The way back; elements outside of the tensor are left out. Shared memory is read until the group is waited for.
__device__ __forceinline__ void gc_tma_store_2d(const gc_tensor_map* map, const void* shared_src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
               "r"((unsigned)__cvta_generic_to_shared(shared_src)), "r"(x), "r"(y)
               : "memory");
}

__device__ __forceinline__ void gc_tma_store_3d(const gc_tensor_map* map, const void* shared_src, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"((unsigned)__cvta_generic_to_shared(shared_src)), "r"(x), "r"(y), "r"(z)
               : "memory");
}

__device__ __forceinline__ void gc_tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// At most `pending` of the thread's committed groups are still under way. What the others have stored is then as if the thread
// itself had written it: completion that is observed implies the fence between the proxies.
template <int pending>
__device__ __forceinline__ void gc_tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// The same, but they may still store what they have read: shared memory is free. A block may not exit before gc_tma_store_wait.
template <int pending>
__device__ __forceinline__ void gc_tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// ---- wgmma ----------------------------------------------------------------------------------------
// sm_90a. The 128 threads of a warpgroup multiply 64 rows of `a` with n rows of `b` and add to `acc`, n / 2 sums a
// thread: sum 4 j + 2 h + e is row 16 (thread / 32) + thread % 32 / 4 + 8 h, column 8 j + 2 (thread % 4) + e.
// Both operands are K-major in shared memory. `acc` may not be touched from the call to the wait.

// Between accesses of registers, or plain writes of operands, and the wgmma that reads them.
__device__ __forceinline__ void gc_wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void gc_wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// At most `pending` committed groups are still under way.
template <int pending>
__device__ __forceinline__ void gc_wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// `value` is computed before waits that follow: a compiler else moves arithmetic past the wait that it was to overlap with.
__device__ __forceinline__ void gc_wgmma_before(float& value) { asm volatile("" : "+f"(value)); }

// Describes a K-major operand whose rows of 128 bytes TMA swizzled by 128 bytes, the first row 1024-byte aligned.
// Further along K within the 128 bytes: gc_wgmma_along.
__device__ __forceinline__ unsigned long long gc_wgmma_operand(const void* shared_tile) {
  const unsigned long long start = (unsigned)__cvta_generic_to_shared(shared_tile) >> 4 & 0x3fffu;
  return start | 1ull << 16 | 64ull << 32 | 1ull << 62;  // 1024 bytes from 8 rows to the next 8; 128-byte swizzle
}

// The operand that begins `chunks` times 16 bytes later. Its place is in the lower half, which has room: ptxas need not carry.
__device__ __forceinline__ unsigned long long gc_wgmma_along(unsigned long long operand, unsigned chunks) {
  return (operand & 0xffffffff00000000ull) | (unsigned)((unsigned)operand + chunks);
}

// Describes 16 rows of depth of an operand that is contiguous along its n columns, in panels of 64 columns that are `panel_bytes`
// apart: rows of 128 bytes that TMA swizzled by 128 bytes, the first 1024-byte aligned. 16 rows further on: add 128 to it.
__device__ __forceinline__ unsigned long long gc_wgmma_turned(const void* shared_tile, unsigned panel_bytes) {
  const unsigned long long start = (unsigned)__cvta_generic_to_shared(shared_tile) >> 4 & 0x3fffu;
  return start | (unsigned long long)(panel_bytes >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

#define GC_WGMMA_NAMES_8 \
  "%0, %1, %2, %3"
#define GC_WGMMA_NAMES_16 \
  GC_WGMMA_NAMES_8 ", "   \
  "%4, %5, %6, %7"
#define GC_WGMMA_NAMES_32 \
  GC_WGMMA_NAMES_16 ", "  \
  "%8, %9, %10, %11, %12, %13, %14, %15"
#define GC_WGMMA_NAMES_48 \
  GC_WGMMA_NAMES_32 ", "  \
  "%16, %17, %18, %19, %20, %21, %22, %23"
#define GC_WGMMA_NAMES_64 \
  GC_WGMMA_NAMES_48 ", "  \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define GC_WGMMA_NAMES_96 \
  GC_WGMMA_NAMES_64 ", "  \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define GC_WGMMA_NAMES_128 \
  GC_WGMMA_NAMES_96 ", "   \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GC_WGMMA_NAMES_192                                                           \
  GC_WGMMA_NAMES_128 ", "                                                            \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define GC_WGMMA_NAMES_256                                                                       \
  GC_WGMMA_NAMES_192 ", "                                                                        \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define GC_WGMMA_SUMS_8(bind) \
  bind(acc[0]), bind(acc[1]), bind(acc[2]), bind(acc[3])
#define GC_WGMMA_SUMS_16(bind) \
  GC_WGMMA_SUMS_8(bind),       \
  bind(acc[4]), bind(acc[5]), bind(acc[6]), bind(acc[7])
#define GC_WGMMA_SUMS_32(bind) \
  GC_WGMMA_SUMS_16(bind),      \
  bind(acc[8]), bind(acc[9]), bind(acc[10]), bind(acc[11]), bind(acc[12]), bind(acc[13]), bind(acc[14]), bind(acc[15])
#define GC_WGMMA_SUMS_48(bind) \
  GC_WGMMA_SUMS_32(bind),      \
  bind(acc[16]), bind(acc[17]), bind(acc[18]), bind(acc[19]), bind(acc[20]), bind(acc[21]), bind(acc[22]), bind(acc[23])
#define GC_WGMMA_SUMS_64(bind) \
  GC_WGMMA_SUMS_48(bind),      \
  bind(acc[24]), bind(acc[25]), bind(acc[26]), bind(acc[27]), bind(acc[28]), bind(acc[29]), bind(acc[30]), bind(acc[31])
#define GC_WGMMA_SUMS_96(bind)                                                                                            \
  GC_WGMMA_SUMS_64(bind),                                                                                                 \
  bind(acc[32]), bind(acc[33]), bind(acc[34]), bind(acc[35]), bind(acc[36]), bind(acc[37]), bind(acc[38]), bind(acc[39]), \
  bind(acc[40]), bind(acc[41]), bind(acc[42]), bind(acc[43]), bind(acc[44]), bind(acc[45]), bind(acc[46]), bind(acc[47])
#define GC_WGMMA_SUMS_128(bind)                                                                                           \
  GC_WGMMA_SUMS_96(bind),                                                                                                 \
  bind(acc[48]), bind(acc[49]), bind(acc[50]), bind(acc[51]), bind(acc[52]), bind(acc[53]), bind(acc[54]), bind(acc[55]), \
  bind(acc[56]), bind(acc[57]), bind(acc[58]), bind(acc[59]), bind(acc[60]), bind(acc[61]), bind(acc[62]), bind(acc[63])
#define GC_WGMMA_SUMS_192(bind)                                                                                           \
  GC_WGMMA_SUMS_128(bind),                                                                                                \
  bind(acc[64]), bind(acc[65]), bind(acc[66]), bind(acc[67]), bind(acc[68]), bind(acc[69]), bind(acc[70]), bind(acc[71]), \
  bind(acc[72]), bind(acc[73]), bind(acc[74]), bind(acc[75]), bind(acc[76]), bind(acc[77]), bind(acc[78]), bind(acc[79]), \
  bind(acc[80]), bind(acc[81]), bind(acc[82]), bind(acc[83]), bind(acc[84]), bind(acc[85]), bind(acc[86]), bind(acc[87]), \
  bind(acc[88]), bind(acc[89]), bind(acc[90]), bind(acc[91]), bind(acc[92]), bind(acc[93]), bind(acc[94]), bind(acc[95])
#define GC_WGMMA_SUMS_256(bind)                                                                                                   \
  GC_WGMMA_SUMS_192(bind),                                                                                                        \
  bind(acc[96]), bind(acc[97]), bind(acc[98]), bind(acc[99]), bind(acc[100]), bind(acc[101]), bind(acc[102]), bind(acc[103]),     \
  bind(acc[104]), bind(acc[105]), bind(acc[106]), bind(acc[107]), bind(acc[108]), bind(acc[109]), bind(acc[110]), bind(acc[111]), \
  bind(acc[112]), bind(acc[113]), bind(acc[114]), bind(acc[115]), bind(acc[116]), bind(acc[117]), bind(acc[118]), bind(acc[119]), \
  bind(acc[120]), bind(acc[121]), bind(acc[122]), bind(acc[123]), bind(acc[124]), bind(acc[125]), bind(acc[126]), bind(acc[127])
#define GC_WGMMA(n, bind, shape, rest)                                                              \
  asm volatile("wgmma.mma_async.sync.aligned." shape " {" GC_WGMMA_NAMES_##n "}, " rest             \
               : GC_WGMMA_SUMS_##n(bind)                                                            \
               : "l"(a), "l"(b)                                                                     \
               : "memory")
#define GC_WGMMA_TURNED(n, shape, rest)                                                 \
  asm volatile("wgmma.mma_async.sync.aligned." shape " {" GC_WGMMA_NAMES_##n "}, " rest \
               : GC_WGMMA_SUMS_##n(GC_WGMMA_FLOAT)                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                     \
               : "memory")
#define GC_WGMMA_FLOAT(sum) "+f"(sum)
#define GC_WGMMA_FIRST(sum) "=f"(sum)
#define GC_WGMMA_INT(sum) "+r"(sum)

// Depth 16 of f16. n: 8, 16, 32, 48, 64, 96, 128, 192 or 256, here and below.
template <int n>
__device__ __forceinline__ void gc_wgmma_f16(float* acc, unsigned long long a, unsigned long long b) {
  if constexpr (n == 8) GC_WGMMA(8, GC_WGMMA_FLOAT, "m64n8k16.f32.f16.f16", "%4, %5, 1, 1, 1, 0, 0;");
  if constexpr (n == 16) GC_WGMMA(16, GC_WGMMA_FLOAT, "m64n16k16.f32.f16.f16", "%8, %9, 1, 1, 1, 0, 0;");
  if constexpr (n == 32) GC_WGMMA(32, GC_WGMMA_FLOAT, "m64n32k16.f32.f16.f16", "%16, %17, 1, 1, 1, 0, 0;");
  if constexpr (n == 48) GC_WGMMA(48, GC_WGMMA_FLOAT, "m64n48k16.f32.f16.f16", "%24, %25, 1, 1, 1, 0, 0;");
  if constexpr (n == 64) GC_WGMMA(64, GC_WGMMA_FLOAT, "m64n64k16.f32.f16.f16", "%32, %33, 1, 1, 1, 0, 0;");
  if constexpr (n == 96) GC_WGMMA(96, GC_WGMMA_FLOAT, "m64n96k16.f32.f16.f16", "%48, %49, 1, 1, 1, 0, 0;");
  if constexpr (n == 128) GC_WGMMA(128, GC_WGMMA_FLOAT, "m64n128k16.f32.f16.f16", "%64, %65, 1, 1, 1, 0, 0;");
  if constexpr (n == 192) GC_WGMMA(192, GC_WGMMA_FLOAT, "m64n192k16.f32.f16.f16", "%96, %97, 1, 1, 1, 0, 0;");
  if constexpr (n == 256) GC_WGMMA(256, GC_WGMMA_FLOAT, "m64n256k16.f32.f16.f16", "%128, %129, 1, 1, 1, 0, 0;");
}

// Depth 16 of bf16.
template <int n>
__device__ __forceinline__ void gc_wgmma_bf16(float* acc, unsigned long long a, unsigned long long b) {
  if constexpr (n == 8) GC_WGMMA(8, GC_WGMMA_FLOAT, "m64n8k16.f32.bf16.bf16", "%4, %5, 1, 1, 1, 0, 0;");
  if constexpr (n == 16) GC_WGMMA(16, GC_WGMMA_FLOAT, "m64n16k16.f32.bf16.bf16", "%8, %9, 1, 1, 1, 0, 0;");
  if constexpr (n == 32) GC_WGMMA(32, GC_WGMMA_FLOAT, "m64n32k16.f32.bf16.bf16", "%16, %17, 1, 1, 1, 0, 0;");
  if constexpr (n == 48) GC_WGMMA(48, GC_WGMMA_FLOAT, "m64n48k16.f32.bf16.bf16", "%24, %25, 1, 1, 1, 0, 0;");
  if constexpr (n == 64) GC_WGMMA(64, GC_WGMMA_FLOAT, "m64n64k16.f32.bf16.bf16", "%32, %33, 1, 1, 1, 0, 0;");
  if constexpr (n == 96) GC_WGMMA(96, GC_WGMMA_FLOAT, "m64n96k16.f32.bf16.bf16", "%48, %49, 1, 1, 1, 0, 0;");
  if constexpr (n == 128) GC_WGMMA(128, GC_WGMMA_FLOAT, "m64n128k16.f32.bf16.bf16", "%64, %65, 1, 1, 1, 0, 0;");
  if constexpr (n == 192) GC_WGMMA(192, GC_WGMMA_FLOAT, "m64n192k16.f32.bf16.bf16", "%96, %97, 1, 1, 1, 0, 0;");
  if constexpr (n == 256) GC_WGMMA(256, GC_WGMMA_FLOAT, "m64n256k16.f32.bf16.bf16", "%128, %129, 1, 1, 1, 0, 0;");
}

// Depth 8 of tf32: f32 whose last 13 bits are not looked at.
template <int n>
__device__ __forceinline__ void gc_wgmma_tf32(float* acc, unsigned long long a, unsigned long long b) {
  if constexpr (n == 8) GC_WGMMA(8, GC_WGMMA_FLOAT, "m64n8k8.f32.tf32.tf32", "%4, %5, 1, 1, 1;");
  if constexpr (n == 16) GC_WGMMA(16, GC_WGMMA_FLOAT, "m64n16k8.f32.tf32.tf32", "%8, %9, 1, 1, 1;");
  if constexpr (n == 32) GC_WGMMA(32, GC_WGMMA_FLOAT, "m64n32k8.f32.tf32.tf32", "%16, %17, 1, 1, 1;");
  if constexpr (n == 48) GC_WGMMA(48, GC_WGMMA_FLOAT, "m64n48k8.f32.tf32.tf32", "%24, %25, 1, 1, 1;");
  if constexpr (n == 64) GC_WGMMA(64, GC_WGMMA_FLOAT, "m64n64k8.f32.tf32.tf32", "%32, %33, 1, 1, 1;");
  if constexpr (n == 96) GC_WGMMA(96, GC_WGMMA_FLOAT, "m64n96k8.f32.tf32.tf32", "%48, %49, 1, 1, 1;");
  if constexpr (n == 128) GC_WGMMA(128, GC_WGMMA_FLOAT, "m64n128k8.f32.tf32.tf32", "%64, %65, 1, 1, 1;");
  if constexpr (n == 192) GC_WGMMA(192, GC_WGMMA_FLOAT, "m64n192k8.f32.tf32.tf32", "%96, %97, 1, 1, 1;");
  if constexpr (n == 256) GC_WGMMA(256, GC_WGMMA_FLOAT, "m64n256k8.f32.tf32.tf32", "%128, %129, 1, 1, 1;");
}

// Depth 32 of signed 8-bit integers.
template <int n>
__device__ __forceinline__ void gc_wgmma_s8(int* acc, unsigned long long a, unsigned long long b) {
  if constexpr (n == 8) GC_WGMMA(8, GC_WGMMA_INT, "m64n8k32.s32.s8.s8", "%4, %5, 1;");
  if constexpr (n == 16) GC_WGMMA(16, GC_WGMMA_INT, "m64n16k32.s32.s8.s8", "%8, %9, 1;");
  if constexpr (n == 32) GC_WGMMA(32, GC_WGMMA_INT, "m64n32k32.s32.s8.s8", "%16, %17, 1;");
  if constexpr (n == 48) GC_WGMMA(48, GC_WGMMA_INT, "m64n48k32.s32.s8.s8", "%24, %25, 1;");
  if constexpr (n == 64) GC_WGMMA(64, GC_WGMMA_INT, "m64n64k32.s32.s8.s8", "%32, %33, 1;");
  if constexpr (n == 96) GC_WGMMA(96, GC_WGMMA_INT, "m64n96k32.s32.s8.s8", "%48, %49, 1;");
  if constexpr (n == 128) GC_WGMMA(128, GC_WGMMA_INT, "m64n128k32.s32.s8.s8", "%64, %65, 1;");
  if constexpr (n == 192) GC_WGMMA(192, GC_WGMMA_INT, "m64n192k32.s32.s8.s8", "%96, %97, 1;");
  if constexpr (n == 256) GC_WGMMA(256, GC_WGMMA_INT, "m64n256k32.s32.s8.s8", "%128, %129, 1;");
}

// Depth 16 of f16, the first of a sum: what `acc` has is not read.
template <int n>
__device__ __forceinline__ void gc_wgmma_f16_first(float* acc, unsigned long long a, unsigned long long b) {
  if constexpr (n == 8) GC_WGMMA(8, GC_WGMMA_FIRST, "m64n8k16.f32.f16.f16", "%4, %5, 0, 1, 1, 0, 0;");
  if constexpr (n == 16) GC_WGMMA(16, GC_WGMMA_FIRST, "m64n16k16.f32.f16.f16", "%8, %9, 0, 1, 1, 0, 0;");
  if constexpr (n == 32) GC_WGMMA(32, GC_WGMMA_FIRST, "m64n32k16.f32.f16.f16", "%16, %17, 0, 1, 1, 0, 0;");
  if constexpr (n == 48) GC_WGMMA(48, GC_WGMMA_FIRST, "m64n48k16.f32.f16.f16", "%24, %25, 0, 1, 1, 0, 0;");
  if constexpr (n == 64) GC_WGMMA(64, GC_WGMMA_FIRST, "m64n64k16.f32.f16.f16", "%32, %33, 0, 1, 1, 0, 0;");
  if constexpr (n == 96) GC_WGMMA(96, GC_WGMMA_FIRST, "m64n96k16.f32.f16.f16", "%48, %49, 0, 1, 1, 0, 0;");
  if constexpr (n == 128) GC_WGMMA(128, GC_WGMMA_FIRST, "m64n128k16.f32.f16.f16", "%64, %65, 0, 1, 1, 0, 0;");
  if constexpr (n == 192) GC_WGMMA(192, GC_WGMMA_FIRST, "m64n192k16.f32.f16.f16", "%96, %97, 0, 1, 1, 0, 0;");
  if constexpr (n == 256) GC_WGMMA(256, GC_WGMMA_FIRST, "m64n256k16.f32.f16.f16", "%128, %129, 0, 1, 1, 0, 0;");
}

// Depth 16 of bf16, the first of a sum: what `acc` has is not read.
template <int n>
__device__ __forceinline__ void gc_wgmma_bf16_first(float* acc, unsigned long long a, unsigned long long b) {
  if constexpr (n == 8) GC_WGMMA(8, GC_WGMMA_FIRST, "m64n8k16.f32.bf16.bf16", "%4, %5, 0, 1, 1, 0, 0;");
  if constexpr (n == 16) GC_WGMMA(16, GC_WGMMA_FIRST, "m64n16k16.f32.bf16.bf16", "%8, %9, 0, 1, 1, 0, 0;");
  if constexpr (n == 32) GC_WGMMA(32, GC_WGMMA_FIRST, "m64n32k16.f32.bf16.bf16", "%16, %17, 0, 1, 1, 0, 0;");
  if constexpr (n == 48) GC_WGMMA(48, GC_WGMMA_FIRST, "m64n48k16.f32.bf16.bf16", "%24, %25, 0, 1, 1, 0, 0;");
  if constexpr (n == 64) GC_WGMMA(64, GC_WGMMA_FIRST, "m64n64k16.f32.bf16.bf16", "%32, %33, 0, 1, 1, 0, 0;");
  if constexpr (n == 96) GC_WGMMA(96, GC_WGMMA_FIRST, "m64n96k16.f32.bf16.bf16", "%48, %49, 0, 1, 1, 0, 0;");
  if constexpr (n == 128) GC_WGMMA(128, GC_WGMMA_FIRST, "m64n128k16.f32.bf16.bf16", "%64, %65, 0, 1, 1, 0, 0;");
  if constexpr (n == 192) GC_WGMMA(192, GC_WGMMA_FIRST, "m64n192k16.f32.bf16.bf16", "%96, %97, 0, 1, 1, 0, 0;");
  if constexpr (n == 256) GC_WGMMA(256, GC_WGMMA_FIRST, "m64n256k16.f32.bf16.bf16", "%128, %129, 0, 1, 1, 0, 0;");
}

// Depth 16 of f16: `a` in registers, as mma takes it, for each warp's 16 rows; they may not change until the wait. `b` is turned:
// see gc_wgmma_turned.
template <int n>
__device__ __forceinline__ void gc_wgmma_f16_registers(float* acc, const unsigned* a, unsigned long long b) {
  if constexpr (n == 8) GC_WGMMA_TURNED(8, "m64n8k16.f32.f16.f16", "{%4, %5, %6, %7}, %8, 1, 1, 1, 1;");
  if constexpr (n == 16) GC_WGMMA_TURNED(16, "m64n16k16.f32.f16.f16", "{%8, %9, %10, %11}, %12, 1, 1, 1, 1;");
  if constexpr (n == 32) GC_WGMMA_TURNED(32, "m64n32k16.f32.f16.f16", "{%16, %17, %18, %19}, %20, 1, 1, 1, 1;");
  if constexpr (n == 48) GC_WGMMA_TURNED(48, "m64n48k16.f32.f16.f16", "{%24, %25, %26, %27}, %28, 1, 1, 1, 1;");
  if constexpr (n == 64) GC_WGMMA_TURNED(64, "m64n64k16.f32.f16.f16", "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;");
  if constexpr (n == 96) GC_WGMMA_TURNED(96, "m64n96k16.f32.f16.f16", "{%48, %49, %50, %51}, %52, 1, 1, 1, 1;");
  if constexpr (n == 128) GC_WGMMA_TURNED(128, "m64n128k16.f32.f16.f16", "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;");
  if constexpr (n == 192) GC_WGMMA_TURNED(192, "m64n192k16.f32.f16.f16", "{%96, %97, %98, %99}, %100, 1, 1, 1, 1;");
  if constexpr (n == 256) GC_WGMMA_TURNED(256, "m64n256k16.f32.f16.f16", "{%128, %129, %130, %131}, %132, 1, 1, 1, 1;");
}

// Depth 16 of bf16: `a` in registers, as mma takes it, for each warp's 16 rows; they may not change until the wait. `b` is turned:
// see gc_wgmma_turned.
template <int n>
__device__ __forceinline__ void gc_wgmma_bf16_registers(float* acc, const unsigned* a, unsigned long long b) {
  if constexpr (n == 8) GC_WGMMA_TURNED(8, "m64n8k16.f32.bf16.bf16", "{%4, %5, %6, %7}, %8, 1, 1, 1, 1;");
  if constexpr (n == 16) GC_WGMMA_TURNED(16, "m64n16k16.f32.bf16.bf16", "{%8, %9, %10, %11}, %12, 1, 1, 1, 1;");
  if constexpr (n == 32) GC_WGMMA_TURNED(32, "m64n32k16.f32.bf16.bf16", "{%16, %17, %18, %19}, %20, 1, 1, 1, 1;");
  if constexpr (n == 48) GC_WGMMA_TURNED(48, "m64n48k16.f32.bf16.bf16", "{%24, %25, %26, %27}, %28, 1, 1, 1, 1;");
  if constexpr (n == 64) GC_WGMMA_TURNED(64, "m64n64k16.f32.bf16.bf16", "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;");
  if constexpr (n == 96) GC_WGMMA_TURNED(96, "m64n96k16.f32.bf16.bf16", "{%48, %49, %50, %51}, %52, 1, 1, 1, 1;");
  if constexpr (n == 128) GC_WGMMA_TURNED(128, "m64n128k16.f32.bf16.bf16", "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;");
  if constexpr (n == 192) GC_WGMMA_TURNED(192, "m64n192k16.f32.bf16.bf16", "{%96, %97, %98, %99}, %100, 1, 1, 1, 1;");
  if constexpr (n == 256) GC_WGMMA_TURNED(256, "m64n256k16.f32.bf16.bf16", "{%128, %129, %130, %131}, %132, 1, 1, 1, 1;");
}

#undef GC_WGMMA
#undef GC_WGMMA_TURNED
#undef GC_WGMMA_FIRST
#undef GC_WGMMA_FLOAT
#undef GC_WGMMA_INT

// Registers a thread of the warpgroup may have from here on, a multiple of 8 from 24 to 256; all its threads call.
// A block starts with what its launch bounds leave a thread, 65536 / (threads * blocks) by eights. `dec` gives the
// rest to the block; `inc` waits until the block has what is missing. Code after either is its warpgroup's alone.
template <int registers>
__device__ __forceinline__ void gc_setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
__device__ __forceinline__ void gc_setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// Four 8 x 8 matrices of 16-bit elements: lane l says where row l % 8 of matrix l / 8 goes, 16-byte aligned; of
// matrix i it holds elements 2 (l % 4) and the next of row l / 4 in ri.
__device__ __forceinline__ void gc_stmatrix_x4(void* shared_row, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   (unsigned)__cvta_generic_to_shared(shared_row)),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// ---- tcgen05 --------------------------------------------------------------------------------------
// sm_100 and its family; PTX ISA, "TensorCore 5th Generation Family Instructions". Sums are in tensor memory: 128 lanes of 512
// columns of 32 bits for a multiprocessor, of which a block allocates columns. An address there is the lane, times 65536, plus
// the column. One thread multiplies m rows of `a` with n rows of `b`, both K-major in shared memory unless it is said otherwise.
// Of 128 rows, row r is in lane r; of 64 rows it is in lane r / 16 * 32 + r % 16. A warp reaches the 32 lanes from
// 32 (warp % 4) on.
// The functions that end in _pair are of the two blocks of a cluster that multiply as one (.cta_group::2). Both allocate and free
// the same columns, and their kernel has no product, commit or allocation of one block. A thread of the block of rank 0 asks for
// products: of 256 rows of `a`, 128 in the shared memory of each, and n rows of `b`, half of them in each. Both tiles lie at the
// same place in both blocks. The sums of a block's own 128 rows are in its tensor memory, with all n columns.

#define GC_TCGEN05_ALLOC(blocks)                                                                                 \
  asm volatile("tcgen05.alloc.cta_group::" blocks ".sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(               \
                   (unsigned)__cvta_generic_to_shared(shared_address)),                                          \
               "r"(columns)                                                                                      \
               : "memory");                                                                                      \
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::" blocks ".sync.aligned;" ::: "memory")

// All threads of one warp: `columns`, a power of two from 32 to 512, for the block, whose address is written to shared memory.
// Waits until the multiprocessor has as many. A block allocates once.
__device__ __forceinline__ void gc_tcgen05_alloc(unsigned* shared_address, unsigned columns) { GC_TCGEN05_ALLOC("1"); }

// The same of one warp in each block, with the same address, when both run: after gc_cluster_sync.
__device__ __forceinline__ void gc_tcgen05_alloc_pair(unsigned* shared_address, unsigned columns) { GC_TCGEN05_ALLOC("2"); }

#undef GC_TCGEN05_ALLOC

// All threads of one warp, after all loads. A block may not exit before it.
__device__ __forceinline__ void gc_tcgen05_free(unsigned address, unsigned columns) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

// The same of one warp in each block, after all loads of both. Neither may exit before the other has called it.
__device__ __forceinline__ void gc_tcgen05_free_pair(unsigned address, unsigned columns) {
  asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

// Around a barrier or another synchronisation: what the thread did in tensor memory before the first is seen by threads that
// call the second after they met it. The end of products that a barrier tells of needs the second alone.
__device__ __forceinline__ void gc_tcgen05_fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }

__device__ __forceinline__ void gc_tcgen05_fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// Describes a K-major operand whose rows of 128 bytes TMA swizzled by 128 bytes, the first row 1024-byte aligned.
// Further along K within the 128 bytes: add bytes / 16 to it. PTX ISA, "Shared memory descriptor" of tcgen05; CUTLASS,
// cute/arch/mma_sm100_desc.hpp, SmemDescriptor.
__device__ __forceinline__ unsigned long long gc_tcgen05_operand(const void* shared_tile) {
  const unsigned long long start = (unsigned)__cvta_generic_to_shared(shared_tile) >> 4 & 0x3fffu;  // bits 0 to 13
  return start | 1ull << 16  // leading dimension's offset / 16, bits 16 to 29: not used with this swizzle
         | 64ull << 32       // bytes / 16 from 8 rows to the next 8, bits 32 to 45
         | 1ull << 46        // version of the descriptor, bits 46 and 47
         | 2ull << 61;       // 128-byte swizzle, bits 61 to 63
}

// Describes an operand that is contiguous along its rows (MN-major): panels of 64 rows of 16 bits, `panel_bytes` apart, in each of
// which a step of depth is 128 bytes, which TMA swizzled by 128 bytes. Further along K, by 8: add 64. CUTLASS,
// cute/atom/mma_traits_sm100.hpp, make_umma_desc of Major::MN: ((8,n),(8,k)):((1,LBO),(8,SBO)).
__device__ __forceinline__ unsigned long long gc_tcgen05_turned(const void* shared_tile, unsigned panel_bytes) {
  const unsigned long long start = (unsigned)__cvta_generic_to_shared(shared_tile) >> 4 & 0x3fffu;
  return start | (unsigned long long)(panel_bytes >> 4) << 16 | 64ull << 32 | 1ull << 46 | 2ull << 61;
}

// The instruction's descriptor: f32 sums of m x n products of K-major operands of one type, whose `format` is 0 for f16, 1 for
// bf16, 2 for tf32. PTX ISA, "Instruction descriptor" of tcgen05; CUTLASS, InstrDescriptor.
__device__ __forceinline__ constexpr unsigned gc_tcgen05_instruction(unsigned format, int m, int n) {
  return 1u << 4                         // type of the sums, bits 4 and 5: f32
         | format << 7 | format << 10    // types of a and b, bits 7 to 9 and 10 to 12
         | (unsigned)(n / 8) << 17       // bits 17 to 22; bits 15 and 16 would say that an operand is not K-major
         | (unsigned)(m / 16) << 24;     // bits 24 to 28
}

#define GC_TCGEN05(blocks, kind, format, m, n)                                               \
  asm volatile(                                                                              \
      "{\n.reg .pred add;\n"                                                                 \
      "setp.ne.b32 add, %4, 0;\n"                                                            \
      "tcgen05.mma.cta_group::" blocks ".kind::" kind " [%0], %1, %2, %3, add;\n}" ::"r"(sums), \
      "l"(a), "l"(b), "r"(gc_tcgen05_instruction(format, m, n)), "r"((int)add)               \
      : "memory")

// Depth 16 of f16, for which one thread asks; m is 64 or 128, n a multiple of 16 to 256, here and below. Without `add` what the
// sums are is not read. Products that a thread asks for are added in that order.
template <int m, int n>
__device__ __forceinline__ void gc_tcgen05_f16(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  GC_TCGEN05("1", "f16", 0, m, n);
}

template <int n>
__device__ __forceinline__ void gc_tcgen05_f16_pair(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  GC_TCGEN05("2", "f16", 0, 256, n);
}

// Depth 16 of bf16.
template <int m, int n>
__device__ __forceinline__ void gc_tcgen05_bf16(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  GC_TCGEN05("1", "f16", 1, m, n);
}

template <int n>
__device__ __forceinline__ void gc_tcgen05_bf16_pair(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  GC_TCGEN05("2", "f16", 1, 256, n);
}

// Depth 8 of tf32: f32 whose last 13 bits are not looked at.
template <int m, int n>
__device__ __forceinline__ void gc_tcgen05_tf32(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  GC_TCGEN05("1", "tf32", 2, m, n);
}

template <int n>
__device__ __forceinline__ void gc_tcgen05_tf32_pair(unsigned sums, unsigned long long a, unsigned long long b, bool add) {
  GC_TCGEN05("2", "tf32", 2, 256, n);
}

#undef GC_TCGEN05

#define GC_TCGEN05_WEIGHTS(format)                                                            \
  asm volatile(                                                                              \
      "{\n.reg .pred add;\n"                                                                 \
      "setp.ne.b32 add, %4, 0;\n"                                                            \
      "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, add;\n}" ::"r"(sums), "r"(a),  \
      "l"(b), "r"(gc_tcgen05_instruction(format, 128, n) | 1u << 16), "r"((int)add)          \
      : "memory")

// Depth 16 of f16: `a` is in tensor memory, 128 rows of 8 columns, two elements each; `b` is described by gc_tcgen05_turned.
template <int n>
__device__ __forceinline__ void gc_tcgen05_f16_weights(unsigned sums, unsigned a, unsigned long long b, bool add) {
  GC_TCGEN05_WEIGHTS(0);
}

template <int n>
__device__ __forceinline__ void gc_tcgen05_bf16_weights(unsigned sums, unsigned a, unsigned long long b, bool add) {
  GC_TCGEN05_WEIGHTS(1);
}

#undef GC_TCGEN05_WEIGHTS

// One arrival at the barrier when all products are done that the thread has asked for.
__device__ __forceinline__ void gc_tcgen05_commit(unsigned long long* barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                   (unsigned)__cvta_generic_to_shared(barrier))
               : "memory");
}

// The same at the barrier that stands at the same place in every block of the cluster whose bit of `ranks` is set.
__device__ __forceinline__ void gc_tcgen05_commit_multicast(unsigned long long* barrier, unsigned short ranks) {
  asm volatile(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
          (unsigned)__cvta_generic_to_shared(barrier)),
      "h"(ranks)
      : "memory");
}

// One arrival at the barrier that stands at the same place in both blocks when all their products are done that the thread has
// asked for.
__device__ __forceinline__ void gc_tcgen05_commit_pair(unsigned long long* barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
          (unsigned)__cvta_generic_to_shared(barrier)),
      "h"((unsigned short)3)
      : "memory");
}

// All threads of a warp, with the same address, of 16 of its lanes: `columns` columns, 16, 32 or 64. A thread gets columns / 2
// sums, dealt out as wgmma's and mma's: sum 4 j + 2 h + e is lane thread % 32 / 4 + 8 h, column 8 j + 2 (thread % 4) + e.
// They are there after gc_tcgen05_wait_load.
template <int columns>
__device__ __forceinline__ void gc_tcgen05_load(float* values, unsigned from) {
  if constexpr (columns == 16)
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x2.b32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7"
        "}, [%8];"
        : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3]), "=f"(values[4]), "=f"(values[5]), "=f"(values[6]), "=f"(values[7])
        : "r"(from)
        : "memory");
  if constexpr (columns == 32)
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x4.b32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, [%16];"
        : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3]), "=f"(values[4]), "=f"(values[5]), "=f"(values[6]), "=f"(values[7]),
          "=f"(values[8]), "=f"(values[9]), "=f"(values[10]), "=f"(values[11]), "=f"(values[12]), "=f"(values[13]), "=f"(values[14]), "=f"(values[15])
        : "r"(from)
        : "memory");
  if constexpr (columns == 64)
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x8.b32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, [%32];"
        : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3]), "=f"(values[4]), "=f"(values[5]), "=f"(values[6]), "=f"(values[7]),
          "=f"(values[8]), "=f"(values[9]), "=f"(values[10]), "=f"(values[11]), "=f"(values[12]), "=f"(values[13]), "=f"(values[14]), "=f"(values[15]),
          "=f"(values[16]), "=f"(values[17]), "=f"(values[18]), "=f"(values[19]), "=f"(values[20]), "=f"(values[21]), "=f"(values[22]), "=f"(values[23]),
          "=f"(values[24]), "=f"(values[25]), "=f"(values[26]), "=f"(values[27]), "=f"(values[28]), "=f"(values[29]), "=f"(values[30]), "=f"(values[31])
        : "r"(from)
        : "memory");
}

// Waits for all of the thread's loads; `values` are those of one of them.
template <int columns>
__device__ __forceinline__ void gc_tcgen05_wait_load(float* values) {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
  for (int i = 0; i < columns / 2; ++i) asm volatile("" : "+f"(values[i]));  // nothing that reads them moves past the wait
}

// All threads of a warp, with the same address, of its 32 lanes: `columns` columns, 16 or 32. Thread t gets those of lane t, which
// are there after gc_tcgen05_wait_row.
template <int columns>
__device__ __forceinline__ void gc_tcgen05_load_row(float* values, unsigned from) {
  if constexpr (columns == 16)
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, [%16];"
        : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3]), "=f"(values[4]), "=f"(values[5]), "=f"(values[6]), "=f"(values[7]),
          "=f"(values[8]), "=f"(values[9]), "=f"(values[10]), "=f"(values[11]), "=f"(values[12]), "=f"(values[13]), "=f"(values[14]), "=f"(values[15])
        : "r"(from)
        : "memory");
  if constexpr (columns == 32)
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, [%32];"
        : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3]), "=f"(values[4]), "=f"(values[5]), "=f"(values[6]), "=f"(values[7]),
          "=f"(values[8]), "=f"(values[9]), "=f"(values[10]), "=f"(values[11]), "=f"(values[12]), "=f"(values[13]), "=f"(values[14]), "=f"(values[15]),
          "=f"(values[16]), "=f"(values[17]), "=f"(values[18]), "=f"(values[19]), "=f"(values[20]), "=f"(values[21]), "=f"(values[22]), "=f"(values[23]),
          "=f"(values[24]), "=f"(values[25]), "=f"(values[26]), "=f"(values[27]), "=f"(values[28]), "=f"(values[29]), "=f"(values[30]), "=f"(values[31])
        : "r"(from)
        : "memory");
}

// Waits for all of the thread's loads; `values` are those of one or several that follow each other.
template <int columns>
__device__ __forceinline__ void gc_tcgen05_wait_row(float* values) {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
  for (int i = 0; i < columns; ++i) asm volatile("" : "+f"(values[i]));
}

// The same to tensor memory: 16 or 32 words of thread t to lane t. They are there after gc_tcgen05_wait_store.
template <int columns>
__device__ __forceinline__ void gc_tcgen05_store_row(unsigned to, const unsigned* words) {
  if constexpr (columns == 16)
    asm volatile("tcgen05.st.sync.aligned.32x32b.x16.b32 [%0], {"
        "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16"
        "};" ::"r"(to),
          "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(words[4]), "r"(words[5]), "r"(words[6]), "r"(words[7]),
          "r"(words[8]), "r"(words[9]), "r"(words[10]), "r"(words[11]), "r"(words[12]), "r"(words[13]), "r"(words[14]), "r"(words[15])
        : "memory");
  if constexpr (columns == 32)
    asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%0], {"
        "%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32"
        "};" ::"r"(to),
          "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(words[4]), "r"(words[5]), "r"(words[6]), "r"(words[7]),
          "r"(words[8]), "r"(words[9]), "r"(words[10]), "r"(words[11]), "r"(words[12]), "r"(words[13]), "r"(words[14]), "r"(words[15]),
          "r"(words[16]), "r"(words[17]), "r"(words[18]), "r"(words[19]), "r"(words[20]), "r"(words[21]), "r"(words[22]), "r"(words[23]),
          "r"(words[24]), "r"(words[25]), "r"(words[26]), "r"(words[27]), "r"(words[28]), "r"(words[29]), "r"(words[30]), "r"(words[31])
        : "memory");
}

template <int columns>
__device__ __forceinline__ void gc_tcgen05_store_row(unsigned to, const float* values) {
  unsigned words[columns];
#pragma unroll
  for (int i = 0; i < columns; ++i) words[i] = __float_as_uint(values[i]);
  gc_tcgen05_store_row<columns>(to, words);
}

__device__ __forceinline__ void gc_tcgen05_wait_store() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// ---- clusters and programmatic launch -------------------------------------------------------------
// sm_90 and later. The blocks of a cluster run at the same time and read each other's shared memory.

__device__ __forceinline__ unsigned gc_cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Every thread of the cluster that has not exited; what they wrote to shared memory before is seen after it.
__device__ __forceinline__ void gc_cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// What stands at the same place in the shared memory of the cluster's block `rank`. That block may not have exited.
__device__ __forceinline__ float gc_cluster_load(const float* shared_address, unsigned rank) {
  float value;
  asm volatile(
      "{\n.reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [there];\n}"
      : "=f"(value)
      : "r"((unsigned)__cvta_generic_to_shared(shared_address)), "r"(rank)
      : "memory");
  return value;
}
__device__ __forceinline__ int gc_cluster_load(const int* shared_address, unsigned rank) {
  int value;
  asm volatile(
      "{\n.reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %1, %2;\n"
      "ld.shared::cluster.s32 %0, [there];\n}"
      : "=r"(value)
      : "r"((unsigned)__cvta_generic_to_shared(shared_address)), "r"(rank)
      : "memory");
  return value;
}

// The same of 16 bytes, which are aligned.
__device__ __forceinline__ uint4 gc_cluster_load16(const void* shared_address, unsigned rank) {
  uint4 value;
  asm volatile(
      "{\n.reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [there];\n}"
      : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
      : "r"((unsigned)__cvta_generic_to_shared(shared_address)), "r"(rank)
      : "memory");
  return value;
}

// Waits for the launches before this one, whose results may be read afterwards; at once where the launch did not
// ask to overlap with them.
__device__ __forceinline__ void gc_grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The launch after this one may start once every block has said so or has exited.
__device__ __forceinline__ void gc_grid_launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
