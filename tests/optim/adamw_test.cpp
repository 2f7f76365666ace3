#include "lethe/optim/adamw.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"

namespace lethe {
namespace {

ParameterGroup group_of(const Tensors& tensors, double weight_decay = 0.1) {
  ParameterGroup group;
  group.tensors = tensors;
  for (size_t i = 0; i < tensors.size(); ++i) group.names.push_back("w" + std::to_string(i));
  group.weight_decay = weight_decay;
  return group;
}

// The textbook form, element by element in float64.
struct Oracle {
  at::Tensor param, m, v;
  double beta1, beta2, eps, weight_decay;
  int t = 0;

  Oracle(const at::Tensor& start, const ParameterGroup& g)
      : param(start.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true)),
        m(at::zeros_like(param)),
        v(at::zeros_like(param)),
        beta1(g.beta1),
        beta2(g.beta2),
        eps(g.eps),
        weight_decay(g.weight_decay) {}

  void step(const at::Tensor& grad, double lr) {
    const at::Tensor g = grad.to(at::kDouble);
    ++t;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const at::Tensor m_hat = m / (1 - std::pow(beta1, t)), v_hat = v / (1 - std::pow(beta2, t));
    param = param - lr * weight_decay * param - lr * m_hat / (v_hat.sqrt() + eps);
  }
};

void expect_matches_oracle(at::ScalarType dtype, double limit) {
  const at::Tensor w = at::randn({33, 17}, dtype).requires_grad_();
  ParameterGroup group = group_of({w});
  group.lr_scale = 0.5;
  Oracle oracle(w, group);
  AdamW optimizer({group});
  for (int step = 0; step < 20; ++step) {
    const double lr = 1e-2 / (step + 1), grad_scale = 0.25 + step;
    const at::Tensor grad = at::randn({33, 17}, dtype) * std::pow(10.0, step % 7 - 3);
    w.mutable_grad() = grad;
    optimizer.step(lr, grad_scale);
    oracle.step(grad.to(at::kDouble) * grad_scale, lr * 0.5);
    test::expect_close_rms(w, oracle.param, limit, "parameter after step " + std::to_string(step));
  }
}

// Float32: about twenty updates of a few roundings each, on parameters of rms 1.
TEST(AdamW, FollowsTheFloat64OracleForTwentySteps) {
  expect_matches_oracle(at::kFloat, 2e-6);
  expect_matches_oracle(at::kDouble, 1e-14);
}

TEST(AdamW, AZeroGradientMovesNothingButTheDecay) {
  const at::Tensor w = at::full({5}, 2.0F).requires_grad_();
  AdamW optimizer({group_of({w}, /*weight_decay=*/0.5)});
  w.mutable_grad() = at::zeros({5});
  optimizer.step(0.25);
  EXPECT_TRUE(w.equal(at::full({5}, 2.0F * (1 - 0.25F * 0.5F))));
}

TEST(AdamW, AZeroGradientWithoutDecayKeepsEveryBit) {
  const at::Tensor w = at::randn({1000}).requires_grad_(), before = w.detach().clone();
  AdamW optimizer({group_of({w}, 0)});
  for (int step = 0; step < 3; ++step) {
    w.mutable_grad() = at::zeros({1000});
    optimizer.step(1.0);
  }
  test::expect_bitwise(w, before, "parameter");
}

TEST(AdamW, ATinyEpsGivesAFullStepForATinyGradient) {
  const at::Tensor w = at::zeros({3}).requires_grad_();
  AdamW optimizer({group_of({w})});
  w.mutable_grad() = at::full({3}, 1e-12F);  // eps 1e-8 would make this step 1e-4 of the rate
  optimizer.step(0.1);
  test::expect_close_rms(w, at::full({3}, -0.1), 1e-6, "parameter");
}

TEST(AdamW, AParameterWithoutGradientOwnsNoStateAndStays) {
  install_byte_accounting();
  const at::Tensor trained = at::ones({100}).requires_grad_(), frozen = at::ones({1000});
  AdamW optimizer({group_of({trained, frozen})});
  const int64_t before = bytes().live_of(ByteCategory::Optimizer);
  EXPECT_EQ(optimizer.state_bytes(), 0);
  trained.mutable_grad() = at::ones({100});
  for (int step = 0; step < 2; ++step) optimizer.step(0.1);
  EXPECT_EQ(optimizer.state_bytes(), 2 * 4 * 100);
  EXPECT_EQ(bytes().live_of(ByteCategory::Optimizer) - before, 2 * 4 * 100);
  EXPECT_TRUE(frozen.equal(at::ones({1000})));
  EXPECT_LT(trained.max().item<float>(), 1.0F);
}

TEST(AdamW, ALateParameterStartsItsOwnBiasCorrection) {
  const at::Tensor early = at::zeros({1}).requires_grad_(), late = at::zeros({1}).requires_grad_();
  AdamW optimizer({group_of({early, late}, 0)});
  for (int step = 0; step < 5; ++step) {
    early.mutable_grad() = at::ones({1});
    if (step == 4) late.mutable_grad() = at::ones({1});
    optimizer.step(0.1);
  }
  EXPECT_NEAR(late.item<float>(), -0.1F, 1e-7);  // the first step is the rate times the sign
}

TEST(AdamW, GradientsOfAnyStridesGiveTheSameBits) {
  const at::Tensor a = at::ones({4, 6}).requires_grad_(), b = at::ones({4, 6}).requires_grad_();
  AdamW optimizer({group_of({a, b})});
  const at::Tensor grad = at::randn({6, 4});
  a.mutable_grad() = grad.t();
  b.mutable_grad() = grad.t().contiguous();
  optimizer.step(0.1);
  test::expect_bitwise(a, b, "parameters");
}

TEST(AdamW, BitsDoNotDependOnTheThreadCount) {
  const at::Tensor start = at::randn({257, 129}), grad = at::randn({257, 129});
  const int threads = at::get_num_threads();
  Tensors results;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    const at::Tensor w = start.clone().requires_grad_();
    AdamW optimizer({group_of({w})});
    w.mutable_grad() = grad;
    for (int step = 0; step < 3; ++step) optimizer.step(0.1);
    results.push_back(w);
  }
  at::set_num_threads(threads);
  test::expect_bitwise(results[0], results[1], "1 and 2 threads");
}

TEST(AdamW, DroppingGradientsFreesThemAndStopsUpdates) {
  install_byte_accounting();
  const at::Tensor w = at::ones({100}).requires_grad_();
  AdamW optimizer({group_of({w})});
  const int64_t before = bytes().live;
  w.mutable_grad() = at::ones({100});
  optimizer.drop_gradients();
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(bytes().live, before);
  optimizer.step(0.1);
  EXPECT_TRUE(w.equal(at::ones({100})));
}

TEST(AdamW, AGraphThatSavedTheOldParameterNotices) {
  const at::Tensor w = at::ones({3}).requires_grad_();
  AdamW optimizer({group_of({w})});
  const at::Tensor loss = (w * w).sum();
  w.mutable_grad() = at::ones({3});
  optimizer.step(0.1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(AdamW, AWrongGradientStopsTheStepBeforeAnyUpdate) {
  const at::Tensor good = at::ones({3}).requires_grad_(), bad = at::ones({3});
  AdamW optimizer({group_of({good, bad})});
  good.mutable_grad() = at::ones({3});
  bad.mutable_grad() = at::ones({4});
  EXPECT_THROW(optimizer.step(0.1), ShapeError);
  bad.mutable_grad() = at::ones({3}, at::kDouble);
  EXPECT_THROW(optimizer.step(0.1), DtypeError);
  EXPECT_TRUE(good.equal(at::ones({3})));
}

}  // namespace
}  // namespace lethe
