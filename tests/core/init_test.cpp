#include "lethe/core/init.h"

#include <limits>

#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

at::Tensor drawn(at::IntArrayRef shape, at::ScalarType dtype, uint64_t seed, const char* name) {
  at::Tensor t = at::empty(shape, dtype);
  normal_(t, 0.02, seed, name);
  return t;
}

TEST(Normal, BitsDoNotDependOnTheThreadCount) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = drawn({300, 400}, at::kFloat, 1, "w");
  at::set_num_threads(2);
  const at::Tensor two = drawn({300, 400}, at::kFloat, 1, "w");
  at::set_num_threads(threads);
  test::expect_bitwise(one, two, "1 and 2 threads");
}

TEST(Normal, HasTheGivenDeviation) {
  const at::Tensor t = drawn({500, 400}, at::kFloat, 1, "w");
  EXPECT_NEAR(t.std().item<double>(), 0.02, 2e-4);
  EXPECT_NEAR(t.mean().item<double>(), 0, 2.5e-4);
}

TEST(Normal, SeedAndNameChooseTheNumbers) {
  const at::Tensor t = drawn({100}, at::kFloat, 1, "w");
  test::expect_bitwise(t, drawn({100}, at::kFloat, 1, "w"), "same seed and name");
  EXPECT_FALSE(t.equal(drawn({100}, at::kFloat, 2, "w")));
  EXPECT_FALSE(t.equal(drawn({100}, at::kFloat, 1, "v")));
}

TEST(Normal, OtherTypesAreTheSameNumbersRounded) {
  const at::Tensor wide = drawn({100}, at::kDouble, 1, "w"),
                   single = drawn({100}, at::kFloat, 1, "w");
  test::expect_bitwise(single, wide.to(at::kFloat), "float32");
  test::expect_bitwise(drawn({100}, at::kBFloat16, 1, "w"), single.to(at::kBFloat16), "bfloat16");
}

TEST(Normal, StridesDoNotMatter) {
  const at::Tensor t = at::empty({5, 7});
  normal_(t.t(), 0.02, 1, "w");
  test::expect_bitwise(t.t(), drawn({7, 5}, at::kFloat, 1, "w"), "transposed");
}

TEST(Normal, AParameterStaysALeafAndZeroDeviationGivesZeros) {
  const at::Tensor t = at::ones({7}).requires_grad_();
  normal_(t, 0, 1, "w");
  EXPECT_TRUE(t.is_leaf());
  EXPECT_EQ(t.abs().sum().item<double>(), 0);
}

TEST(Normal, RefusesWhatItCannotFill) {
  EXPECT_THROW(normal_(at::zeros({3}, at::kLong), 1, 1, "w"), DtypeError);
  EXPECT_THROW(normal_(at::empty({3}, at::device(at::kMeta)), 1, 1, "w"), ConfigError);
  EXPECT_THROW(normal_(at::zeros({3}), -1, 1, "w"), ConfigError);
  EXPECT_THROW(normal_(at::zeros({3}), std::numeric_limits<double>::quiet_NaN(), 1, "w"),
               ConfigError);
}

}  // namespace
}  // namespace lethe
