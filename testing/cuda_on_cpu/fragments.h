// Numbers in the format of matrix units, and one lane's part of an mma. Part of the runtime: compiled once, optimised.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "runtime.h"

inline double gc_f16_value(unsigned bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  double value = fraction * 0x1p-24;
  if (exponent == 31) {
    value = fraction ? __builtin_nan("") : __builtin_inf();
  } else if (exponent) {
    const uint64_t widened = (uint64_t)(exponent + 1008) << 52 | (uint64_t)fraction << 42;
    memcpy(&value, &widened, sizeof value);
  }
  return bits & 0x8000u ? -value : value;
}

inline double gc_f32_value(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// The number of elements in a register.
inline int gc_packed(GcFragment type) { return type == GcFragment::TF32 ? 1 : type >= GcFragment::S8 ? 4 : 2; }

// Widens the elements of a register to `values`.
inline void gc_unpack(GcFragment type, unsigned word, double* values) {
  switch (type) {
    case GcFragment::F16:
      for (int i = 0; i < 2; ++i) values[i] = gc_f16_value(word >> 16 * i & 0xffffu);
      return;
    case GcFragment::BF16:
      for (int i = 0; i < 2; ++i) values[i] = gc_f32_value((word >> 16 * i) << 16);
      return;
    case GcFragment::TF32: values[0] = gc_f32_value(word & 0xffffe000u); return;
    case GcFragment::S8:
      for (int i = 0; i < 4; ++i) values[i] = (signed char)(word >> 8 * i);
      return;
    case GcFragment::U8:
      for (int i = 0; i < 4; ++i) values[i] = (unsigned char)(word >> 8 * i);
      return;
  }
}

// Rounds towards zero, like the sums of matrix units.
inline float gc_truncated(double x) {
  const float y = (float)x;
  return isfinite(y) && fabs((double)y) > fabs(x) ? nextafterf(y, 0.0f) : y;
}

inline int gc_exponent(double x) {  // -1023 for zero, 1024 for values that are not finite
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (int)(bits >> 52 & 0x7ff) - 1023;
}

// One sum of a matrix unit, over as many products as it adds at once. Products are exact. They and the previous sum are
// aligned to the largest exponent (that of a product is the sum of its factors' exponents). Bits below f32's 23 bits plus
// `extra` bits are dropped; then the numbers are added, and the sum is truncated to f32. Measured on devices by F. A. Khattak
// and M. Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv 2512.07004; their least exponents are not modelled.
inline float gc_block_sum(float before, const double* a, const double* b, int count, int extra) {
  int largest = gc_exponent(before);
  bool is_finite = largest < 1024;
  for (int k = 0; k < count; ++k) {
    const int left = gc_exponent(a[k]), right = gc_exponent(b[k]);
    is_finite &= left < 1024 && right < 1024;
    if (left + right > largest) largest = left + right;
  }
  if (!is_finite || largest < -400) {  // the least product of factors other than zero has exponent -298
    double total = before;
    for (int k = 0; k < count; ++k) total += a[k] * b[k];
    return (float)total;
  }
  const double scale = ldexp(1.0, 23 + extra - largest);
  int64_t total = (int64_t)(before * scale);
  for (int k = 0; k < count; ++k) total += (int64_t)(a[k] * b[k] * scale);
  return gc_truncated((double)total / scale);
}

struct GcFragments {  // one lane's registers, which it deposits for the warp
  unsigned a[4], b[2];
};

// The lane's sums. Products and sums of bytes are exact in double: its 53 bits hold all 32-bit results.
inline void gc_multiply(GcMma shape, int lane, const GcFragments* all, void* c) {
  constexpr int DEPTH = 32;  // the most elements in an operand's row
  const int packed = gc_packed(shape.a), words = 4 * shape.steps;
  double rows[2][DEPTH], columns[2][DEPTH];
  for (int step = 0; step < shape.steps; ++step)
    for (int t = 0; t < 4; ++t) {
      const int at = (4 * step + t) * packed;
      for (int half = 0; half < shape.halves; ++half)
        gc_unpack(shape.a, all[4 * (lane / 4) + t].a[shape.halves * step + half], rows[half] + at);
      for (int side = 0; side < 2; ++side)
        gc_unpack(shape.b, all[4 * (lane % 4 * 2 + side) + t].b[step], columns[side] + at);
    }
  for (int i = 0; i < 2 * shape.halves; ++i) {
    const double *x = rows[i / 2], *y = columns[i % 2];
    unsigned char* const to = static_cast<unsigned char*>(c) + 4 * i;
    if (shape.a >= GcFragment::S8) {
      int32_t sum;
      memcpy(&sum, to, sizeof sum);
      int64_t total = sum;
      for (int k = 0; k < words * packed; ++k) total += (int64_t)x[k] * (int64_t)y[k];
      sum = (int32_t)(uint32_t)(uint64_t)total;
      memcpy(to, &sum, sizeof sum);
      continue;
    }
    float sum;
    memcpy(&sum, to, sizeof sum);
    // sm_80 and sm_86 add four products of tf32 at once, or eight of 16 bits, with one bit more than f32
    for (int k = 0; k < words * packed; k += 4 * packed) sum = gc_block_sum(sum, x + k, y + k, 4 * packed, 1);
    memcpy(to, &sum, sizeof sum);
  }
}
