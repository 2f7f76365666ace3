#include <cmath>

#include "optim/optimizer_support.h"
#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/ops/randn.h>

#include "lethe/base/error.h"
#include "lethe/core/leaf_gradient.h"
#include "lethe/optim/grad_norm.h"
#include "lethe/optim/optimizer.h"

namespace lethe {
namespace {

at::Tensor bf16_leaf(const at::Tensor& values) {
  at::Tensor leaf = values.to(at::kBFloat16).requires_grad_();
  keep_float32_gradient(leaf);
  return leaf;
}

class MasterWeights : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_leaf_gradient_dtype()) GTEST_SKIP() << "LibTorch before 2.10";
  }
};

// The master walks as a float32 parameter would; the weight is its rounding, at every step.
TEST_F(MasterWeights, TheWeightIsTheRoundedFloat32Run) {
  const at::Tensor start = at::randn({6, 8}).to(at::kBFloat16).to(at::kFloat);
  for (const bool muon : {false, true}) {
    const at::Tensor narrow = bf16_leaf(start), wide = start.clone().requires_grad_();
    const auto group = [muon](const at::Tensor& t) {
      return muon ? test::muon_group(t, 6) : test::group_of({t});
    };
    Optimizer for_narrow({group(narrow)}), for_wide({group(wide)});
    for (int step = 0; step < 5; ++step) {
      const at::Tensor grad = at::randn({6, 8});
      narrow.mutable_grad() = grad.clone();
      wide.mutable_grad() = grad.clone();
      for_narrow.step(1e-3);
      for_wide.step(1e-3);
      test::expect_bitwise(narrow.detach(), wide.detach().to(at::kBFloat16), "weight");
    }
    const auto state = for_narrow.state();
    EXPECT_EQ(state.back().kind, "master");
    test::expect_bitwise(state.back().value, wide.detach(), "master");
  }
}

// Below half a unit in the last place of bfloat16, only a master can add up.
TEST_F(MasterWeights, SmallStepsAddUp) {
  const at::Tensor w = bf16_leaf(at::ones({1}));
  Optimizer optimizer({test::group_of({w}, 0)});
  for (int step = 0; step < 100; ++step) {
    w.mutable_grad() = at::ones({1});
    optimizer.step(1e-3);  // an ulp below 1 is 2^-8 = 0.0039
  }
  EXPECT_NEAR(w.item<float>(), 0.9, 0.004);
}

TEST_F(MasterWeights, AMasterIsTakenFromWeightsWrittenLater) {
  const at::Tensor w = bf16_leaf(at::zeros({4}));
  Optimizer optimizer({test::group_of({w}, 0)});
  {
    const at::NoGradGuard no_grad;
    w.fill_(2);
  }
  optimizer.copy_masters();
  w.mutable_grad() = at::zeros({4});
  optimizer.step(0.1);
  EXPECT_TRUE(w.detach().equal(at::full({4}, 2, at::kBFloat16)));
}

TEST_F(MasterWeights, RestoringAMasterRestoresTheWeight) {
  const at::Tensor w = bf16_leaf(at::ones({4}));
  Optimizer optimizer({test::group_of({w})});
  std::vector<StateTensor> state = optimizer.state();
  for (StateTensor& s : state) s.value = s.value.clone();
  state.back().value.fill_(1.0F + 0x1.8p-7F);  // exactly between two bfloat16: to the even one
  optimizer.restore(state, optimizer.update_counts());
  EXPECT_EQ(w.max().item<float>(), 1.0F + 0x1p-6F);
}

TEST_F(MasterWeights, AGradientOfTheWeightsOwnTypeIsRefused) {
  const at::Tensor w = bf16_leaf(at::ones({4}));
  Optimizer optimizer({test::group_of({w})});
  w.mutable_grad() = at::ones({4}, at::kBFloat16);
  EXPECT_THROW(optimizer.step(0.1), DtypeError);
}

TEST_F(MasterWeights, TheNormReadsTheUnroundedGradients) {
  const at::Tensor w = bf16_leaf(at::ones({1}));
  w.mutable_grad() = at::full({1}, 1.0F + 0x1p-20F);
  EXPECT_EQ(grad_norm({test::group_of({w})}), 1.0 + 0x1p-20);
}

TEST_F(MasterWeights, GradientsArriveAndAddUpInFloat32) {
  const at::Tensor w = bf16_leaf(at::ones({1}));
  for (const float factor : {1.0F, 0x1p-12F}) {
    const at::Tensor wide = w.to(at::kFloat);
    (wide * factor).sum().backward();
  }
  EXPECT_EQ(w.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(w.grad().item<float>(), 1.0F + 0x1p-12F);
}

}  // namespace
}  // namespace lethe
