#include "lethe/kernels/cpu/sparse_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "support/threads.h"
#include <gtest/gtest.h>

namespace lethe::kernels {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Floats normal(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  Floats out(static_cast<size_t>(count));
  for (float& x : out) x = distribution(random);
  return out;
}

struct Shape {
  int64_t heads, width, window, ratio;
  int64_t topk = 0;   // 0: no indices
  int64_t pairs = 0;  // rotated back
  std::vector<int32_t> lengths{40};
};

/// Inputs of one call, random unless changed.
struct Row {
  explicit Row(const Shape& shape) : s(shape), cu{0}, cu_slots{0} {
    for (const int32_t length : s.lengths) {
      for (int32_t p = 0; p < length; ++p) positions.push_back(p);
      cu.push_back(cu.back() + length);
      cu_slots.push_back(s.ratio == 0 ? 0
                                      : cu_slots.back() + length / static_cast<int32_t>(s.ratio));
    }
    tokens = cu.back();
    q = normal(tokens * s.heads * s.width, 1);
    kv = normal(tokens * s.width, 2);
    slots = normal(cu_slots.back() * s.width, 3);
    sink = normal(s.heads, 4);
    d_o = normal(tokens * s.heads * s.width, 5);
    inv_freq = normal(s.pairs, 6);
    select();
  }

  /// Random visible slots in any order, holes of -1 between them.
  void select() {
    std::mt19937 random(7);
    indices.assign(static_cast<size_t>(tokens * s.topk), -1);
    for (int64_t t = 0; s.topk > 0 && t < tokens; ++t) {
      std::vector<int32_t> visible(static_cast<size_t>(slot_count(t)));
      for (size_t j = 0; j < visible.size(); ++j)
        visible[j] = slot_begin(t) + static_cast<int32_t>(j);
      visible.resize(std::max(visible.size(), static_cast<size_t>(s.topk)), -1);
      std::shuffle(visible.begin(), visible.end(), random);
      std::copy_n(visible.begin(), s.topk, indices.begin() + t * s.topk);
    }
  }

  [[nodiscard]] size_t document(int64_t t) const {
    return static_cast<size_t>(std::upper_bound(cu.begin(), cu.end(), t) - cu.begin() - 1);
  }

  [[nodiscard]] int32_t slot_begin(int64_t t) const { return cu_slots[document(t)]; }

  [[nodiscard]] int64_t slot_count(int64_t t) const {
    return s.ratio == 0 ? 0 : (positions[static_cast<size_t>(t)] + 1) / s.ratio;
  }

  [[nodiscard]] SparseAttentionInputs inputs() const {
    return {s.heads,
            s.width,
            s.window,
            s.ratio,
            0.3F,
            static_cast<int64_t>(s.lengths.size()),
            cu.data(),
            cu_slots.data(),
            q.data(),
            kv.data(),
            slots.data(),
            sink.data(),
            s.topk > 0 ? indices.data() : nullptr,
            s.topk,
            positions.data(),
            inv_freq.data(),
            s.pairs};
  }

  /// (source row, column of indices): tokens, then T + slot.
  [[nodiscard]] std::vector<std::pair<int64_t, int64_t>> keys_of(int64_t t) const {
    std::vector<std::pair<int64_t, int64_t>> keys;
    const int64_t seen = positions[static_cast<size_t>(t)] + 1;
    for (int64_t k = t + 1 - std::min(seen, s.window); k <= t; ++k) keys.emplace_back(k, -1);
    if (s.topk == 0)
      for (int64_t j = 0; j < slot_count(t); ++j) keys.emplace_back(tokens + slot_begin(t) + j, -1);
    for (int64_t c = 0; c < s.topk; ++c) {
      const int32_t id = indices[static_cast<size_t>(t * s.topk + c)];
      if (id >= 0) keys.emplace_back(tokens + id, c);
    }
    return keys;
  }

  [[nodiscard]] const float* key(int64_t source) const {
    return source < tokens ? kv.data() + source * s.width
                           : slots.data() + (source - tokens) * s.width;
  }

  Shape s;
  int64_t tokens = 0;
  std::vector<int32_t> cu, cu_slots, indices;
  std::vector<int64_t> positions;
  Floats q, kv, slots, sink, d_o, inv_freq;
};

struct Results {
  Floats o, lse, mass, d_q, d_kv, d_slots, d_sink;
};

Results run(const Row& row, int threads = 1) {
  const Parallel parallel = test::threads_of(threads);
  const SparseAttentionInputs in = row.inputs();
  Results r;
  r.o.assign(row.q.size(), NAN);
  r.lse.assign(static_cast<size_t>(row.tokens * row.s.heads), NAN);
  r.mass.assign(row.indices.size(), NAN);
  Floats scratch(static_cast<size_t>(sparse_attention_scratch({in, threads, false}).floats), NAN);
  sparse_attention_forward({parallel,
                            in,
                            r.o.data(),
                            r.lse.data(),
                            row.s.topk > 0 ? r.mass.data() : nullptr,
                            scratch.data()});
  r.d_q.assign(row.q.size(), NAN);
  r.d_kv.assign(row.kv.size(), 0);
  r.d_slots.assign(row.slots.size(), 0);
  r.d_sink.assign(row.sink.size(), NAN);
  const SparseAttentionScratch sizes = sparse_attention_scratch({in, threads, true});
  scratch.assign(static_cast<size_t>(sizes.floats), NAN);
  std::vector<int32_t> ids(static_cast<size_t>(sizes.key_ids), -1);
  sparse_attention_backward({parallel,
                             in,
                             r.o.data(),
                             r.lse.data(),
                             row.d_o.data(),
                             r.d_q.data(),
                             r.d_kv.data(),
                             r.d_slots.data(),
                             r.d_sink.data(),
                             scratch.data(),
                             ids.data()});
  return r;
}

/// The definition in float64, loop by loop.
struct Expected {
  explicit Expected(const Row& row)
      : o(row.q.size()),
        lse(static_cast<size_t>(row.tokens * row.s.heads)),
        mass(row.indices.size()),
        d_q(row.q.size()),
        d_kv(row.kv.size()),
        d_slots(row.slots.size()),
        d_sink(row.sink.size()) {
    for (int64_t t = 0; t < row.tokens; ++t)
      for (int64_t h = 0; h < row.s.heads; ++h) head(row, t, h);
  }

  static void turn(const Row& row, int64_t t, double direction, double* x) {
    for (int64_t m = 0; m < row.s.pairs; ++m) {
      const float angle = static_cast<float>(row.positions[static_cast<size_t>(t)]) *
                          row.inv_freq[static_cast<size_t>(m)];
      const double c = std::cos(static_cast<double>(angle));
      const double s = direction * std::sin(static_cast<double>(angle));
      double* pair = x + row.s.width - 2 * row.s.pairs + 2 * m;
      const double a = pair[0], b = pair[1];
      pair[0] = a * c - b * s;
      pair[1] = a * s + b * c;
    }
  }

  void head(const Row& row, int64_t t, int64_t h) {
    const int64_t width = row.s.width, at = t * row.s.heads + h;
    const auto keys = row.keys_of(t);
    const float* q = row.q.data() + at * width;
    Doubles z, out(static_cast<size_t>(width)),
        d_o(row.d_o.begin() + at * width, row.d_o.begin() + (at + 1) * width);
    const auto inner = [&](const auto* x, int64_t source) {
      double total = 0;
      for (int64_t i = 0; i < width; ++i)
        total += static_cast<double>(x[i]) * static_cast<double>(row.key(source)[i]);
      return total;
    };
    const auto sink = static_cast<double>(row.sink[static_cast<size_t>(h)]);
    double largest = sink;
    for (const auto& [source, column] : keys) z.push_back(0.3F * inner(q, source));
    for (const double x : z) largest = std::max(largest, x);
    double sum = std::isinf(largest) ? 0 : std::exp(sink - largest);
    for (const double x : z) sum += std::exp(x - largest);
    const double log_mass = sum == 0 ? -INFINITY : largest + std::log(sum);
    lse[static_cast<size_t>(at)] = log_mass;
    for (size_t k = 0; k < keys.size(); ++k)
      for (int64_t i = 0; i < width; ++i)
        out[static_cast<size_t>(i)] +=
            std::exp(z[k] - log_mass) * static_cast<double>(row.key(keys[k].first)[i]);
    turn(row, t, 1, d_o.data());
    double delta = 0;
    for (size_t i = 0; i < out.size(); ++i) delta += out[i] * d_o[i];
    if (sum > 0) d_sink[static_cast<size_t>(h)] -= std::exp(sink - log_mass) * delta;
    for (size_t k = 0; k < keys.size(); ++k) {
      const auto [source, column] = keys[k];
      const double p = std::exp(z[k] - log_mass),
                   dz = 0.3F * p * (inner(d_o.data(), source) - delta);
      if (column >= 0)
        mass[static_cast<size_t>(t * row.s.topk + column)] += p / static_cast<double>(row.s.heads);
      double* d_key = source < row.tokens ? d_kv.data() + source * width
                                          : d_slots.data() + (source - row.tokens) * width;
      for (int64_t i = 0; i < width; ++i) {
        d_q[static_cast<size_t>(at * width + i)] += dz * static_cast<double>(row.key(source)[i]);
        d_key[i] += dz * static_cast<double>(q[i]) + p * d_o[static_cast<size_t>(i)];
      }
    }
    turn(row, t, -1, out.data());
    std::copy(out.begin(), out.end(), o.begin() + at * width);
  }

  Doubles o, lse, mass, d_q, d_kv, d_slots, d_sink;
};

void expect_close(const Floats& got, const Doubles& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double scale = 0, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i])) {
      EXPECT_EQ(static_cast<double>(got[i]), want[i]) << what << " " << i;
      continue;
    }
    scale = std::max(scale, std::abs(want[i]));
    const double difference = std::abs(static_cast<double>(got[i]) - want[i]);
    worst = difference <= worst ? worst : difference;  // NaN counts
  }
  EXPECT_LE(worst, 1e-5 * scale) << what << ", largest " << scale;
}

void expect_definition(const Row& row, int threads = 1) {
  const Results got = run(row, threads);
  const Expected want(row);
  expect_close(got.o, want.o, "o");
  expect_close(got.lse, want.lse, "lse");
  expect_close(got.mass, want.mass, "slot_mass");
  expect_close(got.d_q, want.d_q, "d_q");
  expect_close(got.d_kv, want.d_kv, "d_kv");
  expect_close(got.d_slots, want.d_slots, "d_slots");
  expect_close(got.d_sink, want.d_sink, "d_sink");
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {1, 1, 1, 0, 0, 0, {1}},
      {2, 4, 6, 4, 3, 1, {3, 1, 17}},
      {3, 7, 5, 2, 9, 2, {30, 9}},
      {8, 16, 13, 8, 0, 8, {64}},
      {16, 33, 20, 4, 50, 3, {1, 1, 70}},
      {17, 48, 64, 2, 0, 24, {130, 5}},
      {40, 20, 7, 4, 12, 10, {60}},
      {64, 70, 9, 4, 8, 32, {36}},
  };
  return all;
}

std::string text(const Shape& s) {
  return "heads " + std::to_string(s.heads) + " width " + std::to_string(s.width);
}

TEST(SparseAttentionKernel, FollowsTheDefinition) {
  test::for_each_isa([](Isa isa) {
    for (const Shape& shape : shapes()) {
      SCOPED_TRACE(std::string(isa_name(isa)) + " " + text(shape));
      expect_definition(Row(shape));
    }
  });
}

// Channels beyond one depth block, and more keys than one chunk of the backward holds.
TEST(SparseAttentionKernel, LongRowsAndManyKeys) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    expect_definition(Row({2, 300, 4, 4, 5, 8, {24}}));
    expect_definition(Row({2, 3, 700, 2, 0, 1, {1100}}));
  });
}

template <class T>
void expect_same_bits(const std::vector<T>& a, const std::vector<T>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a.empty() ? 0 : std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0) << what;
}

TEST(SparseAttentionKernel, BitsDoNotDependOnTheNumberOfThreads) {
  test::for_each_isa([](Isa isa) {
    for (const Shape& shape : shapes()) {
      SCOPED_TRACE(std::string(isa_name(isa)) + " " + text(shape));
      const Row row(shape);
      const Results one = run(row);
      for (const int threads : {2, 3}) {
        const Results more = run(row, threads);
        expect_same_bits(one.o, more.o, "o");
        expect_same_bits(one.lse, more.lse, "lse");
        expect_same_bits(one.mass, more.mass, "slot_mass");
        expect_same_bits(one.d_q, more.d_q, "d_q");
        expect_same_bits(one.d_kv, more.d_kv, "d_kv");
        expect_same_bits(one.d_slots, more.d_slots, "d_slots");
        expect_same_bits(one.d_sink, more.d_sink, "d_sink");
      }
    }
  });
}

TEST(SparseAttentionKernel, WithoutKeysOnlyTheSinkIsLeft) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Row row({3, 5, 0, 4, 2, 1, {12}});
    std::fill(row.indices.begin(), row.indices.end(), -1);
    row.sink[1] = -kInfinity;
    const Results r = run(row);
    for (const Floats* zero : {&r.o, &r.mass, &r.d_q, &r.d_kv, &r.d_slots, &r.d_sink})
      for (const float x : *zero) EXPECT_EQ(x, 0.0F);
    for (size_t i = 0; i < r.lse.size(); ++i) EXPECT_EQ(r.lse[i], row.sink[i % 3]);
  });
}

TEST(SparseAttentionKernel, NoTokensWriteNothingButASinkOfZero) {
  Row row({2, 4, 3, 0, 0, 0, {1}});
  row.s.lengths.clear();
  row.tokens = 0;
  row.cu = row.cu_slots = {0};
  const Results r = run(row);
  for (const float x : r.d_sink) EXPECT_EQ(x, 0.0F);
}

TEST(SparseAttentionKernel, LargeLogitsAndNoSink) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Row row({4, 8, 10, 4, 6, 2, {50}});
    std::fill(row.sink.begin(), row.sink.end(), -kInfinity);
    for (float& x : row.q) x *= 8;
    expect_definition(row);
    for (float& x : row.d_o) x *= 1e8F;
    expect_definition(row);
    // One key takes everything: exact limits, nothing overflows.
    for (float& x : row.q) x *= 1e15F;
    const Results r = run(row);
    for (const Floats* finite : {&r.o, &r.lse})
      for (const float x : *finite) EXPECT_TRUE(std::isfinite(x));
  });
}

TEST(SparseAttentionKernel, NotFiniteInputsReachOnlyWhoSeesThem) {
  test::for_each_isa([](Isa isa) {
    for (const float bad : {NAN, kInfinity, -kInfinity}) {
      SCOPED_TRACE(isa_name(isa));
      Row row({3, 6, 4, 0, 0, 1, {30}});
      row.kv[static_cast<size_t>(10 * row.s.width)] = bad;
      const Results r = run(row);
      const auto per_token = static_cast<size_t>(row.s.heads * row.s.width);
      for (size_t i = 0; i < r.o.size(); ++i) {
        const size_t token = i / per_token;
        if (token < 10 || token > 13) {
          EXPECT_TRUE(std::isfinite(r.o[i]) && std::isfinite(r.d_q[i])) << token;
        }
      }
      for (size_t i = 0; i < 7 * static_cast<size_t>(row.s.width); ++i)
        EXPECT_TRUE(std::isfinite(r.d_kv[i]));
      row.q[0] = row.d_o[5] = row.sink[1] = bad;
      run(row);
    }
  });
}

}  // namespace
}  // namespace lethe::kernels
