#include "lethe/optim/groups.h"

#include <string>
#include <vector>

#include "optim/optimizer_support.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/core/leaf_gradient.h"

namespace lethe {
namespace {

ParameterGroup one_group(const at::Tensor& tensor) {
  ParameterGroup group;
  group.names = {"w"};
  group.tensors = {tensor};
  return group;
}

TEST(ParameterGroups, DefaultsAreThoseOfTheModelSpecification) {
  const ParameterGroup group;
  EXPECT_EQ(group.beta1, 0.9);
  EXPECT_EQ(group.beta2, 0.95);
  EXPECT_EQ(group.eps, 1e-20);
  EXPECT_EQ(group.weight_decay, 0.1);
  EXPECT_EQ(group.lr_scale, 1);
  EXPECT_EQ(group.rule, Rule::AdamW);
  EXPECT_EQ(group.momentum, 0.95);
  EXPECT_EQ(group.update_rms, 0.18);
}

TEST(ParameterGroups, SettingsOutsideTheirRangesAreRefused) {
  const at::Tensor w = at::ones({2});
  check({one_group(w)});
  std::vector<ParameterGroup> wrong(8, one_group(w));
  wrong[0].beta1 = 1;
  wrong[1].beta2 = -0.1;
  wrong[2].eps = 0;
  wrong[3].weight_decay = -1;
  wrong[4].lr_scale = -1;
  wrong[5].names.clear();
  wrong[6].momentum = 1;
  wrong[7].update_rms = 0;
  for (size_t i = 0; i < wrong.size(); ++i) EXPECT_THROW(check({wrong[i]}), ConfigError) << i;
}

TEST(ParameterGroups, TensorsThatCannotBeUpdatedAreNamed) {
  EXPECT_THROW(check({one_group(at::ones({2}, at::kHalf))}), DtypeError);
  EXPECT_THROW(check({one_group(at::Tensor())}), DtypeError);
  EXPECT_THROW(check({one_group(at::empty({2}, at::device(at::kMeta)))}), ShapeError);
  try {
    check({one_group(at::ones({2, 3}).t())});
    FAIL() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find("'w'"), std::string::npos) << error.what();
  }
}

TEST(ParameterGroups, AParameterInTwoGroupsIsRefused) {
  const at::Tensor w = at::ones({2});
  EXPECT_THROW(check({one_group(w), one_group(w)}), ConfigError);
}

TEST(ParameterGroups, ABfloat16LeafMustKeepItsGradientInFloat32) {
  const at::Tensor w = at::ones({2}, at::kBFloat16).requires_grad_();
  EXPECT_THROW(check({one_group(w)}), ConfigError);
  if (!has_leaf_gradient_dtype()) GTEST_SKIP() << "LibTorch before 2.10";
  keep_float32_gradient(w);
  check({one_group(w)});
}

TEST(ParameterGroups, MuonNeedsStacksOfMatrices) {
  check({test::muon_group(at::ones({6, 4}), 3)});
  check({test::muon_group(at::ones({2, 6, 4}), 6)});
  EXPECT_THROW(check({test::muon_group(at::ones({6, 4}), 4)}), ShapeError);
  EXPECT_THROW(check({test::muon_group(at::ones({6, 4}), 0)}), ShapeError);
  EXPECT_THROW(check({test::muon_group(at::ones({6}), 1)}), ShapeError);
  ParameterGroup group = test::muon_group(at::ones({6, 4}), 3);
  group.matrix_rows.clear();
  EXPECT_THROW(check({group}), ConfigError);
}

}  // namespace
}  // namespace lethe
