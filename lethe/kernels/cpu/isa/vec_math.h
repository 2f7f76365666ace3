#pragma once

#include "lethe/kernels/cpu/isa/vec.h"

// Inside cpu/isa/ only: elementary functions of vectors. No table, no call, no errno.
namespace lethe::kernels::LETHE_ISA {

inline constexpr float kExpLowest = -87.33654F, kExpHighest = 88.72283F;

/// x = exponent ln 2 + r with |r| <= ln 2 / 2, and e^r - 1, for x in [kExpLowest, kExpHighest].
struct ExpParts {
  IVec exponent;
  Vec e_r_minus_1;
};

LETHE_INLINE ExpParts exp_parts(Vec x) {
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the bits.
  const Vec magic = broadcast(12582912.0F);
  const Vec shifted = fma(x, broadcast(1.44269504F), magic);
  const Vec n = shifted - magic;
  Vec r = fnma(n, broadcast(0.693359375F), x);
  r = fnma(n, broadcast(-2.12194440e-4F), r);
  Vec p = broadcast(1.9875691500e-4F);
  p = fma(p, r, broadcast(1.3981999507e-3F));
  p = fma(p, r, broadcast(8.3334519073e-3F));
  p = fma(p, r, broadcast(4.1665795894e-2F));
  p = fma(p, r, broadcast(1.6666665459e-1F));
  p = fma(p, r, broadcast(5.0000001201e-1F));
  return {bits(shifted) - bits(magic), fma(p, r * r, r)};
}

/// e^x. Relative error below 2 ulp; 0 below -87.33 (where the result would be denormal) and for
/// -inf; inf above 88.72; NaN for NaN.
LETHE_INLINE Vec exp(Vec x) {
  const Vec inside = min(max(x, broadcast(kExpLowest)), broadcast(kExpHighest));
  const ExpParts parts = exp_parts(inside);
  const Vec p = parts.e_r_minus_1 + 1.0F;
  // Two factors: the exponent may be 128, for which there is no single power of two.
  const IVec exponent = parts.exponent, half = exponent >> 1;
  const Vec scaled = p * from_bits((half + 127) << 23) * from_bits((exponent - half + 127) << 23);
  const Vec low = select(x < kExpLowest, Vec{}, scaled);
  const Vec high = select(x > kExpHighest, broadcast(__builtin_inff()), low);
  return select(x != x, x, high);
}

/// e^x for x known to be below 88, as the weights of a softmax: half the work of exp. Relative
/// error below 2e-7 + 2e-8 |x| (7e-8 |x| without fused multiply-add); exactly 0 below -87.68 and
/// for -inf; NaN for NaN.
LETHE_INLINE Vec exp_below_88(Vec x) {
  constexpr float kLog2E = 1.44269504F, kLowest = -88.1F;  // 2^-127, built from its bits, is 0
  const Vec inside = max(broadcast(kLowest), x), magic = broadcast(12582912.0F);
  const Vec shifted = fma(inside, broadcast(kLog2E), magic);
  const Vec f = fma(inside, broadcast(kLog2E), magic - shifted);
  // Pairs of terms side by side: a chain of six additions would be what the loop waits for.
  const Vec square = f * f;
  const Vec low = fma(f, broadcast(6.93147182e-1F), broadcast(1.0F));
  const Vec middle = fma(f, broadcast(5.55035695e-2F), broadcast(2.40226507e-1F));
  const Vec high = fma(f, broadcast(1.33908633e-3F), broadcast(9.61808302e-3F));
  Vec p = fma(square, broadcast(1.54531634e-4F), high);
  p = fma(p, square, middle);
  p = fma(p, square, low);
  return p * from_bits((bits(shifted) + 127) << 23);
}

/// sin x and cos x, absolute error below 1e-7 for every finite x: the angle is reduced in double.
LETHE_INLINE void sin_cos(Vec x, Vec& sin, Vec& cos) {
  typedef double Wide __attribute__((vector_size(2 * kVecBytes)));
  constexpr float kLargest = 1 << 26;  // pi/2 has 33 + 53 bits here
  constexpr double kMagic = 6755399441055744.0, kTwoOverPi = 0.63661977236758134308;
  constexpr double kHalfPi = 1.57079632673412561417, kHalfPiRest = 6.07710050650619224932e-11;
  const Vec size = from_bits(bits(x) & 0x7fffffff);
  if (any(~(size <= kLargest))) {
    for (int i = 0; i < kLanes; ++i) {
      sin[i] = static_cast<float>(__builtin_sin(static_cast<double>(x[i])));
      cos[i] = static_cast<float>(__builtin_cos(static_cast<double>(x[i])));
    }
    return;
  }
  const Wide wide = __builtin_convertvector(x, Wide), turns = (wide * kTwoOverPi + kMagic) - kMagic;
  const Vec r = __builtin_convertvector((wide - turns * kHalfPi) - turns * kHalfPiRest, Vec);
  const IVec quarter = __builtin_convertvector(turns, IVec);
  const Vec z = r * r;
  Vec s = broadcast(-1.9515295891e-4F), c = broadcast(2.443315711809948e-5F);
  s = fma(s, z, broadcast(8.3321608736e-3F));
  s = fma(s, z, broadcast(-1.6666654611e-1F));
  s = fma(s * z, r, r);
  c = fma(c, z, broadcast(-1.388731625493765e-3F));
  c = fma(c, z, broadcast(4.166664568298827e-2F));
  c = fma(c * z, z, fma(z, broadcast(-0.5F), broadcast(1.0F)));
  const IVec odd = (quarter & 1) != 0;
  sin = from_bits(bits(select(odd, c, s)) ^ ((quarter & 2) << 30));
  cos = from_bits(bits(select(odd, s, c)) ^ (((quarter + 1) & 2) << 30));
}

/// 1 - e^-x for x >= 0, relative error below 3 ulp however small x is; 1 for inf, NaN for NaN.
LETHE_INLINE Vec one_minus_exp_of_minus(Vec x) {
  const Vec inside = min(x, broadcast(-kExpLowest));
  const ExpParts parts = exp_parts(-inside);
  const Vec power = from_bits((parts.exponent + 127) << 23);
  return select(x != x, x, fnma(power, parts.e_r_minus_1, 1.0F - power));
}

/// ln(1 + x) / x for x in [0, 1], relative error below 3 ulp; 1 for 0, NaN for NaN.
LETHE_INLINE Vec log1p_over(Vec x) {
  // ln(1 + x) = 2 artanh(t), t = x / (2 + x) <= 1/3: the first term left out is below 2e-9.
  const Vec half = 1.0F / (2.0F + x), t = x * half, z = t * t;
  Vec p = broadcast(1.0F / 15);
  p = fma(p, z, broadcast(1.0F / 13));
  p = fma(p, z, broadcast(1.0F / 11));
  p = fma(p, z, broadcast(1.0F / 9));
  p = fma(p, z, broadcast(1.0F / 7));
  p = fma(p, z, broadcast(1.0F / 5));
  p = fma(p, z, broadcast(1.0F / 3));
  return 2.0F * half * fma(p, z, broadcast(1.0F));
}

/// 1 / (1 + e^-x); exact limits 0 and 1.
LETHE_INLINE Vec sigmoid(Vec x) {
  return 1.0F / (1.0F + exp(-x));
}

/// ln x for x > 0, relative error below 2 ulp away from 1 and absolute 1e-7 near it; -inf for 0,
/// NaN below 0, inf for inf, NaN for NaN. Denormals count as 0.
LETHE_INLINE Vec log(Vec x) {
  constexpr float kLeastNormal = 1.17549435e-38F;
  const Vec normal = max(x, broadcast(kLeastNormal));
  IVec exponent = (bits(normal) >> 23) - 126;
  Vec m = from_bits((bits(normal) & 0x007fffff) | 0x3f000000);  // in [0.5, 1)
  const IVec small = m < 0.70710678F;
  exponent += small;  // -1 where true
  m = select(small, m + m, m) - 1.0F;
  const Vec e = __builtin_convertvector(exponent, Vec), z = m * m;
  Vec p = broadcast(7.0376836292e-2F);
  p = fma(p, m, broadcast(-1.1514610310e-1F));
  p = fma(p, m, broadcast(1.1676998740e-1F));
  p = fma(p, m, broadcast(-1.2420140846e-1F));
  p = fma(p, m, broadcast(1.4249322787e-1F));
  p = fma(p, m, broadcast(-1.6668057665e-1F));
  p = fma(p, m, broadcast(2.0000714765e-1F));
  p = fma(p, m, broadcast(-2.4999993993e-1F));
  p = fma(p, m, broadcast(3.3333331174e-1F));
  Vec y = p * m * z;
  y = fma(e, broadcast(-2.12194440e-4F), y);
  y = fnma(z, broadcast(0.5F), y);
  Vec result = fma(e, broadcast(0.693359375F), m + y);
  result = select(x < kLeastNormal, broadcast(-__builtin_inff()), result);
  result = select(x < 0.0F, broadcast(__builtin_nanf("")), result);
  result = select(x == __builtin_inff(), x, result);
  return select(x != x, x, result);
}

}  // namespace lethe::kernels::LETHE_ISA
