#include "support/golden.h"
#include "support/op_checks.h"
#include <gtest/gtest.h>

#include <torch/csrc/autograd/autograd.h>

#include "lethe/ops/rms_norm.h"

namespace lethe {
namespace {

TEST(RmsNorm, MatchesTheGoldenUnit) {
  const test::TensorMap golden = test::load_unit("rmsnorm");
  const at::Tensor x = golden.at("x").clone().requires_grad_(),
                   w = golden.at("weight").clone().requires_grad_();
  const at::Tensor weighted = ops::rms_norm(x, w, 1e-6), unweighted = ops::rms_norm(x, {}, 1e-6);
  test::expect_close_rms(weighted, golden.at("weighted"), 1e-12, "weighted");
  test::expect_close_rms(unweighted, golden.at("unweighted"), 1e-12, "unweighted");
  const std::vector<at::Tensor> grads = torch::autograd::grad(
      {weighted, unweighted}, {x, w}, {golden.at("d.weighted"), golden.at("d.unweighted")});
  test::expect_close_rms(grads[0], golden.at("grad.x"), 1e-12, "grad.x");
  test::expect_close_rms(grads[1], golden.at("grad.weight"), 1e-12, "grad.weight");
}

}  // namespace
}  // namespace lethe
