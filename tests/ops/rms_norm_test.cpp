#include "lethe/ops/rms_norm.h"

#include "support/op_checks.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using test::leaf;

TEST(RmsNorm, GradientsMatchCentralDifferences) {
  const auto f = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{ops::rms_norm(in[0], in[1], 1e-6)};
  };
  test::expect_gradients(f, {leaf({3, 5, 7}), leaf({7})});
}

TEST(RmsNorm, Float32FollowsFloat64) {
  const auto f = [](const std::vector<at::Tensor>& in) {
    const auto weight = in.size() > 1 ? std::optional<at::Tensor>(in[1]) : std::nullopt;
    return std::vector<at::Tensor>{ops::rms_norm(in[0], weight, 1e-6)};
  };
  for (const int64_t rows : test::kTokenCounts)
    for (const int64_t width : {2, 7, 8, 31, 32, 33, 100}) {
      test::expect_float32_follows_float64(f, {leaf({rows, width}), leaf({width})});
      test::expect_float32_follows_float64(f, {leaf({rows, 2, width})});
    }
}

TEST(RmsNorm, WithoutWeightIsUnitRms) {
  const at::Tensor y = ops::rms_norm(leaf({4, 64}), {}, 0.0);
  test::expect_close_rms(y.square().mean(-1), at::ones({4}, y.options()), 1e-12, "mean square");
}

TEST(RmsNorm, WrongWeightNamesBothShapes) {
  EXPECT_THROW(ops::rms_norm(leaf({3, 8}), leaf({7}), 1e-6), ShapeError);
}

}  // namespace
}  // namespace lethe
