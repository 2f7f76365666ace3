#include "lethe/ops/router_bias.h"

#include "support/expect_error.h"
#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

at::Tensor counts_of(std::vector<int64_t> counts) {
  return at::tensor(counts, at::TensorOptions().dtype(at::kLong));
}

TEST(RouterBias, MovesTowardsTheMeanByExactlyOneRate) {
  const at::Tensor bias = at::tensor({0.5F, -0.25F, 0.0F, 0.125F});
  ops::update_router_bias(bias, counts_of({10, 0, 4, 2}), 0.001);  // mean 4
  test::expect_bitwise(
      bias, at::tensor({0.5F - 0.001F, -0.25F + 0.001F, 0.0F, 0.125F + 0.001F}), "bias");
}

TEST(RouterBias, EvenLoadAndNoTokensLeaveItUnchanged) {
  const at::Tensor bias = at::tensor({0.5F, -0.25F, 0.75F}), before = bias.clone();
  ops::update_router_bias(bias, counts_of({7, 7, 7}), 0.001);
  ops::update_router_bias(bias, counts_of({0, 0, 0}), 0.001);
  test::expect_bitwise(bias, before, "bias");
}

TEST(RouterBias, TheSignIsExactWhereFloatingPointWouldRound) {
  // The mean is 2^60 + 1/3: both experts lie so near it that even float64 cannot tell.
  const int64_t big = int64_t{1} << 60;
  const at::Tensor bias = at::zeros({3});
  ops::update_router_bias(bias, counts_of({big, big, big + 1}), 1);
  test::expect_bitwise(bias, at::tensor({1.0F, 1.0F, -1.0F}), "bias");
}

TEST(RouterBias, CountsOfTwoMicrobatchesAddBeforeTheSign) {
  const at::Tensor first = counts_of({5, 1, 0}), second = counts_of({0, 3, 3}),
                   bias = at::zeros({3});
  ops::update_router_bias(bias, first + second, 0.5);  // 5, 4, 3: mean 4
  test::expect_bitwise(bias, at::tensor({-0.5F, 0.0F, 0.5F}), "bias");
}

TEST(RouterBias, ChangesAViewInPlaceAndCountsAsAWrite) {
  const at::Tensor storage = at::zeros({3, 2}), bias = storage.select(1, 1);
  const auto version = bias._version();
  ops::update_router_bias(bias, counts_of({3, 0, 0}), 0.5);
  test::expect_bitwise(
      storage, at::tensor({0.0F, -0.5F, 0.0F, 0.5F, 0.0F, 0.5F}).view({3, 2}), "storage");
  EXPECT_GT(bias._version(), version);
}

TEST(RouterBias, WrongArgumentsNameRuleValueAndRemedy) {
  const at::Tensor counts = counts_of({1, 2, 3});
  test::expect_error<ShapeError>([&] { ops::update_router_bias(at::zeros({4}), counts, 1); },
                                 {"counts must be [E] = [4]", "[3]"});
  test::expect_error<DtypeError>(
      [&] { ops::update_router_bias(at::zeros({3}, at::kDouble), counts, 1); },
      {"bias must be float32", "float64", "fp32-kept"});
  test::expect_error<DtypeError>(
      [&] { ops::update_router_bias(at::zeros({3}), counts.to(at::kInt), 1); },
      {"counts must be int64"});
  test::expect_error<ConfigError>(
      [&] { ops::update_router_bias(at::zeros({3}).requires_grad_(), counts, 1); },
      {"must not require a gradient", "optimizer"});
  ops::update_router_bias(at::empty({3}, at::TensorOptions().device(at::kMeta)),
                          at::empty({3}, at::TensorOptions().device(at::kMeta).dtype(at::kLong)),
                          1);
}

}  // namespace
}  // namespace lethe
