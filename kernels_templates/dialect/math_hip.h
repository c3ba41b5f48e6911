// The mathematical functions that kernels call, for clang without ROCm's device library.
// It is compiled in front of kernels that call one of them. Methods and coefficients are those of the CPU back end
// (gpucomp.codegen.llvm.ir.math): gpucomp.targets.hip_text puts the latter in for the names between @. f32 results are within
// 2 to 4 ulp, f64 results within 1e-13 (pow 1 ulp); the whole range is covered. As there, f32 has exp, log, tanh and erf of
// its own, and what is rarer is computed in f64 and rounded once.
// tests/targets/test_hip.py runs what is arithmetic here on a CPU; builtins are clang's (OLDEST_FOR_HIP in targets/amdgcn.py).

#define GC_ON_BOTH(name)                                                                               \
  __device__ __forceinline__ float name##f(float x) { return __builtin_##name##f(x); }                 \
  __device__ __forceinline__ double name(double x) { return __builtin_##name(x); }
GC_ON_BOTH(fabs)
GC_ON_BOTH(floor)
GC_ON_BOTH(ceil)
GC_ON_BOTH(rint)
GC_ON_BOTH(sqrt)
#undef GC_ON_BOTH
__device__ __forceinline__ float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
__device__ __forceinline__ double copysign(double x, double y) { return __builtin_copysign(x, y); }
__device__ __forceinline__ float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__device__ __forceinline__ double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
__device__ __forceinline__ float exp2f(float x) { return __builtin_exp2f(x); }
__device__ __forceinline__ float expf(float x) { return __builtin_expf(x); }
__device__ __forceinline__ float logf(float x) { return __builtin_logf(x); }

#define GC_NAN __builtin_nan("")
#define GC_INFINITY __builtin_inf()

// c + x * (d + x * (e ...
__device__ __forceinline__ float gc_horner(float, float c) { return c; }
__device__ __forceinline__ double gc_horner(double, double c) { return c; }
template <class T, class... Rest>
__device__ __forceinline__ float gc_horner(float x, T c, Rest... rest) {
  return fmaf(gc_horner(x, (float)rest...), x, (float)c);
}
template <class T, class... Rest>
__device__ __forceinline__ double gc_horner(double x, T c, Rest... rest) {
  return fma(gc_horner(x, (double)rest...), x, (double)c);
}

// ---- f32 ------------------------------------------------------------------------------------------

// exp(x) - 1 = 2^n (1 + p) - 1, for x from -18 to 89 or NaN
__device__ __forceinline__ float gc_expm1f(float x) {
  const float n = rintf(x * 1.44269504f);
  float r = fmaf(n, -0.693359375f, x);
  r = fmaf(n, 2.12194440054690583e-4f, r);
  const float p = fmaf(r * r, gc_horner(r, @EXPM1_F32@), r);
  const float scale = __builtin_ldexpf(1.0f, (int)n - 1);
  return fmaf(p, scale, scale - 0.5f) * 2.0f;
}

__device__ __forceinline__ float tanhf(float x) {
  const float twice = fabsf(x) * 2.0f;
  const float t = gc_expm1f(twice > 20.0f ? 20.0f : twice);
  return copysignf(t / (t + 2.0f), x);
}

__device__ __forceinline__ float erff(float x) {
  const float a = fabsf(x);
  if (a > 1.0f) {
    const float rest = exp2f(gc_horner(a > 4.0f ? 4.0f : a, @LOG2_ERFC_F32@));
    return copysignf(1.0f - rest, x);
  }
  return x * gc_horner(x * x, @ERF_F32@);
}

// ---- f64 ------------------------------------------------------------------------------------------

__device__ __forceinline__ double gc_exp_parts(double x, int* n) {  // exp(x) = 2^n (1 + p); p is returned
  const double whole = rint(x * 1.44269504088896340736);
  double r = fma(whole, -@LN2_HIGH@, x);
  r = fma(whole, -@LN2_LOW@, r);
  *n = (int)whole;
  return fma(r * r, gc_horner(r, @EXPM1_F64@), r);
}

__device__ __forceinline__ double exp(double x) {
  if (x < -746.0) return 0.0;
  int n;
  const double p = gc_exp_parts(x > 710.0 ? 710.0 : x, &n);
  return __builtin_ldexp(1.0 + p, n);
}

__device__ __forceinline__ double gc_expm1(double x) {  // for x from -40 to 709 or NaN
  int n;
  const double p = gc_exp_parts(x, &n);
  const double scale = __builtin_ldexp(1.0, n - 1);
  return fma(p, scale, scale - 0.5) * 2.0;
}

__device__ __forceinline__ double log(double x) {
  const bool tiny = x < 2.2250738585072014e-308;
  const long long bits = __builtin_bit_cast(long long, tiny ? x * 4503599627370496.0 : x);
  const long long e = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
  const double f = __builtin_bit_cast(double, bits - (long long)((unsigned long long)e << 52)) - 1.0;
  const double exponent = (double)(int)(tiny ? e - 52 : e);
  const double s = f / (f + 2.0), z = s * s, half_square = f * f * 0.5;
  const double rest = s * (half_square + z * gc_horner(z, @LOG_F64@));
  const double low = fma(exponent, @LN2_LOW@, rest);
  double result = fma(exponent, @LN2_HIGH@, f - (half_square - low));
  result = x < GC_INFINITY ? result : x;
  result = x == 0.0 ? -GC_INFINITY : result;
  return x < 0.0 ? GC_NAN : result;
}

__device__ __forceinline__ double gc_log1p(double x) {
  const double u = x + 1.0;
  return log(u) + (u > 0.0 && u < GC_INFINITY ? (x - (u - 1.0)) / u : 0.0);
}

__device__ __forceinline__ double tanh(double x) {
  const double twice = fabs(x) * 2.0;
  const double t = gc_expm1(twice > 44.0 ? 44.0 : twice);
  return copysign(t / (t + 2.0), x);
}

__device__ __forceinline__ double erf(double x) {
  const double a = fabs(x);
  if (a > 1.0) {
    const double t = ((a > 6.0 ? 6.0 : a) - 3.5) * 0.4;
    return copysign(1.0 - exp(gc_horner(t, @LOG_ERFC_F64@)), x);
  }
  return x * gc_horner(x * x, @ERF_F64@);
}

__device__ __forceinline__ double sinh(double x) {
  const double a = fabs(x);
  if (a > 30.0) {
    const double half = exp(a * 0.5);
    return copysign(half * 0.5 * half, x);
  }
  const double t = gc_expm1(a);
  return copysign((t + t / (t + 1.0)) * 0.5, x);
}

__device__ __forceinline__ double cosh(double x) {
  const double half = exp(fabs(x) * 0.5), whole = half * half;
  return whole < 1e30 ? whole * 0.5 + 0.5 / whole : half * 0.5 * half;
}

__device__ __forceinline__ double asinh(double x) {
  const double a = fabs(x), square = a * a;
  const double near = gc_log1p(a + square / (sqrt(square + 1.0) + 1.0));
  return copysign(a < 1e9 ? near : log(a) + @LN2@, x);
}

__device__ __forceinline__ double acosh(double x) {
  const double t = x - 1.0;
  const double result = x < 1e9 ? gc_log1p(t + sqrt(t * (t + 2.0))) : log(x) + @LN2@;
  return x < 1.0 ? GC_NAN : result;
}

__device__ __forceinline__ double atanh(double x) {
  const double a = fabs(x);
  return copysign(gc_log1p(a * 2.0 / (1.0 - a)) * 0.5, x);
}

__device__ __forceinline__ double atan(double x) {
  double a = fabs(x);
  const bool inverted = a > 1.0;
  a = inverted ? 1.0 / a : a;
  const bool turned = a > 0.41421356237309503;  // the tangent of pi / 8
  const double t = turned ? (a - 1.0) / (a + 1.0) : a, z = t * t;
  double y = fma(t * z, gc_horner(z, @ATAN@), t);
  y = turned ? y + 0.78539816339744828 : y;
  return copysign(inverted ? 1.5707963267948966 - y : y, x);
}

// the arcsine of |x|, or of sqrt((1 - |x|) / 2) if |x| is more than 1/2
__device__ __forceinline__ double gc_asin_part(double x) {
  const double a = fabs(x), t = a > 0.5 ? sqrt((1.0 - a) * 0.5) : a, z = t * t;
  return fma(t * z, gc_horner(z, @ASIN@), t);
}

__device__ __forceinline__ double asin(double x) {
  const double y = gc_asin_part(x);
  return copysign(fabs(x) > 0.5 ? fma(y, -2.0, 1.5707963267948966) : y, x);
}

__device__ __forceinline__ double acos(double x) {
  const double y = gc_asin_part(x);
  if (fabs(x) > 0.5) return x < 0.0 ? 3.1415926535897931 - y * 2.0 : y * 2.0;
  return 1.5707963267948966 - copysign(y, x);
}

// What fmod leaves is exact: a bit of the quotient at a time.
__device__ __forceinline__ double fmod(double x, double y) {
  double a = fabs(x);
  const double b = fabs(y);
  if (!(a < GC_INFINITY) || b == 0.0 || b != b) return GC_NAN;
  if (a >= b) {
    int of_a, of_b;
    __builtin_frexp(a, &of_a);
    __builtin_frexp(b, &of_b);
#pragma unroll 1
    for (int shift = of_a - of_b; shift >= 0; --shift) {
      const double part = __builtin_ldexp(b, shift);
      if (a >= part) a -= part;
    }
  }
  return copysign(a, x);
}

// ---- sine, cosine, tangent ------------------------------------------------------------------------

// 2^k mod 2 pi for k from -32, each in four parts of 25 bits: sums of two products are exact
static __device__ __constant__ const double gc_turns[] = {@TURNS@};

// x = n pi / 2 + r modulo full turns, |r| <= pi / 4; the low two bits of n are valid
__device__ __forceinline__ double gc_reduced(double x, long long* n) {
  const double a = fabs(x);
  double count = rint(x * 0.63661977236758138), r;
  if (a > 1048576.0 && a < GC_INFINITY) {
    const long long bits = __builtin_bit_cast(long long, a);
    const int exponent = (int)(bits >> 52) - (1075 - 32);
    const long long mantissa = (bits & 0xfffffffffffffLL) | 0x10000000000000LL;
    const double high = (double)(mantissa >> 26), low = (double)(mantissa & 0x3ffffffLL);
    double parts[4];
    for (int i = 0; i < 4; ++i) parts[i] = high * gc_turns[(exponent + 26) * 4 + i] + low * gc_turns[exponent * 4 + i];
    count = rint((parts[0] + parts[1]) * 0.63661977236758138);
    r = parts[0] - count * @HALF_PI_0@;
    r = ((r - count * @HALF_PI_1@) + parts[1]) - count * @HALF_PI_2@;
    r = r + ((parts[2] - count * @HALF_PI_3@) + parts[3]);
    *n = x < 0.0 ? -(long long)count : (long long)count;
    return x < 0.0 ? -r : r;
  }
  *n = (long long)count;
  r = x - count * @HALF_PI_0@;
  r = r - count * @HALF_PI_1@;
  return (r - count * @HALF_PI_2@) - count * @HALF_PI_3@;
}

__device__ __forceinline__ double gc_sine(double r) {
  const double z = r * r;
  return fma(r * z, gc_horner(z, @SIN@), r);
}

__device__ __forceinline__ double gc_cosine(double r) {
  const double z = r * r;
  return fma(z * z, gc_horner(z, @COS@), fma(z, -0.5, 1.0));
}

__device__ __forceinline__ double sin(double x) {
  if (!(fabs(x) < GC_INFINITY)) return GC_NAN;
  long long n;
  const double r = gc_reduced(x, &n), y = n & 1 ? gc_cosine(r) : gc_sine(r);
  return x == 0.0 ? x : n & 2 ? -y : y;  // the zero's sign is lost in r
}

__device__ __forceinline__ double cos(double x) {
  if (!(fabs(x) < GC_INFINITY)) return GC_NAN;
  long long n;
  const double r = gc_reduced(x, &n), y = n & 1 ? gc_sine(r) : gc_cosine(r);
  return (n + 1) & 2 ? -y : y;
}

__device__ __forceinline__ double tan(double x) {
  if (!(fabs(x) < GC_INFINITY)) return GC_NAN;
  long long n;
  const double r = gc_reduced(x, &n), sine = gc_sine(r), cosine = gc_cosine(r);
  return x == 0.0 ? x : n & 1 ? -cosine / sine : sine / cosine;
}

// ---- powers ---------------------------------------------------------------------------------------
// Numbers of twice the precision of f64: a value and its error.

struct gc_pair {
  double high, low;
};

__device__ __forceinline__ gc_pair gc_sum(double a, double b) {  // exact
  const double total = a + b, rest = total - a;
  return {total, (a - (total - rest)) + (b - rest)};
}
__device__ __forceinline__ gc_pair gc_ordered_sum(double a, double b) {  // exact if a is 0 or |a| >= |b|
  const double total = a + b;
  return {total, b - (total - a)};
}
__device__ __forceinline__ gc_pair gc_product(double a, double b) {  // exact
  const double product = a * b;
  return {product, fma(a, b, -product)};
}
__device__ __forceinline__ gc_pair gc_pair_product(gc_pair a, gc_pair b) {
  const gc_pair found = gc_product(a.high, b.high);
  return {found.high, found.low + (a.high * b.low + a.low * b.high)};
}

__device__ __forceinline__ gc_pair gc_log_pair(double x) {  // of a positive finite number, within 2^-66 of it
  const bool tiny = x < 2.2250738585072014e-308;
  const long long bits = __builtin_bit_cast(long long, tiny ? x * 4503599627370496.0 : x);
  const long long e = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
  const double m = __builtin_bit_cast(double, bits - (long long)((unsigned long long)e << 52));
  const double exponent = (double)(int)(tiny ? e - 52 : e);
  const double f = m - 1.0;
  const gc_pair d = gc_sum(m, 1.0);
  const double quotient = f / d.high;
  const gc_pair back = gc_product(quotient, d.high);
  const gc_pair s = {quotient, (((f - back.high) - back.low) - quotient * d.low) / d.high};
  const gc_pair z = gc_pair_product(s, s);
  gc_pair u = gc_pair_product(z, {0.33333333333333331, 1.8503717077085943e-17});
  const double missing = u.low;
  u = gc_sum(u.high, z.high * z.high * gc_horner(z.high, @LOG_TAIL@));
  const gc_pair v = gc_pair_product(s, {u.high, missing + u.low});
  const gc_pair w = gc_ordered_sum(s.high, v.high);
  const gc_pair whole = gc_sum(exponent * @LN2_HIGH@, w.high * 2.0);
  return gc_ordered_sum(whole.high, whole.low + ((w.low + (s.low + v.low)) * 2.0 + exponent * @LN2_LOW@));
}

__device__ __forceinline__ double gc_exp_pair(double x, double low) {  // exp(x + low)
  low = fabs(x) < 1000.0 ? low : 0.0;
  x = x < -746.0 ? -746.0 : x > 710.0 ? 710.0 : x;
  const double count = rint(x * 1.44269504088896340736);
  const gc_pair r = gc_sum(x - count * @LN2_HIGH@, -(count * @LN2_LOW@));
  const double missing = r.low + low;
  const gc_pair whole = gc_ordered_sum(1.0, r.high);
  const double curve = r.high * r.high * gc_horner(r.high, @EXPM1_F64@);
  const double rest = whole.low + (curve + missing * (whole.high + curve));
  return __builtin_ldexp(whole.high + rest, (int)count);
}

__device__ __forceinline__ double pow(double x, double y) {
  const double a = fabs(x);
  if (y == 0.0 || x == 1.0 || (a == 1.0 && fabs(y) == GC_INFINITY)) return 1.0;
  double result;
  const double bounded = y < -0x1p70 ? -0x1p70 : y > 0x1p70 ? 0x1p70 : y;
  if (a > 0.0 && a < GC_INFINITY) {
    const gc_pair logarithm = gc_log_pair(a), product = gc_product(bounded, logarithm.high);
    result = gc_exp_pair(product.high, product.low + bounded * logarithm.low);
  } else {
    result = gc_exp_pair((a == 0.0 ? -GC_INFINITY : a) * bounded, 0.0);  // of 0, infinity and NaN
  }
  const bool whole = floor(y) == y, odd = whole && floor(y * 0.5) != y * 0.5;
  result = __builtin_signbit(x) && odd ? -result : result;
  return x < 0.0 && a < GC_INFINITY && !whole ? GC_NAN : result;
}

#define GC_ROUNDED(name) \
  __device__ __forceinline__ float name##f(float x) { return (float)name((double)x); }
GC_ROUNDED(sin)
GC_ROUNDED(cos)
GC_ROUNDED(tan)
GC_ROUNDED(asin)
GC_ROUNDED(acos)
GC_ROUNDED(atan)
GC_ROUNDED(sinh)
GC_ROUNDED(cosh)
GC_ROUNDED(asinh)
GC_ROUNDED(acosh)
GC_ROUNDED(atanh)
#undef GC_ROUNDED
__device__ __forceinline__ float powf(float x, float y) { return (float)pow((double)x, (double)y); }
__device__ __forceinline__ float fmodf(float x, float y) { return (float)fmod((double)x, (double)y); }
