#include <optional>
#include <stdexcept>

#include "recompute/nets.h"
#include "recompute/reentrant.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/tensors.h"
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/engine.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"

// The gate tests S1-S12 of spec 3 2.5; S3 is tests/core/storage_guard_test.cpp.
namespace lethe {
namespace {

using test::NetMode;
using test::NetStep;

class Threads {
 public:
  explicit Threads(int n) : before_(at::get_num_threads()) { at::set_num_threads(n); }

  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

at::Tensor net_input(at::ScalarType dtype) {
  at::Generator generator = at::detail::createCPUGenerator(11);
  return at::randn({24, test::kNetWidth}, generator).to(dtype);
}

TEST(GateS1, HooksComeFromTheEngineForBuiltInCustomAndLetheNodes) {
  const at::Tensor x = test::random_leaf({4, 4});
  Tape tape;
  const TapeScope scope(tape);
  const at::Tensor y = tape.run(
      test::released("exp"), [](const at::Tensor& t) { return t.exp(); }, x);
  EXPECT_EQ(tape.report()[0].slots, 1);
  const NetStep step =
      test::net_step(test::make_net(at::kFloat, 1), net_input(at::kFloat), NetMode::Fine);
  ASSERT_EQ(step.regions.size(), 2U);
  // rms_norm, mm, bmm, softmax, dropout: every one of the region's own results.
  EXPECT_GE(step.regions[0].slots, 6);
  // Silu saves two, the products three more.
  EXPECT_GE(step.regions[1].slots, 4);
}

class GateModes : public ::testing::TestWithParam<std::tuple<at::ScalarType, bool, int>> {};

TEST_P(GateModes, S2S9LossGradientsAndRandomStateKeepEveryBit) {
  const auto [dtype, autocast, threads] = GetParam();
  const Threads set(threads);
  const test::Net net = test::make_net(dtype, 3);
  const at::Tensor x = net_input(dtype);
  const NetStep plain = test::net_step(net, x, NetMode::None, {.autocast = autocast});
  test::expect_same_step(
      plain, test::net_step(net, x, NetMode::None, {.autocast = autocast}), "noise floor");
  for (const NetMode mode : test::kNetModes)
    for (const bool by_grad : {false, true})
      test::expect_same_step(
          plain,
          test::net_step(net, x, mode, {.by_grad = by_grad, .autocast = autocast}),
          test::name_of(mode) + (by_grad ? ", autograd::grad" : ", backward"));
}

INSTANTIATE_TEST_SUITE_P(Types,
                         GateModes,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Values(false),
                                            ::testing::Values(1, 2)));
INSTANTIATE_TEST_SUITE_P(Autocast,
                         GateModes,
                         ::testing::Combine(::testing::Values(at::kFloat),
                                            ::testing::Values(true),
                                            ::testing::Values(1, 2)));

TEST(GateS2, AReplayStopsWhenItsLastValueIsThere) {
  const NetStep step =
      test::net_step(test::make_net(at::kFloat, 2), net_input(at::kFloat), NetMode::FineKeep);
  EXPECT_EQ(test::sum_of(step.regions, &RegionReport::replays), 4);
  EXPECT_EQ(test::sum_of(step.regions, &RegionReport::early_stops), 4);
}

TEST(GateS4, AChainIsFreedInForwardAndPulledInOrder) {
  install_byte_accounting();
  std::vector<int> order;
  const at::Tensor w = at::randn({64, 64}).requires_grad_();
  const at::Tensor x = at::randn({64, 64}).requires_grad_();
  const auto link = [&](int i) {
    return [&order, &w, i](const Tensors& in) {
      order.push_back(i);
      return Tensors{at::tanh(at::mm(in[0], w))};
    };
  };
  const auto run = [&](Tape* tape) {
    at::Tensor h = x;
    std::optional<TapeScope> scope;
    if (tape != nullptr) scope.emplace(*tape);
    for (int i = 0; i < 4; ++i) {
      h = tape != nullptr ? tape->run(test::released(fmt::format("link{}", i)), link(i), {h})[0]
                          : link(i)({h})[0];
    }
    return h.sum();
  };
  const auto plain = torch::autograd::grad({run(nullptr)}, {x, w});
  order.clear();
  Tape tape;
  const int64_t before = bytes().live;
  const at::Tensor loss = run(&tape);
  // What is left: the scalar, and the random state of the first region, which the others share.
  EXPECT_EQ(bytes().live - before, 4 + 5056);
  order.clear();
  const auto grads = torch::autograd::grad({loss}, {x, w});
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
  test::expect_bitwise(grads[0], plain[0], "x");
  test::expect_bitwise(grads[1], plain[1], "w");
}

TEST(GateS5, TheReentrantRegionKeepsTheLossAndChangesTheInputGradient) {
  at::Generator generator = at::detail::createCPUGenerator(5);
  const at::Tensor x = at::randn({128, 128}, generator).requires_grad_();
  const at::Tensor w = at::randn({128, 128}, generator).requires_grad_();
  const RegionFn inner = [w](const Tensors& in) {
    const at::Tensor& t = in[0];
    return Tensors{at::mm(at::tanh(t), w) + t * at::sigmoid(t) + t.pow(2) * 0.1};
  };
  const auto run = [&](auto&& region) {
    const at::Tensor y = region(Tensors{x})[0];
    // Younger than the region, so its gradient of x arrives first.
    const at::Tensor loss = (y + x.exp() * 0.3).pow(2).sum();
    Tensors all = torch::autograd::grad({loss}, {x, w});
    all.push_back(loss.detach());
    return all;
  };
  Tape tape;
  const Tensors plain = run(inner);
  const Tensors reentrant =
      run([&](const Tensors& in) { return test::reentrant_region("reentrant", inner, in, {w}); });
  const Tensors ours =
      run([&](const Tensors& in) { return tape.run(test::released("ours"), inner, in); });
  test::expect_bitwise(plain[2], reentrant[2], "loss");
  test::expect_bitwise(plain[1], reentrant[1], "gradient of w: it has one reader");
  EXPECT_FALSE(at::equal(plain[0], reentrant[0]))
      << "x has readers inside and outside: the sums must associate differently";
  for (size_t i = 0; i < plain.size(); ++i) test::expect_bitwise(plain[i], ours[i], "engine");
}

TEST(GateS6, AStrayReadNamesRegionAndEventAndARestoreEndsTheGuard) {
  const at::Tensor x = test::random_leaf({4, 4});
  Tape tape;
  const TapeScope scope(tape);
  const at::Tensor y = tape.run(
      test::released("L3.mb0.q"), [](const at::Tensor& t) { return t.exp(); }, x);
  const at::Tensor kept = y.detach().clone(), corner = y[0][0];
  const at::Tensor loss = (y * y).sum();
  tape.event("attn.q.end");
  EXPECT_EQ(tape.release("L3.mb0.q"), 16 * 8);
  for (const auto& read : std::vector<std::function<void()>>{[&] { (void)y.exp(); },
                                                             [&] { (void)at::mm(y, y); },
                                                             [&] { (void)corner.item(); },
                                                             [&] { y.detach().add_(1); }})
    test::expect_error<c10::Error>(read, {"L3.mb0.q.out0 [E3]", "released at attn.q.end"});
  loss.backward();
  test::expect_bitwise(y.detach(), kept, "restored");
  test::expect_bitwise(x.grad(), 2 * kept * kept, "gradient");
}

TEST(GateS9, TheOuterRegionIsReplayedOnceAndEachInnerOnce) {
  for (const NetMode mode : {NetMode::Nested, NetMode::NestedKeep}) {
    const NetStep step = test::net_step(test::make_net(at::kFloat, 2), net_input(at::kFloat), mode);
    ASSERT_EQ(step.regions.size(), 6U);
    for (const RegionReport& region : step.regions) EXPECT_EQ(region.replays, 1) << region.name;
  }
}

TEST(GateS10, DropoutDrawsTheSameNumbersAndTheGeneratorMovesOnce) {
  const at::Tensor x = test::random_leaf({32, 32});
  const auto fn = [](const at::Tensor& t) { return at::dropout(t * t, 0.5, true).exp(); };
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(3);
  const at::Tensor plain_loss = fn(x).sum();
  const at::Tensor after = generator.get_state();
  const at::Tensor plain = torch::autograd::grad({plain_loss}, {x})[0];
  generator.set_current_seed(3);
  Tape tape;
  const at::Tensor loss = tape.run(test::released("dropout"), fn, x).sum();
  test::expect_bitwise(torch::autograd::grad({loss}, {x})[0], plain, "gradient");
  test::expect_bitwise(generator.get_state(), after, "generator");
}

TEST(GateS10, WithoutASnapshotTheGradientIsAnother) {
  const at::Tensor x = test::random_leaf({32, 32});
  const auto fn = [](const Tensors& in) {
    return Tensors{at::dropout(in[0] * in[0], 0.5, true).exp()};
  };
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(3);
  const at::Tensor plain = torch::autograd::grad({fn({x})[0].sum()}, {x})[0];
  generator.set_current_seed(3);
  Tape tape;
  const at::Tensor loss =
      tape.run({.name = "dropout", .release_outputs = true, .random = false}, fn, {x})[0].sum();
  EXPECT_FALSE(at::equal(torch::autograd::grad({loss}, {x})[0], plain));
}

template <class Error>
void expect_clean_failure(const std::function<void()>& thrower, const char* text) {
  const at::Tensor x = test::random_leaf({4, 4});
  const at::Tensor random = at::detail::getDefaultCPUGenerator().get_state();
  int calls = 0;
  {
    Tape tape;
    const at::Tensor loss = tape.run(
                                    test::released("L1.mb0.bad"),
                                    [&](const at::Tensor& t) {
                                      if (++calls == 2) {
                                        (void)at::rand({3});
                                        thrower();
                                      }
                                      return t.exp();
                                    },
                                    x)
                                .sum();
    test::expect_error<Error>([&] { loss.backward(); }, {text});
    // A failed region is not used again.
    test::expect_error<RecomputeError>([&] { loss.backward(); }, {"L1.mb0.bad [E6]", "failed"});
  }
  test::expect_bitwise(at::detail::getDefaultCPUGenerator().get_state(), random, "random state");
  EXPECT_FALSE(in_replay());
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_EQ(recompute_objects().regions, 0);
  EXPECT_EQ(recompute_objects().saved, 0);
  const test::Net net = test::make_net(at::kFloat, 1);
  test::expect_same_step(test::net_step(net, net_input(at::kFloat), NetMode::None),
                         test::net_step(net, net_input(at::kFloat), NetMode::Fine),
                         "the next step");
}

TEST(GateS11, AnExceptionOfAReplayKeepsItsTypeAndLeavesTheNextStepCorrect) {
  expect_clean_failure<std::logic_error>([] { throw std::logic_error("a user's error"); },
                                         "a user's error");
  expect_clean_failure<DataError>([] { throw DataError("one of ours"); }, "one of ours");
}

TEST(GateS12, WithoutAScopeTheEngineBeforeUsIsAsked) {
  {
    Tape tape;
    const TapeScope install(tape);
  }
  EXPECT_EQ(torch::autograd::Engine::get_default_engine().get_default_saved_variable_hooks(),
            nullptr);
}

}  // namespace
}  // namespace lethe
