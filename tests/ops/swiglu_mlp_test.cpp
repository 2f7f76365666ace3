#include "lethe/ops/swiglu_mlp.h"

#include <cmath>

#include "support/expect_error.h"
#include "support/golden.h"
#include "support/gradcheck.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/ops/implementation.h"

namespace lethe {
namespace {

using test::gradients;
using test::leaf_of;
using test::random_leaf;

TEST(SwigluMlp, MatchesGoldenValuesAndGradients) {
  auto golden =
      test::load_safetensors(std::string(LETHE_GOLDEN_DIR) + "/unit/shared_expert.safetensors");
  const at::Tensor x = leaf_of(golden["x"]), fc1 = leaf_of(at::cat({golden["w1"], golden["w3"]})),
                   fc2 = leaf_of(golden["w2"]);
  const at::Tensor y = ops::swiglu_mlp(x, fc1, fc2, 1);
  test::expect_close_rms(y, golden["y"], test::kGoldenFp64, "y");
  const auto g = gradients(y, {x, fc1, fc2}, golden["d.y"]);
  test::expect_close_rms(g[0], golden["grad.x"], test::kGoldenFp64, "grad.x");
  test::expect_close_rms(g[1].narrow(0, 0, 20), golden["grad.w1"], test::kGoldenFp64, "grad.w1");
  test::expect_close_rms(g[1].narrow(0, 20, 20), golden["grad.w3"], test::kGoldenFp64, "grad.w3");
  test::expect_close_rms(g[2], golden["grad.w2"], test::kGoldenFp64, "grad.w2");
}

// Redraws x until no pre-activation lies so near the clamp that a finite difference would cross it.
at::Tensor input_off_the_kinks(int64_t tokens, const at::Tensor& fc1, double limit) {
  for (;;) {
    at::Tensor x = random_leaf({tokens, fc1.size(1)});
    const at::Tensor distance = (at::matmul(x.detach(), fc1.detach().t()).abs() - limit).abs();
    if (distance.min().item<double>() > 1e-4) return x;
  }
}

TEST(SwigluMlp, GradientsMatchCentralDifferences) {
  at::manual_seed(11);
  for (const double limit : {0.0, 1.0})
    for (const int64_t tokens : test::kTokenCounts) {
      SCOPED_TRACE("limit " + std::to_string(limit) + ", tokens " + std::to_string(tokens));
      const at::Tensor fc1 = random_leaf({8, 5}, 0.6), fc2 = random_leaf({5, 4}, 0.5);
      const auto f = [limit](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{ops::swiglu_mlp(in[0], in[1], in[2], limit)};
      };
      test::expect_gradients(f, {input_off_the_kinks(tokens, fc1, limit), fc1, fc2});
    }
}

struct Pair {
  double gate, up;
};

struct Response {
  double y, d_gate, d_up;
};

// One token, one channel: fc1 = [gate; up] applied to x = 1, so that d fc1 is the gradient at the
// pre-activations.
Response respond(Pair pre, double limit) {
  const at::Tensor x = leaf_of(at::ones({1, 1})), fc2 = leaf_of(at::ones({1, 1}));
  const at::Tensor fc1 = leaf_of(at::tensor({pre.gate, pre.up}, test::fp64()).view({2, 1}));
  const at::Tensor y = ops::swiglu_mlp(x, fc1, fc2, limit);
  const at::Tensor g = gradients(y, {fc1}, at::ones({1, 1}))[0];
  return {y.item<double>(), g[0].item<double>(), g[1].item<double>()};
}

double silu(double v) {
  return v / (1 + std::exp(-v));
}

double silu_slope(double v) {
  const double s = 1 / (1 + std::exp(-v));
  return s * (1 + v * (1 - s));
}

TEST(SwigluMlp, ClampBoundsTheGateAboveAndUpOnBothSides) {
  for (const double up : {20.0, -20.0}) {
    const Response r = respond({20, up}, 10);
    EXPECT_NEAR(r.y, silu(10) * (up > 0 ? 10 : -10), 1e-12);
    EXPECT_EQ(r.d_gate, 0);
    EXPECT_EQ(r.d_up, 0);
  }
  const Response low = respond({-20, 3}, 10);
  EXPECT_NEAR(low.y, silu(-20) * 3, 1e-15);
  EXPECT_NEAR(low.d_gate, silu_slope(-20) * 3, 1e-15);
  EXPECT_NEAR(low.d_up, silu(-20), 1e-15);
}

TEST(SwigluMlp, ClampPassesTheGradientAtEquality) {
  const Response at_gate = respond({10, 2}, 10),
                 above = respond({std::nextafter(10.0, 11.0), 2}, 10);
  EXPECT_NEAR(at_gate.d_gate, silu_slope(10) * 2, 1e-12);
  EXPECT_EQ(above.d_gate, 0);
  for (const double side : {1.0, -1.0}) {
    EXPECT_NEAR(respond({1, 10 * side}, 10).d_up, silu(1), 1e-12);
    EXPECT_EQ(respond({1, std::nextafter(10.0, 11.0) * side}, 10).d_up, 0);
  }
}

TEST(SwigluMlp, LimitZeroMeansNoClamp) {
  const Response r = respond({20, -30}, 0);
  EXPECT_NEAR(r.y, silu(20) * -30, 1e-9);
  EXPECT_NEAR(r.d_up, silu(20), 1e-12);
}

TEST(SwigluMlp, Float32AgreesWithFloat64) {
  at::manual_seed(12);
  const at::Tensor x = at::randn({33, 24}), fc1 = at::randn({40, 24}) * 0.3,
                   fc2 = at::randn({24, 20}) * 0.2;
  const at::Tensor dy = at::randn({33, 24});
  std::vector<at::Tensor> narrow, wide;
  for (const at::Tensor& t : {x, fc1, fc2}) {
    narrow.push_back(leaf_of(t, at::kFloat));
    wide.push_back(leaf_of(t));
  }
  const at::Tensor a = ops::swiglu_mlp(narrow[0], narrow[1], narrow[2], 1),
                   b = ops::swiglu_mlp(wide[0], wide[1], wide[2], 1);
  test::expect_close_rms(a, b, test::kSameMathsFp32, "y");
  const auto ga = gradients(a, narrow, dy), gb = gradients(b, wide, dy);
  for (size_t i = 0; i < 3; ++i)
    test::expect_close_rms(ga[i], gb[i], test::kSameMathsFp32, "gradient " + std::to_string(i));
}

// y and all gradients in float32 of an input [T,D], fc1 and fc2.
std::vector<at::Tensor> results_with(ops::Implementation implementation,
                                     const std::vector<at::Tensor>& in,
                                     const at::Tensor& dy) {
  ops::choose_implementations({.all = implementation, .overrides = {}});
  const at::Tensor y = ops::swiglu_mlp(in[0], in[1], in[2], 1);
  std::vector<at::Tensor> out = gradients(y, in, dy);
  out.push_back(y.detach());
  ops::choose_implementations({});
  return out;
}

std::vector<at::Tensor> float_leaves(int64_t tokens, int64_t width, int64_t inner) {
  return {leaf_of(at::randn({tokens, width}), at::kFloat),
          leaf_of(at::randn({2 * inner, width}) / std::sqrt(width), at::kFloat),
          leaf_of(at::randn({width, inner}) / std::sqrt(inner), at::kFloat)};
}

TEST(SwigluMlp, KernelEqualsTheReferenceOnAnyNumberOfThreads) {
  at::manual_seed(14);
  const int before = at::get_num_threads();
  for (const int64_t tokens : {1, 7, 64, 200})
    for (const int64_t width : {3, 65}) {
      const auto in = float_leaves(tokens, width, 33);
      const at::Tensor dy = at::randn({tokens, width});
      const auto reference = results_with(ops::Implementation::Reference, in, dy),
                 fused = results_with(ops::Implementation::Fused, in, dy);
      for (const int threads : {1, 2, 3}) {
        at::set_num_threads(threads);
        const auto again = results_with(ops::Implementation::Fused, in, dy);
        for (size_t i = 0; i < fused.size(); ++i)
          test::expect_bitwise(again[i], fused[i], "result " + std::to_string(i));
      }
      at::set_num_threads(before);
      for (size_t i = 0; i < fused.size(); ++i)
        test::expect_close_rms(
            fused[i], reference[i], test::kSameMathsFp32, "result " + std::to_string(i));
    }
}

TEST(SwigluMlp, TemporariesOfTheKernelDoNotGrowWithTheTokens) {
  install_byte_accounting();
  const auto temporary = [](int64_t tokens) {
    const auto in = float_leaves(tokens, 32, 16);
    const at::Tensor dy = at::randn({tokens, 32}, at::kFloat);
    reset_peak();
    const int64_t before = bytes().live;
    const at::Tensor y = ops::swiglu_mlp(in[0], in[1], in[2], 1);
    const int64_t saved = tokens * 2 * 16 * 4;
    const int64_t forward = bytes().peak - before - static_cast<int64_t>(y.nbytes()) - saved;
    reset_peak();
    const int64_t between = bytes().live;
    int64_t results = 0;
    for (const at::Tensor& t : gradients(y, in, dy)) results += static_cast<int64_t>(t.nbytes());
    return std::pair{forward, bytes().peak - between - results};
  };
  EXPECT_EQ(temporary(500), temporary(8000));
}

TEST(SwigluMlp, ZeroTokensGiveZeroWeightGradients) {
  const at::Tensor x = random_leaf({0, 3}), fc1 = random_leaf({4, 3}), fc2 = random_leaf({3, 2});
  const at::Tensor y = ops::swiglu_mlp(x, fc1, fc2, 1);
  const auto g = gradients(y, {x, fc1, fc2}, y.detach());
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 3}));
  test::expect_bitwise(g[1], at::zeros({4, 3}, test::fp64()), "fc1");
  test::expect_bitwise(g[2], at::zeros({3, 2}, test::fp64()), "fc2");
}

TEST(SwigluMlp, StridedInputsGiveTheSameResult) {
  at::manual_seed(13);
  const auto strided = [](int64_t rows, int64_t columns) {
    return at::randn({columns, rows}, test::fp64()).t();
  };
  const at::Tensor x = strided(9, 6), fc1 = strided(8, 6), fc2 = strided(6, 4);
  const at::Tensor packed_x = leaf_of(x.contiguous()), packed_fc1 = leaf_of(fc1.contiguous()),
                   packed_fc2 = leaf_of(fc2.contiguous());
  const at::Tensor view_x = x.detach().requires_grad_(), view_fc1 = fc1.detach().requires_grad_(),
                   view_fc2 = fc2.detach().requires_grad_();
  const at::Tensor dy = at::randn({6, 9}, test::fp64()).t();
  const at::Tensor a = ops::swiglu_mlp(view_x, view_fc1, view_fc2, 1),
                   b = ops::swiglu_mlp(packed_x, packed_fc1, packed_fc2, 1);
  EXPECT_TRUE(a.is_contiguous());
  test::expect_close_rms(a, b, test::kSameMathsFp64, "y");
  const auto ga = gradients(a, {view_x, view_fc1, view_fc2}, dy),
             gb = gradients(b, {packed_x, packed_fc1, packed_fc2}, dy);
  for (size_t i = 0; i < 3; ++i)
    test::expect_close_rms(ga[i], gb[i], test::kSameMathsFp64, "gradient " + std::to_string(i));
}

TEST(SwigluMlp, MetaTensorsGiveTheShape) {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor y =
      ops::swiglu_mlp(at::empty({7, 6}, meta), at::empty({8, 6}, meta), at::empty({6, 4}, meta), 1);
  EXPECT_TRUE(y.is_meta() && y.sizes() == at::IntArrayRef({7, 6}));
}

TEST(SwigluMlp, WrongArgumentsNameRuleValueAndRemedy) {
  const at::Tensor x = at::ones({2, 6}), fc1 = at::ones({8, 6}), fc2 = at::ones({6, 4});
  test::expect_error<ShapeError>(
      [&] {
        ops::swiglu_mlp(x, at::ones({4, 6}), fc2, 1);
      },
      {"swiglu_mlp", "fc1 must be [2I,D] = [8,6]", "got [4,6]", "[gate; up]"});
  test::expect_error<ShapeError>(
      [&] {
        ops::swiglu_mlp(at::ones({2, 3, 6}), fc1, fc2, 1);
      },
      {"x must be [T,D]", "[2,3,6]"});
  test::expect_error<DtypeError>([&] { ops::swiglu_mlp(x, fc1.to(at::kDouble), fc2, 1); },
                                 {"fc1 must be float32", "float64"});
  test::expect_error<ConfigError>([&] { ops::swiglu_mlp(x, fc1, fc2, -1); },
                                  {"swiglu_limit", ">= 0", "got -1"});
}

}  // namespace
}  // namespace lethe
