#include "lethe/kernels/cpu/gate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "support/threads.h"
#include <gtest/gtest.h>

#include "lethe/kernels/cpu/gate_grad.h"

namespace lethe::kernels {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Ids = std::vector<int32_t>;

constexpr float kFloor = 1e-20F;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

Floats normal(int64_t count, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  Floats out(at(count));
  for (float& x : out) x = scale * distribution(random);
  return out;
}

GateShape shape_of(int64_t tokens, int64_t width, int64_t experts, int64_t k) {
  return {tokens, width, experts, k, ScoreFunction::SqrtSoftplus, true, 1.5F, kFloor};
}

struct Inputs {
  Floats x, weight, bias, d_weights, d_scores;
  Ids given;  // empty: the kernel chooses
};

Inputs inputs_of(const GateShape& s) {
  const float scale = 2 / std::sqrt(static_cast<float>(s.width));
  return {normal(s.tokens * s.width, 1),
          normal(s.experts * s.width, 2, scale),
          normal(s.experts, 3, 0.1F),
          normal(s.tokens * s.k, 4),
          normal(s.tokens * s.experts, 5),
          {}};
}

struct Results {
  Floats weights, scores, d_x, d_weight;
  Ids indices;
};

Results run(const GateShape& s, const Inputs& in, int threads = 1) {
  Results out{Floats(at(s.tokens * s.k)),
              Floats(at(s.tokens * s.experts)),
              Floats(at(s.tokens * s.width)),
              Floats(at(s.experts * s.width)),
              Ids(at(s.tokens * s.k))};
  const Parallel parallel = test::threads_of(threads);
  GateForward f{.parallel = parallel,
                .shape = s,
                .x = in.x.data(),
                .weight = in.weight.data(),
                .bias = in.bias.data(),
                .given = in.given.empty() ? nullptr : in.given.data(),
                .weights = out.weights.data(),
                .indices = out.indices.data(),
                .scores = out.scores.data(),
                .scratch = nullptr};
  Floats space(at(gate_forward_scratch(f)));
  f.scratch = space.data();
  gate_forward(f);
  GateBackward b{.parallel = parallel,
                 .shape = s,
                 .x = in.x.data(),
                 .weight = in.weight.data(),
                 .scores = out.scores.data(),
                 .indices = out.indices.data(),
                 .d_weights = in.d_weights.data(),
                 .d_scores = in.d_scores.data(),
                 .d_x = out.d_x.data(),
                 .d_weight = out.d_weight.data(),
                 .scratch = nullptr};
  Floats back(at(gate_backward_scratch(b)), NAN);
  b.scratch = back.data();
  gate_backward(b);
  return out;
}

template <class T>
void expect_same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0);
}

// Class E2 against the definition in double.
void expect_close(const Floats& got, const Doubles& want, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0, worst = 0, squares = 0, errors = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = got[i] - want[i];
    largest = std::max(largest, std::abs(want[i]));
    worst = std::max(worst, std::abs(error));
    squares += want[i] * want[i];
    errors += error * error;
  }
  EXPECT_LE(worst, 1e-5 * largest) << what;
  EXPECT_LE(std::sqrt(errors), 1e-6 * std::sqrt(squares)) << what;
}

double score_of(ScoreFunction f, double l) {
  return f == ScoreFunction::Sigmoid ? 1 / (1 + std::exp(-l))
                                     : std::sqrt(l > 20 ? l : std::log1p(std::exp(l)));
}

Doubles scores_of(ScoreFunction f, const Doubles& logits) {
  Doubles s;
  double sum = 0;
  for (const double l : logits) sum += std::exp(l);
  for (const double l : logits)
    s.push_back(f == ScoreFunction::Softmax ? std::exp(l) / sum : score_of(f, l));
  return s;
}

// Gradients of the scores of one token to those of its logits.
Doubles logit_gradient(ScoreFunction f, const Doubles& s, const Doubles& ds) {
  double inner = 0;
  for (size_t e = 0; e < s.size(); ++e) inner += s[e] * ds[e];
  Doubles out;
  for (size_t e = 0; e < s.size(); ++e)
    out.push_back(f == ScoreFunction::Softmax   ? s[e] * (ds[e] - inner)
                  : f == ScoreFunction::Sigmoid ? s[e] * (1 - s[e]) * ds[e]
                  : s[e] == 0                   ? 0
                                                : -std::expm1(-s[e] * s[e]) / (2 * s[e]) * ds[e]);
  return out;
}

struct Expected {
  Doubles weights, scores, d_x, d_weight;
};

// One token of the definition, with the choice of the kernel.
void add_token(const GateShape& s, const Inputs& in, const int32_t* ids, int64_t t, Expected& out) {
  const float* x = &in.x[at(t * s.width)];
  Doubles logits(at(s.experts));
  for (int64_t e = 0; e < s.experts; ++e)
    for (int64_t d = 0; d < s.width; ++d)
      logits[at(e)] += static_cast<double>(x[d]) * in.weight[at(e * s.width + d)];
  const Doubles scores = scores_of(s.score, logits);
  out.scores.insert(out.scores.end(), scores.begin(), scores.end());
  double sum = s.normalize ? kFloor : 1, mean = 0;
  if (s.normalize)
    for (int64_t j = 0; j < s.k; ++j) sum += scores[at(ids[j])];
  Doubles ds(&in.d_scores[at(t * s.experts)], &in.d_scores[at(t * s.experts)] + s.experts);
  for (int64_t j = 0; j < s.k; ++j) {
    out.weights.push_back(scores[at(ids[j])] / sum * s.scale);
    if (s.normalize) mean += in.d_weights[at(t * s.k + j)] * scores[at(ids[j])] / sum;
  }
  for (int64_t j = 0; j < s.k; ++j)
    ds[at(ids[j])] += (in.d_weights[at(t * s.k + j)] - mean) / sum * s.scale;
  const Doubles dl = logit_gradient(s.score, scores, ds);
  for (int64_t e = 0; e < s.experts; ++e)
    for (int64_t d = 0; d < s.width; ++d) {
      out.d_x[at(t * s.width + d)] += dl[at(e)] * in.weight[at(e * s.width + d)];
      out.d_weight[at(e * s.width + d)] += dl[at(e)] * x[d];
    }
}

void expect_definition(const GateShape& s, const Inputs& in) {
  const Results got = run(s, in);
  Expected want{{}, {}, Doubles(in.x.size()), Doubles(in.weight.size())};
  for (int64_t t = 0; t < s.tokens; ++t) add_token(s, in, &got.indices[at(t * s.k)], t, want);
  expect_close(got.scores, want.scores, "scores");
  expect_close(got.weights, want.weights, "weights");
  expect_close(got.d_x, want.d_x, "d_x");
  expect_close(got.d_weight, want.d_weight, "d_weight");
}

// The k best of score + bias, by sorting.
void expect_best(const GateShape& s, const Inputs& in, const Results& got) {
  for (int64_t t = 0; t < s.tokens; ++t) {
    const auto key = [&](int32_t e) {
      const float v = got.scores[at(t * s.experts + e)] + in.bias[at(e)];
      return std::isnan(v) ? std::numeric_limits<double>::max() : static_cast<double>(v);
    };
    Ids order(at(s.experts));
    for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
    std::stable_sort(
        order.begin(), order.end(), [&](int32_t a, int32_t b) { return key(a) > key(b); });
    order.resize(at(s.k));
    std::sort(order.begin(), order.end());
    EXPECT_TRUE(std::equal(order.begin(), order.end(), &got.indices[at(t * s.k)])) << "token " << t;
  }
}

TEST(GateKernel, EqualsTheDefinitionForEveryScoreFunction) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (const ScoreFunction f :
         {ScoreFunction::SqrtSoftplus, ScoreFunction::Sigmoid, ScoreFunction::Softmax})
      for (const bool normalize : {true, false}) {
        GateShape s = shape_of(23, 45, 11, 3);
        s.score = f;
        s.normalize = normalize;
        const Inputs in = inputs_of(s);
        expect_definition(s, in);
        expect_best(s, in, run(s, in));
      }
  });
}

// Widths and counts off every tile: depth blocks of 256, 6 or 14 rows, 8 to 32 columns, 128 tokens.
TEST(GateKernel, EqualsTheDefinitionForSizesOffTheTiles) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (const GateShape& s : {shape_of(1, 1, 1, 1),
                               shape_of(3, 17, 2, 2),
                               shape_of(100, 7, 33, 33),
                               shape_of(140, 300, 16, 2),
                               shape_of(9, 530, 40, 6),
                               shape_of(5, 520, 150, 8)}) {
      SCOPED_TRACE(testing::Message() << s.tokens << " " << s.width << " " << s.experts);
      const Inputs in = inputs_of(s);
      expect_definition(s, in);
      expect_best(s, in, run(s, in));
    }
  });
}

TEST(GateKernel, BitsDoNotDependOnTheNumberOfThreads) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (const GateShape& s : {shape_of(500, 70, 19, 3), shape_of(200, 600, 70, 4)}) {
      const Inputs in = inputs_of(s);
      const Results one = run(s, in);
      for (const int threads : {2, 3}) {
        const Results more = run(s, in, threads);
        expect_same_bits(one.weights, more.weights);
        expect_same_bits(one.indices, more.indices);
        expect_same_bits(one.scores, more.scores);
        expect_same_bits(one.d_x, more.d_x);
        expect_same_bits(one.d_weight, more.d_weight);
      }
    }
  });
}

TEST(GateKernel, TiesGoToTheLowerExpertAndNaNIsTheLargest) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    // Logits of 0 everywhere: the bias alone ranks.
    const auto chosen = [](const Floats& bias, int64_t k) {
      const GateShape s = shape_of(1, 1, static_cast<int64_t>(bias.size()), k);
      Inputs in = inputs_of(s);
      in.x = {0};
      in.bias = bias;
      return run(s, in).indices;
    };
    const float inf = INFINITY;
    EXPECT_EQ(chosen({1, 2, 2, 2, 3}, 3), (Ids{1, 2, 4}));
    EXPECT_EQ(chosen({0, 0, 0, 0}, 2), (Ids{0, 1}));
    EXPECT_EQ(chosen({0, -0.0F, 0, -0.0F}, 2), (Ids{0, 1}));
    EXPECT_EQ(chosen({inf, -NAN, 3, NAN, inf}, 3), (Ids{0, 1, 3}));
    EXPECT_EQ(chosen({NAN, NAN, NAN}, 2), (Ids{0, 1}));
    EXPECT_EQ(chosen({-inf, -inf, -1, -inf}, 3), (Ids{0, 1, 2}));
    EXPECT_EQ(chosen({-inf, -inf}, 2), (Ids{0, 1}));
  });
}

TEST(GateKernel, GivenIndicesAreTakenAsTheyAre) {
  const GateShape s = shape_of(7, 20, 9, 2);
  Inputs in = inputs_of(s);
  for (int64_t t = 0; t < s.tokens; ++t) {
    in.given.push_back(static_cast<int32_t>(t % 4));
    in.given.push_back(static_cast<int32_t>(8 - t % 4));
  }
  expect_same_bits(run(s, in).indices, in.given);
  expect_definition(s, in);
}

// One expert, one wide: the logit is x itself.
TEST(GateKernel, ScoresAndSlopesHoldAtTheEndsOfTheRange) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    GateShape s = shape_of(12, 1, 1, 1);
    const Floats logits{-200, -174, -103, -100, -90, -87, -40, -1e-6F, 0, 19.99F, 20.01F, 1e30F};
    const Inputs in{logits, {1}, {0}, Floats(12), Floats(12, 1), {}};
    const Results got = run(s, in);
    EXPECT_EQ(got.scores[0], 0);
    EXPECT_EQ(got.d_x[0], 0);
    EXPECT_EQ(got.weights[0], 0);
    for (size_t i = 1; i < logits.size(); ++i) {
      const double score = score_of(s.score, logits[i]);
      const double slope = -std::expm1(-score * score) / (2 * score);
      EXPECT_NEAR(got.scores[i] / score, 1, 1e-6) << logits[i];
      EXPECT_NEAR(got.d_x[i] / slope, 1, 1e-6) << logits[i];
    }
  });
}

TEST(GateKernel, NotFiniteTokensLeaveTheOthersAlone) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (const ScoreFunction f :
         {ScoreFunction::SqrtSoftplus, ScoreFunction::Sigmoid, ScoreFunction::Softmax}) {
      GateShape s = shape_of(9, 21, 10, 4);
      s.score = f;
      const Inputs clean = inputs_of(s);
      Inputs in = clean;
      in.x[at(3 * s.width)] = NAN;
      in.x[at(5 * s.width + 2)] = INFINITY;
      in.x[at(6 * s.width + 1)] = -INFINITY;
      const Results got = run(s, in), want = run(s, clean);
      for (int64_t t = 0; t < s.tokens; ++t) {
        const int32_t* ids = &got.indices[at(t * s.k)];
        for (int64_t j = 0; j < s.k; ++j)
          EXPECT_TRUE(ids[j] >= 0 && ids[j] < s.experts && (j == 0 || ids[j] > ids[j - 1]));
        if (t == 3 || t == 5 || t == 6) continue;
        EXPECT_TRUE(std::equal(ids, ids + s.k, &want.indices[at(t * s.k)]));
        EXPECT_EQ(got.d_x[at(t * s.width)], want.d_x[at(t * s.width)]);
      }
    }
  });
}

TEST(GateKernel, NoTokensGiveAZeroWeightGradient) {
  const GateShape s = shape_of(0, 5, 3, 2);
  for (const float g : run(s, inputs_of(s)).d_weight) EXPECT_EQ(g, 0);
}

TEST(GateKernel, ScratchDoesNotGrowWithTheTokens) {
  const auto floats = [](int64_t tokens) {
    const GateShape s = shape_of(tokens, 512, 16, 2);
    float place = 0;
    GateForward f{};
    f.shape = s;
    GateBackward b{};
    b.shape = s;
    b.d_x = b.d_weight = &place;
    return std::pair(gate_forward_scratch(f), gate_backward_scratch(b));
  };
  EXPECT_EQ(floats(5000), floats(500000));
}

}  // namespace
}  // namespace lethe::kernels
