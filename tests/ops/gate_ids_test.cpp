#include <algorithm>
#include <chrono>
#include <numeric>

#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/routes.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include <gtest/gtest.h>

#include <ATen/ops/randint.h>

#include "lethe/base/error.h"
#include "lethe/ops/gate.h"

namespace lethe {
namespace {

using test::expect_ids;
using test::ids;
using test::row;

TEST(GateSelect, TiesGoToTheHigherScoreThenTheLowerExpert) {
  expect_ids(
      ops::reference::gate_select(row({1, 2, 2, 2, 3}), {}, 3), ids({1, 2, 4}), "three of a kind");
  expect_ids(ops::reference::gate_select(row({0, 0, 0, 0}), {}, 2), ids({0, 1}), "all equal");
  expect_ids(ops::reference::gate_select(row({-1, -0.0, 0.0, -0.0}), {}, 2),
             ids({1, 2}),
             "-0 counts as +0");
  expect_ids(
      ops::reference::gate_select(row({-0.0, 0.0, -1}), {}, 1), ids({0}), "-0 is not below +0");
}

std::vector<int64_t> best_by_definition(const std::vector<double>& sum, size_t k) {
  std::vector<int64_t> order(sum.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&sum](int64_t a, int64_t b) {
    const double x = sum[static_cast<size_t>(a)], y = sum[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

TEST(GateSelect, EqualsTheDefinitionOnScoresFullOfTies) {
  at::manual_seed(3);
  for (const int64_t experts : {8, 33, 384}) {
    const at::Tensor scores = at::randint(0, 5, {64, experts}, at::kFloat) * 0.25;
    const at::Tensor bias = at::randint(-2, 3, {experts}, at::kFloat) * 0.25;
    const at::Tensor got = ops::reference::gate_select(scores, bias, 6);
    const at::Tensor sum = (scores + bias).to(at::kDouble);
    for (int64_t t = 0; t < 64; ++t) {
      const double* begin = sum[t].const_data_ptr<double>();
      expect_ids(got.narrow(0, t, 1), ids(best_by_definition({begin, begin + experts}, 6)), "row");
    }
  }
}

TEST(GateLookup, TableOfTheWholeVocabularyTakesLessThanASecond) {
  const int64_t vocab = 129280, k = 6, experts = 256;
  const auto start = std::chrono::steady_clock::now();
  const at::Tensor table = (at::arange(vocab * k) % experts).to(at::kInt).view({vocab, k});
  const at::Tensor got = ops::gate_lookup(at::arange(vocab), table);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
  ASSERT_EQ(got.sizes(), table.sizes());
  EXPECT_TRUE((got.narrow(1, 1, k - 1) > got.narrow(1, 0, k - 1)).all().item<bool>());
  EXPECT_FALSE(got.requires_grad() || table.requires_grad());
}

TEST(GateLookup, TokenOutsideTheTableIsNamed) {
  const at::Tensor table = at::zeros({10, 2}, at::kInt);
  const auto lookup = [&](int64_t id) {
    ops::gate_lookup(at::tensor({int64_t{3}, id}, at::TensorOptions().dtype(at::kLong)), table);
  };
  test::expect_error<DataError>([&] { lookup(10); },
                                {"[0, 10)", "got 10 at token 1", "vocabulary"});
  test::expect_error<DataError>([&] { lookup(-1); }, {"[0, 10)", "got -1 at token 1"});
  test::expect_error<DtypeError>([&] { ops::gate_lookup(at::zeros({2}, at::kInt), table); },
                                 {"token_ids", "int64"});
}

TEST(ExpertCounts, CountsEveryRouteOnceAndKeepsEmptyExperts) {
  const at::Tensor counts = ops::expert_counts(at::cat({ids({0, 3}), ids({0, 1}), ids({0, 3})}), 5);
  test::expect_bitwise(
      counts, at::tensor({3, 1, 0, 2, 0}, at::TensorOptions().dtype(at::kLong)), "counts");
  test::expect_error<DataError>(
      [] {
        ops::expert_counts(ids({0, 5}), 5);
      },
      {"expert_counts", "[0, 5)", "got 5"});
}

}  // namespace
}  // namespace lethe
