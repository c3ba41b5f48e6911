// What the prelude of HIP has besides that of CUDA, for the host's clang, in front of kernels as the HIP dialect renders them.
// GC_WAVE is the number of lanes of a wave: 64 or 32. Matrix instructions exchange what all lanes of a wave hold; which lane
// holds which element is from AMD's matrix instruction calculator and the instruction set documents (CDNA 2, RDNA 3).
#include "prelude_cpu.h"

#define GC_VECTORS(scalar, name)                                    \
  typedef scalar gc_##name##4 __attribute__((ext_vector_type(4))); \
  typedef scalar gc_##name##8 __attribute__((ext_vector_type(8))); \
  typedef scalar gc_##name##16 __attribute__((ext_vector_type(16)));
GC_VECTORS(_Float16, half)
GC_VECTORS(float, float)
GC_VECTORS(int, int)
GC_VECTORS(signed char, char)
#undef GC_VECTORS

inline gc_half16 gc_concatenated(gc_half8 a, gc_half8 b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

template <class V, class E>
inline V gc_load(const E* from) {
  V value;
  memcpy(&value, from, sizeof value);
  return value;
}

template <int bytes, class E>
inline void gc_move(E* to, const E* from, bool valid = true) {
  static_assert(bytes % sizeof(E) == 0, "whole elements");
  if (((size_t)to | (valid ? (size_t)from : 0)) % bytes) __builtin_trap();  // as the device asks for
  if (valid) memcpy(to, from, bytes);
  else memset(to, 0, bytes);
}

inline void gc_release_to_device() { gc_runtime_fence(); }
inline void gc_acquire_from_device() { gc_runtime_fence(); }

// ---- matrix instructions --------------------------------------------------------------------------

constexpr int GC_MOST_THREADS = 1024;

template <class A, class B>
struct gc_operands {
  A a;
  B b;
};

inline int gc_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

// What every lane of the wave gives, by lane. A block of this program runs by itself, so that one array is enough.
template <class T>
inline void gc_gather(const T& own, T (&all)[GC_WAVE]) {
  static T given[GC_MOST_THREADS];
  const int thread = gc_thread(), first = thread / GC_WAVE * GC_WAVE, wave = thread / GC_WAVE + 1;
  given[thread] = own;
  gc_runtime_named_barrier(wave, GC_WAVE);
  for (int lane = 0; lane < GC_WAVE; ++lane) all[lane] = given[first + lane];
  gc_runtime_named_barrier(wave, GC_WAVE);
}

#if GC_WAVE == 64
// 16 x 16 results, 4 in each of 64 lanes: row 4 * (lane / 16) + v, column lane % 16. In a lane, `parts` elements along k of row
// or column lane % 16 follow parts * (lane / 16).
template <int parts, class A, class Element>
inline gc_float4 gc_mfma_16x16(A a, A b, gc_float4 c, Element element) {
  gc_operands<A, A> all[GC_WAVE];
  gc_gather(gc_operands<A, A>{a, b}, all);
  const int lane = gc_thread() % GC_WAVE;
  for (int v = 0; v < 4; ++v) {
    const int row = 4 * (lane / 16) + v, column = lane % 16;
    for (int block = 0; block < 4; ++block)
      for (int k = 0; k < parts; ++k) c[v] += element(all[16 * block + row].a, k) * element(all[16 * block + column].b, k);
  }
  return c;
}

inline gc_float4 gc_mfma_f32_16x16x4f32(float a, float b, gc_float4 c, int, int, int) {
  return gc_mfma_16x16<1>(a, b, c, [](float x, int) { return x; });
}
inline gc_float4 gc_mfma_f32_16x16x16f16(gc_half4 a, gc_half4 b, gc_float4 c, int, int, int) {
  return gc_mfma_16x16<4>(a, b, c, [](gc_half4 x, int k) { return (float)x[k]; });
}

#define __builtin_amdgcn_mfma_f32_16x16x4f32 gc_mfma_f32_16x16x4f32
#define __builtin_amdgcn_mfma_f32_16x16x16f16 gc_mfma_f32_16x16x16f16

#else
// RDNA 3: lanes 0 to 15 hold a row of A and a column of B, and lanes 16 to 31 hold them again; 16 x 16 results, 8 in each lane:
// row 2 * v + lane / 16, column lane % 16. Where the copies differ, the result is not defined: that is an error here.
inline gc_float8 gc_wmma_f32_16x16x16_f16_w32(gc_half16 a, gc_half16 b, gc_float8 c) {
  gc_operands<gc_half16, gc_half16> all[GC_WAVE];
  gc_gather(gc_operands<gc_half16, gc_half16>{a, b}, all);
  const int lane = gc_thread() % GC_WAVE;
  if (memcmp(&all[lane], &all[lane ^ 16], sizeof all[lane])) __builtin_trap();
  for (int v = 0; v < 8; ++v)
    for (int k = 0; k < 16; ++k) c[v] += (float)all[2 * v + lane / 16].a[k] * (float)all[lane % 16].b[k];
  return c;
}

#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32 gc_wmma_f32_16x16x16_f16_w32
#endif

#undef __has_builtin
#define __has_builtin(name) 1  // kernels ask for those above; the compiler refuses a call of another
