#pragma once

#include "lethe/kernels/cpu/gate.h"
#include "lethe/kernels/cpu/isa/rows.h"

// Inside cpu/isa/ only: the k best experts of kLanes tokens at a time, one token per lane.
namespace lethe::kernels::LETHE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr IVec kLowHalves{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
constexpr IVec kHighHalves{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
#elif defined(__AVX2__)
constexpr IVec kLowHalves{0, 8, 1, 9, 2, 10, 3, 11};
constexpr IVec kHighHalves{4, 12, 5, 13, 6, 14, 7, 15};
#else
constexpr IVec kLowHalves{0, 4, 1, 5};
constexpr IVec kHighHalves{2, 6, 3, 7};
#endif

/// rows[i][j] becomes rows[j][i]: a perfect shuffle of the two halves, log2(kLanes) times.
LETHE_INLINE void transpose(IVec (&rows)[kLanes]) {
#pragma GCC unroll 4
  for (int step = 1; step < kLanes; step *= 2) {
    IVec next[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = __builtin_shuffle(rows[i], rows[i + kLanes / 2], kLowHalves);
      next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + kLanes / 2], kHighHalves);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

constexpr int32_t kTaken = -__INT_MAX__ - 1;

/// Integers in the order of the floats: -0 as +0, NaN largest, all above kTaken.
LETHE_INLINE IVec order_of(Vec v) {
  const IVec raw = bits(v + 0.0F), ordered = raw ^ ((raw >> 31) & __INT_MAX__);
  return (v != v) ? IVec{} + __INT_MAX__ : ordered;
}

LETHE_INLINE IVec load_ints(const int32_t* p) {
  return *reinterpret_cast<const UnalignedIVec*>(p);
}

LETHE_INLINE void store_ints(int32_t* p, IVec v) {
  *reinterpret_cast<UnalignedIVec*>(p) = v;
}

/// scores + bias of `tokens` <= kLanes rows as keys[expert][lane]; idle lanes repeat the last row.
void make_keys(
    const float* scores, int64_t stride, int64_t tokens, const GateForward& a, int32_t* keys) {
  for (int64_t e = 0; e < a.shape.experts; e += kLanes) {
    const int64_t count = a.shape.experts - e < kLanes ? a.shape.experts - e : kLanes;
    const Vec bias = a.bias != nullptr ? get(a.bias + e, count) : Vec{};
    IVec lanes[kLanes];
    for (int i = 0; i < kLanes; ++i)
      lanes[i] = order_of(load(scores + (i < tokens ? i : tokens - 1) * stride + e) + bias);
    transpose(lanes);
    for (int i = 0; i < kLanes; ++i) store_ints(keys + (e + i) * kLanes, lanes[i]);
  }
}

/// Ids of the k largest keys of every lane, ascending, as best[j][lane]. Takes the largest k times;
/// equal keys: the lower id, which comes first. keys are consumed.
void take_best(const GateShape& s, int32_t* keys, int32_t* best) {
  IVec last = IVec{} - 1;
  for (int64_t j = 0; j < s.k; ++j) {
    IVec top = IVec{} + kTaken, id{};
    for (int64_t e = 0; e < s.experts; ++e) {
      const auto expert = IVec{} + static_cast<int32_t>(e);
      IVec key = load_ints(keys + e * kLanes);
      key = expert == last ? IVec{} + kTaken : key;
      store_ints(keys + e * kLanes, key);
      const IVec better = key > top;
      top = better ? key : top;
      id = better ? expert : id;
    }
    last = id;
    for (int64_t i = 0; i < j; ++i) {
      const IVec held = load_ints(best + i * kLanes), swap = id < held;
      store_ints(best + i * kLanes, swap ? id : held);
      id = swap ? held : id;
    }
    store_ints(best + j * kLanes, id);
  }
}

}  // namespace
}  // namespace lethe::kernels::LETHE_ISA
