#include "lethe/kernels/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/threads.h"
#include <gtest/gtest.h>

namespace lethe::kernels {
namespace {

using Floats = std::vector<float>;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

Floats uniform(int64_t count, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-scale, scale);
  Floats out(at(count));
  for (float& x : out) x = distribution(random);
  return out;
}

struct Shape {
  int64_t tokens, experts, choices, width, inner;

  [[nodiscard]] std::string text() const {
    return "T " + std::to_string(tokens) + " E " + std::to_string(experts) + " k " +
           std::to_string(choices) + " D " + std::to_string(width) + " I " + std::to_string(inner);
  }
};

struct Inputs {
  Shape shape;
  float limit;
  Floats x, weights, fc1, fc2, d_y;
  std::vector<int32_t> indices;
  std::vector<int32_t> order;
  std::vector<int64_t> begins, tile_begins;

  void sort() {
    order.assign(indices.size(), -1);
    begins.assign(at(shape.experts + 1), -1);
    tile_begins = begins;
    sort_routes({.routes = shape.tokens * shape.choices,
                 .experts = shape.experts,
                 .indices = indices.data(),
                 .order = order.data(),
                 .begins = begins.data(),
                 .tile_begins = tile_begins.data()});
  }

  [[nodiscard]] ExpertRoutes routes() const {
    return {shape.experts, shape.choices, order.data(), begins.data(), tile_begins.data()};
  }
};

/// Every token goes to `choices` different experts.
Inputs inputs(const Shape& s, float limit = 1, unsigned seed = 1) {
  const auto fan = [](int64_t n) { return 2 / std::sqrt(static_cast<float>(n)); };
  Inputs in{.shape = s,
            .limit = limit,
            .x = uniform(s.tokens * s.width, seed),
            .weights = uniform(s.tokens * s.choices, seed + 1),
            .fc1 = uniform(s.experts * 2 * s.inner * s.width, seed + 2, fan(s.width)),
            .fc2 = uniform(s.experts * s.inner * s.width, seed + 3, fan(s.inner)),
            .d_y = uniform(s.tokens * s.width, seed + 4),
            .indices = {},
            .order = {},
            .begins = {},
            .tile_begins = {}};
  std::mt19937 random(seed + 5);
  std::vector<int32_t> experts(at(s.experts));
  for (int64_t e = 0; e < s.experts; ++e) experts[at(e)] = static_cast<int32_t>(e);
  for (int64_t t = 0; t < s.tokens; ++t) {
    std::shuffle(experts.begin(), experts.end(), random);
    in.indices.insert(in.indices.end(), experts.begin(), experts.begin() + s.choices);
  }
  in.sort();
  return in;
}

struct Results {
  Floats y, projected, d_x, d_weights, d_fc1, d_fc2;

  [[nodiscard]] std::vector<std::pair<const char*, const Floats*>> all() const {
    return {{"y", &y},
            {"projected", &projected},
            {"d_x", &d_x},
            {"d_weights", &d_weights},
            {"d_fc1", &d_fc1},
            {"d_fc2", &d_fc2}};
  }
};

ExpertsForward forward_arguments(const Inputs& in, Results& out, Floats& scratch, int threads) {
  const ExpertSizes sizes{in.shape.width, in.shape.inner};
  scratch.assign(at(experts_forward_scratch({sizes, threads})), NAN);
  out.y.assign(in.x.size(), 0);
  out.projected.assign(in.indices.size() * at(2 * in.shape.inner), NAN);
  return {.parallel = {},
          .routes = in.routes(),
          .sizes = sizes,
          .limit = in.limit,
          .x = in.x.data(),
          .weights = in.weights.data(),
          .fc1 = {in.fc1.data(), nullptr},
          .fc2 = {in.fc2.data(), nullptr},
          .y = out.y.data(),
          .projected = out.projected.data(),
          .scratch = scratch.data()};
}

ExpertsBackward backward_arguments(const Inputs& in, Results& out, Floats& scratch, int threads) {
  const ExpertSizes sizes{in.shape.width, in.shape.inner};
  scratch.assign(at(experts_backward_scratch({sizes, threads})), NAN);
  out.d_x.assign(in.x.size(), 0);
  out.d_weights.assign(in.weights.size(), NAN);
  out.d_fc1.assign(in.fc1.size(), NAN);
  out.d_fc2.assign(in.fc2.size(), NAN);
  return {.parallel = {},
          .routes = in.routes(),
          .sizes = sizes,
          .limit = in.limit,
          .x = in.x.data(),
          .weights = in.weights.data(),
          .projected = out.projected.data(),
          .fc1 = {in.fc1.data(), nullptr},
          .fc2 = {in.fc2.data(), nullptr},
          .d_y = in.d_y.data(),
          .d_x = out.d_x.data(),
          .d_weights = out.d_weights.data(),
          .d_fc1 = out.d_fc1.data(),
          .d_fc2 = out.d_fc2.data(),
          .scratch = scratch.data()};
}

Results run(const Inputs& in, int threads = 1) {
  Results out;
  Floats scratch;
  ExpertsForward forward = forward_arguments(in, out, scratch, threads);
  forward.parallel = test::threads_of(threads);
  experts_forward(forward);
  ExpertsBackward backward = backward_arguments(in, out, scratch, threads);
  backward.parallel = test::threads_of(threads);
  experts_backward(backward);
  return out;
}

// One route in double precision, added to the results.
struct Doubles {
  std::vector<double> y, d_x, d_weights, d_fc1, d_fc2;
};

void add_route(const Inputs& in, int64_t token, int64_t choice, Doubles& out) {
  const auto [tokens, experts, choices, width, inner] = in.shape;
  const int64_t route = token * choices + choice, e = in.indices[at(route)];
  const double limit = in.limit > 0 ? in.limit : std::numeric_limits<double>::infinity();
  const double weight = in.weights[at(route)];
  for (int64_t i = 0; i < inner; ++i) {
    const int64_t gate_row = (e * 2 * inner + i) * width, up_row = gate_row + inner * width;
    double gate = 0, up = 0, d_z = 0;
    for (int64_t d = 0; d < width; ++d) {
      const double x = in.x[at(token * width + d)];
      gate += x * in.fc1[at(gate_row + d)];
      up += x * in.fc1[at(up_row + d)];
      d_z += static_cast<double>(in.d_y[at(token * width + d)]) *
             in.fc2[at((e * width + d) * inner + i)];
    }
    const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
    const double s = 1 / (1 + std::exp(-g)), a = g * s * u;
    const double d_gate = gate > limit ? 0 : s * (1 + g * (1 - s)) * u * d_z * weight;
    const double d_up = std::abs(up) > limit ? 0 : g * s * d_z * weight;
    out.d_weights[at(route)] += d_z * a;
    for (int64_t d = 0; d < width; ++d) {
      const double x = in.x[at(token * width + d)];
      const int64_t fc2 = (e * width + d) * inner + i;
      out.y[at(token * width + d)] += a * weight * in.fc2[at(fc2)];
      out.d_fc2[at(fc2)] += in.d_y[at(token * width + d)] * a * weight;
      out.d_fc1[at(gate_row + d)] += d_gate * x;
      out.d_fc1[at(up_row + d)] += d_up * x;
      out.d_x[at(token * width + d)] +=
          d_gate * in.fc1[at(gate_row + d)] + d_up * in.fc1[at(up_row + d)];
    }
  }
}

Doubles in_double(const Inputs& in) {
  Doubles out{.y = std::vector<double>(in.x.size()),
              .d_x = std::vector<double>(in.x.size()),
              .d_weights = std::vector<double>(in.weights.size()),
              .d_fc1 = std::vector<double>(in.fc1.size()),
              .d_fc2 = std::vector<double>(in.fc2.size())};
  for (int64_t token = 0; token < in.shape.tokens; ++token)
    for (int64_t choice = 0; choice < in.shape.choices; ++choice) add_route(in, token, choice, out);
  return out;
}

void expect_near(const Floats& a, const std::vector<double>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 0, worst = 0;
  for (const double v : b) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  EXPECT_LE(worst, 3e-6 * largest) << what;
  for (const float v : a) ASSERT_TRUE(std::isfinite(v)) << what;
}

void expect_same_bits(const Results& a, const Results& b) {
  const auto left = a.all(), right = b.all();
  for (size_t i = 0; i < left.size(); ++i) {
    const Floats &x = *left[i].second, &y = *right[i].second;
    ASSERT_EQ(x.size(), y.size());
    EXPECT_EQ(x.empty() ? 0 : std::memcmp(x.data(), y.data(), x.size() * sizeof(float)), 0)
        << left[i].first;
  }
}

const Shape kShapes[] = {{1, 1, 1, 1, 1},
                         {5, 3, 2, 7, 3},
                         {3, 40, 2, 17, 9},
                         {65, 2, 2, 33, 31},
                         {130, 3, 1, 50, 49},
                         {70, 4, 4, 100, 67},
                         {150, 2, 2, 290, 140},
                         {9, 2, 1, 300, 5},
                         {7, 2, 2, 5, 290}};

TEST(ExpertsKernel, EqualsTheSumInDoublePrecision) {
  test::for_each_isa([](Isa isa) {
    for (const Shape& shape : kShapes)
      for (const float limit : {0.0F, 0.5F}) {
        SCOPED_TRACE(std::string(isa_name(isa)) + " " + shape.text());
        const Inputs in = inputs(shape, limit);
        const Results out = run(in);
        const Doubles expected = in_double(in);
        expect_near(out.y, expected.y, "y");
        expect_near(out.d_x, expected.d_x, "d_x");
        expect_near(out.d_weights, expected.d_weights, "d_weights");
        expect_near(out.d_fc1, expected.d_fc1, "d_fc1");
        expect_near(out.d_fc2, expected.d_fc2, "d_fc2");
      }
  });
}

TEST(ExpertsKernel, BitsDoNotDependOnTheNumberOfThreads) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    // More tiles than one window of one thread holds.
    const Inputs in = inputs({1500, 5, 2, 61, 37});
    const Results one = run(in, 1);
    for (const int threads : {2, 3}) expect_same_bits(one, run(in, threads));
  });
}

TEST(ExpertsKernel, OneExpertTakesAllAndOthersGetZeroGradients) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Inputs in = inputs({200, 4, 1, 20, 12});
    std::fill(in.indices.begin(), in.indices.end(), 2);
    in.sort();
    const Results out = run(in, 2);
    const Doubles expected = in_double(in);
    expect_near(out.y, expected.y, "y");
    expect_near(out.d_fc1, expected.d_fc1, "d_fc1");
    expect_near(out.d_fc2, expected.d_fc2, "d_fc2");
    for (size_t i = 0; i < 2 * 20 * 12; ++i) EXPECT_EQ(out.d_fc2[i], 0);
  });
}

TEST(ExpertsKernel, ATokenMayChooseAnExpertTwice) {
  Inputs in = inputs({67, 3, 2, 19, 11});
  std::fill(in.indices.begin(), in.indices.end(), 1);
  in.sort();
  const Results out = run(in);
  expect_near(out.y, in_double(in).y, "y");
  expect_near(out.d_x, in_double(in).d_x, "d_x");
  expect_same_bits(out, run(in, 3));
}

TEST(ExpertsKernel, WithoutRoutesEveryTokenPassesTheOneExpert) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Inputs in = inputs({130, 1, 1, 40, 23});
    std::fill(in.weights.begin(), in.weights.end(), 1.0F);
    const Results routed = run(in);
    Results plain = routed;
    Floats scratch;
    ExpertsForward forward = forward_arguments(in, plain, scratch, 1);
    forward.routes.order = nullptr;
    forward.weights = nullptr;
    experts_forward(forward);
    ExpertsBackward backward = backward_arguments(in, plain, scratch, 1);
    backward.routes.order = nullptr;
    backward.weights = nullptr;
    experts_backward(backward);
    expect_same_bits(routed, plain);
  });
}

TEST(ExpertsKernel, NarrowWeightsAreThoseOfTheirWidenedBits) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Inputs in = inputs({70, 3, 2, 300, 35});
    std::vector<uint16_t> fc1(in.fc1.size()), fc2(in.fc2.size());
    const auto narrow = [](Floats& wide, std::vector<uint16_t>& bits) {
      for (size_t i = 0; i < wide.size(); ++i) {
        uint32_t word = 0;
        std::memcpy(&word, &wide[i], sizeof word);
        bits[i] = static_cast<uint16_t>(word >> 16);
        word &= 0xffff0000U;
        std::memcpy(&wide[i], &word, sizeof word);
      }
    };
    narrow(in.fc1, fc1);
    narrow(in.fc2, fc2);
    const Results wide = run(in);
    Results out = wide;
    Floats scratch;
    ExpertsForward forward = forward_arguments(in, out, scratch, 1);
    forward.fc1 = {nullptr, fc1.data()};
    forward.fc2 = {nullptr, fc2.data()};
    experts_forward(forward);
    ExpertsBackward backward = backward_arguments(in, out, scratch, 1);
    backward.fc1 = forward.fc1;
    backward.fc2 = forward.fc2;
    experts_backward(backward);
    expect_same_bits(wide, out);
  });
}

TEST(ExpertsKernel, GradientsThatAreNotNeededChangeNoOther) {
  const Inputs in = inputs({90, 3, 2, 30, 20});
  const Results all = run(in);
  for (int only = 0; only < 4; ++only) {
    Results out = all;
    Floats scratch;
    ExpertsBackward a = backward_arguments(in, out, scratch, 1);
    if (only != 0) a.d_x = nullptr, out.d_x = all.d_x;
    if (only != 1) a.d_weights = nullptr, out.d_weights = all.d_weights;
    if (only != 2) a.d_fc1 = nullptr, out.d_fc1 = all.d_fc1;
    if (only != 3) a.d_fc2 = nullptr, out.d_fc2 = all.d_fc2;
    experts_backward(a);
    expect_same_bits(all, out);
  }
}

TEST(ExpertsKernel, NotFiniteTokensStayInTheirRows) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Inputs in = inputs({70, 3, 2, 20, 12});
    const Results clean = run(in);
    in.x[5 * 20 + 3] = NAN;
    in.x[9 * 20] = INFINITY;
    in.x[11 * 20] = -INFINITY;
    const Results out = run(in, 2);
    EXPECT_TRUE(std::isnan(out.y[5 * 20]));
    for (size_t token = 0; token < 70; ++token) {
      if (token == 5 || token == 9 || token == 11) continue;
      for (size_t i = token * 20; i < (token + 1) * 20; ++i) {
        EXPECT_EQ(out.y[i], clean.y[i]);
        EXPECT_EQ(out.d_x[i], clean.d_x[i]);
      }
    }
  });
}

TEST(ExpertsKernel, AnInfiniteWeightDoesNotReachTokensOrGradientsThatDoNotUseIt) {
  // Lanes without a token compute inf * 0: nothing of them may be added anywhere.
  Inputs in = inputs({3, 2, 1, 8, 4}, /*limit=*/1);
  in.indices = {0, 0, 1};
  in.sort();
  in.x.assign(in.x.size(), 1);
  in.fc1[0] = INFINITY;  // gate of channel 0: clamped to 1
  const Results out = run(in);
  for (const float y : out.y) EXPECT_TRUE(std::isfinite(y));
  for (const float g : out.d_fc1) EXPECT_TRUE(std::isfinite(g));
  for (const float g : out.d_fc2) EXPECT_TRUE(std::isfinite(g));
}

TEST(ExpertsKernel, GradientPassesTheClampAtEquality) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    Inputs in = inputs({1, 1, 1, 1, 1}, 2);
    in.x = {1};
    in.weights = {1};
    in.fc2 = {1};
    in.d_y = {1};
    in.fc1 = {2, -2};
    const Results edge = run(in);
    EXPECT_LT(edge.d_fc1[0], -1);
    EXPECT_GT(edge.d_fc1[1], 1);
    in.fc1 = {std::nextafter(2.0F, 3.0F), std::nextafter(-2.0F, -3.0F)};
    const Results beyond = run(in);
    EXPECT_EQ(beyond.d_fc1[0], 0);
    EXPECT_EQ(beyond.d_fc1[1], 0);
    EXPECT_EQ(beyond.y[0], edge.y[0]);
  });
}

TEST(ExpertsKernel, SortIsStableAndCutsTiles) {
  Inputs in = inputs({0, 4, 1, 4, 4});
  in.shape.tokens = 300;
  in.indices.assign(300, 3);
  in.indices[10] = 1;
  in.indices[20] = 1;
  in.sort();
  EXPECT_EQ(in.begins, (std::vector<int64_t>{0, 0, 2, 2, 300}));
  constexpr int64_t kTiles = (298 + kExpertTile - 1) / kExpertTile;
  static_assert(kTiles > 1);
  EXPECT_EQ(in.tile_begins, (std::vector<int64_t>{0, 0, 1, 1, 1 + kTiles}));
  EXPECT_EQ(in.order[0], 10);
  EXPECT_EQ(in.order[1], 20);
  EXPECT_TRUE(std::is_sorted(in.order.begin() + 2, in.order.end()));
}

TEST(ExpertsKernel, NoTokensGiveZeroGradients) {
  const Results out = run(inputs({0, 3, 2, 8, 4}), 2);
  for (const float g : out.d_fc1) EXPECT_EQ(g, 0);
  for (const float g : out.d_fc2) EXPECT_EQ(g, 0);
}

TEST(ExpertsKernel, ScratchKnowsTilesAndThreadsOnly) {
  const ExpertSizes sizes{512, 256};
  EXPECT_EQ(experts_forward_scratch({sizes, 4}), 4 * experts_forward_scratch({sizes, 1}));
  EXPECT_EQ(experts_backward_scratch({sizes, 4}), 4 * experts_backward_scratch({sizes, 1}));
  EXPECT_LT(experts_backward_scratch({sizes, 1}) * 4, 8 << 20);
}

}  // namespace
}  // namespace lethe::kernels
