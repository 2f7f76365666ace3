#include "lethe/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "optim/optimizer_support.h"
#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"

namespace lethe {
namespace {

using test::group_of;
using test::muon_group;

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
  Optimizer optimizer({group});
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
TEST(OptimizerAdamW, FollowsTheFloat64OracleForTwentySteps) {
  expect_matches_oracle(at::kFloat, 2e-6);
  expect_matches_oracle(at::kDouble, 1e-14);
}

TEST(OptimizerAdamW, AZeroGradientMovesNothingButTheDecay) {
  const at::Tensor w = at::full({5}, 2.0F).requires_grad_();
  Optimizer optimizer({group_of({w}, /*weight_decay=*/0.5)});
  w.mutable_grad() = at::zeros({5});
  optimizer.step(0.25);
  EXPECT_TRUE(w.equal(at::full({5}, 2.0F * (1 - 0.25F * 0.5F))));
}

TEST(OptimizerAdamW, AZeroGradientWithoutDecayKeepsEveryBit) {
  const at::Tensor w = at::randn({1000}).requires_grad_(), before = w.detach().clone();
  Optimizer optimizer({group_of({w}, 0)});
  for (int step = 0; step < 3; ++step) {
    w.mutable_grad() = at::zeros({1000});
    optimizer.step(1.0);
  }
  test::expect_bitwise(w, before, "parameter");
}

TEST(OptimizerAdamW, ATinyEpsGivesAFullStepForATinyGradient) {
  const at::Tensor w = at::zeros({3}).requires_grad_();
  Optimizer optimizer({group_of({w})});
  w.mutable_grad() = at::full({3}, 1e-12F);  // eps 1e-8 would make this step 1e-4 of the rate
  optimizer.step(0.1);
  test::expect_close_rms(w, at::full({3}, -0.1), 1e-6, "parameter");
}

TEST(OptimizerAdamW, AParameterWithoutGradientStaysAndIsNotCounted) {
  const at::Tensor trained = at::ones({100}).requires_grad_(), frozen = at::ones({1000});
  Optimizer optimizer({group_of({trained, frozen})});
  for (int step = 0; step < 2; ++step) {
    trained.mutable_grad() = at::ones({100});
    optimizer.step(0.1);
  }
  EXPECT_TRUE(frozen.equal(at::ones({1000})));
  EXPECT_LT(trained.max().item<float>(), 1.0F);
  EXPECT_EQ(optimizer.update_counts()[0].updates, 2);
  EXPECT_EQ(optimizer.update_counts()[1].updates, 0);
}

TEST(OptimizerAdamW, ALateParameterStartsItsOwnBiasCorrection) {
  const at::Tensor early = at::zeros({1}).requires_grad_(), late = at::zeros({1}).requires_grad_();
  Optimizer optimizer({group_of({early, late}, 0)});
  for (int step = 0; step < 5; ++step) {
    early.mutable_grad() = at::ones({1});
    if (step == 4) late.mutable_grad() = at::ones({1});
    optimizer.step(0.1);
  }
  EXPECT_NEAR(late.item<float>(), -0.1F, 1e-7);  // the first step is the rate times the sign
}

TEST(OptimizerAdamW, GradientsOfAnyStridesGiveTheSameBits) {
  const at::Tensor a = at::ones({4, 6}).requires_grad_(), b = at::ones({4, 6}).requires_grad_();
  Optimizer optimizer({group_of({a, b})});
  const at::Tensor grad = at::randn({6, 4});
  a.mutable_grad() = grad.t();
  b.mutable_grad() = grad.t().contiguous();
  optimizer.step(0.1);
  test::expect_bitwise(a, b, "parameters");
}

TEST(OptimizerAdamW, BitsDoNotDependOnTheThreadCount) {
  const at::Tensor start = at::randn({257, 129}), grad = at::randn({257, 129});
  const int threads = at::get_num_threads();
  Tensors results;
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    const at::Tensor w = start.clone().requires_grad_();
    Optimizer optimizer({group_of({w})});
    for (int step = 0; step < 3; ++step) {
      w.mutable_grad() = grad;
      optimizer.step(0.1);
    }
    results.push_back(w);
  }
  at::set_num_threads(threads);
  test::expect_bitwise(results[0], results[1], "1 and 2 threads");
}

TEST(OptimizerAdamW, DroppingGradientsFreesThemAndStopsUpdates) {
  install_byte_accounting();
  const at::Tensor w = at::ones({100}).requires_grad_();
  Optimizer optimizer({group_of({w})});
  const int64_t before = bytes().live;
  w.mutable_grad() = at::ones({100});
  optimizer.drop_gradients();
  EXPECT_FALSE(w.grad().defined());
  EXPECT_EQ(bytes().live, before);
  optimizer.step(0.1);
  EXPECT_TRUE(w.equal(at::ones({100})));
}

TEST(OptimizerAdamW, AGraphThatSavedTheOldParameterNotices) {
  const at::Tensor w = at::ones({3}).requires_grad_();
  Optimizer optimizer({group_of({w})});
  const at::Tensor loss = (w * w).sum();
  w.mutable_grad() = at::ones({3});
  optimizer.step(0.1);
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(OptimizerAdamW, AWrongGradientStopsTheStepBeforeAnyUpdate) {
  const at::Tensor good = at::ones({3}).requires_grad_(), bad = at::ones({3});
  Optimizer optimizer({group_of({good, bad})});
  good.mutable_grad() = at::ones({3});
  bad.mutable_grad() = at::ones({4});
  EXPECT_THROW(optimizer.step(0.1), ShapeError);
  bad.mutable_grad() = at::ones({3}, at::kDouble);
  EXPECT_THROW(optimizer.step(0.1), DtypeError);
  EXPECT_TRUE(good.equal(at::ones({3})));
}

TEST(Optimizer, StateIsMadeAtConstructionAndItsBytesNeverChange) {
  install_byte_accounting();
  const at::Tensor vector = at::ones({100}).requires_grad_(),
                   matrix = at::randn({6, 8}).requires_grad_(),
                   wide = at::ones({7}, at::kDouble).requires_grad_();
  const int64_t before = bytes().live_of(ByteCategory::Optimizer);
  Optimizer optimizer({muon_group(matrix, 6), group_of({vector, wide})});
  const int64_t expected = 4 * 48 + 2 * 4 * 100 + 2 * 8 * 7;
  EXPECT_EQ(optimizer.state_bytes(), expected);
  EXPECT_EQ(bytes().live_of(ByteCategory::Optimizer) - before, expected);
  matrix.mutable_grad() = at::randn({6, 8});
  vector.mutable_grad() = at::randn({100});
  optimizer.step(0.1);
  EXPECT_EQ(optimizer.state_bytes(), expected);
  EXPECT_EQ(bytes().live_of(ByteCategory::Optimizer) - before, expected);
}

// Three gradients of 1 MB: freed one by one, and AdamW itself allocates nothing.
TEST(Optimizer, AnAdamwStepNeedsNoMemoryAndFreesEachGradientAfterItsUpdate) {
  install_byte_accounting();
  Tensors parameters;
  for (int i = 0; i < 3; ++i) parameters.push_back(at::ones({1 << 18}).requires_grad_());
  Optimizer optimizer({group_of(parameters)});
  const int64_t without = bytes().live;
  for (const at::Tensor& p : parameters) p.mutable_grad() = at::ones({1 << 18});
  const int64_t with = bytes().live;
  EXPECT_EQ(with - without, 3 << 20);
  reset_peak();
  optimizer.step(0.1);
  EXPECT_EQ(bytes().peak, with);
  EXPECT_EQ(bytes().live, without);
  for (const at::Tensor& p : parameters) EXPECT_FALSE(p.grad().defined());
}

TEST(Optimizer, AMuonStepNeedsOnlyItsWorkspace) {
  install_byte_accounting();
  const at::Tensor stack = at::randn({8, 64, 96}).requires_grad_();
  Optimizer optimizer({muon_group(stack, 64)});
  stack.mutable_grad() = at::randn({8, 64, 96});
  const int64_t with = bytes().live;
  reset_peak();
  optimizer.step(0.1);
  const int64_t workspace = 8 * 2 * (64 * 96 + 64 * 64) * 4;  // all eight fit into the bound
  EXPECT_LE(bytes().peak - with, workspace);
  EXPECT_EQ(with - bytes().live, 8 * 64 * 96 * 4);
}

struct Pair {
  at::Tensor matrix, vector;
  std::unique_ptr<Optimizer> optimizer;
};

Pair pair_of(const at::Tensor& matrix, const at::Tensor& vector) {
  Pair p{.matrix = matrix.clone().requires_grad_(), .vector = vector.clone().requires_grad_()};
  p.optimizer = std::make_unique<Optimizer>(
      std::vector<ParameterGroup>{muon_group(p.matrix, 4), group_of({p.vector})});
  return p;
}

void train(const Pair& p, const Tensors& grads, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) {
    p.matrix.mutable_grad() = grads[2 * i].clone();
    p.vector.mutable_grad() = grads[2 * i + 1].clone();
    p.optimizer->step(0.1);
  }
}

TEST(Optimizer, ARestoredStateContinuesBitForBit) {
  const at::Tensor matrix = at::randn({8, 6}), vector = at::randn({5});
  Tensors grads;
  for (int i = 0; i < 6; ++i) {
    grads.push_back(at::randn({8, 6}));
    grads.push_back(at::randn({5}));
  }
  const Pair whole = pair_of(matrix, vector), first = pair_of(matrix, vector);
  train(whole, grads, 0, 6);
  train(first, grads, 0, 3);
  const Pair second = pair_of(first.matrix.detach(), first.vector.detach());
  std::vector<StateTensor> saved = first.optimizer->state();
  for (StateTensor& s : saved) s.value = s.value.clone();
  std::reverse(saved.begin(), saved.end());  // any order
  second.optimizer->restore(saved, first.optimizer->update_counts());
  train(second, grads, 3, 6);
  test::expect_bitwise(second.matrix, whole.matrix, "matrix");
  test::expect_bitwise(second.vector, whole.vector, "vector");
  EXPECT_EQ(second.optimizer->update_counts()[1].updates, 6);
}

TEST(Optimizer, StateIsListedPerParameterInTheOrderOfTheGroups) {
  const Pair p = pair_of(at::randn({8, 6}), at::randn({5}));
  std::vector<std::string> names;
  for (const StateTensor& s : p.optimizer->state()) names.push_back(s.parameter + "/" + s.kind);
  EXPECT_EQ(names, (std::vector<std::string>{"matrix/momentum", "w0/exp_avg", "w0/exp_avg_sq"}));
}

// Each difference is named, and nothing of the given state is taken.
TEST(Optimizer, RestoringNamesEveryDifferenceAndChangesNothing) {
  const Pair p = pair_of(at::randn({8, 6}), at::randn({5}));
  const auto counts = p.optimizer->update_counts();
  std::vector<StateTensor> good;
  for (const StateTensor& s : p.optimizer->state())
    good.push_back({s.parameter, s.kind, at::ones(s.value.sizes())});
  const auto expect = [&](std::vector<StateTensor> state,
                          std::vector<UpdateCount> given,
                          const std::vector<std::string>& parts) {
    try {
      p.optimizer->restore(state, given);
      ADD_FAILURE() << "no error for " << parts[0];
    } catch (const CheckpointError& error) {
      for (const std::string& part : parts)
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  auto state = good;
  state.erase(state.begin());
  expect(state, counts, {"momentum of 'matrix' is missing"});
  state = good;
  state.push_back({"w9", "exp_avg", at::ones({5})});
  expect(state, counts, {"exp_avg of 'w9' is not wanted"});
  state = good;
  state.push_back(good[0]);
  expect(state, counts, {"momentum of 'matrix' is there twice"});
  state = good;
  state[0].value = at::ones({6, 8});
  state[1].value = at::ones({5}, at::kDouble);
  expect(state,
         counts,
         {"momentum of 'matrix' is float32 [6,8] instead of float32 [8,6]",
          "exp_avg of 'w0' is float64 [5] instead of float32 [5]"});
  expect(good, {counts[0]}, {"update count of 'w0' is missing"});
  expect(good, {counts[0], {"w0", -1}}, {"update count of 'w0' is -1"});
  for (const StateTensor& s : p.optimizer->state())
    EXPECT_EQ(s.value.abs().max().item<float>(), 0) << s.parameter << s.kind;
}

}  // namespace
}  // namespace lethe
