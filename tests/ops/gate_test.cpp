#include "lethe/ops/gate.h"

#include <cmath>

#include "support/expect_error.h"
#include "support/golden.h"
#include "support/gradcheck.h"
#include "support/routes.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include <gtest/gtest.h>

#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using test::expect_ids;
using test::gradients;
using test::ids;
using test::leaf_of;
using test::random_leaf;
using test::row;

std::map<std::string, at::Tensor> unit(const std::string& name) {
  return test::load_safetensors(std::string(LETHE_GOLDEN_DIR) + "/unit/" + name + ".safetensors");
}

TEST(GateScores, SqrtSoftplusMatchesGoldenValuesAndGradients) {
  auto golden = unit("sqrtsoftplus");
  const at::Tensor l = leaf_of(golden["l"].unsqueeze(0));
  const at::Tensor s = ops::gate_scores(l, "sqrtsoftplus");
  test::expect_close_rms(s[0], golden["s"], test::kGoldenFp64, "s");
  const at::Tensor g = gradients(s, {l}, golden["d.s"].unsqueeze(0))[0];
  test::expect_close_rms(g[0], golden["grad.l"], test::kGoldenFp64, "grad.l");
}

TEST(GateScores, SqrtSoftplusMatchesTheValuesOfTheSpecification) {
  const at::Tensor l = leaf_of(row({-5, -1, 0, 1, 5}));
  const at::Tensor s = ops::gate_scores(l, "sqrtsoftplus");
  const at::Tensor slope = gradients(s, {l}, at::ones_like(s))[0];
  const at::Tensor want_s = row({.08194723, .55969785, .83255461, 1.14597630, 2.23756907});
  const at::Tensor want_slope = row({.04083635, .24025590, .30028060, .31896758, .22196123});
  EXPECT_LE((s - want_s).abs().max().item<double>(), 5.1e-9);
  EXPECT_LE((slope - want_slope).abs().max().item<double>(), 5.1e-9);
}

TEST(GateScores, GradientIsZeroWhereFloat32UnderflowsAndExactAboveIt) {
  const at::Tensor l = leaf_of(row({-200, -85, 21, 80}), at::kFloat);
  const at::Tensor s = ops::gate_scores(l, "sqrtsoftplus");
  const at::Tensor g = gradients(s, {l}, at::ones_like(s))[0];
  EXPECT_EQ(s[0][0].item<float>(), 0.0F);
  EXPECT_EQ(g[0][0].item<float>(), 0.0F);
  EXPECT_NEAR(g[0][1].item<double>() / (0.5 * std::exp(-42.5)), 1, 1e-5);
  EXPECT_NEAR(g[0][2].item<double>(), 0.5 / std::sqrt(21.0), 1e-7);
  EXPECT_NEAR(g[0][3].item<double>(), 0.5 / std::sqrt(80.0), 1e-7);
}

TEST(GateScores, GradientsMatchCentralDifferences) {
  at::manual_seed(1);
  for (const char* function : {"sqrtsoftplus", "sigmoid", "softmax"})
    for (const int64_t tokens : test::kTokenCounts) {
      SCOPED_TRACE(std::string(function) + ", tokens " + std::to_string(tokens));
      const auto f = [function](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{ops::gate_scores(in[0], function)};
      };
      test::expect_gradients(f, {random_leaf({tokens, 8}, 3)});
    }
}

TEST(GateScores, Float32AgreesWithFloat64) {
  at::manual_seed(2);
  const at::Tensor wide = random_leaf({33, 8}, 4), narrow = leaf_of(wide, at::kFloat),
                   dy = at::randn({33, 8});
  const at::Tensor exact = leaf_of(narrow);
  for (const char* function : {"sqrtsoftplus", "sigmoid", "softmax"}) {
    const at::Tensor a = ops::gate_scores(narrow, function), b = ops::gate_scores(exact, function);
    test::expect_close_rms(a, b, test::kSameMathsFp32, function);
    test::expect_close_rms(gradients(a, {narrow}, dy)[0],
                           gradients(b, {exact}, dy)[0],
                           test::kSameMathsFp32,
                           function);
  }
}

TEST(GateScores, UnknownFunctionListsTheNames) {
  test::expect_error<ConfigError>(
      [] {
        ops::gate_scores(at::zeros({2, 4}), "relu");
      },
      {"gate_scores", "sqrtsoftplus, sigmoid or softmax", "'relu'", "scoring_func"});
  test::expect_error<DtypeError>(
      [] {
        ops::gate_scores(at::zeros({2, 4}, at::kInt), "softmax");
      },
      {"logits", "int32"});
  test::expect_error<ShapeError>([] { ops::gate_scores(at::zeros({4}), "softmax"); },
                                 {"logits", "[T,E]", "[4]"});
}

TEST(GateWeights, GradientsMatchCentralDifferences) {
  at::manual_seed(4);
  for (const bool normalize : {true, false})
    for (const int64_t tokens : test::kTokenCounts) {
      const at::Tensor scores = at::rand({tokens, 8}, test::fp64()).add_(0.1).requires_grad_();
      const at::Tensor chosen = ops::gate_select(scores.detach(), {}, 3);
      const auto f = [&](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{ops::gate_weights(in[0], chosen, normalize, 1.5)};
      };
      test::expect_gradients(f, {scores});
    }
}

TEST(GateWeights, AllZeroScoresGiveZeroWeightsInsteadOfNaN) {
  const at::Tensor scores = leaf_of(at::zeros({2, 4}), at::kFloat);
  const at::Tensor w = ops::gate_weights(scores, ops::gate_select(scores, {}, 2), true, 1.5);
  test::expect_bitwise(w, at::zeros({2, 2}), "weights");
}

TEST(GateWeights, IdsOutOfOrderOrRangeAreRefused) {
  const at::Tensor scores = at::ones({1, 4});
  test::expect_error<DataError>(
      [&] {
        ops::gate_weights(scores, ids({2, 1}), true, 1);
      },
      {"ascend strictly", "token 0"});
  test::expect_error<DataError>(
      [&] {
        ops::gate_weights(scores, ids({1, 1}), true, 1);
      },
      {"ascend strictly", "token 0"});
  test::expect_error<DataError>(
      [&] {
        ops::gate_weights(scores, ids({1, 4}), true, 1);
      },
      {"[0, 4)", "got 4", "token 0, choice 1"});
  test::expect_error<DataError>(
      [&] {
        ops::gate_weights(scores, ids({-1, 1}), true, 1);
      },
      {"[0, 4)", "got -1"});
  test::expect_error<DtypeError>(
      [&] {
        ops::gate_weights(scores, ids({0, 1}).to(at::kLong), true, 1);
      },
      {"indices must be int32", "int64"});
}

// The whole gate against the peer: logits, scores, choice, weights and the gradients of x and the
// gate's weight.
void expect_gate(std::map<std::string, at::Tensor>& golden,
                 const std::function<at::Tensor(const at::Tensor&)>& choose) {
  const at::Tensor x = leaf_of(golden["x"]), weight = leaf_of(golden["weight"]);
  const at::Tensor scores = ops::gate_scores(at::matmul(x, weight.t()), "sqrtsoftplus");
  const at::Tensor chosen = choose(scores);
  EXPECT_FALSE(chosen.requires_grad());
  const at::Tensor w = ops::gate_weights(scores, chosen, true, 1.5);
  test::expect_close_rms(scores, golden["scores"], test::kGoldenFp64, "scores");
  expect_ids(chosen, golden["indices"], "indices");
  test::expect_close_rms(w, golden["weights"], test::kGoldenFp64, "weights");
  const auto g = gradients(w, {x, weight}, golden["d.weights"]);
  test::expect_close_rms(g[0], golden["grad.x"], test::kGoldenFp64, "grad.x");
  test::expect_close_rms(g[1], golden["grad.weight"], test::kGoldenFp64, "grad.weight");
}

TEST(Gate, ScoredLayerMatchesGoldenValuesAndGradients) {
  auto golden = unit("gate_scored");
  expect_gate(golden, [&](const at::Tensor& scores) {
    return ops::gate_select(scores, golden["bias"], 2);
  });
}

TEST(Gate, HashLayerMatchesGoldenValuesAndGradients) {
  auto golden = unit("gate_hash");
  const at::Tensor table = golden["tid2eid"].to(at::kInt);
  expect_gate(golden, [&](const at::Tensor&) {
    return ops::gate_lookup(golden["ids"].reshape({-1}), table);
  });
}

TEST(Gate, ZeroTokensAndStridedInputsWork) {
  const at::Tensor none = leaf_of(at::zeros({0, 4})),
                   scores = ops::gate_scores(none, "sqrtsoftplus");
  const at::Tensor chosen = ops::gate_select(scores, {}, 2),
                   w = ops::gate_weights(scores, chosen, true, 1);
  EXPECT_EQ(w.sizes(), at::IntArrayRef({0, 2}));
  EXPECT_EQ(gradients(w, {none}, w.detach())[0].sizes(), none.sizes());
  EXPECT_EQ(ops::expert_counts(chosen, 4).sum().item<int64_t>(), 0);
  EXPECT_EQ(ops::gate_lookup(at::zeros({0}, at::kLong), at::zeros({3, 2}, at::kInt)).sizes(),
            at::IntArrayRef({0, 2}));

  at::manual_seed(5);
  const at::Tensor strided = at::randn({8, 9}, test::fp64()).t(), packed = strided.contiguous();
  const at::Tensor a = ops::gate_scores(strided, "sqrtsoftplus"),
                   b = ops::gate_scores(packed, "sqrtsoftplus");
  test::expect_bitwise(a, b, "scores");
  const at::Tensor ids_a = ops::gate_select(b.t().contiguous().t(), {}, 3),
                   ids_b = ops::gate_select(b, {}, 3);
  test::expect_bitwise(ids_a, ids_b, "ids");
  test::expect_bitwise(
      ops::gate_weights(b.t().contiguous().t(), ids_b.t().contiguous().t(), true, 1),
      ops::gate_weights(b, ids_b, true, 1),
      "weights");
}

TEST(Gate, MetaTensorsGiveShapesAndDtypes) {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor s = ops::gate_scores(at::empty({7, 4}, meta.dtype(at::kDouble)), "sqrtsoftplus");
  EXPECT_TRUE(s.is_meta() && s.scalar_type() == at::kDouble &&
              s.sizes() == at::IntArrayRef({7, 4}));
  const at::Tensor chosen = ops::gate_select(s, at::empty({4}, meta), 2);
  EXPECT_TRUE(chosen.is_meta() && chosen.scalar_type() == at::kInt &&
              chosen.sizes() == at::IntArrayRef({7, 2}));
  const at::Tensor looked_up = ops::gate_lookup(at::empty({7}, meta.dtype(at::kLong)),
                                                at::empty({9, 2}, meta.dtype(at::kInt)));
  EXPECT_TRUE(looked_up.is_meta() && looked_up.sizes() == at::IntArrayRef({7, 2}));
  const at::Tensor w = ops::gate_weights(s, chosen, true, 1);
  EXPECT_TRUE(w.is_meta() && w.scalar_type() == at::kDouble &&
              w.sizes() == at::IntArrayRef({7, 2}));
  const at::Tensor counts = ops::expert_counts(chosen, 4);
  EXPECT_TRUE(counts.is_meta() && counts.scalar_type() == at::kLong &&
              counts.sizes() == at::IntArrayRef({4}));
}

}  // namespace
}  // namespace lethe
