// What AMD's compiler has built in and HIP's prelude calls, for the host's clang. It stands in front of the prelude's own text
// (kernels_templates/dialect/prelude_hip.h), which then runs as it is; hip_kernels.h follows that.
// GC_WAVE is the number of lanes of a wave, 64 or 32, and GC_GFX the instruction set: 0x90a, 0x1100.
// Sources: LLVM's AMDGPUUsage and AMDGPUOperandSyntax (quad_perm, swizzle), "RDNA3" and "CDNA3 Instruction Set Architecture".
#pragma once

#include <string.h>

#include "kernel_table.h"
#include "runtime.h"

// The bits of a bf16, which are all that is moved: to move its own type, clang converts it by functions of newer libgccs.
#define __bf16 short

// ---- where a work-item is -------------------------------------------------------------------------

#define GC_WORK_ITEM(axis)                                                                        \
  inline unsigned __builtin_amdgcn_workitem_id_##axis() { return gc_current->thread_index.axis; } \
  inline unsigned __builtin_amdgcn_workgroup_id_##axis() { return gc_launch.block_index.axis; }   \
  inline unsigned __builtin_amdgcn_workgroup_size_##axis() { return gc_launch.block_size.axis; }
GC_WORK_ITEM(x)
GC_WORK_ITEM(y)
GC_WORK_ITEM(z)
#undef GC_WORK_ITEM

inline int gc_work_item() {
  const uint3 &at = gc_current->thread_index, &size = gc_launch.block_size;
  return at.x + size.x * (at.y + size.y * at.z);
}

// The lanes below this one whose bits are in the mask, of the lower 32 lanes and of the upper ones.
inline unsigned gc_below(unsigned mask, int lanes) {
  return __builtin_popcount(lanes >= 32 ? mask : mask & ((1u << (lanes < 0 ? 0 : lanes)) - 1u));
}
inline unsigned __builtin_amdgcn_mbcnt_lo(unsigned mask, unsigned more) {
  return more + gc_below(mask, gc_work_item() % GC_WAVE);
}
inline unsigned __builtin_amdgcn_mbcnt_hi(unsigned mask, unsigned more) {
  return more + gc_below(mask, gc_work_item() % GC_WAVE - 32);
}

// ---- barriers and fences --------------------------------------------------------------------------

static int gc_line;  // of the kernel's call of __syncthreads, for messages

inline void __builtin_amdgcn_s_barrier() { gc_runtime_barrier(__atomic_load_n(&gc_line, __ATOMIC_RELAXED)); }

// Lanes of a wave run in step on the device. Here they meet, as the lanes of CUDA's warps do.
inline void __builtin_amdgcn_wave_barrier() { gc_runtime_warp_exchange("gc_syncwarp", 0, gc_runtime_lane()); }

inline void __builtin_amdgcn_fence(int, const char* scope) {
  if (strcmp(scope, "agent") == 0) gc_runtime_fence();
}

// ---- exchange between lanes -----------------------------------------------------------------------
// The prelude's shuffles stay within 32 lanes, also of a wave of 64, and the harness lets these 32 meet.

inline int gc_from(const char* kind, int word, int lane) {
  return (int)(unsigned)gc_runtime_warp_exchange(kind, (unsigned)word, lane);
}

inline int __builtin_amdgcn_ds_bpermute(int address, int word) {  // address: four times the number of a lane of the wave
  const int item = gc_work_item(), lane = address / 4 % GC_WAVE;
  if (address % 4) __builtin_trap();
  if (lane / 32 == item % GC_WAVE / 32) return gc_from("ds_bpermute", word, lane % 32);
  // the other half of a wave of 64: all lanes of both halves meet, and read of the other
  static int given[1024];
  const int first = item / GC_WAVE * GC_WAVE, wave = item / GC_WAVE + 1;
  given[item] = word;
  gc_runtime_named_barrier(wave, GC_WAVE);
  const int found = given[first + lane];
  gc_runtime_named_barrier(wave, GC_WAVE);
  return found;
}

inline float __builtin_amdgcn_exp2f(float x) { return __builtin_exp2f(x); }

// quad_perm, the only control used: two bits for each of four lanes, the lane of the four that it reads. All rows and banks.
inline int __builtin_amdgcn_update_dpp(int, int word, int control, int rows, int banks, bool) {
  if (control > 0xff || rows != 0xf || banks != 0xf) __builtin_trap();
  const int lane = gc_runtime_lane();
  return gc_from("quad_perm", word, (lane & ~3) | (control >> lane % 4 * 2 & 3));
}

// Bit mode, the only one used: the number of a lane, with a mask and, or and exclusive or of five bits each.
inline int __builtin_amdgcn_ds_swizzle(int word, int pattern) {
  if (pattern >> 15) __builtin_trap();
  return gc_from("ds_swizzle", word, ((gc_runtime_lane() & pattern & 31) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31));
}

// ---- atomics --------------------------------------------------------------------------------------

template <int order, class T>
inline T gc_updated(T* address, T (*next)(T, T), T operand) {
  T before, after;
  __atomic_load(address, &before, __ATOMIC_RELAXED);
  do after = next(before, operand);
  while (!__atomic_compare_exchange(address, &before, &after, false, order, __ATOMIC_RELAXED));
  gc_runtime_atomic_done(address, before != after);
  return before;
}
inline unsigned gc_incremented(unsigned x, unsigned limit) { return x >= limit ? 0u : x + 1u; }
template <class T>
inline T gc_smaller(T x, T y) { return y < x ? y : x; }

template <int order, class T>
inline void gc_stored(T* address, T value) {
  const T before = __atomic_load_n(address, __ATOMIC_RELAXED);
  __atomic_store_n(address, value, order);
  gc_runtime_atomic_done(address, before != value);
}
template <int order, class T>
inline T gc_loaded(const T* address) {
  const T value = __atomic_load_n(address, order);
  if (order == __ATOMIC_RELAXED) gc_runtime_atomic_done(address, false);  // as in a loop that waits
  return value;
}

#define __HIP_MEMORY_SCOPE_AGENT 4
#define __builtin_amdgcn_atomic_inc32(address, limit, order, scope) gc_updated<order>(address, gc_incremented, limit)
#define __hip_atomic_fetch_min(address, value, order, scope) gc_updated<order>(address, gc_smaller, value)
#define __hip_atomic_store(address, value, order, scope) gc_stored<order>(address, value)
#define __hip_atomic_load(address, order, scope) gc_loaded<order>(address)

// ---- dot products of four bytes -------------------------------------------------------------------
// LLVM's IntrinsicsAMDGPU: each sum wraps unless it is clamped, which kernels never ask for. dot4 of gfx906 to gfx1036 takes
// signed bytes or unsigned ones, that of gfx11 and gfx12 either for each operand.

inline int gc_dot_of_bytes(bool a_signed, int a, bool b_signed, int b, int c, bool clamp) {
  if (clamp) __builtin_trap();
  unsigned sum = c;
  for (int shift = 0; shift < 32; shift += 8) {
    const unsigned char x = (unsigned)a >> shift, y = (unsigned)b >> shift;
    sum += (unsigned)((a_signed ? (signed char)x : x) * (b_signed ? (signed char)y : y));
  }
  return (int)sum;
}

#if GC_GFX < 0x1100
inline int __builtin_amdgcn_sdot4(int a, int b, int c, bool clamp) { return gc_dot_of_bytes(true, a, true, b, c, clamp); }
#else
inline int __builtin_amdgcn_sudot4(bool a_signed, int a, bool b_signed, int b, int c, bool clamp) {
  return gc_dot_of_bytes(a_signed, a, b_signed, b, c, clamp);
}
#endif
inline unsigned __builtin_amdgcn_udot4(unsigned a, unsigned b, unsigned c, bool clamp) {
  return (unsigned)gc_dot_of_bytes(false, (int)a, false, (int)b, (int)c, clamp);
}

// ---- dot products of two f16 ----------------------------------------------------------------------
// Rounded once, and never subnormal (LLVM's D49146). Only CDNA2 reads subnormal f16 as zero (PyTorch's notes on numerical
// accuracy), and no kernel calls it there.

typedef _Float16 gc_half2 __attribute__((ext_vector_type(2)));
inline float __builtin_amdgcn_fdot2(gc_half2 a, gc_half2 b, float c, bool clamp) {
  if (clamp) __builtin_trap();
  const float sum = (float)((double)a[0] * (double)b[0] + (double)a[1] * (double)b[1] + (double)c);
  return __builtin_fabsf(sum) < __FLT_MIN__ ? __builtin_copysignf(0.0f, sum) : sum;
}

#undef __has_builtin
#define __has_builtin(name) 1  // kernels ask for matrix instructions; the compiler refuses a call of one that is not here
#define gc_dynamic_shared gc_dynamic_shared_of_the_device  // the prelude's; hip_kernels.h has another
