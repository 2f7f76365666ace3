#include "lethe/ops/experts.h"

#include <cmath>

#include "support/expect_error.h"
#include "support/golden.h"
#include "support/gradcheck.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/silu.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/ops/gate.h"
#include "lethe/ops/implementation.h"

namespace lethe {
namespace {

using test::gradients;
using test::leaf_of;
using test::random_leaf;

constexpr int64_t kExperts = 5, kWidth = 6, kInner = 4;

// x, weights, fc1, fc2: the floating arguments, in this order everywhere below.
using Leaves = std::vector<at::Tensor>;

at::Tensor run(const Leaves& in, const at::Tensor& indices, double limit) {
  return ops::experts(in[0], in[1], indices, in[2], in[3], limit);
}

at::Tensor random_routes(int64_t tokens, int64_t k, int64_t experts = kExperts) {
  return ops::reference::gate_select(at::rand({tokens, experts}), {}, k);
}

at::Tensor all_to(std::vector<int32_t> experts, int64_t tokens) {
  return at::tensor(experts, at::TensorOptions().dtype(at::kInt)).unsqueeze(0).repeat({tokens, 1});
}

// Redraws until no pre-activation lies so near the clamp that a finite difference would cross it.
Leaves leaves_off_the_kinks(int64_t tokens, int64_t k, double limit) {
  for (;;) {
    const Leaves in{random_leaf({tokens, kWidth}),
                    random_leaf({tokens, k}),
                    random_leaf({kExperts, 2 * kInner, kWidth}, 0.5),
                    random_leaf({kExperts, kWidth, kInner}, 0.5)};
    const at::Tensor projected = at::matmul(in[0].detach(), in[2].detach().transpose(1, 2));
    if ((projected.abs() - limit).abs().min().item<double>() > 1e-5) return in;
  }
}

TEST(Experts, MatchesGoldenValuesAndGradients) {
  auto golden = test::load_safetensors(std::string(LETHE_GOLDEN_DIR) + "/unit/experts.safetensors");
  const Leaves in{leaf_of(golden["x"]),
                  leaf_of(golden["route_weights"]),
                  leaf_of(golden["w13"]),
                  leaf_of(golden["w2"])};
  const at::Tensor y = run(in, golden["route_indices"], 1);
  test::expect_close_rms(y, golden["y"], test::kGoldenFp64, "y");
  const auto g = gradients(y, in, golden["d.y"]);
  const char* names[] = {"grad.x", "grad.route_weights", "grad.w13", "grad.w2"};
  for (size_t i = 0; i < 4; ++i)
    test::expect_close_rms(g[i], golden[names[i]], test::kGoldenFp64, names[i]);
}

TEST(Experts, GradientsMatchCentralDifferences) {
  at::manual_seed(21);
  for (const double limit : {0.0, 1.0})
    for (const int64_t tokens : test::kTokenCounts) {
      SCOPED_TRACE("limit " + std::to_string(limit) + ", tokens " + std::to_string(tokens));
      const at::Tensor indices = random_routes(tokens, 2);
      const auto f = [&](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{run(in, indices, limit)};
      };
      test::expect_gradients(f, leaves_off_the_kinks(tokens, 2, limit), 100);
    }
}

// One token at a time, weight applied at the very end as in transformers.
at::Tensor token_by_token(const Leaves& in, const at::Tensor& indices, double limit) {
  std::vector<at::Tensor> rows;
  for (int64_t t = 0; t < in[0].size(0); ++t) {
    at::Tensor y = at::zeros({in[0].size(1)}, in[0].options());
    for (int64_t j = 0; j < indices.size(1); ++j) {
      const int64_t e = indices[t][j].item<int64_t>(), inner = in[3].size(2);
      const at::Tensor h = at::matmul(in[2][e], in[0][t]);
      const at::Tensor a = at::silu(h.narrow(0, 0, inner).clamp_max(limit)) *
                           h.narrow(0, inner, inner).clamp(-limit, limit);
      y = y + at::matmul(in[3][e], a) * in[1][t][j];
    }
    rows.push_back(y);
  }
  return at::stack(rows);
}

TEST(Experts, EqualsOneTokenAtATimeForAnyNumberOfChoices) {
  at::manual_seed(22);
  for (const int64_t k : {1, 2, 3, 5}) {
    const Leaves in = leaves_off_the_kinks(17, k, 1);
    const at::Tensor indices = random_routes(17, k), dy = at::randn({17, kWidth}, test::fp64());
    const at::Tensor a = run(in, indices, 1), b = token_by_token(in, indices, 1);
    test::expect_close_rms(a, b, test::kSameMathsFp64, "y");
    const auto ga = gradients(a, in, dy), gb = gradients(b, in, dy);
    for (size_t i = 0; i < 4; ++i)
      test::expect_close_rms(ga[i], gb[i], test::kSameMathsFp64, "gradient " + std::to_string(i));
  }
}

TEST(Experts, ClampAppliesPerOperandInsideTheRoutedExpertsToo) {
  const Leaves in{leaf_of(at::ones({1, 1})),
                  leaf_of(at::full({1, 1}, 0.5)),
                  leaf_of(at::tensor({20., -20.}, test::fp64()).view({1, 2, 1})),
                  leaf_of(at::ones({1, 1, 1}))};
  const at::Tensor y = run(in, all_to({0}, 1), 10);
  EXPECT_NEAR(y.item<double>(), 10 / (1 + std::exp(-10.0)) * -10 * 0.5, 1e-12);
  const auto g = gradients(y, in, at::ones({1, 1}));
  test::expect_bitwise(g[2], at::zeros({1, 2, 1}, test::fp64()), "beyond the clamp");
  const Leaves edge{
      in[0], in[1], leaf_of(at::tensor({10., -10.}, test::fp64()).view({1, 2, 1})), in[3]};
  const at::Tensor passed =
      gradients(run(edge, all_to({0}, 1), 10), {edge[2]}, at::ones({1, 1}))[0];
  EXPECT_LT(passed[0][0].item<double>(), -1);
  EXPECT_GT(passed[0][1].item<double>(), 1);
}

TEST(Experts, ExpertsWithoutTokensGetDefinedZeroGradients) {
  at::manual_seed(23);
  const Leaves in = leaves_off_the_kinks(9, 2, 1);
  const auto g = gradients(run(in, all_to({1, 3}, 9), 1), in, at::randn({9, kWidth}));
  for (const int64_t e : {0, 2, 4}) {
    test::expect_bitwise(g[2][e], at::zeros_like(in[2][e]), "fc1");
    test::expect_bitwise(g[3][e], at::zeros_like(in[3][e]), "fc2");
  }
  for (const int64_t e : {1, 3})
    EXPECT_GT(g[2][e].abs().sum().item<double>() * g[3][e].abs().sum().item<double>(), 0);
}

TEST(Experts, ZeroTokensGiveAnEmptyResultAndZeroGradients) {
  const Leaves in{random_leaf({0, kWidth}),
                  random_leaf({0, 2}),
                  random_leaf({kExperts, 2 * kInner, kWidth}),
                  random_leaf({kExperts, kWidth, kInner})};
  const at::Tensor y = run(in, at::zeros({0, 2}, at::kInt), 1);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, kWidth}));
  const auto g = gradients(y, in, y.detach());
  for (size_t i = 0; i < 4; ++i)
    test::expect_bitwise(g[i], at::zeros_like(in[i]), "gradient " + std::to_string(i));
}

TEST(Experts, OnlyTheNeededGradientsAreRequiredOfTheCaller) {
  at::manual_seed(24);
  const Leaves all = leaves_off_the_kinks(9, 2, 1);
  const at::Tensor indices = random_routes(9, 2), dy = at::randn({9, kWidth});
  const auto expected = gradients(run(all, indices, 1), all, dy);
  for (size_t only = 0; only < 4; ++only) {
    Leaves some;
    for (size_t i = 0; i < 4; ++i) some.push_back(i == only ? all[i] : all[i].detach());
    test::expect_bitwise(gradients(run(some, indices, 1), {some[only]}, dy)[0],
                         expected[only],
                         "input " + std::to_string(only));
  }
}

TEST(Experts, TwoRunsAreBitwiseEqual) {
  at::manual_seed(25);
  const Leaves in{leaf_of(at::randn({64, 24}), at::kFloat),
                  leaf_of(at::rand({64, 3}), at::kFloat),
                  leaf_of(at::randn({8, 40, 24}), at::kFloat),
                  leaf_of(at::randn({8, 24, 20}), at::kFloat)};
  const at::Tensor indices = random_routes(64, 3, 8), dy = at::randn({64, 24});
  const at::Tensor a = run(in, indices, 1), b = run(in, indices, 1);
  test::expect_bitwise(a, b, "y");
  const auto ga = gradients(a, in, dy), gb = gradients(b, in, dy);
  for (size_t i = 0; i < 4; ++i)
    test::expect_bitwise(ga[i], gb[i], "gradient " + std::to_string(i));
}

TEST(Experts, Float32AgreesWithFloat64) {
  at::manual_seed(26);
  const std::vector<at::Tensor> values{at::randn({33, 24}),
                                       at::rand({33, 2}),
                                       at::randn({8, 40, 24}) * 0.3,
                                       at::randn({8, 24, 20}) * 0.2};
  const at::Tensor indices = random_routes(33, 2, 8), dy = at::randn({33, 24});
  Leaves narrow, wide;
  for (const at::Tensor& t : values) {
    narrow.push_back(leaf_of(t, at::kFloat));
    wide.push_back(leaf_of(t));
  }
  const at::Tensor a = run(narrow, indices, 1), b = run(wide, indices, 1);
  test::expect_close_rms(a, b, test::kSameMathsFp32, "y");
  const auto ga = gradients(a, narrow, dy), gb = gradients(b, wide, dy);
  for (size_t i = 0; i < 4; ++i)
    test::expect_close_rms(ga[i], gb[i], test::kSameMathsFp32, "gradient " + std::to_string(i));
}

// y and all gradients in float32, with the implementation of this name.
std::vector<at::Tensor> results_with(ops::Implementation implementation,
                                     const Leaves& in,
                                     const at::Tensor& indices,
                                     const at::Tensor& dy) {
  ops::choose_implementations({.all = implementation, .overrides = {}});
  const at::Tensor y = run(in, indices, 1);
  std::vector<at::Tensor> out = gradients(y, in, dy);
  out.push_back(y.detach());
  ops::choose_implementations({});
  return out;
}

struct Case {
  int64_t tokens, k, experts, width, inner;
};

Leaves float_leaves(const Case& c, double x_scale = 1) {
  return {leaf_of(at::randn({c.tokens, c.width}) * x_scale, at::kFloat),
          leaf_of(at::rand({c.tokens, c.k}), at::kFloat),
          leaf_of(at::randn({c.experts, 2 * c.inner, c.width}) / std::sqrt(c.width), at::kFloat),
          leaf_of(at::randn({c.experts, c.width, c.inner}) / std::sqrt(c.inner), at::kFloat)};
}

TEST(Experts, KernelEqualsTheReference) {
  at::manual_seed(28);
  const Case cases[] = {{1, 1, 1, 1, 1},
                        {64, 2, 8, 48, 24},
                        {33, 5, 5, 65, 31},
                        {129, 1, 3, 17, 63},
                        {200, 3, 4, 300, 100},
                        {3, 2, 40, 9, 290}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.tokens);
    const Leaves in = float_leaves(c);
    const at::Tensor indices = random_routes(c.tokens, c.k, c.experts),
                     dy = at::randn({c.tokens, c.width});
    const auto fused = results_with(ops::Implementation::Fused, in, indices, dy),
               reference = results_with(ops::Implementation::Reference, in, indices, dy);
    for (size_t i = 0; i < fused.size(); ++i)
      test::expect_close_rms(
          fused[i], reference[i], test::kSameMathsFp32, "result " + std::to_string(i));
  }
}

TEST(Experts, KernelTakesBfloat16WeightsAsTheReferenceDoes) {
  at::manual_seed(29);
  const Case c{70, 2, 4, 65, 31};
  Leaves in = float_leaves(c);
  for (const size_t i : {2, 3}) in[i] = leaf_of(in[i], at::kBFloat16);
  const at::Tensor indices = random_routes(c.tokens, c.k, c.experts),
                   dy = at::randn({c.tokens, c.width});
  const auto fused = results_with(ops::Implementation::Fused, in, indices, dy),
             reference = results_with(ops::Implementation::Reference, in, indices, dy);
  for (const size_t i : {0, 1, 4})
    test::expect_close_rms(
        fused[i], reference[i], test::kSameMathsFp32, "result " + std::to_string(i));
  for (const size_t i : {2, 3}) EXPECT_EQ(fused[i].scalar_type(), reference[i].scalar_type());
}

TEST(Experts, KernelAgreesAtExtremeMagnitudes) {
  at::manual_seed(30);
  const Case c{40, 2, 4, 33, 20};
  for (const double scale : {1e-20, 1e-6, 1e6, 1e20}) {
    SCOPED_TRACE(scale);
    const Leaves in = float_leaves(c, scale);
    const at::Tensor indices = random_routes(c.tokens, c.k, c.experts),
                     dy = at::randn({c.tokens, c.width});
    const auto fused = results_with(ops::Implementation::Fused, in, indices, dy),
               reference = results_with(ops::Implementation::Reference, in, indices, dy);
    for (size_t i = 0; i < fused.size(); ++i)
      test::expect_close_rms(
          fused[i], reference[i], test::kSameMathsFp32, "result " + std::to_string(i));
  }
}

TEST(Experts, BitsOfTheKernelDoNotDependOnTheNumberOfThreads) {
  at::manual_seed(31);
  const Case c{300, 2, 5, 50, 30};
  const Leaves in = float_leaves(c);
  const at::Tensor indices = random_routes(c.tokens, c.k, c.experts),
                   dy = at::randn({c.tokens, c.width});
  const int before = at::get_num_threads();
  std::vector<std::vector<at::Tensor>> results;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    results.push_back(results_with(ops::Implementation::Fused, in, indices, dy));
  }
  at::set_num_threads(before);
  for (const size_t other : {1, 2})
    for (size_t i = 0; i < results[0].size(); ++i)
      test::expect_bitwise(results[other][i], results[0][i], "result " + std::to_string(i));
}

// Peak bytes above what lives before and after, of a forward and of a backward pass, without the
// outputs and the sorted routes.
std::pair<int64_t, int64_t> temporary_bytes(int64_t tokens) {
  const Case c{tokens, 2, 4, 32, 16};
  const Leaves in = float_leaves(c);
  const at::Tensor indices = random_routes(tokens, c.k, c.experts),
                   dy = at::randn({tokens, c.width}, at::kFloat);
  const int64_t routes = tokens * c.k * 4, rows = tokens * c.width * 4;
  reset_peak();
  const int64_t before = bytes().live;
  const at::Tensor y = run(in, indices, 1);
  const int64_t saved = tokens * c.k * 2 * c.inner * 4;
  const int64_t forward = bytes().peak - before - rows - routes - saved;
  reset_peak();
  const int64_t between = bytes().live;
  const auto g = gradients(y, in, dy);
  int64_t results = 0;
  for (const at::Tensor& t : g) results += static_cast<int64_t>(t.nbytes());
  return {forward, bytes().peak - between - results - routes};
}

TEST(Experts, TemporariesOfTheKernelDoNotGrowWithTheTokens) {
  install_byte_accounting();
  at::manual_seed(32);
  const auto few = temporary_bytes(500), many = temporary_bytes(8000);
  EXPECT_EQ(few.first, many.first);
  EXPECT_EQ(few.second, many.second);
}

TEST(Experts, StridedInputsGiveTheSameResult) {
  at::manual_seed(27);
  const Leaves packed = leaves_off_the_kinks(9, 2, 1);
  const at::Tensor indices = random_routes(9, 2), dy = at::randn({9, kWidth}, test::fp64());
  Leaves strided;
  for (const at::Tensor& t : packed)
    strided.push_back(t.detach().transpose(-1, -2).contiguous().transpose(-1, -2).requires_grad_());
  const at::Tensor a = run(strided, indices.t().contiguous().t(), 1), b = run(packed, indices, 1);
  EXPECT_TRUE(a.is_contiguous());
  test::expect_close_rms(a, b, test::kSameMathsFp64, "y");
  const auto ga = gradients(a, strided, dy.t().contiguous().t()), gb = gradients(b, packed, dy);
  for (size_t i = 0; i < 4; ++i)
    test::expect_close_rms(ga[i], gb[i], test::kSameMathsFp64, "gradient " + std::to_string(i));
}

TEST(Experts, MetaTensorsGiveTheShape) {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor y = ops::experts(at::empty({7, 6}, meta),
                                    at::empty({7, 2}, meta),
                                    at::empty({7, 2}, meta.dtype(at::kInt)),
                                    at::empty({5, 8, 6}, meta),
                                    at::empty({5, 6, 4}, meta),
                                    1);
  EXPECT_TRUE(y.is_meta() && y.sizes() == at::IntArrayRef({7, 6}));
}

TEST(Experts, WrongArgumentsNameRuleValueAndRemedy) {
  const at::Tensor x = at::ones({2, 6}), w = at::ones({2, 2}), fc1 = at::ones({5, 8, 6}),
                   fc2 = at::ones({5, 6, 4});
  const at::Tensor indices = all_to({0, 4}, 2);
  test::expect_error<ShapeError>(
      [&] {
        ops::experts(x, at::ones({2, 3}), indices, fc1, fc2, 1);
      },
      {"experts", "weights must be [T,k] = [2,2]", "got [2,3]"});
  test::expect_error<ShapeError>(
      [&] {
        ops::experts(x, w, indices, at::ones({5, 4, 6}), fc2, 1);
      },
      {"fc1 must be [E,2I,D] = [5,8,6]", "[gate; up]"});
  test::expect_error<DtypeError>([&] { ops::experts(x, w, indices.to(at::kLong), fc1, fc2, 1); },
                                 {"indices must be int32"});
  test::expect_error<DataError>(
      [&] {
        ops::experts(x, w, all_to({0, 5}, 2), fc1, fc2, 1);
      },
      {"[0, 5)", "got 5 at token 0, choice 1", "number of experts"});
  test::expect_error<ConfigError>([&] { ops::experts(x, w, indices, fc1, fc2, -2); },
                                  {"swiglu_limit", "got -2"});
}

}  // namespace
}  // namespace lethe
