#include "lethe/optim/groups.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lethe/base/error.h"

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
}

TEST(ParameterGroups, VectorsAndScalarsHaveTheirOwnDecay) {
  const std::vector<std::string> names = {"norm", "w", "scale", "fn", "cube"};
  const Tensors tensors = {
      at::ones({4}), at::ones({4, 4}), at::ones({}), at::ones({2, 4}), at::ones({2, 2, 2})};
  const auto groups = group_by_weight_decay(names, tensors, {});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].names, (std::vector<std::string>{"w", "fn", "cube"}));
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[1].names, (std::vector<std::string>{"norm", "scale"}));
  EXPECT_EQ(groups[1].weight_decay, 0);
  EXPECT_TRUE(groups[1].tensors[1].is_same(tensors[2]));
  const auto configured =
      group_by_weight_decay({"norm"}, {tensors[0]}, {.vectors = 0.3, .matrices = 0.2});
  ASSERT_EQ(configured.size(), 1u);
  EXPECT_EQ(configured[0].weight_decay, 0.3);
  EXPECT_THROW(group_by_weight_decay({"a", "b"}, {tensors[0]}, {}), ConfigError);
}

TEST(ParameterGroups, SettingsOutsideTheirRangesAreRefused) {
  const at::Tensor w = at::ones({2});
  check({one_group(w)});
  std::vector<ParameterGroup> wrong(6, one_group(w));
  wrong[0].beta1 = 1;
  wrong[1].beta2 = -0.1;
  wrong[2].eps = 0;
  wrong[3].weight_decay = -1;
  wrong[4].lr_scale = -1;
  wrong[5].names.clear();
  for (size_t i = 0; i < wrong.size(); ++i) EXPECT_THROW(check({wrong[i]}), ConfigError) << i;
}

TEST(ParameterGroups, TensorsThatCannotBeUpdatedAreNamed) {
  EXPECT_THROW(check({one_group(at::ones({2}, at::kBFloat16))}), DtypeError);
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

}  // namespace
}  // namespace lethe
