// norm_rope, rope and the compressor without torch: bits, borders, values that are not finite.
// Their numbers are compared with the reference in tests/ops.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/threads.h"
#include <gtest/gtest.h>

#include "lethe/base/documents.h"
#include "lethe/kernels/cpu/compressor.h"
#include "lethe/kernels/cpu/norm_rope.h"
#include "lethe/kernels/cpu/rope.h"

namespace lethe::kernels {
namespace {

using Floats = std::vector<float>;
using Results = std::vector<Floats>;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

Floats normal(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  Floats out(at(count));
  for (float& x : out) x = distribution(random);
  return out;
}

// A rotation of `pairs` pairs with its scratch.
struct Turn {
  std::vector<int64_t> positions;
  Floats inv_freq, tables;

  Turn(std::vector<int64_t> of_rows, int64_t pairs, int threads)
      : positions(std::move(of_rows)), tables(at(rotary_scratch_floats(pairs, threads))) {
    for (int64_t m = 0; m < pairs; ++m)
      inv_freq.push_back(std::pow(10000.0F, -static_cast<float>(m) / static_cast<float>(pairs)));
  }

  Rotary rotary() {
    return {.positions = positions.data(),
            .inv_freq = inv_freq.data(),
            .pairs = static_cast<int64_t>(inv_freq.size()),
            .tables = tables.data()};
  }
};

std::vector<int64_t> spread_positions(int64_t tokens) {
  std::vector<int64_t> out;
  for (int64_t t = 0; t < tokens; ++t) out.push_back(t * 997);
  return out;
}

struct Heads {
  int64_t tokens, heads, width, pairs;
};

// y, d_x, d_weight with a weight; y, d_x without; x rotated forth and back.
Results run_heads(const Heads& h, int threads) {
  const Parallel parallel = test::threads_of(threads);
  const int64_t size = h.tokens * h.heads * h.width;
  const Floats x = normal(size, 1), weight = normal(h.width, 2), d_y = normal(size, 3);
  Turn turn(spread_positions(h.tokens), h.pairs, threads);
  Results out(7, Floats(at(size)));
  out[2].resize(at(h.width));
  Floats partials(at(kNormRopePartials * h.width));
  const auto norm = [&](const float* w, Floats& y, Floats& d_x, float* d_weight) {
    norm_rope_forward(
        {parallel, h.tokens, h.heads, h.width, 1e-6F, turn.rotary(), x.data(), w, y.data()});
    norm_rope_backward({parallel,
                        h.tokens,
                        h.heads,
                        h.width,
                        1e-6F,
                        turn.rotary(),
                        x.data(),
                        w,
                        d_y.data(),
                        d_x.data(),
                        d_weight,
                        partials.data()});
  };
  norm(weight.data(), out[0], out[1], out[2].data());
  norm(nullptr, out[3], out[4], nullptr);
  rope({parallel, h.tokens, h.heads, h.width, turn.rotary(), false, x.data(), out[5].data()});
  rope({parallel, h.tokens, h.heads, h.width, turn.rotary(), true, x.data(), out[6].data()});
  return out;
}

struct Pooling {
  std::vector<int64_t> lengths;
  int64_t ratio, width, pairs;
};

// slots, d_kv, d_gate, d_ape, d_norm_weight; what a kernel left unwritten stays NaN.
Results run_compressor(const Pooling& p, int threads, const std::pair<int64_t, float>& poke = {}) {
  const Documents documents = Documents::from_lengths(p.lengths);
  const std::vector<int32_t> cu_slots = documents.cu_slots(p.ratio);
  const bool overlap = p.ratio == 4;
  const int64_t row = p.width * (overlap ? 2 : 1), size = documents.tokens() * row,
                slots = cu_slots.back();
  Floats kv = normal(size, 1), gate = normal(size, 2);
  const Floats ape = normal(p.ratio * row, 3), weight = normal(p.width, 4),
               d_slots = normal(slots * p.width, 5);
  if (poke.second != 0) kv[at(poke.first * row)] = poke.second;
  Turn turn(documents.slot_positions(p.ratio), p.pairs, threads);
  const CompressorInputs in{.documents = documents.count(),
                            .slots = slots,
                            .ratio = p.ratio,
                            .width = p.width,
                            .overlap = overlap,
                            .cu_seqlens = documents.cu_seqlens().data(),
                            .cu_slots = cu_slots.data(),
                            .kv = kv.data(),
                            .gate = gate.data(),
                            .ape = ape.data(),
                            .norm_weight = weight.data(),
                            .eps = 1e-6F,
                            .rotary = turn.rotary()};
  Results out;
  for (const int64_t floats : {slots * p.width, size, size, p.ratio * row, p.width})
    out.emplace_back(at(floats), NAN);
  Floats scratch(at(compressor_scratch_floats(p.width, threads)));
  Floats partials(at(compressor_partial_floats(in)));
  const Parallel parallel = test::threads_of(threads);
  compressor_forward({parallel, in, out[0].data(), scratch.data()});
  compressor_backward({parallel,
                       in,
                       d_slots.data(),
                       out[1].data(),
                       out[2].data(),
                       out[3].data(),
                       out[4].data(),
                       partials.data(),
                       scratch.data()});
  return out;
}

template <class Run>
void expect_same_bits_for_any_threads(const Run& run) {
  test::for_each_isa([&](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const Results one = run(1);
    for (const int threads : {2, 3}) {
      const Results more = run(threads);
      for (size_t i = 0; i < one.size(); ++i)
        EXPECT_EQ(std::memcmp(one[i].data(), more[i].data(), one[i].size() * sizeof(float)), 0)
            << "result " << i << ", threads " << threads;
    }
  });
}

void expect_finite(const Results& results) {
  for (size_t i = 0; i < results.size(); ++i)
    for (const float x : results[i]) ASSERT_TRUE(std::isfinite(x)) << "result " << i;
}

TEST(RowKernels, BitsDoNotDependOnTheNumberOfThreads) {
  expect_same_bits_for_any_threads([](int threads) { return run_heads({67, 3, 37, 9}, threads); });
  expect_same_bits_for_any_threads([](int threads) {
    return run_compressor({{3, 133, 4, 270, 1}, 4, 37, 9}, threads);
  });
  expect_same_bits_for_any_threads([](int threads) {
    return run_compressor({{300, 127, 140}, 128, 21, 4}, threads);
  });
}

// Every width and every number of rotated channels around whole vectors: reads and writes stay
// inside (the sanitizers watch), every result is written.
TEST(RowKernels, EveryWidthIsWritten) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (int64_t width = 1; width <= 36; ++width)
      for (const int64_t pairs : {int64_t{0}, width / 4, width / 2}) {
        SCOPED_TRACE(width);
        expect_finite(run_heads({3, 2, width, pairs}, 1));
        expect_finite(run_compressor({{9, 1, 4, 13}, 4, width, pairs}, 1));
        expect_finite(run_compressor({{9, 1, 4, 13}, 3, width, pairs}, 1));
      }
  });
}

TEST(RowKernels, DocumentsWithoutSlotsGetZeroGradients) {
  const Results none = run_compressor({{3, 2, 1}, 4, 5, 2}, 1);
  EXPECT_TRUE(none[0].empty());
  for (size_t i = 1; i < none.size(); ++i)
    for (const float g : none[i]) EXPECT_EQ(g, 0);
}

TEST(RowKernels, NotFiniteValuesStayInTheirSlots) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const Results out = run_compressor({{32}, 8, 11, 3}, 1, {9, NAN});
    for (int64_t i = 0; i < 4 * 11; ++i) EXPECT_EQ(std::isnan(out[0][at(i)]), i / 11 == 1) << i;
    for (int64_t i = 0; i < 32 * 11; ++i)
      EXPECT_EQ(std::isnan(out[1][at(i)]), i / (8 * 11) == 1) << i;
  });
}

// Angles of 24 bits: the sines must be right to their last bits.
TEST(RowKernels, FarPositionsRotateExactly) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const std::vector<int64_t> positions{0, 1, 12345, 1000003, 16777215, 1LL << 27, 1LL << 45};
    const auto tokens = static_cast<int64_t>(positions.size());
    Turn turn(positions, 20, 1);
    Floats x(at(tokens * 40)), y(x.size());
    for (size_t i = 0; i < x.size(); i += 2) x[i] = 1;
    rope({{}, tokens, 1, 40, turn.rotary(), false, x.data(), y.data()});
    for (size_t t = 0; t < positions.size(); ++t)
      for (size_t m = 0; m < 20; ++m) {
        const double angle = static_cast<float>(positions[t]) * turn.inv_freq[m];
        EXPECT_NEAR(y[40 * t + 2 * m], std::cos(angle), 1.5e-7) << positions[t] << " pair " << m;
        EXPECT_NEAR(y[40 * t + 2 * m + 1], std::sin(angle), 1.5e-7) << positions[t];
      }
  });
}

}  // namespace
}  // namespace lethe::kernels
