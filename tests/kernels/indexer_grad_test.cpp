#include "lethe/kernels/cpu/indexer_grad.h"

#include <cmath>
#include <cstring>

#include "support/indexer_rows.h"
#include "support/threads.h"
#include <gtest/gtest.h>

#include "lethe/kernels/cpu/indexer_kl.h"

namespace lethe::kernels {
namespace {

using test::IndexerRow;
using test::normal;

/// Every second visible slot, the last ones first; -1 between and behind.
std::vector<int32_t> some_slots(const IndexerRow& row, int64_t width) {
  std::vector<int32_t> out(static_cast<size_t>(row.tokens() * width), -1);
  for (int64_t t = 0; t < row.tokens(); ++t)
    for (int64_t j = 0, slot = row.visible(t) - 1; j < width && slot >= 0; ++j, slot -= 2)
      if (j % 5 != 3)
        out[static_cast<size_t>(t * width + j)] = static_cast<int32_t>(row.slot_begin(t) + slot);
  return out;
}

struct Gradients {
  explicit Gradients(const IndexerRow& row)
      : q(row.q.size(), NAN), k(row.k.size(), NAN), w(row.w.size(), NAN) {}

  std::vector<float> q, k, w;
};

IndexerGradients arguments(const IndexerRow& row,
                           const std::vector<int32_t>& indices,
                           int64_t width,
                           const int& threads,
                           Gradients& out) {
  return {test::threads_of(threads),
          row.slots(),
          row.arrays(),
          width,
          indices.empty() ? nullptr : indices.data(),
          out.q.data(),
          out.k.data(),
          out.w.data(),
          nullptr};
}

Gradients backward(const IndexerRow& row,
                   const std::vector<int32_t>& indices,
                   int64_t width,
                   int threads) {
  Gradients out(row);
  const std::vector<float> d = normal(row.tokens() * width, 9);
  IndexerGradients g = arguments(row, indices, width, threads, out);
  std::vector<float> scratch(static_cast<size_t>(indexer_grad_scratch_floats(g)));
  g.scratch = scratch.data();
  indexer_backward({g, d.data()});
  return out;
}

struct WideGradients {
  std::vector<double> q, k, w;
};

WideGradients definition(const IndexerRow& row,
                         const std::vector<int32_t>& indices,
                         int64_t width) {
  WideGradients out{std::vector<double>(row.q.size()),
                    std::vector<double>(row.k.size()),
                    std::vector<double>(row.w.size())};
  const std::vector<float> d = normal(row.tokens() * width, 9);
  for (int64_t t = 0; t < row.tokens(); ++t)
    for (int64_t j = 0; j < width; ++j) {
      const auto at = static_cast<size_t>(t * width + j);
      if (indices.empty() ? j >= row.visible(t) : indices[at] < 0) continue;
      const int64_t slot = indices.empty() ? row.slot_begin(t) + j : indices[at];
      for (int64_t h = 0; h < row.heads; ++h) {
        const double dot = row.dot(t, h, slot);
        if (dot <= 0) continue;
        const auto head = static_cast<size_t>(t * row.heads + h);
        out.w[head] += d[at] * dot;
        for (size_t c = 0; c < static_cast<size_t>(row.dim); ++c) {
          const size_t from = head * static_cast<size_t>(row.dim) + c;
          const size_t key = static_cast<size_t>(slot * row.dim) + c;
          out.q[from] += static_cast<double>(d[at]) * row.w[head] * row.k[key];
          out.k[key] += static_cast<double>(d[at]) * row.w[head] * row.q[from];
        }
      }
    }
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, const char* what) {
  double scale = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    scale = std::max(scale, std::fabs(want[i]));
    worst = std::max(worst, std::fabs(got[i] - want[i]));
    ASSERT_TRUE(std::isfinite(got[i])) << what << ' ' << i;
  }
  EXPECT_LE(worst, 1e-5 * scale) << what;
}

TEST(IndexerGradKernel, IsTheDefinitionForEveryShape) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (const auto& [heads, dim] :
         {std::pair<int64_t, int64_t>{1, 1}, {3, 5}, {16, 64}, {9, 20}, {5, 40}, {33, 17}}) {
      SCOPED_TRACE(testing::Message() << heads << " heads of " << dim);
      const IndexerRow row({1, 70, 3, 350}, 2, heads, dim);  // more than one tile of visible slots
      for (const int64_t width : {1, 7, 40}) {
        const std::vector<int32_t> indices = some_slots(row, width);
        const Gradients got = backward(row, indices, width, 1);
        const WideGradients want = definition(row, indices, width);
        expect_near(got.q, want.q, "d_q"), expect_near(got.k, want.k, "d_k");
        expect_near(got.w, want.w, "d_w");
      }
      const Gradients got = backward(row, {}, row.most_slots(), 1);
      const WideGradients want = definition(row, {}, row.most_slots());
      expect_near(got.q, want.q, "dense d_q"), expect_near(got.k, want.k, "dense d_k");
      expect_near(got.w, want.w, "dense d_w");
    }
  });
}

TEST(IndexerGradKernel, ValuesOfGivenSlotsAreTheirScores) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const IndexerRow row({1, 70, 3, 350}, 2, 9, 20);
    const std::vector<int32_t> indices = some_slots(row, 40);
    std::vector<float> one;
    for (const int threads : {1, 2, 3}) {
      Gradients none(row);
      IndexerGradients g = arguments(row, indices, 40, threads, none);
      std::vector<float> scratch(static_cast<size_t>(indexer_grad_scratch_floats(g)));
      std::vector<float> values(indices.size(), NAN);
      g.scratch = scratch.data();
      indexer_values({g, values.data()});
      for (size_t i = 0; i < values.size(); ++i)
        if (indices[i] < 0)
          EXPECT_EQ(values[i], -INFINITY);
        else
          EXPECT_NEAR(values[i], row.score(static_cast<int64_t>(i) / 40, indices[i]), 1e-3);
      if (threads == 1) one = values;
      test::expect_same_bits(one, values);
    }
  });
}

struct Attention {
  explicit Attention(const IndexerRow& row, int64_t heads_, int64_t dim_)
      : heads(heads_),
        dim(dim_),
        q(normal(row.tokens() * heads * dim, 11)),
        kv(normal(row.tokens() * dim, 12)),
        slots(normal(row.cu_slots.back() * dim, 13)),
        sink(normal(heads, 14)) {}

  int64_t heads, dim;
  std::vector<float> q, kv, slots, sink;
};

struct KlResult {
  Gradients grads;
  double loss;
};

KlResult kl(const IndexerRow& row,
            const Attention& attention,
            const std::vector<int32_t>& indices,
            bool joint,
            int threads) {
  KlResult out{Gradients(row), NAN};
  const int64_t width =
      indices.empty() ? row.most_slots() : static_cast<int64_t>(indices.size()) / row.tokens();
  IndexerKl a{arguments(row, indices, width, threads, out.grads),
              attention.heads,
              attention.dim,
              5,
              0.3F,
              joint,
              attention.q.data(),
              attention.kv.data(),
              attention.slots.data(),
              attention.sink.data(),
              nullptr,
              nullptr,
              &out.loss};
  std::vector<float> scratch(static_cast<size_t>(indexer_kl_scratch_floats(a)));
  a.g.scratch = scratch.data();
  indexer_kl(a);
  return out;
}

TEST(IndexerKlKernel, BitsDoNotDependOnTheNumberOfThreads) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const IndexerRow row({1, 70, 3, 350}, 2, 9, 20);
    const Attention attention(row, 3, 10);
    for (const std::vector<int32_t>& indices : {some_slots(row, 40), std::vector<int32_t>{}})
      for (const bool joint : {true, false}) {
        const KlResult one = kl(row, attention, indices, joint, 1);
        const int64_t width = indices.empty() ? row.most_slots() : 40;
        const Gradients plain = backward(row, indices, width, 1);
        EXPECT_GT(one.loss, 0);
        for (const int threads : {2, 3}) {
          const KlResult more = kl(row, attention, indices, joint, threads);
          EXPECT_EQ(std::memcmp(&one.loss, &more.loss, sizeof one.loss), 0);
          const Gradients given = backward(row, indices, width, threads);
          test::expect_same_bits(one.grads.q, more.grads.q);
          test::expect_same_bits(one.grads.k, more.grads.k);
          test::expect_same_bits(one.grads.w, more.grads.w);
          test::expect_same_bits(plain.q, given.q), test::expect_same_bits(plain.k, given.k);
          test::expect_same_bits(plain.w, given.w);
        }
      }
  });
}

TEST(IndexerKlKernel, NotFiniteInputsEndTheCall) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    IndexerRow row({300}, 2, 5, 6);
    Attention attention(row, 3, 10);
    for (size_t i = 0; i < row.k.size(); i += 9) row.k[i] = NAN;
    for (size_t i = 5; i < row.q.size(); i += 19) row.q[i] = INFINITY;
    for (size_t i = 5; i < attention.q.size(); i += 19) attention.q[i] = 1e30F;
    for (size_t i = 1; i < attention.slots.size(); i += 13) attention.slots[i] = -INFINITY;
    for (float& sink : attention.sink) sink = -INFINITY;
    for (const bool joint : {true, false}) {
      kl(row, attention, some_slots(row, 40), joint, 2);
      kl(row, attention, {}, joint, 2);
    }
  });
}

TEST(IndexerKlKernel, ScratchDoesNotGrowWithTheRow) {
  for (const bool sparse : {true, false}) {
    int64_t floats[2];
    for (const int64_t times : {1, 8}) {
      const IndexerRow row({512 * times}, 2, 4, 8);
      const Attention attention(row, 2, 4);
      Gradients none(row);
      const std::vector<int32_t> indices = sparse ? some_slots(row, 16) : std::vector<int32_t>{};
      const int threads = 2;
      const IndexerKl a{arguments(row, indices, sparse ? 16 : row.most_slots(), threads, none),
                        attention.heads,
                        attention.dim,
                        5,
                        0.3F,
                        true,
                        nullptr,
                        nullptr,
                        nullptr,
                        nullptr,
                        nullptr,
                        nullptr,
                        nullptr};
      floats[times == 1 ? 0 : 1] = indexer_kl_scratch_floats(a);
    }
    EXPECT_EQ(floats[0], floats[1]);
  }
}

}  // namespace
}  // namespace lethe::kernels
