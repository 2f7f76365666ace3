#pragma once

#include <cstdint>
#include <cstring>

#ifdef LETHE_KERNELS_X86
#include <immintrin.h>
#endif

// Inside cpu/isa/ only: one vector of floats of the instruction set that this file is compiled for.
// LETHE_ISA is the namespace of the variant (avx512, avx2, portable), given by CMake. Everything
// here and in the kernels lives in that namespace: an inline function outside it, a standard
// container or algorithm included, would be merged with the same function compiled for another
// instruction set (tools/check_isa.py looks for them).
namespace lethe::kernels::LETHE_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;
#else
inline constexpr int kLanes = 4;
inline constexpr int kRegisters = 16;
#endif
inline constexpr int kVecBytes = 4 * kLanes;

typedef float Vec __attribute__((vector_size(kVecBytes)));
typedef int32_t IVec __attribute__((vector_size(kVecBytes)));
typedef float UnalignedVec __attribute__((vector_size(kVecBytes), aligned(4), may_alias));
typedef int32_t UnalignedIVec __attribute__((vector_size(kVecBytes), aligned(4), may_alias));

#define LETHE_INLINE inline __attribute__((always_inline))

LETHE_INLINE Vec load(const float* p) {
  return *reinterpret_cast<const UnalignedVec*>(p);
}

LETHE_INLINE void store(float* p, Vec v) {
  *reinterpret_cast<UnalignedVec*>(p) = v;
}

LETHE_INLINE Vec broadcast(float x) {
  return x - Vec{};
}

/// Bits of v as integers and back.
LETHE_INLINE IVec bits(Vec v) {
  return reinterpret_cast<IVec>(v);
}

LETHE_INLINE Vec from_bits(IVec v) {
  return reinterpret_cast<Vec>(v);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
/// All bits of the first `count` lanes.
LETHE_INLINE __m256i first_lanes(int64_t count) {
  const IVec lane{0, 1, 2, 3, 4, 5, 6, 7};
  return reinterpret_cast<__m256i>(lane < static_cast<int32_t>(count));
}
#endif

/// The first `count` lanes, 0 <= count < kLanes; the others become `fill`. Reads nothing behind.
LETHE_INLINE Vec load_some(const float* p, int64_t count, float fill = 0) {
#if defined(__AVX512F__)
  return _mm512_mask_loadu_ps(broadcast(fill), static_cast<__mmask16>((1U << count) - 1), p);
#elif defined(__AVX2__)
  const __m256i mask = first_lanes(count);
  return _mm256_blendv_ps(broadcast(fill), _mm256_maskload_ps(p, mask), (__m256)mask);
#else
  Vec v = broadcast(fill);
  for (int64_t i = 0; i < count; ++i) v[i] = p[i];
  return v;
#endif
}

LETHE_INLINE void store_some(float* p, Vec v, int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << count) - 1), v);
#elif defined(__AVX2__)
  _mm256_maskstore_ps(p, first_lanes(count), v);
#else
  for (int64_t i = 0; i < count; ++i) p[i] = v[i];
#endif
}

/// a*b + c with one rounding where the instruction set has it (portable: two).
LETHE_INLINE Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

/// c - a*b.
LETHE_INLINE Vec fnma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fnmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fnmadd_ps(a, b, c);
#else
  return c - a * b;
#endif
}

LETHE_INLINE Vec select(IVec condition, Vec yes, Vec no) {
  return from_bits((bits(yes) & condition) | (bits(no) & ~condition));
}

/// The second argument where one is NaN, as the instruction does.
LETHE_INLINE Vec max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return select(a > b, a, b);
#endif
}

LETHE_INLINE Vec min(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_min_ps(a, b);
#else
  return select(a < b, a, b);
#endif
}

LETHE_INLINE Vec sqrt(Vec v) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(v);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(v);
#else
  Vec r;
  for (int i = 0; i < kLanes; ++i) r[i] = __builtin_sqrtf(v[i]);
  return r;
#endif
}

/// Whether the condition holds in any lane.
LETHE_INLINE bool any(IVec condition) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)condition, (__m512i)condition) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_epi8((__m256i)condition) != 0;
#else
  int32_t found = 0;
  for (int i = 0; i < kLanes; ++i) found |= condition[i];
  return found != 0;
#endif
}

/// Lanes 2m and 2m+1 exchanged.
LETHE_INLINE Vec swap_pairs(Vec v) {
#if defined(__AVX512F__)
  return _mm512_permute_ps(v, 0xB1);
#elif defined(__AVX2__)
  return _mm256_permute_ps(v, 0xB1);
#else
  return Vec{v[1], v[0], v[3], v[2]};
#endif
}

/// Every lane of the lower half twice: 0 0 1 1 2 2 ..., and of the upper half.
LETHE_INLINE Vec twice_lower(Vec v) {
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps(_mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0), v);
#elif defined(__AVX2__)
  return _mm256_permutevar8x32_ps(v, _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0));
#else
  return Vec{v[0], v[0], v[1], v[1]};
#endif
}

LETHE_INLINE Vec twice_upper(Vec v) {
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps(
      _mm512_set_epi32(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8), v);
#elif defined(__AVX2__)
  return _mm256_permutevar8x32_ps(v, _mm256_set_epi32(7, 7, 6, 6, 5, 5, 4, 4));
#else
  return Vec{v[2], v[2], v[3], v[3]};
#endif
}

/// Lanes added pairwise: one written order.
LETHE_INLINE float sum(Vec v) {
  float lane[kLanes];
  std::memcpy(lane, &v, sizeof v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

LETHE_INLINE float largest(Vec v) {
  float lane[kLanes];
  std::memcpy(lane, &v, sizeof v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
  return lane[0];
}

LETHE_INLINE int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/// Whole vectors in `count` floats, and rounding up to them.
LETHE_INLINE int64_t round_up(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

}  // namespace lethe::kernels::LETHE_ISA
