#include "lethe/kernels/cpu/lightning_indexer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "support/indexer_rows.h"
#include "support/threads.h"
#include <gtest/gtest.h>

namespace lethe::kernels {
namespace {

using test::IndexerRow;

struct Selection {
  std::vector<int32_t> indices;
  std::vector<float> values;
};

Selection select(const IndexerRow& row, int64_t width, bool values, int threads) {
  const auto size = static_cast<size_t>(row.tokens() * width);
  Selection out{std::vector<int32_t>(size), std::vector<float>(values ? size : 0)};
  std::vector<float> scratch(
      static_cast<size_t>(lightning_indexer_scratch_floats(row.arrays(), width, threads)));
  lightning_indexer({test::threads_of(threads),
                     row.slots(),
                     row.arrays(),
                     width,
                     out.indices.data(),
                     values ? out.values.data() : nullptr,
                     scratch.data()});
  return out;
}

std::vector<float> scores(const IndexerRow& row, int64_t width, int threads) {
  std::vector<float> out(static_cast<size_t>(row.tokens() * width));
  std::vector<float> scratch(
      static_cast<size_t>(lightning_indexer_scratch_floats(row.arrays(), 0, threads)));
  indexer_scores(
      {test::threads_of(threads), row.slots(), row.arrays(), width, out.data(), scratch.data()});
  return out;
}

/// The definition on the kernel's own scores: sort by (score, slot), take the first, ascending.
std::vector<int32_t> best_of(const IndexerRow& row,
                             const std::vector<float>& all,
                             int64_t columns,
                             int64_t width) {
  std::vector<int32_t> out;
  for (int64_t t = 0; t < row.tokens(); ++t) {
    const float* score = all.data() + t * columns;
    std::vector<int32_t> order;
    for (int32_t j = 0; j < row.visible(t); ++j)
      if (!std::isnan(score[j])) order.push_back(j);
    std::stable_sort(
        order.begin(), order.end(), [&](int32_t a, int32_t b) { return score[a] > score[b]; });
    order.resize(std::min(order.size(), static_cast<size_t>(width)));
    std::sort(order.begin(), order.end());
    for (int32_t& j : order) j += static_cast<int32_t>(row.slot_begin(t));
    order.resize(static_cast<size_t>(width), -1);
    out.insert(out.end(), order.begin(), order.end());
  }
  return out;
}

void expect_best(const IndexerRow& row, int64_t width) {
  const int64_t columns = row.most_slots();
  if (columns == 0) return;
  const std::vector<float> all = scores(row, columns, 1);
  const Selection got = select(row, width, true, 1);
  EXPECT_EQ(got.indices, best_of(row, all, columns, width));
  for (int64_t t = 0; t < row.tokens(); ++t)
    for (int64_t j = 0; j < width; ++j) {
      const auto at = static_cast<size_t>(t * width + j);
      if (got.indices[at] < 0)
        EXPECT_EQ(got.values[at], -INFINITY);
      else
        EXPECT_EQ(got.values[at],
                  all[static_cast<size_t>(t * columns + got.indices[at] - row.slot_begin(t))]);
    }
}

TEST(LightningIndexerKernel, ScoresAreTheDefinition) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (const auto& [heads, dim] :
         {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {16, 64}, {9, 20}}) {
      const IndexerRow row({1, 70, 3, 33}, 4, heads, dim);
      const int64_t columns = row.most_slots();
      const std::vector<float> all = scores(row, columns, 1);
      for (int64_t t = 0; t < row.tokens(); ++t)
        for (int64_t j = 0; j < columns; ++j) {
          const float got = all[static_cast<size_t>(t * columns + j)];
          if (j >= row.visible(t))
            EXPECT_EQ(got, -INFINITY);
          else
            EXPECT_NEAR(got, row.score(t, row.slot_begin(t) + j), 1e-4);
        }
    }
  });
}

TEST(LightningIndexerKernel, SelectsTheBestForEveryWidth) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (const int64_t width : {1, 2, 3, 7, 17, 100, 400})
      expect_best(IndexerRow({1, 130, 3, 900}, 2, 4, 8), width);
  });
}

TEST(LightningIndexerKernel, LongRowsShrinkTheirCandidatesManyTimes) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    expect_best(IndexerRow({4000}, 2, 1, 2), 5);
    IndexerRow rising({4000}, 2, 1, 1);  // every later slot is better: all of them enter
    std::fill(rising.q.begin(), rising.q.end(), 1.0F);
    std::fill(rising.w.begin(), rising.w.end(), 1.0F);
    std::iota(rising.k.begin(), rising.k.end(), 1.0F);
    expect_best(rising, 20);
    std::reverse(rising.k.begin(), rising.k.end());
    expect_best(rising, 20);
  });
}

TEST(LightningIndexerKernel, TiesTakeTheLowerSlotAndZerosAreOne) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    IndexerRow row({1500}, 2, 1, 1);
    for (float& k : row.k) k = std::round(k);
    for (float& q : row.q) q = q > 0 ? 1.0F : -1.0F;
    for (float& w : row.w) w = w > 0 ? 1.0F : -1.0F;  // relu zeros times -1 are -0
    for (const int64_t width : {1, 5, 64, 300}) expect_best(row, width);
    std::fill(row.w.begin(), row.w.end(), 0.0F);
    for (const int64_t width : {1, 5, 64, 300}) expect_best(row, width);
  });
}

TEST(LightningIndexerKernel, NotFiniteScores) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    IndexerRow row({900}, 2, 2, 3);
    for (size_t i = 0; i < row.k.size(); i += 7) row.k[i] = NAN;
    for (size_t i = 3; i < row.k.size(); i += 31) row.k[i] = INFINITY;
    for (size_t i = 5; i < row.w.size(); i += 11) row.w[i] = -INFINITY;
    for (const int64_t width : {1, 5, 300}) expect_best(row, width);
    std::fill(row.k.begin(), row.k.end(), NAN);
    const Selection none = select(row, 4, true, 1);
    for (const int32_t index : none.indices) EXPECT_EQ(index, -1);
  });
}

TEST(LightningIndexerKernel, WithoutValuesShortQueriesTakeEverySlot) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const IndexerRow row({200, 9}, 2, 2, 3);
    EXPECT_EQ(select(row, 30, false, 1).indices, select(row, 30, true, 1).indices);
    IndexerRow broken = row;
    std::fill(broken.k.begin(), broken.k.end(), NAN);
    const Selection got = select(broken, 30, false, 1);
    for (int64_t t = 0; t < row.tokens(); ++t) {
      const int64_t many = row.visible(t) <= 30 ? row.visible(t) : 0;
      for (int64_t j = 0; j < 30; ++j)
        EXPECT_EQ(got.indices[static_cast<size_t>(t * 30 + j)],
                  j < many ? row.slot_begin(t) + j : -1);
    }
  });
}

// Spec 2 5.4: the best of the whole row are the best of the best of its parts.
TEST(LightningIndexerKernel, MergedShardsEqualTheWhole) {
  IndexerRow row({1600}, 2, 2, 4);
  for (float& k : row.k) k = std::round(4 * k) / 4;  // many ties
  const int64_t width = 24, columns = row.most_slots(), query = row.tokens() - 1;
  const std::vector<float> all = scores(row, columns, 1);
  const Selection whole = select(row, width, true, 1);
  std::vector<std::pair<float, int32_t>> merged;
  for (int64_t shard = 0; shard < 4; ++shard) {
    IndexerRow part({columns / 4 * 2}, 2, 2, 4);  // its last query sees exactly the shard's slots
    std::copy_n(row.k.begin() + shard * columns / 4 * 4, part.k.size(), part.k.begin());
    std::copy_n(row.q.end() - 8, 8, part.q.end() - 8);
    std::copy_n(row.w.end() - 2, 2, part.w.end() - 2);
    const Selection own = select(part, width, true, 1);
    for (size_t j = own.indices.size() - width; j < own.indices.size(); ++j)
      merged.emplace_back(-own.values[j],
                          own.indices[j] + static_cast<int32_t>(shard * columns / 4));
  }
  std::sort(merged.begin(), merged.end());
  std::vector<int32_t> best;
  for (int64_t j = 0; j < width; ++j) best.push_back(merged[static_cast<size_t>(j)].second);
  std::sort(best.begin(), best.end());
  const auto last = whole.indices.begin() + query * width;
  EXPECT_EQ(best, std::vector<int32_t>(last, last + width));
}

TEST(LightningIndexerKernel, BitsDoNotDependOnTheNumberOfThreads) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const IndexerRow row({3, 400, 35, 1}, 2, 5, 12);
    const Selection one = select(row, 20, true, 1);
    const std::vector<float> all = scores(row, row.most_slots(), 1);
    for (const int threads : {2, 3}) {
      const Selection more = select(row, 20, true, threads);
      EXPECT_EQ(one.indices, more.indices);
      test::expect_same_bits(one.values, more.values);
      test::expect_same_bits(all, scores(row, row.most_slots(), threads));
    }
  });
}

TEST(LightningIndexerKernel, ScratchDoesNotGrowWithTheRow) {
  const IndexerRow small({64}, 4, 4, 8), large({4096}, 4, 4, 8);
  EXPECT_EQ(lightning_indexer_scratch_floats(small.arrays(), 16, 2),
            lightning_indexer_scratch_floats(large.arrays(), 16, 2));
}

}  // namespace
}  // namespace lethe::kernels
