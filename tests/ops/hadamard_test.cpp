#include "lethe/ops/hadamard.h"

#include <bit>

#include "support/op_checks.h"
#include <gtest/gtest.h>

#include <ATen/ops/randn.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

std::vector<at::Tensor> transform(const std::vector<at::Tensor>& in) {
  return {ops::hadamard(in[0])};
}

TEST(Hadamard, IsTheSylvesterMatrix) {
  for (const int64_t d : {1, 2, 8, 128}) {
    at::Tensor want = at::zeros({d, d}, at::kDouble);
    for (int64_t i = 0; i < d; ++i)
      for (int64_t j = 0; j < d; ++j)
        want[i][j] = (std::popcount(static_cast<uint64_t>(i & j)) % 2 == 0 ? 1 : -1) /
                     std::sqrt(static_cast<double>(d));
    at::Tensor identity = at::zeros({d, d}, at::kDouble);
    identity.fill_diagonal_(1);
    test::expect_close_rms(ops::hadamard(identity), want, 1e-15, "d = " + std::to_string(d));
  }
}

TEST(Hadamard, TwiceIsTheIdentity) {
  const at::Tensor x = at::randn({5, 3, 64}, at::kDouble);
  test::expect_close_rms(ops::hadamard(ops::hadamard(x)), x, 1e-14, "twice");
}

TEST(Hadamard, GradientsMatchCentralDifferences) {
  for (const int64_t tokens : test::kTokenCounts) {
    SCOPED_TRACE(tokens);
    test::expect_gradients(transform, {test::leaf({tokens, 2, 8})});
  }
}

TEST(Hadamard, Float32FollowsFloat64) {
  test::expect_float32_follows_float64(transform, {test::leaf({33, 3, 128})});
}

TEST(Hadamard, MetaStridesAndZeroTokens) {
  test::expect_meta_matches(transform, {test::leaf({5, 3, 16})});
  test::expect_strides_do_not_matter(transform, {test::leaf({5, 3, 16})});
  EXPECT_EQ(transform({test::leaf({0, 3, 16})})[0].sizes(), at::IntArrayRef({0, 3, 16}));
}

TEST(Hadamard, Bfloat16IsComputedInFloat32AndCastOnce) {
  const at::Tensor x = at::randn({5, 16}).to(at::kBFloat16);
  test::expect_bitwise(ops::hadamard(x), ops::hadamard(x.to(at::kFloat)).to(at::kBFloat16), "bf16");
}

TEST(Hadamard, WrongArgumentsAreRefused) {
  EXPECT_THROW(ops::hadamard(at::zeros({3, 12})), ShapeError);
  EXPECT_THROW(ops::hadamard(at::zeros({3, 0})), ShapeError);
  EXPECT_THROW(ops::hadamard(at::zeros({})), ShapeError);
  EXPECT_THROW(ops::hadamard(at::zeros({3, 8}, at::kLong)), DtypeError);
}

}  // namespace
}  // namespace lethe
