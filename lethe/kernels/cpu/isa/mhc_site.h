#pragma once

#include "lethe/kernels/cpu/isa/rows.h"
#include "lethe/kernels/cpu/isa/sinkhorn_lanes.h"
#include "lethe/kernels/cpu/mhc_site.h"
#include "lethe/kernels/cpu/sinkhorn.h"

// Inside cpu/isa/ only: what the two directions of a hyper-connection site share.
namespace lethe::kernels::LETHE_ISA {

/// Tokens that a thread takes at a time: their gates fill three vectors with a lane per token, and
/// their streams stay in the cache between the product and the collapse.
inline constexpr int kBlockTokens = 3 * kLanes;
static_assert(kMhcMostTokens % kBlockTokens == 0);

/// Hands out parts of the caller's scratch, whole cache lines each.
struct Carve {
  float* at;

  LETHE_INLINE float* take(int64_t floats) {
    float* part = at;
    at += round_up(floats, kMostLanes);
    return part;
  }
};

/// Lane t is the sum of the lanes of the vector at sums + t * stride.
LETHE_INLINE Vec sums_of_lanes(const float* sums, int64_t stride) {
  Vec total;
  for (int t = 0; t < kLanes; ++t) total[t] = sum(load(sums + t * stride));
  return total;
}

/// Vectors in one stream; its last one may be partly filled.
LETHE_INLINE int64_t stream_vecs(const MhcSite& s) {
  return (s.width + kLanes - 1) / kLanes;
}

/// fn repacked as [group of rows][stream][vector][row of the group][lane]: a product reads it from
/// front to back, where rows of fn itself would compete for the same cache sets.
struct PackedFn {
  int64_t group_rows, groups, vecs, group_stride;  // vecs: in a stream
  float* data;

  /// Vector `vec` of a stream for the rows of a group: group_rows vectors.
  [[nodiscard]] LETHE_INLINE float* at(int64_t group, int64_t stream, int64_t vec) const {
    return data + group * group_stride + (stream * vecs + vec) * group_rows * kLanes;
  }
};

/// Rows are padded with zeros to whole groups, groups set apart by a few cache lines.
LETHE_INLINE PackedFn packed_shape(const MhcSite& s, int64_t group_rows) {
  const int64_t vecs = stream_vecs(s), groups = (s.rows + group_rows - 1) / group_rows;
  const int64_t stride = s.streams * vecs * group_rows * kLanes + kMhcPackGap;
  return {.group_rows = group_rows,
          .groups = groups,
          .vecs = vecs,
          .group_stride = stride,
          .data = nullptr};
}

inline void pack_projection(const MhcSite& s, const PackedFn& p) {
  constexpr int64_t kVecsPerTask = 64;
  const int64_t tasks = (p.vecs + kVecsPerTask - 1) / kVecsPerTask;
  s.parallel(s.streams * tasks, [&](int64_t task, int) {
    const int64_t stream = task / tasks, first = task % tasks * kVecsPerTask;
    const int64_t end = first + kVecsPerTask < p.vecs ? first + kVecsPerTask : p.vecs;
    for (int64_t row = 0; row < p.groups * p.group_rows; ++row) {
      const float* from = s.fn + (row * s.streams + stream) * s.width;
      float* to = p.at(row / p.group_rows, stream, 0) + row % p.group_rows * kLanes;
      for (int64_t v = first; v < end; ++v) {
        const int64_t left = s.width - v * kLanes;
        const Vec value =
            row < s.rows ? get(from + v * kLanes, left < kLanes ? left : kLanes) : Vec{};
        store(to + v * p.group_rows * kLanes, value);
      }
    }
  });
}

/// Which of the scales multiplies this row of fn: [pre: n | post: n | comb: n n], or one for all.
LETHE_INLINE int64_t scale_of(const MhcSite& s, int64_t row) {
  if (s.scales == 1 || row < s.streams) return 0;
  return row < 2 * s.streams ? 1 : 2;
}

/// logits = mix * scale + base, vectors with a lane per token.
LETHE_INLINE void logits_of(const MhcSite& s, const float* mix, float* logits) {
  for (int64_t row = 0; row < s.rows; ++row) {
    const Vec scale = broadcast(s.scale[scale_of(s, row)]), base = broadcast(s.base[row]);
    store(logits + row * kLanes, fma(lanes_at(mix, row), scale, base));
  }
}

}  // namespace lethe::kernels::LETHE_ISA
