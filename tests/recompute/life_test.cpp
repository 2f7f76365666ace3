#include <array>
#include <future>
#include <thread>

#include "recompute/nets.h"
#include "support/gradcheck.h"
#include "support/process_threads.h"
#include "support/tensors.h"
#include "support/tiny_model.h"
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/tanh.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/recompute/recompute.h"

// Whose values live when: micro-batches, several backward passes, hooks, threads, many steps
// (spec 3 1.2, 1.9, 8.1).
namespace lethe {
namespace {

using test::NetMode;
using test::random_leaf;

Tensors two_products(const at::Tensor& x, const at::Tensor& w) {
  return {at::tanh(at::mm(x.exp(), w)), at::mm(x.sin(), w).exp()};
}

TEST(TapeLife, TwoMicroBatchesRestoreIndependentlyInBothOrders) {
  const test::Net net = test::make_net(at::kFloat, 2);
  const at::Tensor x[] = {at::randn({8, test::kNetWidth}), at::randn({8, test::kNetWidth})};
  const auto gradients = [&](NetMode mode, bool newest_first) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_current_seed(1);
    Tape tape;  // one for both: entries differ by region, not by tape
    at::Tensor losses[2];
    for (int mb = 0; mb < 2; ++mb)
      losses[mb] = test::net_loss(net, test::net_forward(net, x[mb], mode, tape, mb));
    Tensors all;
    for (const int i : newest_first ? std::array{1, 0} : std::array{0, 1})
      for (const at::Tensor& g : torch::autograd::grad({losses[i]}, net.parameters()))
        all.push_back(g);
    return all;
  };
  for (const NetMode mode : {NetMode::Fine, NetMode::Full, NetMode::Nested})
    for (const bool newest_first : {false, true}) {
      const Tensors plain = gradients(NetMode::None, newest_first);
      const Tensors ours = gradients(mode, newest_first);
      for (size_t i = 0; i < plain.size(); ++i)
        test::expect_bitwise(ours[i], plain[i], test::name_of(mode));
    }
}

TEST(TapeLife, ARetainedGraphReplaysAgainAndHoldsNoValuesBetween) {
  install_byte_accounting();
  const at::Tensor x = random_leaf({32, 32}), w = random_leaf({32, 32});
  Tape tape;
  at::Tensor loss;
  {
    const TapeScope scope(tape);
    const Tensors out = tape.run({.name = "twice", .release_outputs = true, .random = false},
                                 [w](const Tensors& in) { return two_products(in[0], w); },
                                 {x});
    loss = (out[0] * out[1]).sum();
  }
  const int64_t before = bytes().live;
  const at::Tensor first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
  EXPECT_EQ(bytes().live - before, 32 * 32 * 8);  // the gradient
  const at::Tensor second = torch::autograd::grad({loss}, {x})[0];
  test::expect_bitwise(second, first, "gradient");
  EXPECT_EQ(tape.report()[0].replays, 2);
}

TEST(TapeLife, ABackwardSplitIntoInputsAndWeightsReplaysOnce) {
  const at::Tensor x = random_leaf({8, 8}), w = random_leaf({8, 8});
  Tape tape({.second_backward = SecondBackward::KeepValues});
  at::Tensor loss;
  {
    const TapeScope scope(tape);
    const Tensors out = tape.run(
        test::released("split"), [w](const Tensors& in) { return two_products(in[0], w); }, {x});
    loss = (out[0] * out[1]).sum();
  }
  const at::Tensor dx = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
  const at::Tensor dw = torch::autograd::grad({loss}, {w})[0];
  EXPECT_EQ(tape.report()[0].replays, 1);
  const Tensors plain = two_products(x, w);
  const Tensors expected = torch::autograd::grad({(plain[0] * plain[1]).sum()}, {x, w});
  test::expect_bitwise(dx, expected[0], "dx");
  test::expect_bitwise(dw, expected[1], "dw");
}

TEST(TapeLife, DetachedPiecesOfAGraphShareOneReplay) {
  const at::Tensor x = random_leaf({8, 8}), w = random_leaf({8, 8});
  Tape tape;
  const TapeScope scope(tape);
  Tensors out = tape.run(
      test::released("pieces"), [w](const Tensors& in) { return two_products(in[0], w); }, {x});
  // The overlap path runs the readers as graphs of their own.
  at::Tensor cut[] = {out[0].detach().requires_grad_(), out[1].detach().requires_grad_()};
  const at::Tensor reader = (cut[0] * cut[1]).sum();
  const Tensors incoming = torch::autograd::grad({reader}, {cut[0], cut[1]});
  for (at::Tensor& t : cut) t.reset();
  const Tensors grads = torch::autograd::grad(out, {x, w}, incoming);
  EXPECT_EQ(tape.report()[0].replays, 1);
  const Tensors plain = two_products(x, w);
  const Tensors expected = torch::autograd::grad({(plain[0] * plain[1]).sum()}, {x, w});
  test::expect_bitwise(grads[0], expected[0], "dx");
  test::expect_bitwise(grads[1], expected[1], "dw");
}

TEST(TapeLife, AnOutputThatWasHeldDuringTheOnlyReplayStaysForItsReaders) {
  const at::Tensor x = random_leaf({4});
  Tape tape;
  const TapeScope scope(tape);
  Tensors out = tape.run(test::released("pieces"),
                         [](const Tensors& in) {
                           return Tensors{in[0].exp(), in[0].tanh()};
                         },
                         {x});
  const at::Tensor p = (out[0] * out[0]).sum(), q = out[1].sum();
  (void)torch::autograd::grad({q}, {x});
  out.clear();
  const at::Tensor gradient = torch::autograd::grad({p}, {x})[0];
  test::expect_bitwise(gradient, 2 * x.detach().exp() * x.detach().exp(), "gradient");
  EXPECT_EQ(tape.report()[0].replays, 1);
}

TEST(TapeLife, TheTapeMayDieBeforeBackward) {
  const at::Tensor x = random_leaf({4});
  at::Tensor loss;
  {
    Tape tape;
    const TapeScope scope(tape);
    loss =
        tape.run(test::released("gone"),
                 [](const Tensors& in) {
                   return Tensors{run_region(
                                      "inner",
                                      [](const Tensors& t) { return Tensors{t[0].exp().tanh()}; },
                                      in)[0]
                                      .sin()};
                 },
                 {x})[0]
            .pow(2)
            .sum();
  }
  loss.backward();
  EXPECT_TRUE(
      at::equal(x.grad(), torch::autograd::grad({x.exp().tanh().sin().pow(2).sum()}, {x})[0]));
}

TEST(TapeLife, AForwardWithoutBackwardFreesAll) {
  install_byte_accounting();
  const at::Tensor x = random_leaf({32, 32}), w = random_leaf({32, 32});
  const int64_t before = bytes().live;
  for (const bool throws : {false, true}) {
    Tape tape;
    const TapeScope scope(tape);
    try {
      at::Tensor h = x;
      for (const char* name : {"a", "b"})
        h = tape.run(test::released(name),
                     [&](const Tensors& in) {
                       const at::Tensor y = two_products(in[0], w)[0];
                       if (throws && std::string(name) == "b") throw std::runtime_error("stop");
                       return Tensors{y};
                     },
                     {h})[0];
    } catch (const std::runtime_error&) {
    }
  }
  EXPECT_EQ(bytes().live, before);
  EXPECT_EQ(recompute_objects().regions, 0);
  EXPECT_EQ(recompute_objects().saved, 0);
}

TEST(TapeLife, ClearFreesWhatALivingGraphWouldHold) {
  install_byte_accounting();
  const at::Tensor x = random_leaf({32, 32}), w = random_leaf({32, 32});
  Tape tape;
  const int64_t before = bytes().live;
  at::Tensor loss;
  {
    const TapeScope scope(tape);
    loss = tape.run(test::released("cleared"),
                    [w](const Tensors& in) { return two_products(in[0], w); },
                    {x * 2})[0]
               .sum();
    tape.restore("cleared");
  }
  EXPECT_GT(bytes().live - before, 32 * 32 * 8);
  tape.clear();
  EXPECT_EQ(bytes().live - before, 8);
}

TEST(TapeLife, ARegionWhoseOnlyReaderSavesItsInputsComesBackToo) {
  // Nothing is saved inside, so no slot holds the region: its output's entry does.
  install_byte_accounting();
  const at::Tensor x = random_leaf({32, 32});
  Tape tape;
  const TapeScope scope(tape);
  const int64_t before = bytes().live;
  at::Tensor y = tape.run({.name = "post", .release_outputs = true, .random = false},
                          [](const Tensors& in) { return Tensors{in[0] + 1}; },
                          {x})[0];
  const at::Tensor loss = (y * y).sum();
  y.reset();
  EXPECT_EQ(bytes().live - before, 8);
  loss.backward();
  test::expect_bitwise(x.grad(), 2 * (x.detach() + 1), "gradient");
}

TEST(TapeLife, AnOutputThatSomebodyHoldsIsReadWithoutAReplay) {
  const at::Tensor x = random_leaf({4});
  Tape tape;
  const TapeScope scope(tape);
  const at::Tensor y = tape.run(
      test::released("held"), [](const at::Tensor& t) { return t + 1; }, x);
  (y * y).sum().backward();
  const RegionReport report = tape.report()[0];
  EXPECT_EQ(report.replays, 0);
  EXPECT_EQ(report.retained, 32);
  EXPECT_EQ(report.retained_outputs, (std::vector<std::string>{"out0: somebody else holds it"}));
}

TEST(TapeLife, ReleaseIsIdempotentAndNeverTouchesATensorThatMustStay) {
  const at::Tensor x = random_leaf({4});
  Tape tape;
  const TapeScope scope(tape);
  const at::Tensor y = tape.run(
      test::released("twice"), [](const at::Tensor& t) { return t.exp(); }, x);
  EXPECT_EQ(tape.release("twice"), 32);
  EXPECT_EQ(tape.release("twice"), 0);
  at::Tensor stolen;
  const at::Tensor z = tape.run(
      test::released("held"),
      [&](const at::Tensor& t) {
        stolen = t.exp();
        return stolen;
      },
      x);
  EXPECT_EQ(tape.release("held"), 0);
  EXPECT_EQ(tape.report()[1].retained_outputs,
            (std::vector<std::string>{"out0: is held by somebody else when the region ends"}));
  EXPECT_NO_THROW((void)stolen.sum().item<double>());
  tape.restore("twice");
  EXPECT_TRUE(at::equal(y, z));
}

TEST(TapeLife, AnExplicitReleaseFreesTensorsThatTheOverlapPathHolds) {
  install_byte_accounting();
  const at::Tensor x = random_leaf({32, 32});
  Tape tape;
  const TapeScope scope(tape);
  const RegionFn exp = [](const Tensors& in) { return Tensors{in[0].exp()}; };
  const at::Tensor y =
      tape.run({.name = "q", .release_outputs = true, .random = false}, exp, {x})[0];
  const at::Tensor z =
      tape.run({.name = "r", .release_outputs = true, .random = false}, exp, {x})[0];
  const at::Tensor view = y.view({1024}), kept = y.detach().clone();
  const at::Tensor loss = (view * view).sum() + (z * z).sum();
  const int64_t before = bytes().live;
  EXPECT_EQ(tape.release("q"), 8192);
  EXPECT_EQ(tape.release("r"), 8192);
  EXPECT_EQ(bytes().live - before, -2 * 8192);
  const RegionReport report = tape.report()[0];
  EXPECT_EQ(report.released, 8192);
  reset_peak();
  const int64_t start = bytes().live;
  tape.restore("q");
  tape.restore("r");
  // Back once each: no second copy at any time, and nothing left of the replay.
  EXPECT_EQ(bytes().peak - start, 2 * 8192);
  EXPECT_EQ(bytes().live - start, 2 * 8192);
  loss.backward();
  test::expect_bitwise(view.view({32, 32}).detach(), kept, "every alias sees the bytes");
}

TEST(TapeLife, AHookRestoresBeforeTheReadersAskAndLateReadersAreCounted) {
  for (const bool early_reader : {false, true}) {
    std::vector<std::string> order;
    const at::Tensor x = random_leaf({4});
    Tape tape;
    const TapeScope scope(tape);
    at::Tensor y = tape.run(
        test::released("q"),
        [&](const at::Tensor& t) {
          order.emplace_back(in_replay() ? "replay" : "forward");
          return t.exp();
        },
        x);
    at::Tensor z = (y * y).sin();
    tape.restore_at(z, {"q"});
    at::Tensor loss = z.sum();
    // The side path reads y, and its nodes are younger than the hook's.
    if (early_reader) loss = loss + y.pow(3).sum();
    y.reset();
    z.register_hook([&](const at::Tensor&) { order.emplace_back("hook"); });
    z.reset();
    loss.backward();
    const RegionReport report = tape.report()[0];
    EXPECT_EQ(report.replays, 1);
    EXPECT_EQ(report.late_restores, early_reader ? 1 : 0);
    EXPECT_EQ(order, (std::vector<std::string>{"forward", "replay", "hook"}));
  }
}

TEST(TapeLife, BackwardPassesOfTwoThreadsShareARegion) {
  const at::Tensor x = random_leaf({16, 16}), w = random_leaf({16, 16});
  for (int repeat = 0; repeat < 20; ++repeat) {
    Tape tape;
    Tensors losses;
    {
      const TapeScope scope(tape);
      const at::Tensor y = tape.run(
          test::released("shared"),
          [](const at::Tensor& t) { return (t * 2 + 1) * 1; },
          x.detach());
      const Tensors out{y};
      for (int i = 0; i < 2; ++i) losses.push_back(at::mm(out[0], w).pow(2).sum());
    }
    Tensors grads(2);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i] { grads[i] = torch::autograd::grad({losses[i]}, {w})[0]; });
    for (std::thread& thread : threads) thread.join();
    test::expect_bitwise(grads[0], grads[1], "gradient");
    EXPECT_EQ(tape.report()[0].handles, 2);
  }
}

TEST(TapeLife, ReplaysOfTwoThreadsKeepTheirRandomNumbersApart) {
  const at::Tensor x[] = {random_leaf({32, 32}), random_leaf({32, 32})};
  const auto noise = [](const at::Tensor& t) {
    at::Tensor y = t;
    for (int k = 0; k < 8; ++k) y = y * at::rand_like(t);
    return y;
  };
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  for (int repeat = 0; repeat < 20; ++repeat) {
    generator.set_current_seed(1);
    Tensors expected(2), losses(2), grads(2);
    for (size_t i = 0; i < 2; ++i)
      expected[i] = torch::autograd::grad({noise(x[i]).sum()}, {x[i]})[0];
    const at::Tensor end = generator.get_state();
    generator.set_current_seed(1);
    Tape tape;
    for (size_t i = 0; i < 2; ++i)
      losses[i] = tape.run(i == 0 ? "first" : "second", noise, x[i]).sum();
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i] { grads[i] = torch::autograd::grad({losses[i]}, {x[i]})[0]; });
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < 2; ++i) test::expect_bitwise(grads[i], expected[i], "gradient");
    test::expect_bitwise(generator.get_state(), end, "state of the generator");
  }
}

TEST(TapeLife, AHookOfAnotherThreadRestoresToo) {
  const at::Tensor x = random_leaf({4});
  at::Tensor old = x;
  for (int k = 0; k < 100; ++k) old = old + 1;  // a new thread counts its nodes from 0
  Tape tape;
  const at::Tensor y = tape.run(
      test::released("q"), [](const at::Tensor& t) { return t.exp(); }, x);
  const at::Tensor z = std::async(std::launch::async, [&] {
                         const at::Tensor square = (y * y).sin();
                         tape.restore_at(square, {"q"});
                         return square;
                       }).get();
  z.sum().backward();
  EXPECT_EQ(tape.report()[0].replays, 1);
  EXPECT_EQ(tape.report()[0].late_restores, 0);
}

int64_t num_threads() {
  return static_cast<int64_t>(test::thread_names().size());
}

TEST(TapeLife, AHundredStepsLeaveNoBytesObjectsOrThreads) {
  install_byte_accounting();
  const test::Net net = test::make_net(at::kFloat, 2);
  const at::Tensor x = at::randn({8, test::kNetWidth});
  const auto step = [&](int i) {
    const NetMode mode = test::kNetModes[static_cast<size_t>(i) % std::size(test::kNetModes)];
    (void)test::net_step(net, x, mode, {.by_grad = i % 2 == 0});
  };
  for (int i = 0; i < 8; ++i) step(i);
  const int64_t live = bytes().live, threads = num_threads();
  for (int i = 0; i < 100; ++i) {
    step(i);
    ASSERT_EQ(bytes().live, live) << "step " << i;
    ASSERT_EQ(recompute_objects().regions, 0);
    ASSERT_EQ(recompute_objects().saved, 0);
  }
  EXPECT_EQ(num_threads(), threads);
}

TEST(TapeLife, BytesAfterForwardAreThoseThatTheReportPredicts) {
  install_byte_accounting();
  const test::Net net = test::make_net(at::kBFloat16, 3);
  const at::Tensor x = at::randn({40, test::kNetWidth}).to(at::kBFloat16);
  const auto after_forward = [&](NetMode mode, std::vector<RegionReport>& report) {
    Tape tape;
    const int64_t before = bytes().live;
    const at::Tensor loss = test::net_loss(net, test::net_forward(net, x, mode, tape));
    report = tape.report();
    return bytes().live - before;
  };
  std::vector<RegionReport> regions;
  const int64_t plain = after_forward(NetMode::None, regions);
  for (const NetMode mode : test::kNetModes) {
    const int64_t live = after_forward(mode, regions);
    EXPECT_EQ(plain - live,
              test::sum_of(regions, &RegionReport::released) -
                  test::sum_of(regions, &RegionReport::snapshot_bytes))
        << test::name_of(mode);
    EXPECT_EQ(test::sum_of(regions, &RegionReport::forgettable),
              test::sum_of(regions, &RegionReport::released))
        << test::name_of(mode);
    EXPECT_EQ(test::sum_of(regions, &RegionReport::retained), 0) << test::name_of(mode);
  }
}

// Every operator of Lethe: their nodes give up what they saved when they have run, so nothing is
// held while the graph lives.
TEST(TapeLife, AWholeModelAsOneRegionKeepsEveryBitAndHoldsNothingAfterBackward) {
  const ModelConfig config = test::tiny_a();
  const auto model = test::lively_model(config, {}, 3);
  const MicroBatch batch = test::random_batch(config, {19, 13}, 5);
  const LossFactors factors = test::all_losses(config);
  const Tensors plain = test::gradients(*model, batch, factors);
  Tensors leaves;
  for (size_t i = 0; i < model->params().size(); ++i)
    if (model->params().value(i).requires_grad()) leaves.push_back(model->params().value(i));
  RunTally tally = model->make_tally(), replay_tally = model->make_tally();
  Tape tape;
  const at::Tensor total = tape.run(test::released("model"),
                                    [&](const Tensors&) {
                                      RunTally& target = in_replay() ? replay_tally : tally;
                                      return Tensors{model->forward(batch, factors, target).total};
                                    },
                                    {})[0];
  const Tensors grads =
      torch::autograd::grad({total}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
  ASSERT_EQ(grads.size(), plain.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    ASSERT_EQ(grads[i].defined(), plain[i].defined());
    if (plain[i].defined()) test::expect_bitwise(grads[i], plain[i], model->params().row(i).name);
  }
  EXPECT_EQ(tape.report()[0].replays, 1);
  EXPECT_EQ(recompute_objects().saved, 0);
}

}  // namespace
}  // namespace lethe
