#include "lethe/optim/grad_norm.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/randn.h>

#include "lethe/base/error.h"
#include "lethe/optim/groups.h"

namespace lethe {
namespace {

std::vector<ParameterGroup> groups_of(const Tensors& grads) {
  std::vector<ParameterGroup> groups(2);
  for (size_t i = 0; i < grads.size(); ++i) {
    const at::Tensor parameter = at::zeros(grads[i].sizes(), grads[i].options()).requires_grad_();
    parameter.mutable_grad() = grads[i];
    ParameterGroup& group = groups[i < 2 ? 0 : 1];
    group.names.push_back("w" + std::to_string(i));
    group.tensors.push_back(parameter);
  }
  return groups;
}

TEST(GradNorm, EqualsTheNormOfAllGradientsTogether) {
  const Tensors grads = {
      at::randn({1}), at::randn({100, 37}), at::randn({6, 5}).t() * 1e3, at::randn({2049})};
  Tensors flat;
  for (const at::Tensor& g : grads) flat.push_back(g.flatten().to(at::kDouble));
  const double expected = at::norm(at::cat(flat)).item<double>();
  EXPECT_NEAR(grad_norm(groups_of(grads)), expected, 1e-13 * expected);
}

TEST(GradNorm, BitsDoNotDependOnTheThreadCount) {
  const auto groups = groups_of({at::randn({1000, 1000}), at::randn({33})});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = grad_norm(groups);
  at::set_num_threads(2);
  const double two = grad_norm(groups);
  at::set_num_threads(threads);
  EXPECT_EQ(one, two);
  EXPECT_NEAR(one, 1000, 5);
}

TEST(GradNorm, ParametersWithoutGradientCountAsZero) {
  const auto groups = groups_of({at::full({4}, 2.0), at::ones({9}, at::kDouble), at::ones({7})});
  groups[1].tensors[0].mutable_grad().reset();
  EXPECT_EQ(grad_norm(groups), 5);
  EXPECT_EQ(grad_norm({}), 0);
}

TEST(GradNorm, ErrorsNameTheFirstParameterThatIsNotFinite) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto groups = groups_of({at::ones({4}), at::ones({4}), at::ones({2, 9}), at::ones({3})});
    groups[1].tensors[0].grad()[1][4] = bad;
    groups[1].tensors[1].grad()[0] = bad;
    try {
      grad_norm(groups);
      FAIL() << "no error";
    } catch (const NumericError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("'w2'"), std::string::npos) << text;
      EXPECT_NE(text.find("element 13 of [2,9]"), std::string::npos) << text;
      EXPECT_NE(text.find(std::isnan(bad) ? "nan" : "inf"), std::string::npos) << text;
    }
  }
}

TEST(GradNorm, SquaresBeyondFloat64AreReportedAsOverflow) {
  try {
    grad_norm(groups_of({at::full({2}, 1e200, at::kDouble)}));
    FAIL() << "no error";
  } catch (const NumericError& error) {
    EXPECT_NE(std::string(error.what()).find("overflow"), std::string::npos) << error.what();
  }
}

TEST(ClipCoefficient, ScalesDownOnlyWhatIsTooLarge) {
  EXPECT_EQ(clip_coefficient(0, 1), 1);
  EXPECT_EQ(clip_coefficient(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_coefficient(4, 1), 1 / (4 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_coefficient(1, 1), 1 / (1 + 1e-6));
  EXPECT_THROW(clip_coefficient(1, 0), ConfigError);
}

}  // namespace
}  // namespace lethe
