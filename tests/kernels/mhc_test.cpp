#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/threads.h"
#include <gtest/gtest.h>

#include "lethe/kernels/cpu/mhc_head.h"
#include "lethe/kernels/cpu/mhc_post.h"
#include "lethe/kernels/cpu/mhc_pre.h"

namespace lethe::kernels {
namespace {

using Floats = std::vector<float>;
constexpr float kEps = 1e-6F;

Floats normal(int64_t count, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  Floats out(static_cast<size_t>(count));
  for (float& x : out) x = scale * distribution(random);
  return out;
}

Floats made(int64_t count) {
  return Floats(static_cast<size_t>(count), NAN);  // what is not written shows
}

struct Shape {
  int64_t tokens, streams, width;
};

// Inputs and everything that the kernels return for them.
struct Site {
  Shape shape;
  int64_t rows, scales;
  Floats x, fn, base, scale;

  Site(Shape s, bool head)
      : shape(s), rows(head ? s.streams : (2 + s.streams) * s.streams), scales(head ? 1 : 3) {
    const int64_t width = s.streams * s.width;
    x = normal(s.tokens * width, 1);
    fn = normal(rows * width, 2, 1 / std::sqrt(static_cast<float>(width)));
    base = normal(rows, 3);
    scale = normal(scales, 4);
  }

  [[nodiscard]] MhcSite arguments(const Parallel& parallel, Floats& scratch) const {
    return {.parallel = parallel,
            .tokens = shape.tokens,
            .streams = shape.streams,
            .width = shape.width,
            .rows = rows,
            .scales = scales,
            .token_stride = shape.streams * shape.width,
            .stream_stride = shape.width,
            .x = x.data(),
            .fn = fn.data(),
            .base = base.data(),
            .scale = scale.data(),
            .norm_eps = kEps,
            .hc_eps = kEps,
            .scratch = scratch.data()};
  }

  [[nodiscard]] MhcScratchShape scratch_shape(int64_t iterations, int threads) const {
    return {shape.tokens, shape.streams, shape.width, rows, iterations, threads};
  }
};

void expect_same_bits(const std::vector<Floats>& a, const std::vector<Floats>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)), 0) << i;
}

// Largest difference relative to the largest value.
void expect_near(const std::vector<Floats>& a, const std::vector<Floats>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    float largest = 0, difference = 0;
    for (size_t k = 0; k < a[i].size(); ++k) {
      ASSERT_TRUE(std::isfinite(a[i][k])) << "result " << i << ", element " << k;
      largest = std::max(largest, std::abs(b[i][k]));
      difference = std::max(difference, std::abs(a[i][k] - b[i][k]));
    }
    EXPECT_LE(difference, 2e-5F * largest) << i;
  }
}

// u, post, comb, pre, mix, r, then the gradients of x, fn, base, scale.
std::vector<Floats> run_pre(const Site& in, int threads, int64_t iterations = 20) {
  const auto [tokens, n, width] = in.shape;
  const Parallel parallel = test::threads_of(threads);
  std::vector<Floats> out;
  for (const int64_t size : {width, n, n * n, n, in.rows, int64_t{1}, n * width})
    out.push_back(made(tokens * size));
  for (const int64_t size : {in.rows * n * width, in.rows, in.scales}) out.push_back(made(size));
  Floats scratch = made(mhc_forward_scratch_floats(in.scratch_shape(iterations, threads)));
  mhc_pre_forward({.site = in.arguments(parallel, scratch),
                   .iterations = iterations,
                   .u = out[0].data(),
                   .post = out[1].data(),
                   .comb = out[2].data(),
                   .pre = out[3].data(),
                   .mix = out[4].data(),
                   .r = out[5].data()});
  const Floats d_u = normal(tokens * width, 5), d_post = normal(tokens * n, 6),
               d_comb = normal(tokens * n * n, 7);
  scratch = made(mhc_backward_scratch_floats(in.scratch_shape(iterations, threads)));
  mhc_pre_backward({.site = in.arguments(parallel, scratch),
                    .iterations = iterations,
                    .mix = out[4].data(),
                    .r = out[5].data(),
                    .d_u = d_u.data(),
                    .d_post = d_post.data(),
                    .d_comb = d_comb.data(),
                    .d_x = out[6].data(),
                    .d_fn = out[7].data(),
                    .d_base = out[8].data(),
                    .d_scale = out[9].data()});
  return out;
}

// y, mix, r, then the gradients of x, fn, base, scale.
std::vector<Floats> run_head(const Site& in, int threads) {
  const auto [tokens, n, width] = in.shape;
  const Parallel parallel = test::threads_of(threads);
  std::vector<Floats> out;
  for (const int64_t size : {width, n, int64_t{1}, n * width}) out.push_back(made(tokens * size));
  for (const int64_t size : {n * n * width, n, int64_t{1}}) out.push_back(made(size));
  Floats scratch = made(mhc_forward_scratch_floats(in.scratch_shape(0, threads)));
  mhc_head_forward({.site = in.arguments(parallel, scratch),
                    .y = out[0].data(),
                    .mix = out[1].data(),
                    .r = out[2].data()});
  const Floats d_y = normal(tokens * width, 5);
  scratch = made(mhc_backward_scratch_floats(in.scratch_shape(0, threads)));
  mhc_head_backward({.site = in.arguments(parallel, scratch),
                     .mix = out[1].data(),
                     .r = out[2].data(),
                     .d_y = d_y.data(),
                     .d_x = out[3].data(),
                     .d_fn = out[4].data(),
                     .d_base = out[5].data(),
                     .d_scale = out[6].data()});
  return out;
}

// The new streams, then the gradients of y, x, post, comb.
std::vector<Floats> run_post(const Shape& s, const Floats& x, int threads) {
  const auto [tokens, n, width] = s;
  const Floats y = normal(tokens * width, 2), post = normal(tokens * n, 3),
               comb = normal(tokens * n * n, 4), d_out = normal(tokens * n * width, 5);
  std::vector<Floats> out;
  for (const int64_t size : {n * width, width, n * width, n, n * n})
    out.push_back(made(tokens * size));
  const MhcPost in{.parallel = test::threads_of(threads),
                   .tokens = tokens,
                   .streams = n,
                   .width = width,
                   .token_stride = n * width,
                   .stream_stride = width,
                   .y = y.data(),
                   .x = x.data(),
                   .post = post.data(),
                   .comb = comb.data()};
  mhc_post_forward({.in = in, .out = out[0].data()});
  mhc_post_backward({.in = in,
                     .d_out = d_out.data(),
                     .d_y = out[1].data(),
                     .d_x = out[2].data(),
                     .d_post = out[3].data(),
                     .d_comb = out[4].data()});
  return out;
}

// Fractions of vectors, of tiles, of blocks, of partial sums, of pieces of a stream.
const std::vector<Shape> kShapes{{1, 4, 16},
                                 {3, 1, 1},
                                 {5, 2, 7},
                                 {25, 3, 33},
                                 {49, 4, 31},
                                 {50, 5, 9},
                                 {23, 8, 40},
                                 {7, 4, 513},
                                 {200, 4, 20},
                                 {9, 9, 130}};

TEST(MhcKernel, BitsDoNotDependOnTheNumberOfThreads) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (const Shape& shape : {Shape{131, 4, 37}, Shape{97, 3, 600}}) {
      const Site pre(shape, false), head(shape, true);
      const Floats x = normal(shape.tokens * shape.streams * shape.width, 1);
      const auto pre_once = run_pre(pre, 1), head_once = run_head(head, 1),
                 post_once = run_post(shape, x, 1);
      for (const int threads : {2, 3}) {
        expect_same_bits(pre_once, run_pre(pre, threads));
        expect_same_bits(head_once, run_head(head, threads));
        expect_same_bits(post_once, run_post(shape, x, threads));
      }
    }
  });
}

TEST(MhcKernel, InstructionSetsAgreeAtEveryShape) {
  const Isa before = active_isa();
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.tokens << ' ' << shape.streams << ' ' << shape.width);
    const Site pre(shape, false), head(shape, true);
    const Floats x = normal(shape.tokens * shape.streams * shape.width, 1);
    use_isa(Isa::Portable);
    const auto want_pre = run_pre(pre, 1), want_head = run_head(head, 1),
               want_post = run_post(shape, x, 1);
    test::for_each_isa([&](Isa isa) {
      SCOPED_TRACE(isa_name(isa));
      expect_near(run_pre(pre, 1), want_pre);
      expect_near(run_head(head, 1), want_head);
      expect_near(run_post(shape, x, 1), want_post);
    });
  }
  use_isa(before);
}

// The definition, in double.
TEST(MhcKernel, ProjectionAndCollapseAreTheDefinition) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    for (const Shape& shape : kShapes) {
      const Site in(shape, true);
      const std::vector<Floats> got = run_head(in, 1);
      const auto n = static_cast<size_t>(shape.streams), width = static_cast<size_t>(shape.width);
      for (size_t t = 0; t < static_cast<size_t>(shape.tokens); ++t) {
        const float* x = in.x.data() + t * n * width;
        double squares = 0;
        for (size_t k = 0; k < n * width; ++k) squares += static_cast<double>(x[k]) * x[k];
        const double r = 1 / std::sqrt(squares / static_cast<double>(n * width) + kEps);
        std::vector<double> y(width), weight(n);
        for (size_t i = 0; i < n; ++i) {
          double z = 0;
          for (size_t k = 0; k < n * width; ++k)
            z += static_cast<double>(x[k]) * in.fn[i * n * width + k];
          EXPECT_NEAR(got[1][t * n + i], z * r, 2e-6 * (1 + std::abs(z * r)));
          weight[i] = 1 / (1 + std::exp(-(z * r * in.scale[0] + in.base[i]))) + kEps;
          for (size_t k = 0; k < width; ++k) y[k] += weight[i] * x[i * width + k];
        }
        for (size_t k = 0; k < width; ++k) EXPECT_NEAR(got[0][t * width + k], y[k], 2e-5);
      }
    }
  });
}

TEST(MhcKernel, NotFiniteTokensStayAlone) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const Shape shape{40, 4, 24};
    Site in(shape, false);
    const auto stream = static_cast<size_t>(shape.streams * shape.width);
    in.x[5 * stream + 3] = NAN;
    in.x[17 * stream + 90] = INFINITY;
    const std::vector<Floats> pre = run_pre(in, 1), post = run_post(shape, in.x, 1);
    const auto expect_alone = [&](const Floats& result, const char* what) {
      const size_t size = result.size() / static_cast<size_t>(shape.tokens);
      for (size_t k = 0; k < result.size(); ++k) {
        const bool bad = k / size == 5 || k / size == 17;
        ASSERT_TRUE(bad || std::isfinite(result[k])) << what << ", token " << k / size;
      }
    };
    for (const size_t i : {0U, 1U, 2U, 3U, 4U, 5U, 6U}) expect_alone(pre[i], "pre");
    for (const Floats& result : post) expect_alone(result, "post");
    EXPECT_TRUE(std::isnan(pre[0][5 * static_cast<size_t>(shape.width) + 3]));
    EXPECT_TRUE(std::isnan(pre[7][0])) << "the gradient of fn sums over all tokens";
  });
}

TEST(MhcKernel, NoTokensGiveZeroGradientsOfTheParameters) {
  test::for_each_isa([](Isa isa) {
    SCOPED_TRACE(isa_name(isa));
    const std::vector<Floats> out = run_pre(Site({0, 4, 12}, false), 2);
    for (const size_t i : {7U, 8U, 9U})
      for (const float g : out[i]) EXPECT_EQ(g, 0.0F);
  });
}

TEST(MhcKernel, ScratchDoesNotGrowWithTheTokens) {
  const MhcScratchShape few{1 << 12, 4, 512, 24, 20, 2}, many{1 << 20, 4, 512, 24, 20, 2};
  EXPECT_EQ(mhc_forward_scratch_floats(few), mhc_forward_scratch_floats(many));
  EXPECT_LE(mhc_backward_scratch_floats(many), int64_t{1} << 22);
}

}  // namespace
}  // namespace lethe::kernels
