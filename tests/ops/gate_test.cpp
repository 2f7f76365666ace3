#include "lethe/ops/gate.h"

#include <cmath>

#include "support/expect_error.h"
#include "support/golden.h"
#include "support/gradcheck.h"
#include "support/op_checks.h"
#include "support/routes.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/ops/implementation.h"

namespace lethe {
namespace {

using test::expect_ids;
using test::gradients;
using test::ids;
using test::leaf_of;
using test::random_leaf;
using test::row;

using OptionalTensor = std::optional<at::Tensor>;

constexpr const char* kFunctions[] = {"sqrtsoftplus", "sigmoid", "softmax"};

std::map<std::string, at::Tensor> unit(const std::string& name) {
  return test::load_safetensors(std::string(LETHE_GOLDEN_DIR) + "/unit/" + name + ".safetensors");
}

// The scores of given logits: every expert reads its own column of x.
at::Tensor scores_of(const at::Tensor& logits, std::string_view function) {
  const at::Tensor own = at::eye(logits.size(1), logits.options());
  return std::get<2>(ops::gate(logits, own, {}, {}, {1, function, false, 1}));
}

TEST(GateScores, SqrtSoftplusMatchesGoldenValuesAndGradients) {
  auto golden = unit("sqrtsoftplus");
  const at::Tensor l = leaf_of(golden["l"].unsqueeze(0));
  const at::Tensor s = scores_of(l, "sqrtsoftplus");
  test::expect_close_rms(s[0], golden["s"], test::kGoldenFp64, "s");
  const at::Tensor g = gradients(s, {l}, golden["d.s"].unsqueeze(0))[0];
  test::expect_close_rms(g[0], golden["grad.l"], test::kGoldenFp64, "grad.l");
}

TEST(GateScores, SqrtSoftplusMatchesTheValuesOfTheSpecification) {
  const at::Tensor l = leaf_of(row({-5, -1, 0, 1, 5}));
  const at::Tensor s = scores_of(l, "sqrtsoftplus");
  const at::Tensor slope = gradients(s, {l}, at::ones_like(s))[0];
  const at::Tensor want_s = row({.08194723, .55969785, .83255461, 1.14597630, 2.23756907});
  const at::Tensor want_slope = row({.04083635, .24025590, .30028060, .31896758, .22196123});
  EXPECT_LE((s - want_s).abs().max().item<double>(), 5.1e-9);
  EXPECT_LE((slope - want_slope).abs().max().item<double>(), 5.1e-9);
}

void expect_ends_of_the_range() {
  const at::Tensor l = leaf_of(row({-200, -85, 21, 80}), at::kFloat);
  const at::Tensor s = scores_of(l, "sqrtsoftplus");
  const at::Tensor g = gradients(s, {l}, at::ones_like(s))[0];
  EXPECT_EQ(s[0][0].item<float>(), 0.0F);
  EXPECT_EQ(g[0][0].item<float>(), 0.0F);
  EXPECT_NEAR(g[0][1].item<double>() / (0.5 * std::exp(-42.5)), 1, 1e-5);
  EXPECT_NEAR(g[0][2].item<double>(), 0.5 / std::sqrt(21.0), 1e-7);
  EXPECT_NEAR(g[0][3].item<double>(), 0.5 / std::sqrt(80.0), 1e-7);
}

TEST(GateScores, GradientIsZeroWhereFloat32UnderflowsAndExactAboveIt) {
  expect_ends_of_the_range();
  ops::choose_implementations({.all = ops::Implementation::Reference, .overrides = {}});
  expect_ends_of_the_range();
  ops::choose_implementations({});
}

struct Case {
  at::Tensor x, weight, chosen;
};

Case case_of(int64_t tokens, int64_t width, int64_t experts, int64_t k) {
  const at::Tensor chosen = ops::reference::gate_select(at::rand({tokens, experts}), {}, k);
  return {random_leaf({tokens, width}), random_leaf({experts, width}, 0.5), chosen};
}

// weights and scores, differentiable in x and weight; the choice is fixed.
test::TensorFn gate_of(const at::Tensor& chosen, const char* function, bool normalize) {
  return [=](const std::vector<at::Tensor>& in) {
    const at::Tensor given = in[0].is_meta() ? chosen.to(at::kMeta) : chosen;
    const auto [weights, indices, scores] =
        ops::gate(in[0], in[1], {}, given, {chosen.size(1), function, normalize, 1.5});
    return std::vector<at::Tensor>{weights, scores};
  };
}

TEST(Gate, GradientsMatchCentralDifferences) {
  for (const char* function : kFunctions)
    for (const bool normalize : {true, false})
      for (const int64_t tokens : {1, 5, 16}) {
        SCOPED_TRACE(std::string(function) + ", tokens " + std::to_string(tokens));
        const Case c = case_of(tokens, 6, 8, 3);
        test::expect_gradients(gate_of(c.chosen, function, normalize), {c.x, c.weight});
      }
}

TEST(Gate, Float32FollowsFloat64ForEveryTokenCountAndFunction) {
  for (const char* function : kFunctions)
    for (const int64_t tokens : test::kTokenCounts) {
      SCOPED_TRACE(std::string(function) + ", tokens " + std::to_string(tokens));
      const Case c = case_of(tokens, 37, 12, 3);
      test::expect_float32_follows_float64(gate_of(c.chosen, function, tokens % 2 == 0),
                                           {c.x, c.weight});
    }
  for (const auto& [width, experts, k] :
       {std::tuple{300, 16, 2}, {520, 70, 6}, {20, 9, 9}, {64, 1, 1}}) {
    const Case c = case_of(150, width, experts, k);
    test::expect_float32_follows_float64(gate_of(c.chosen, "sqrtsoftplus", true), {c.x, c.weight});
  }
}

TEST(Gate, ShapesStridesAndMetaFollowTheContract) {
  const Case c = case_of(9, 7, 5, 2);
  const auto f = gate_of(c.chosen, "sqrtsoftplus", true);
  test::expect_strides_do_not_matter(f, {c.x, c.weight});
  test::expect_meta_matches(f, {c.x, c.weight});
  const at::Tensor x = at::randn({9, 7}), weight = at::randn({5, 7}), bias = at::randn({5});
  const auto plain = ops::gate(x, weight, bias, c.chosen, {2, "sigmoid", true, 1}),
             strided = ops::gate(x.t().contiguous().t(),
                                 weight.t().contiguous().t(),
                                 at::stack({bias, bias}, 1).select(1, 0),
                                 c.chosen.t().contiguous().t(),
                                 {2, "sigmoid", true, 1});
  test::expect_bitwise(std::get<0>(plain), std::get<0>(strided), "weights");
  test::expect_bitwise(std::get<1>(plain), std::get<1>(strided), "indices");
}

// Every output and gradient, with the kernel's own choice.
std::vector<at::Tensor> everything(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
  const at::Tensor x_leaf = leaf_of(x, at::kFloat), w_leaf = leaf_of(w, at::kFloat);
  const auto [weights, indices, scores] =
      ops::gate(x_leaf, w_leaf, b, {}, {6, "sqrtsoftplus", true, 1.5});
  const at::Tensor seed = at::linspace(-1, 1, scores.numel(), at::kFloat).view(scores.sizes());
  const auto g = torch::autograd::grad(
      {weights, scores}, {x_leaf, w_leaf}, {seed.narrow(1, 0, 6).contiguous(), seed});
  return {weights, scores, g[0], g[1], indices};
}

TEST(Gate, KernelAgreesWithTheReferenceAndItsBitsDoNotDependOnTheThreads) {
  const at::Tensor x = at::randn({1100, 70}), w = at::randn({24, 70}) * 0.2,
                   b = at::randn({24}) * 0.1;
  const auto fused = everything(x, w, b);
  ops::choose_implementations({.all = ops::Implementation::Reference, .overrides = {}});
  const auto reference = everything(x, w, b);
  ops::choose_implementations({});
  for (size_t i = 0; i < 4; ++i)
    test::expect_same_maths(fused[i], reference[i], "result " + std::to_string(i));
  test::expect_bitwise(fused[4], reference[4], "indices");
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const auto again = everything(x, w, b);
    for (size_t i = 0; i < fused.size(); ++i)
      test::expect_bitwise(again[i], fused[i], "result " + std::to_string(i));
  }
  at::set_num_threads(before);
}

TEST(Gate, EitherGradientAloneAndEitherInputAloneWork) {
  const Case c = case_of(20, 10, 6, 2);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor x = leaf_of(c.x, dtype), w = leaf_of(c.weight, dtype);
    const auto outputs = gate_of(c.chosen, "sigmoid", true)({x, w});
    const at::Tensor a = at::ones_like(outputs[0]), b = at::ones_like(outputs[1]);
    const auto both = torch::autograd::grad(outputs, {x, w}, {a, b}, /*retain_graph=*/true);
    const at::Tensor x_only =
        torch::autograd::grad({outputs[0]}, {x}, {a}, /*retain_graph=*/true)[0];
    const at::Tensor x_other = gradients(outputs[1], {x}, b)[0];
    test::expect_close_rms(x_only + x_other, both[0], test::kSameMathsFp32, "d_x");
  }
}

TEST(Gate, BFloat16InputsAreWidened) {
  const at::Tensor x = leaf_of(at::randn({11, 20}), at::kBFloat16),
                   w = leaf_of(at::randn({6, 20}), at::kBFloat16);
  const at::Tensor wide_x = leaf_of(x, at::kFloat), wide_w = leaf_of(w, at::kFloat);
  const auto run = [](const at::Tensor& a, const at::Tensor& b) {
    return std::get<0>(ops::gate(a, b, {}, {}, {2, "sqrtsoftplus", true, 1.5}));
  };
  const at::Tensor narrow = run(x, w), wide = run(wide_x, wide_w);
  test::expect_bitwise(narrow, wide, "weights");
  const auto a = gradients(narrow, {x}, at::ones_like(wide)),
             b = gradients(wide, {wide_x}, at::ones_like(wide));
  test::expect_bitwise(a[0], b[0].to(at::kBFloat16), "d_x");
}

TEST(Gate, BiasFlipsTheChoiceAndLeavesTheWeightsUnbiased) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor x = row({2.0, 1.5, -0.5, -2.0}).to(dtype), own = at::eye(4, x.options());
    const at::Tensor bias = at::tensor({0., 0., 3., 0.}, test::fp64()).to(dtype);
    const auto choose = [&](const OptionalTensor& b) {
      return ops::gate(x, own, b, {}, {2, "sqrtsoftplus", true, 1.5});
    };
    expect_ids(std::get<1>(choose({})), ids({0, 1}), "without bias");
    const auto [w, chosen, scores] = choose(bias);
    expect_ids(chosen, ids({0, 2}), "with bias");
    const double a = scores[0][0].item<double>(), b = scores[0][2].item<double>();
    test::expect_close_rms(
        w, row({a / (a + b) * 1.5, b / (a + b) * 1.5}), test::kSameMathsFp32, "weights");
  }
}

TEST(Gate, AllScoresUnderflowedGiveZeroWeightsInsteadOfNaN) {
  const at::Tensor x = leaf_of(at::full({2, 4}, -500), at::kFloat);
  const auto [w, chosen, scores] = ops::gate(x, at::eye(4), {}, {}, {2, "sqrtsoftplus", true, 1.5});
  test::expect_bitwise(w, at::zeros({2, 2}), "weights");
  test::expect_bitwise(gradients(w, {x}, at::ones_like(w))[0], at::zeros({2, 4}), "d_x");
}

// Tokens of [-90] logits: float32 flushes or rounds e^-90, not the scores.
TEST(Gate, VeryNegativeLogitsKeepTheirWeights) {
  const auto weights = [](at::ScalarType dtype) {
    const at::Tensor x = row({-90, -91, -92, -100}).to(dtype);
    return std::get<0>(ops::gate(x, at::eye(4, x.options()), {}, {}, {4, "sqrtsoftplus", true, 1}));
  };
  test::expect_close_rms(weights(at::kFloat), weights(at::kDouble), test::kSameMathsFp32, "w");
}

TEST(Gate, WrongArgumentsNameRuleValueAndRemedy) {
  const at::Tensor x = at::ones({3, 6}), weight = at::ones({4, 6});
  const auto call = [&](const OptionalTensor& bias,
                        const OptionalTensor& given,
                        int64_t k = 2,
                        std::string_view f = "softmax") {
    ops::gate(x, weight, bias, given, {k, f, true, 1});
  };
  const auto three = [](const at::Tensor& one) { return one.expand({3, -1}); };
  test::expect_error<ConfigError>(
      [&] { call({}, {}, 2, "relu"); },
      {"gate", "sqrtsoftplus, sigmoid or softmax", "'relu'", "scoring_func"});
  test::expect_error<ShapeError>([&] { call({}, {}, 5); }, {"gate [k]", "[1, 4]", "got 5"});
  test::expect_error<ShapeError>([&] { call(at::zeros({5}), {}); },
                                 {"bias must be [E] = [4]", "got [5]", "another layer"});
  test::expect_error<DtypeError>([&] { call(at::zeros({4}, at::kDouble), {}); },
                                 {"bias must be float32", "float64"});
  test::expect_error<DataError>(
      [&] {
        call({}, three(ids({2, 1})));
      },
      {"ascend strictly", "token 0"});
  test::expect_error<DataError>(
      [&] {
        call({}, three(ids({1, 1})));
      },
      {"ascend strictly", "token 0"});
  test::expect_error<DataError>(
      [&] {
        call({}, three(ids({1, 4})));
      },
      {"[0, 4)", "got 4", "token 0, choice 1"});
  test::expect_error<DataError>([&] { call({}, three(ids({-1, 1}))); }, {"[0, 4)", "got -1"});
  test::expect_error<DtypeError>(
      [&] {
        call({}, three(ids({0, 1})).to(at::kLong));
      },
      {"given must be int32", "int64"});
  test::expect_error<ShapeError>([&] { call({}, ids({0, 1})); }, {"given", "[T,k]", "[1,2]"});
  test::expect_error<ShapeError>(
      [&] {
        ops::gate(at::ones({6}), weight, {}, {}, {2, "softmax", true, 1});
      },
      {"x", "[T,D]", "[6]"});
  test::expect_error<DtypeError>(
      [&] {
        ops::gate(x.to(at::kDouble), weight, {}, {}, {2, "softmax", true, 1});
      },
      {"float64", "float32"});
}

// The whole gate against the peer: scores, choice, weights and the gradients of x and the gate's
// weight.
void expect_golden(std::map<std::string, at::Tensor>& golden,
                   const OptionalTensor& bias,
                   const OptionalTensor& given) {
  const at::Tensor x = leaf_of(golden["x"]), weight = leaf_of(golden["weight"]);
  const auto [w, chosen, scores] =
      ops::gate(x, weight, bias, given, {2, "sqrtsoftplus", true, 1.5});
  EXPECT_FALSE(chosen.requires_grad());
  test::expect_close_rms(scores, golden["scores"], test::kGoldenFp64, "scores");
  expect_ids(chosen, golden["indices"], "indices");
  test::expect_close_rms(w, golden["weights"], test::kGoldenFp64, "weights");
  const auto g = gradients(w, {x, weight}, golden["d.weights"]);
  test::expect_close_rms(g[0], golden["grad.x"], test::kGoldenFp64, "grad.x");
  test::expect_close_rms(g[1], golden["grad.weight"], test::kGoldenFp64, "grad.weight");
}

TEST(Gate, ScoredLayerMatchesGoldenValuesAndGradients) {
  auto golden = unit("gate_scored");
  expect_golden(golden, golden["bias"].to(at::kDouble), {});
}

TEST(Gate, HashLayerMatchesGoldenValuesAndGradients) {
  auto golden = unit("gate_hash");
  const at::Tensor table = golden["tid2eid"].to(at::kInt);
  expect_golden(golden, {}, ops::gate_lookup(golden["ids"].reshape({-1}), table));
}

TEST(Gate, ZeroTokensWork) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor none = leaf_of(at::zeros({0, 3}), dtype),
                     weight = leaf_of(at::ones({4, 3}), dtype);
    const auto [w, chosen, scores] = ops::gate(none, weight, {}, {}, {2, "sqrtsoftplus", true, 1});
    EXPECT_EQ(w.sizes(), at::IntArrayRef({0, 2}));
    const auto g = gradients(w, {none, weight}, w.detach());
    EXPECT_EQ(g[0].sizes(), none.sizes());
    EXPECT_EQ(g[1].abs().max().item<double>(), 0);
    EXPECT_EQ(ops::expert_counts(chosen, 4).sum().item<int64_t>(), 0);
  }
  EXPECT_EQ(ops::gate_lookup(at::zeros({0}, at::kLong), at::zeros({3, 2}, at::kInt)).sizes(),
            at::IntArrayRef({0, 2}));
}

TEST(Gate, IntegerStepsHaveMetaShapes) {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor looked_up = ops::gate_lookup(at::empty({7}, meta.dtype(at::kLong)),
                                                at::empty({9, 2}, meta.dtype(at::kInt)));
  EXPECT_TRUE(looked_up.is_meta() && looked_up.sizes() == at::IntArrayRef({7, 2}));
  const at::Tensor counts = ops::expert_counts(looked_up, 4);
  EXPECT_TRUE(counts.is_meta() && counts.scalar_type() == at::kLong &&
              counts.sizes() == at::IntArrayRef({4}));
}

// Above the outputs, the gradients and what is saved.
int64_t temporary_bytes(int64_t tokens) {
  const at::Tensor x = leaf_of(at::randn({tokens, 32}), at::kFloat),
                   w = leaf_of(at::randn({8, 32}), at::kFloat);
  reset_peak();
  const int64_t before = bytes().live;
  const auto [weights, indices, scores] = ops::gate(x, w, {}, {}, {2, "sigmoid", true, 1});
  const int64_t forward = bytes().peak - bytes().live;
  const at::Tensor seed = at::ones_like(weights);
  reset_peak();
  const auto g = torch::autograd::grad({weights}, {x, w}, {seed});
  EXPECT_GT(bytes().live, before);
  return forward + bytes().peak - bytes().live;
}

TEST(Gate, TemporaryMemoryDoesNotGrowWithTheTokens) {
  install_byte_accounting();
  EXPECT_EQ(temporary_bytes(20000), temporary_bytes(5000));
}

}  // namespace
}  // namespace lethe
