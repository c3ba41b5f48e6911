// The gc_* device functions that CUDA templates call, for NVRTC: PTX bodies, no headers needed.
// A template never contains asm or #include; this text is put in front of what it renders.
// tests/cuda_on_cpu/prelude_cpu.h declares the same functions, in the same order, with portable bodies.

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
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
  const unsigned bits = __float_as_uint(x);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  y.bits = (unsigned short)(is_nan ? 0x7fffu : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
  return y;
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

// Writes before it are seen, by every block, before writes after it.
__device__ __forceinline__ void gc_threadfence() { __threadfence(); }

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

// ---- mbarrier and TMA -----------------------------------------------------------------------------

// ---- wgmma ----------------------------------------------------------------------------------------

// ---- clusters and programmatic launch -------------------------------------------------------------
