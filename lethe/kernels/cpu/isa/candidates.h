#pragma once

#include "lethe/kernels/cpu/isa/lanes.h"

// Inside cpu/isa/ only: the best k of a stream of scores. Candidates stay in the order of their
// slots, so that equal scores keep the lower slot and the result needs no sorting.
namespace lethe::kernels::LETHE_ISA {

/// Scores as integers of the same order; its own inverse. Not for NaN, and -0 must be +0.
LETHE_INLINE IVec ordered(IVec b) {
  return b ^ ((b >> 31) & 0x7fffffff);
}

struct Candidates {
  int32_t* score;  // ordered(bits)
  int32_t* slot;
  int64_t count;
  int32_t floor;  // scores up to this one no longer enter
};

inline constexpr int32_t kNoFloor = INT32_MIN;  // below -inf

/// The scores of `count` more slots, from `slot` upwards; whole vectors of `scores` are read.
LETHE_INLINE void append(Candidates& c, const float* scores, int64_t count, int64_t slot) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec score = load(scores + i) + 0.0F;  // -0 becomes +0
    const IVec key = ordered(bits(score)),
               inside = lane_numbers() < static_cast<int32_t>(count - i);
    uint32_t mask = lane_mask((key > c.floor) & (score == score) & inside);
    if (mask == 0) continue;
    const IVec slots = lane_numbers() + static_cast<int32_t>(slot + i);
    if (mask == (1U << kLanes) - 1) {
      store_ints(c.score + c.count, key);
      store_ints(c.slot + c.count, slots);
      c.count += kLanes;
      continue;
    }
    int32_t keys[kLanes];
    store_ints(keys, key);
    for (; mask != 0; mask &= mask - 1) {
      const int lane = __builtin_ctz(mask);
      c.score[c.count] = keys[lane];
      c.slot[c.count++] = static_cast<int32_t>(slot + i + lane);
    }
  }
}

/// How many candidates have at least this score.
LETHE_INLINE int64_t count_from(const Candidates& c, int32_t score) {
  IVec found{};
  int64_t i = 0;
  for (; i + kLanes <= c.count; i += kLanes) found -= load_ints(c.score + i) >= score;
  int64_t total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += found[lane];
  for (; i < c.count; ++i) total += c.score[i] >= score;
  return total;
}

struct Cut {
  int32_t score;
  int64_t above;  // candidates from this score on
};

/// A score that at least `keep` candidates reach, by bisection: at most `most` of them where such a
/// score is found, else it is the score of the keep-th best.
LETHE_INLINE Cut cut_for(const Candidates& c, int64_t keep, int64_t most) {
  int64_t low = INT32_MAX, high = INT32_MIN;
  for (int64_t i = 0; i < c.count; ++i) {
    low = c.score[i] < low ? c.score[i] : low;
    high = c.score[i] > high ? c.score[i] : high;
  }
  int64_t reached = c.count;
  for (++high; high - low > 1 && reached > most;) {
    const int64_t middle = low + (high - low) / 2;
    const int64_t above = count_from(c, static_cast<int32_t>(middle));
    if (above < keep) {
      high = middle;
    } else {
      low = middle;
      reached = above;
    }
  }
  return {static_cast<int32_t>(low), reached};
}

/// Drops candidates until at most `most` remain, the `keep` best among them; keep <= most.
LETHE_INLINE void shrink(Candidates& c, int64_t keep, int64_t most) {
  if (c.count <= most) return;
  const Cut cut = cut_for(c, keep, most);
  // Too many reach the score of the keep-th best: the first of those that equal it stay.
  const bool tied = cut.above > most;
  int64_t equal =
      tied ? keep - (cut.score == INT32_MAX ? 0 : count_from(c, cut.score + 1)) : c.count;
  int64_t kept = 0;
  for (int64_t i = 0; i < c.count; ++i) {
    const int32_t score = c.score[i];
    const bool at_cut = score == cut.score, stays = score > cut.score || (at_cut && equal > 0);
    equal -= at_cut;
    c.score[kept] = score;
    c.slot[kept] = c.slot[i];
    kept += stays;
  }
  c.count = kept;
  c.floor = tied ? cut.score : cut.score - 1;
}

}  // namespace lethe::kernels::LETHE_ISA
