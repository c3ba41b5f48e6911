// Behind HIP's prelude and its mathematical functions: what the harness gives kernels in place of the device's memory, and
// AMD's matrix instructions, every one that a template can ask for (contraction/amd/emit.py).
//
// Which lane and register holds which element is from AMD's matrix instruction calculator (github.com/ROCm/
// amd_matrix_instruction_calculator, --detail-instruction, "Register to matrix element mapping"), not from the templates. It does
// not know CDNA4: its instructions of 16 bytes a lane are as IREE and composable_kernel have them (getSingleSubgroupLayout in
// IREEGPUAttrs.cpp; kABKLane and kABKPerLane of WarpGemmAttributeMfmaImplF16F16F32M16N16K32 and its like).
// How floats are added up no document of AMD's tells. MFMA follows what was measured on MI100, MI200 and MI300: "MMA-Sim:
// Bit-Accurate Reference Model of Tensor Cores and Matrix Cores" (arXiv 2511.10909). For CDNA4 and WMMA there is no such
// measurement: CDNA4 adds up as MI300 does, WMMA's sums are rounded after each product, in order of depth.
#pragma once

#undef gc_dynamic_shared
inline unsigned char* gc_dynamic_shared() { return gc_runtime_dynamic_shared(); }

#undef __launch_bounds__
#define __launch_bounds__(...)
#undef GC_WAVES
#define GC_WAVES(count)
#undef GC_COMPUTED
#define GC_COMPUTED(value) (void)(value)
#undef __shared__
#define __shared__ static __attribute__((section(GC_SHARED_SECTION)))  // a section for each source, which the runtime poisons
#undef __syncthreads
#define __syncthreads() (__atomic_store_n(&gc_line, __LINE__, __ATOMIC_RELAXED), gc_barrier())

// ---- a wave's operands ----------------------------------------------------------------------------

constexpr int GC_MOST_ITEMS = 1024;

template <class T>
struct gc_operands {
  T a, b;
};

// What every lane of the wave gives, by lane. A block of this program runs by itself, so that one array is enough.
template <class T>
inline void gc_gather(const T& own, T (&all)[GC_WAVE]) {
  static T given[GC_MOST_ITEMS];
  const int item = gc_work_item(), first = item / GC_WAVE * GC_WAVE, wave = item / GC_WAVE + 1;
  given[item] = own;
  gc_runtime_named_barrier(wave, GC_WAVE);
  for (int lane = 0; lane < GC_WAVE; ++lane) all[lane] = given[first + lane];
  gc_runtime_named_barrier(wave, GC_WAVE);
}

// The number that is element `k` of a lane's part of a row or column.
inline float gc_element(float part, int) { return part; }
inline float gc_element(const gc_half4& part, int k) { return (float)part[k]; }
inline float gc_element(const gc_half8& part, int k) { return (float)part[k]; }
inline float gc_element(const gc_half16& part, int k) { return (float)part[k]; }
// bf16, which compilers take for integers
inline float gc_upper_half(short bits) { return __uint_as_float((unsigned)(unsigned short)bits << 16); }
inline float gc_element(const gc_short2& part, int k) { return gc_upper_half(part[k]); }
inline float gc_element(const gc_short4& part, int k) { return gc_upper_half(part[k]); }
inline float gc_element(const gc_short8& part, int k) { return gc_upper_half(part[k]); }
inline float gc_element(const gc_short16& part, int k) { return gc_upper_half(part[k]); }
inline int gc_element(int part, int k) { return (signed char)((unsigned)part >> 8 * k); }
inline int gc_element(const gc_int2& part, int k) { return (signed char)((unsigned)part[k / 4] >> k % 4 * 8); }
inline int gc_element(long part, int k) { return (signed char)((unsigned long)part >> 8 * k); }
inline int gc_element(const gc_int4& part, int k) { return (signed char)((unsigned)part[k / 4] >> k % 4 * 8); }

// ---- how products are added up --------------------------------------------------------------------

// Bytes: sums wrap.
template <int depth>
inline int gc_added(const int* a, const int* b, int c) {
  unsigned sum = c;
  for (int k = 0; k < depth; ++k) sum += (unsigned)(a[k] * b[k]);
  return (int)sum;
}

// Floats: one rounding for each product.
template <int depth>
inline float gc_chained(const float* a, const float* b, float c) {
  for (int k = 0; k < depth; ++k) c = __builtin_fmaf(a[k], b[k], c);
  return c;
}

#if GC_WAVE == 64

// The least exponents of normal numbers.
constexpr int GC_HALF = -14, GC_BF16 = -126, GC_SINGLE = -126;

#if GC_GFX >= 0x940
// The exponent of a subnormal number is the least one of its format; that of zero is the least one of f32.
inline int gc_exponent(float x, int least) {
  if (x == 0.0f) return GC_SINGLE;
  return __builtin_ilogbf(x) < least ? least : __builtin_ilogbf(x);
}

// 16-bit floats of CDNA3 and CDNA4: eight products and the sum so far, to 24 fractional bits of the largest product (products
// cut off) and then of the larger of both (rounded down), and rounded once.
template <int least>
inline float gc_added_at_once(const float* a, const float* b, float c, int count) {
  double products[8], naive = c, sum = 0.0;
  int largest = 2 * GC_SINGLE;
  bool nothing = c == 0.0f;
  for (int k = 0; k < count; ++k) {
    products[k] = (double)a[k] * b[k];
    if (__builtin_fabs(products[k]) >= 0x1p128) products[k] *= __builtin_inf();
    naive += products[k];
    nothing = nothing && products[k] == 0.0;
    // the exponents of both factors; the product of their significands, which may be 2 and more, does not change it
    const int of_both = gc_exponent(a[k], least) + gc_exponent(b[k], least);
    if (of_both > largest) largest = of_both;
  }
  if (!__builtin_isfinite(naive) || nothing) return (float)naive;
  for (int k = 0; k < count; ++k) sum += __builtin_trunc(__builtin_ldexp(products[k], 24 - largest));
  sum = __builtin_ldexp(sum, largest - 24);
  int exponent = gc_exponent(c, GC_SINGLE);
  if (exponent < largest) exponent = largest;
  sum = __builtin_ldexp(__builtin_floor(__builtin_ldexp(sum, 31 - exponent)), exponent - 31);
  const double before = __builtin_ldexp(__builtin_floor(__builtin_ldexp((double)c, 24 - exponent)), exponent - 24);
  return (float)(sum + before);
}

template <int depth, int least, int together>
inline float gc_added_narrow(const float* a, const float* b, float c) {
  for (int k = 0; k < depth; k += 8) c = gc_added_at_once<least>(a + k, b + k, c, depth - k < 8 ? depth - k : 8);
  return c;
}
#else
// 16-bit floats of CDNA1 and CDNA2: `together` products in pairs, and their sum to the sum so far. On CDNA2 subnormal operands
// and results are zero, which AMD documents too (MIOpen, "MI200 MFMA behavior specifics").
template <int least>
inline float gc_flushed(float x) {
  return GC_GFX == 0x90a && __builtin_fabsf(x) < __builtin_ldexpf(1.0f, least) ? x * 0.0f : x;
}

template <int depth, int least, int together>
inline float gc_added_narrow(const float* a, const float* b, float c) {
  c = gc_flushed<GC_SINGLE>(c);
  for (int k = 0; k < depth; k += together) {
    float p[together];
    for (int i = 0; i < together; ++i) {
      p[i] = gc_flushed<GC_SINGLE>(gc_flushed<least>(a[k + i]) * gc_flushed<least>(b[k + i]));
    }
    for (int left = together / 2; left > 0; left /= 2) {
      for (int i = 0; i < left; ++i) p[i] = gc_flushed<GC_SINGLE>(p[2 * i] + p[2 * i + 1]);
    }
    c = gc_flushed<GC_SINGLE>(c + p[0]);
  }
  return c;
}
#endif

template <int depth>
inline float gc_added_halves(const float* a, const float* b, float c) {
  return gc_added_narrow<depth, GC_HALF, 4>(a, b, c);
}

// CDNA1's instructions take twice two elements where those of later devices take four.
template <int depth>
inline float gc_added_bf16(const float* a, const float* b, float c) {
  return gc_added_narrow<depth, GC_BF16, GC_GFX == 0x908 ? 2 : 4>(a, b, c);
}

// ---- MFMA -----------------------------------------------------------------------------------------

// size x size results, size * size / 64 in each of 64 lanes. A lane has `parts` elements along the depth of the row, and of the
// column, lane % size: those from parts * (lane / size) on. Its result v is in row 8 * (v / 4) + 4 * (lane / size) + v % 4.
template <int size, int parts, class A, class C, class Add>
inline C gc_mfma(A a, A b, C c, Add add) {
  constexpr int depth = parts * (64 / size);
  gc_operands<A> all[GC_WAVE];
  gc_gather(gc_operands<A>{a, b}, all);
  const int lane = gc_work_item() % GC_WAVE, column = lane % size;
  decltype(gc_element(a, 0)) of_row[depth], of_column[depth];
  for (int k = 0; k < depth; ++k) of_column[k] = gc_element(all[k / parts * size + column].b, k % parts);
  for (int v = 0; v < size * size / 64; ++v) {
    const int row = 8 * (v / 4) + 4 * (lane / size) + v % 4;
    for (int k = 0; k < depth; ++k) of_row[k] = gc_element(all[k / parts * size + row].a, k % parts);
    c[v] = add(of_row, of_column, c[v]);
  }
  return c;
}

// An instruction on operands of type A. The last three arguments permute lanes; kernels leave them 0.
#define GC_MFMA(name, size, parts, A, C, add)                                                              \
  inline C __builtin_amdgcn_mfma_##name(A a, A b, C c, int broadcast, int block, int pattern) {            \
    if (broadcast || block || pattern) __builtin_trap();                                                   \
    return gc_mfma<size, parts>(a, b, c, [](auto x, auto y, auto z) { return add<parts * 64 / size>(x, y, z); }); \
  }
GC_MFMA(f32_32x32x2f32, 32, 1, float, gc_float16, gc_chained)
GC_MFMA(f32_16x16x4f32, 16, 1, float, gc_float4, gc_chained)
GC_MFMA(f32_32x32x8f16, 32, 4, gc_half4, gc_float16, gc_added_halves)
GC_MFMA(f32_16x16x16f16, 16, 4, gc_half4, gc_float4, gc_added_halves)
#if GC_GFX == 0x908
GC_MFMA(f32_32x32x4bf16, 32, 2, gc_short2, gc_float16, gc_added_bf16)
GC_MFMA(f32_16x16x8bf16, 16, 2, gc_short2, gc_float4, gc_added_bf16)
#else
GC_MFMA(f32_32x32x8bf16_1k, 32, 4, gc_short4, gc_float16, gc_added_bf16)
GC_MFMA(f32_16x16x16bf16_1k, 16, 4, gc_short4, gc_float4, gc_added_bf16)
#endif
#if GC_GFX == 0x950
GC_MFMA(f32_32x32x16_f16, 32, 8, gc_half8, gc_float16, gc_added_halves)
GC_MFMA(f32_16x16x32_f16, 16, 8, gc_half8, gc_float4, gc_added_halves)
GC_MFMA(f32_32x32x16_bf16, 32, 8, gc_bfloat8, gc_float16, gc_added_bf16)
GC_MFMA(f32_16x16x32_bf16, 16, 8, gc_bfloat8, gc_float4, gc_added_bf16)
GC_MFMA(i32_32x32x32_i8, 32, 16, gc_int4, gc_int16, gc_added)
GC_MFMA(i32_16x16x64_i8, 16, 16, gc_int4, gc_int4, gc_added)
#endif
#if GC_GFX >= 0x940
GC_MFMA(i32_32x32x16_i8, 32, 8, long, gc_int16, gc_added)
GC_MFMA(i32_16x16x32_i8, 16, 8, long, gc_int4, gc_added)
#else
GC_MFMA(i32_32x32x8i8, 32, 4, int, gc_int16, gc_added)
GC_MFMA(i32_16x16x16i8, 16, 4, int, gc_int4, gc_added)
#endif
#undef GC_MFMA

// ---- WMMA -----------------------------------------------------------------------------------------

#elif GC_GFX >= 0x1200

// RDNA4: 16 x 16 results, 8 in each of 32 lanes: row 8 * (lane / 16) + v, column lane % 16. Of the 16 elements of row or column
// lane % 16 a lane has 8: `run` of them from run * (lane / 16) on, and with a run of 4 those that are 8 behind them.
template <int run, class A, class C, class Add>
inline C gc_wmma(A a, A b, C c, Add add) {
  gc_operands<A> all[GC_WAVE];
  gc_gather(gc_operands<A>{a, b}, all);
  const int lane = gc_work_item() % GC_WAVE;
  for (int v = 0; v < 8; ++v) {
    decltype(gc_element(a, 0)) of_row[16], of_column[16];
    for (int k = 0; k < 16; ++k) {
      const int half = k / run % 2 * 16, at = k / (2 * run) * run + k % run;
      of_row[k] = gc_element(all[half + 8 * (lane / 16) + v].a, at);
      of_column[k] = gc_element(all[half + lane % 16].b, at);
    }
    c[v] = add(of_row, of_column, c[v]);
  }
  return c;
}

inline gc_float8 __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(gc_half8 a, gc_half8 b, gc_float8 c) {
  return gc_wmma<4>(a, b, c, [](auto x, auto y, float z) { return gc_chained<16>(x, y, z); });
}

inline gc_float8 __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(gc_short8 a, gc_short8 b, gc_float8 c) {
  return gc_wmma<4>(a, b, c, [](auto x, auto y, float z) { return gc_chained<16>(x, y, z); });
}

inline gc_int8 __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(bool a_signed, gc_int2 a, bool b_signed, gc_int2 b, gc_int8 c,
                                                                bool clamp) {
  if (!a_signed || !b_signed || clamp) __builtin_trap();  // kernels ask for signed bytes, and for sums that wrap
  return gc_wmma<8>(a, b, c, [](auto x, auto y, int z) { return gc_added<16>(x, y, z); });
}

#elif GC_GFX >= 0x1100

// RDNA3: lanes 0 to 15 hold a row of A and a column of B, and lanes 16 to 31 hold them again; 16 x 16 results, 8 in each lane:
// row 2 * v + lane / 16, column lane % 16. Where the copies differ, the result is not defined: that is an error here.
template <class A, class C, class Add>
inline C gc_wmma(A a, A b, C c, Add add) {
  gc_operands<A> all[GC_WAVE];
  gc_gather(gc_operands<A>{a, b}, all);
  const int lane = gc_work_item() % GC_WAVE;
  if (memcmp(&all[lane], &all[lane ^ 16], sizeof all[lane])) __builtin_trap();
  decltype(gc_element(a, 0)) of_row[16], of_column[16];
  for (int k = 0; k < 16; ++k) of_column[k] = gc_element(all[lane % 16].b, k);
  for (int v = 0; v < 8; ++v) {
    for (int k = 0; k < 16; ++k) of_row[k] = gc_element(all[2 * v + lane / 16].a, k);
    c[v] = add(of_row, of_column, c[v]);
  }
  return c;
}

inline gc_float8 __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(gc_half16 a, gc_half16 b, gc_float8 c) {
  return gc_wmma(a, b, c, [](auto x, auto y, float z) { return gc_chained<16>(x, y, z); });
}

inline gc_float8 __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(gc_short16 a, gc_short16 b, gc_float8 c) {
  return gc_wmma(a, b, c, [](auto x, auto y, float z) { return gc_chained<16>(x, y, z); });
}

inline gc_int8 __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(bool a_signed, gc_int4 a, bool b_signed, gc_int4 b, gc_int8 c,
                                                          bool clamp) {
  if (!a_signed || !b_signed || clamp) __builtin_trap();  // kernels ask for signed bytes, and for sums that wrap
  return gc_wmma(a, b, c, [](auto x, auto y, int z) { return gc_added<16>(x, y, z); });
}

#endif
