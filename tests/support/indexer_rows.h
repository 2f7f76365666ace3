#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "lethe/kernels/cpu/indexer_arrays.h"

// Packed rows for the tests of the indexer's kernels.
namespace lethe::test {

inline std::vector<float> normal(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = distribution(random);
  return out;
}

inline void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

struct IndexerRow {
  IndexerRow(const std::vector<int64_t>& lengths, int64_t ratio_, int64_t heads_, int64_t dim_)
      : ratio(ratio_), heads(heads_), dim(dim_) {
    for (const int64_t length : lengths) {
      cu_seqlens.push_back(cu_seqlens.back() + static_cast<int32_t>(length));
      cu_slots.push_back(cu_slots.back() + static_cast<int32_t>(length / ratio));
    }
    q = normal(tokens() * heads * dim, 1);
    k = normal(cu_slots.back() * dim, 2);
    w = normal(tokens() * heads, 3);
  }

  [[nodiscard]] int64_t tokens() const { return cu_seqlens.back(); }

  [[nodiscard]] size_t document(int64_t token) const {
    size_t d = 0;
    while (cu_seqlens[d + 1] <= token) ++d;
    return d;
  }

  [[nodiscard]] int64_t slot_begin(int64_t token) const { return cu_slots[document(token)]; }

  [[nodiscard]] int64_t position(int64_t token) const {
    return token - cu_seqlens[document(token)];
  }

  [[nodiscard]] int64_t visible(int64_t token) const { return (position(token) + 1) / ratio; }

  [[nodiscard]] int64_t most_slots() const {
    int64_t most = 0;
    for (size_t d = 0; d + 1 < cu_slots.size(); ++d)
      most = std::max<int64_t>(most, cu_slots[d + 1] - cu_slots[d]);
    return most;
  }

  [[nodiscard]] double dot(int64_t token, int64_t head, int64_t slot) const {
    double sum = 0;
    for (int64_t d = 0; d < dim; ++d)
      sum += static_cast<double>(q[static_cast<size_t>((token * heads + head) * dim + d)]) *
             k[static_cast<size_t>(slot * dim + d)];
    return sum;
  }

  [[nodiscard]] double score(int64_t token, int64_t slot) const {
    double sum = 0;
    for (int64_t h = 0; h < heads; ++h)
      sum += w[static_cast<size_t>(token * heads + h)] * std::max(0.0, dot(token, h, slot));
    return sum;
  }

  [[nodiscard]] kernels::PackedSlots slots() const {
    return {static_cast<int64_t>(cu_slots.size()) - 1, cu_seqlens.data(), cu_slots.data(), ratio};
  }

  [[nodiscard]] kernels::IndexerArrays arrays() const {
    return {heads, dim, q.data(), k.data(), w.data()};
  }

  int64_t ratio, heads, dim;
  std::vector<int32_t> cu_seqlens{0}, cu_slots{0};
  std::vector<float> q, k, w;
};

}  // namespace lethe::test
