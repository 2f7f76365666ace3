#include "lethe/ops/rms_norm.h"

#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/ops/randn.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

at::Tensor leaf(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions().dtype(at::kDouble)).requires_grad_();
}

TEST(RmsNorm, GradientsMatchCentralDifferences) {
  const auto f = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{ops::rms_norm(in[0], in[1], 1e-6)};
  };
  test::expect_gradients(f, {leaf({3, 5, 7}), leaf({7})});
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
