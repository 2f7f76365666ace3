#include <cmath>

#include "support/gradcheck.h"
#include "support/tiny_model.h"
#include <gtest/gtest.h>

#include "lethe/core/leaf_gradient.h"
#include "lethe/optim/grad_norm.h"
#include "lethe/optim/group_parameters.h"
#include "lethe/optim/optimizer.h"

namespace lethe {
namespace {

struct Models {
  std::unique_ptr<DeepseekV4> narrow, wide;
};

// One stored in bfloat16, one in float32 with the rounded values.
Models same_weights() {
  const ModelConfig config = test::tiny_a();
  Models out{.narrow = test::lively_model(config, {.float_type = ParamPlacement::Float::Bf16}, 5),
             .wide = std::make_unique<DeepseekV4>(config, ParamPlacement{})};
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < out.wide->params().size(); ++i)
    out.wide->params().value(i).copy_(out.narrow->params().value(i));
  return out;
}

double backward(const DeepseekV4& model, uint64_t seed) {
  const ModelConfig& config = model.config();
  LossFactors factors = test::all_losses(config);
  factors.balance = 0.1;
  RunTally tally = model.make_tally();
  const ModelOutput out = model.forward(test::random_batch(config, {40, 24}, seed), factors, tally);
  out.total.backward();
  return out.total.item<double>();
}

class Bfloat16Weights : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_leaf_gradient_dtype()) GTEST_SKIP() << "LibTorch before 2.10";
  }
};

// Two micro-batches: what is compared has been added up, too. Embedding and head are read twice
// (MTP), so that the sum over their readers counts as well.
TEST_F(Bfloat16Weights, GradientsAreThoseOfTheFloat32ModelWithTheRoundedWeights) {
  const Models models = same_weights();
  for (const uint64_t seed : {1, 2})
    EXPECT_EQ(backward(*models.narrow, seed), backward(*models.wide, seed));
  size_t narrow = 0;
  for (size_t i = 0; i < models.wide->params().size(); ++i) {
    const at::Tensor &a = models.narrow->params().value(i), &b = models.wide->params().value(i);
    const std::string& name = models.wide->params().row(i).name;
    ASSERT_EQ(a.grad().defined(), b.grad().defined()) << name;
    if (!a.grad().defined()) continue;
    EXPECT_EQ(a.grad().scalar_type(), at::kFloat) << name;
    test::expect_bitwise(a.grad(), b.grad(), name);
    narrow += a.scalar_type() == at::kBFloat16 ? 1 : 0;
  }
  EXPECT_GT(narrow, 50u);
}

TEST_F(Bfloat16Weights, GradientsHoldMoreThanBfloat16CanSay) {
  const Models models = same_weights();
  backward(*models.narrow, 1);
  for (size_t i = 0; i < models.narrow->params().size(); ++i) {
    const at::Tensor& value = models.narrow->params().value(i);
    if (value.scalar_type() != at::kBFloat16 || !value.grad().defined()) continue;
    const at::Tensor& grad = value.grad();
    EXPECT_FALSE(grad.equal(grad.to(at::kBFloat16).to(at::kFloat)))
        << models.narrow->params().row(i).name;
  }
}

TEST_F(Bfloat16Weights, TheFirstStepOfBothOptimizersIsTheRoundedFloat32Step) {
  for (const auto kind : {OptimizerKind::AdamW, OptimizerKind::Muon}) {
    const Models models = same_weights();
    Optimizer narrow(group_parameters(models.narrow->params(), {.kind = kind})),
        wide(group_parameters(models.wide->params(), {.kind = kind}));
    backward(*models.narrow, 1);
    backward(*models.wide, 1);
    EXPECT_EQ(grad_norm(narrow.groups()), grad_norm(wide.groups()));
    narrow.step(1e-3);
    wide.step(1e-3);
    for (size_t i = 0; i < models.wide->params().size(); ++i) {
      const at::Tensor &a = models.narrow->params().value(i), &b = models.wide->params().value(i);
      test::expect_bitwise(
          a.detach(), b.detach().to(a.scalar_type()), models.wide->params().row(i).name);
    }
  }
}

}  // namespace
}  // namespace lethe
