#pragma once

#include "lethe/kernels/cpu/isa/vec.h"

// Inside cpu/isa/ only: integer lanes, and numbers of rows that the compiler must know.
namespace lethe::kernels::LETHE_ISA {

LETHE_INLINE IVec load_ints(const int32_t* p) {
  return *reinterpret_cast<const UnalignedIVec*>(p);
}

LETHE_INLINE void store_ints(int32_t* p, IVec v) {
  *reinterpret_cast<UnalignedIVec*>(p) = v;
}

/// 0, 1, 2, ...
LETHE_INLINE IVec lane_numbers() {
  IVec v{};
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}

/// Bit i is the sign bit of lane i: of a comparison, whether it holds there.
LETHE_INLINE uint32_t lane_mask(IVec v) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(v));
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(from_bits(v)));
#else
  uint32_t mask = 0;
  for (int i = 0; i < kLanes; ++i) mask |= static_cast<uint32_t>(v[i] < 0) << i;
  return mask;
#endif
}

/// v, in a register from here on. Where a tile fills all registers, the compiler otherwise reads a
/// value anew for every use, and the loads become the limit.
LETHE_INLINE Vec in_register(Vec v) {
#if defined(__AVX512F__)
  asm volatile("" : "+v"(v));
#elif defined(LETHE_KERNELS_X86)
  asm volatile("" : "+x"(v));
#endif
  return v;
}

/// Zeros made here: the compiler keeps those of Vec{} in a register through the loop before.
LETHE_INLINE Vec late_zero() {
#if defined(__AVX512F__)
  Vec v;
  asm volatile("vpxord %0, %0, %0" : "=v"(v));
  return v;
#elif defined(__AVX2__)
  Vec v;
  asm volatile("vxorps %0, %0, %0" : "=x"(v));
  return v;
#else
  return Vec{};
#endif
}

LETHE_INLINE int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

template <int Value>
struct Count {
  static constexpr int value = Value;
};

/// f(Count<n>) for the n in [1, Most] that equals `count`; nothing for 0.
template <int Most, class F>
LETHE_INLINE void with_count(int64_t count, F&& f) {
  if constexpr (Most > 0) {
    if (count == Most)
      f(Count<Most>{});
    else
      with_count<Most - 1>(count, f);
  }
}

}  // namespace lethe::kernels::LETHE_ISA
