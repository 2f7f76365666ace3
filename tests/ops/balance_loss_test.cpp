#include "lethe/ops/balance_loss.h"

#include <numeric>

#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include <gtest/gtest.h>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/rand.h>

#include "lethe/base/error.h"
#include "lethe/ops/gate.h"

namespace lethe {
namespace {

using test::gradients;
using test::leaf_of;

at::Tensor starts_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> cu{0};
  for (const int64_t n : lengths) cu.push_back(cu.back() + n);
  return at::tensor(cu, at::TensorOptions().dtype(at::kLong)).to(at::kInt);
}

at::Tensor random_scores(int64_t tokens, int64_t experts) {
  return at::rand({tokens, experts}, test::fp64()).add_(0.05).requires_grad_();
}

// sum_e f_e P_e of one document, straight from the definition; differentiable through P by ATen.
at::Tensor one_document(const at::Tensor& scores, int64_t k) {
  const int64_t tokens = scores.size(0), experts = scores.size(1);
  std::vector<double> f(static_cast<size_t>(experts), 0);
  const at::Tensor chosen = ops::reference::gate_select(scores.detach(), {}, k);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0; j < k; ++j)
      f[static_cast<size_t>(chosen[t][j].item<int64_t>())] +=
          static_cast<double>(experts) / static_cast<double>(k * tokens);
  return (at::tensor(f, test::fp64()) * (scores / scores.sum(-1, true)).mean(0)).sum();
}

TEST(BalanceLoss, PackedDocumentsGiveTheMeanOfTheirOwnLosses) {
  at::manual_seed(31);
  const std::vector<int64_t> lengths{5, 1, 33, 4, 16, 3, 64, 7, 8, 9, 31};
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const at::Tensor scores = random_scores(tokens, 8), cu = starts_of(lengths),
                   seed = at::full({}, 1.7, test::fp64());
  at::Tensor expected = at::zeros({}, test::fp64());
  for (size_t d = 0, begin = 0; d < lengths.size(); begin += static_cast<size_t>(lengths[d++]))
    expected =
        expected + one_document(scores.narrow(0, static_cast<int64_t>(begin), lengths[d]), 2);
  expected = expected / static_cast<double>(lengths.size());
  const at::Tensor loss = ops::balance_loss(scores, cu, 2);
  test::expect_close_rms(loss, expected, test::kSameMathsFp64, "loss");
  test::expect_close_rms(gradients(loss, {scores}, seed)[0],
                         gradients(expected, {scores}, seed)[0],
                         test::kSameMathsFp64,
                         "gradient");
}

TEST(BalanceLoss, GradientsMatchCentralDifferences) {
  at::manual_seed(32);
  const auto check = [](const std::vector<int64_t>& lengths) {
    const at::Tensor cu = starts_of(lengths);
    const auto f = [&cu](const std::vector<at::Tensor>& in) {
      return std::vector<at::Tensor>{ops::balance_loss(in[0], cu, 2)};
    };
    test::expect_gradients(f, {random_scores(cu[cu.size(0) - 1].item<int64_t>(), 8)});
  };
  for (const int64_t tokens : test::kTokenCounts) check({tokens});
  check({4, 1, 7, 3});
}

TEST(BalanceLoss, IsOneForAnEvenLoadAndGrowsWithConcentration) {
  at::Tensor even = at::full({4, 4}, 0.1, test::fp64()), uneven = even.clone();
  for (int64_t t = 0; t < 4; ++t) {
    even[t][t] = 0.7;
    uneven[t][0] = 0.7;
  }
  EXPECT_NEAR(ops::balance_loss(even, starts_of({4}), 1).item<double>(), 1, 1e-14);
  EXPECT_NEAR(ops::balance_loss(uneven, starts_of({4}), 1).item<double>(), 4 * 0.7, 1e-14);
}

TEST(BalanceLoss, TiedScoresCountForTheLowerExpert) {
  const at::Tensor scores = at::tensor({1., 1., 2.}, test::fp64()).unsqueeze(0);
  EXPECT_NEAR(
      ops::balance_loss(scores, starts_of({1}), 2).item<double>(), 1.5 * (0.25 + 0.5), 1e-14);
}

TEST(BalanceLoss, ScoresThatAllUnderflowedGiveNoNaN) {
  const at::Tensor scores = leaf_of(at::zeros({3, 4}));
  const at::Tensor loss = ops::balance_loss(scores, starts_of({3}), 2);
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_TRUE(gradients(loss, {scores}, at::ones({}))[0].isfinite().all().item<bool>());
}

TEST(BalanceLoss, Float32AgreesWithFloat64) {
  at::manual_seed(33);
  const at::Tensor narrow = leaf_of(random_scores(97, 8), at::kFloat), wide = leaf_of(narrow),
                   cu = starts_of({33, 64});
  const at::Tensor a = ops::balance_loss(narrow, cu, 2), b = ops::balance_loss(wide, cu, 2),
                   seed = at::ones({});
  test::expect_close_rms(a, b, test::kSameMathsFp32, "loss");
  test::expect_close_rms(gradients(a, {narrow}, seed)[0],
                         gradients(b, {wide}, seed)[0],
                         test::kSameMathsFp32,
                         "gradient");
}

TEST(BalanceLoss, StridedAndMetaInputsWork) {
  at::manual_seed(34);
  const at::Tensor packed = random_scores(9, 8).detach(), strided = packed.t().contiguous().t();
  test::expect_close_rms(ops::balance_loss(strided, starts_of({4, 5}), 2),
                         ops::balance_loss(packed, starts_of({4, 5}), 2),
                         test::kSameMathsFp64,
                         "strided");
  const at::Tensor loss = ops::balance_loss(
      at::empty({9, 8}, at::TensorOptions().device(at::kMeta)), starts_of({4, 5}), 2);
  EXPECT_TRUE(loss.is_meta() && loss.dim() == 0);
}

TEST(BalanceLoss, WrongArgumentsNameRuleValueAndRemedy) {
  const at::Tensor scores = at::ones({9, 8});
  test::expect_error<ShapeError>(
      [&] {
        ops::balance_loss(scores, starts_of({4, 4}), 2);
      },
      {"balance_loss", "end with T = 9", "got 8", "same tokens"});
  test::expect_error<ShapeError>([&] { ops::balance_loss(scores, starts_of({9}), 9); },
                                 {"[1, 8]", "got 9"});
  test::expect_error<ShapeError>(
      [&] {
        ops::balance_loss(at::ones({0, 8}), starts_of({}), 2);
      },
      {"cu_seqlens"});
  test::expect_error<DtypeError>(
      [&] { ops::balance_loss(scores, starts_of({9}).to(at::kLong), 2); },
      {"cu_seqlens must be int32", "int64"});
}

}  // namespace
}  // namespace lethe
