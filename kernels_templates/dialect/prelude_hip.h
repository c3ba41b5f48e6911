// The gc_* device functions that templates call, for AMD GPUs: compiler builtins, no headers needed.
// clang compiles it without ROCm (`clang -x hip -nogpuinc -nogpulib`): what CUDA C++ declares by itself (threadIdx, uint4,
// __syncthreads ...) is declared here, and expf and the like in math_hip.h.
// A template never contains asm or #include; this text is put in front of what it renders.
//
// A "warp" of the templates is 32 lanes. A wave of 64 is two of them: shuffles stay within each half.

// kernels are launched with exactly this many threads; a second number is for ptxas
#define __launch_bounds__(threads, ...) __attribute__((amdgpu_flat_work_group_size(threads, threads)))
// a SIMD is to have registers for so many waves of the kernel
#define GC_WAVES(count) __attribute__((amdgpu_waves_per_eu(count)))
// on RDNA, whose SIMDs hold four waves of 256 registers: clang spills less if it is told so
#if defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define GC_WAVES_OF_RDNA(count) GC_WAVES(count)
#else
#define GC_WAVES_OF_RDNA(count)
#endif
// computes a value before what follows. clang moves products behind the next branch, but not the reads of their operands, so that
// the operands of a whole tile were in registers at once: 134 registers, where 55 do
#define GC_COMPUTED(value) asm volatile("" ::"v"(value))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))

typedef unsigned int uint2 __attribute__((ext_vector_type(2)));
typedef unsigned int uint4 __attribute__((ext_vector_type(4)));
typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));
__device__ __forceinline__ uint2 make_uint2(unsigned x, unsigned y) { return uint2{x, y}; }
__device__ __forceinline__ uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }

#define GC_COORDINATES(name, of)                                                                             \
  struct gc_##name {                                                                                         \
    struct x_axis {                                                                                          \
      __device__ __forceinline__ operator unsigned() const { return __builtin_amdgcn_##of##_x(); }           \
    };                                                                                                       \
    struct y_axis {                                                                                          \
      __device__ __forceinline__ operator unsigned() const { return __builtin_amdgcn_##of##_y(); }           \
    };                                                                                                       \
    struct z_axis {                                                                                          \
      __device__ __forceinline__ operator unsigned() const { return __builtin_amdgcn_##of##_z(); }           \
    };                                                                                                       \
    x_axis x;                                                                                                \
    y_axis y;                                                                                                \
    z_axis z;                                                                                                \
  };                                                                                                         \
  static __device__ const gc_##name name{};
GC_COORDINATES(threadIdx, workitem_id)
GC_COORDINATES(blockIdx, workgroup_id)
GC_COORDINATES(blockDim, workgroup_size)
#undef GC_COORDINATES

__device__ __forceinline__ unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
__device__ __forceinline__ int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
__device__ __forceinline__ float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
__device__ __forceinline__ float __int_as_float(int x) { return __builtin_bit_cast(float, x); }

__device__ __forceinline__ int min(int a, int b) { return b < a ? b : a; }
__device__ __forceinline__ int max(int a, int b) { return a < b ? b : a; }
__device__ __forceinline__ unsigned min(unsigned a, unsigned b) { return b < a ? b : a; }
__device__ __forceinline__ unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
__device__ __forceinline__ long long min(long long a, long long b) { return b < a ? b : a; }
__device__ __forceinline__ long long max(long long a, long long b) { return a < b ? b : a; }
typedef unsigned int uint;

// ---- barriers and fences --------------------------------------------------------------------------

__device__ __forceinline__ void gc_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define __syncthreads gc_barrier

// Between a write to shared memory and another lane's read of it: lanes of a wave run in step.
__device__ __forceinline__ void gc_syncwarp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// Every work-item that has written what others are to see calls it before the barrier, and every one that reads after it:
// such a barrier does not wait for stores of other waves (LLVM, AMDGPUUsage, memory model).
__device__ __forceinline__ void gc_release_to_device() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
__device__ __forceinline__ void gc_acquire_from_device() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }
__device__ __forceinline__ void gc_threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

// ---- storage types --------------------------------------------------------------------------------

struct gc_half {  // IEEE binary16
  _Float16 value;
};

struct gc_bf16 {  // the upper half of an IEEE binary32
  unsigned short bits;
};

// ---- conversions ----------------------------------------------------------------------------------
// Narrowing rounds to nearest, ties to even; NaN stays NaN.

__device__ __forceinline__ float gc_half_to_float(gc_half x) { return (float)x.value; }

__device__ __forceinline__ gc_half gc_float_to_half(float x) { return gc_half{(_Float16)x}; }

__device__ __forceinline__ float gc_bf16_to_float(gc_bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

__device__ __forceinline__ gc_bf16 gc_float_to_bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return gc_bf16{(unsigned short)(is_nan ? 0x7fffu : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// ---- warp collectives -----------------------------------------------------------------------------

__device__ __forceinline__ int gc_lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }

// 32 bits from the lane with this number in the wave
__device__ __forceinline__ int gc_from_lane(int word, int lane) { return __builtin_amdgcn_ds_bpermute(lane << 2, word); }

// 32 bits from the lane whose number differs in the bits of `lane_mask`, below 32. A mask that is known when the kernel is
// compiled takes no address: permutations of four lanes are data paths of the units (DPP), the others swizzles.
__device__ __forceinline__ int gc_from_partner(int word, int lane_mask) {
  switch (lane_mask) {
    case 1:
      return __builtin_amdgcn_update_dpp(word, word, 0xb1, 0xf, 0xf, true);  // quad_perm [1, 0, 3, 2]
    case 2:
      return __builtin_amdgcn_update_dpp(word, word, 0x4e, 0xf, 0xf, true);  // quad_perm [2, 3, 0, 1]
    case 4:
      return __builtin_amdgcn_ds_swizzle(word, 0x101f);  // bit mode: exclusive or with 4 in groups of 32
    case 8:
      return __builtin_amdgcn_ds_swizzle(word, 0x201f);
    case 16:
      return __builtin_amdgcn_ds_swizzle(word, 0x401f);
    default:
      return gc_from_lane(word, gc_lane() ^ lane_mask);
  }
}

struct gc_words {  // of a 64-bit value
  int low, high;
};

// T: at most 4 bytes, or 8.
template <class T>
__device__ __forceinline__ T gc_shfl_xor(T value, int lane_mask) {
  if constexpr (sizeof(T) < 4) {
    return (T)gc_from_partner((int)value, lane_mask);
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(T, gc_from_partner(__builtin_bit_cast(int, value), lane_mask));
  } else {
    const gc_words words = __builtin_bit_cast(gc_words, value);
    const gc_words found = {gc_from_partner(words.low, lane_mask), gc_from_partner(words.high, lane_mask)};
    return __builtin_bit_cast(T, found);
  }
}

// 32 bits from the lane of the wave, also of 64 lanes, whose number differs in the bit `lane_mask`. All lanes take part.
template <int lane_mask, class T>
__device__ __forceinline__ T gc_wave_xor(T value) {
  if constexpr (lane_mask < 32) {
    return gc_shfl_xor(value, lane_mask);
  } else {
    return __builtin_bit_cast(T, gc_from_lane(__builtin_bit_cast(int, value), gc_lane() ^ lane_mask));
  }
}

// lane: from 0 to 31, of the same half of a wave of 64
template <class T>
__device__ __forceinline__ T gc_shfl(T value, int lane) {
  const int from = (gc_lane() & ~31) | (lane & 31);
  if constexpr (sizeof(T) < 4) {
    return (T)gc_from_lane((int)value, from);
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bit_cast(T, gc_from_lane(__builtin_bit_cast(int, value), from));
  } else {
    const gc_words words = __builtin_bit_cast(gc_words, value);
    const gc_words found = {gc_from_lane(words.low, from), gc_from_lane(words.high, from)};
    return __builtin_bit_cast(T, found);
  }
}

// The butterfly leaves the same bits in every lane of the 32.
template <class T>
__device__ __forceinline__ T gc_warp_sum(T value) {
#pragma unroll
  for (int lane_mask = 16; lane_mask > 0; lane_mask >>= 1) value += gc_shfl_xor(value, lane_mask);
  return value;
}

// ---- dynamic shared memory ------------------------------------------------------------------------

extern __shared__ __align__(128) unsigned char gc_dynamic_shared_bytes[];

__device__ __forceinline__ unsigned char* gc_dynamic_shared() { return gc_dynamic_shared_bytes; }

// ---- atomics --------------------------------------------------------------------------------------
// Device scope, relaxed; each returns what stood there before.

// Counts 0, 1, ... limit, 0, ...: the work-group that gets `limit` back is the last to arrive.
__device__ __forceinline__ unsigned gc_atomic_inc_wrap(unsigned* address, unsigned limit) {
  return __builtin_amdgcn_atomic_inc32(address, limit, __ATOMIC_RELAXED, "agent");
}

// What the work-item read and wrote before it comes before what follows a gc_load_acquire by who got `limit` back.
__device__ __forceinline__ unsigned gc_atomic_inc_wrap_release(unsigned* address, unsigned limit) {
  return __builtin_amdgcn_atomic_inc32(address, limit, __ATOMIC_RELEASE, "agent");
}

__device__ __forceinline__ int gc_atomic_min(int* address, int value) {
  return __hip_atomic_fetch_min(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

__device__ __forceinline__ void gc_store_release(unsigned* flag, unsigned value) {
  __hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
}

__device__ __forceinline__ unsigned gc_load_acquire(const unsigned* address) {
  return __hip_atomic_load(address, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
}

// Gives up after so many attempts: nothing promises that the work-group that is to set the flag runs meanwhile.
__device__ __forceinline__ bool gc_is_set(const unsigned* flag, int attempts) {
  unsigned value = __hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#pragma unroll 1
  while (value == 0 && --attempts > 0) value = __hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  return value != 0;
}

// ---- moves ----------------------------------------------------------------------------------------
// So many bytes between memory and an array, both aligned to them; zeros are stored where not valid, and the source is not
// read. clang keeps an array in registers only if it is moved as a vector of its own elements.

template <class E>
struct gc_word {
  typedef E type;
};
template <>
struct gc_word<gc_half> {
  typedef _Float16 type;
};
template <>
struct gc_word<gc_bf16> {
  typedef unsigned short type;
};
template <>
struct gc_word<bool> {
  typedef unsigned char type;
};

// What is loaded where there is nothing to load: a place, because clang turns a load that may not happen into a branch, across
// which it schedules nothing. A window of 77 such loads spilt, and had a third more instructions.
static __device__ __align__(16) unsigned char gc_zeros[16] = {};

template <int bytes, class E>
__device__ __forceinline__ void gc_move(E* to, const E* from, bool valid = true) {
  typedef typename gc_word<E>::type word;
  static_assert(bytes <= sizeof gc_zeros, "one access");
  if (!valid) from = reinterpret_cast<const E*>(gc_zeros);
  if constexpr (bytes == sizeof(E)) {
    *reinterpret_cast<word*>(to) = *reinterpret_cast<const word*>(from);
  } else {
    typedef word words __attribute__((ext_vector_type(bytes / sizeof(E))));
    *reinterpret_cast<words*>(to) = *reinterpret_cast<const words*>(from);
  }
}

// ---- vectors of the matrix instructions -----------------------------------------------------------

#define GC_VECTORS(scalar, name)                                      \
  typedef scalar gc_##name##4 __attribute__((ext_vector_type(4)));   \
  typedef scalar gc_##name##8 __attribute__((ext_vector_type(8)));   \
  typedef scalar gc_##name##16 __attribute__((ext_vector_type(16)));
GC_VECTORS(_Float16, half)
GC_VECTORS(float, float)
GC_VECTORS(int, int)
GC_VECTORS(signed char, char)
GC_VECTORS(short, short)
GC_VECTORS(unsigned short, ushort)
#undef GC_VECTORS
typedef int gc_int2 __attribute__((ext_vector_type(2)));
typedef short gc_short2 __attribute__((ext_vector_type(2)));
typedef __bf16 gc_bfloat8 __attribute__((ext_vector_type(8)));

// A function, because clang's __builtin_bit_cast of a part of a vector, `.hi`, takes the first elements instead.
__device__ __forceinline__ long as_long(gc_int2 x) { return __builtin_bit_cast(long, x); }
__device__ __forceinline__ gc_bfloat8 as_bfloat8(gc_short8 x) { return __builtin_bit_cast(gc_bfloat8, x); }

__device__ __forceinline__ gc_half8 gc_concatenated(gc_half4 a, gc_half4 b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
}
__device__ __forceinline__ gc_short8 gc_concatenated(gc_short4 a, gc_short4 b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
}
__device__ __forceinline__ gc_half16 gc_concatenated(gc_half8 a, gc_half8 b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
__device__ __forceinline__ gc_short16 gc_concatenated(gc_short8 a, gc_short8 b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
__device__ __forceinline__ gc_int8 gc_concatenated(gc_int4 a, gc_int4 b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
}

// One access of elements that are aligned as elements, not as the vector: the hardware asks for no more.
template <class V, class E>
__device__ __forceinline__ V gc_load(const E* from) {
  struct __attribute__((packed, aligned(alignof(E)))) loose {
    V vector;
  };
  return reinterpret_cast<const loose*>(from)->vector;
}

// The same; zeros if not valid, from a place as in gc_move.
template <class V, class E>
__device__ __forceinline__ V gc_load(const E* from, bool valid) {
  static_assert(sizeof(V) <= sizeof gc_zeros, "one access");
  return gc_load<V>(valid ? from : reinterpret_cast<const E*>(gc_zeros));
}

// 2 to the power of x.
__device__ __forceinline__ float gc_exp2(float x) { return __builtin_exp2f(x); }

// The nearest bf16 of a weight, as the integer that instructions take. A NaN may become any bits: its total is NaN too.
__device__ __forceinline__ short gc_weight_to_bf16(float x) {
  const unsigned bits = __float_as_uint(x);
  return (short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// 2 to the power of x by one instruction, which gives zero in place of subnormal numbers: a weight that small changes no sum.
__device__ __forceinline__ float gc_exp2_of_weight(float x) { return __builtin_amdgcn_exp2f(x); }
