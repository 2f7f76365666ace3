#include "lethe/recompute/kept_call.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "recompute/nets.h"
#include "support/expect_error.h"
#include "support/tensors.h"
#include <gtest/gtest.h>

#include <ATen/ops/rand.h>

#include "lethe/base/error.h"

// Calls whose results stay inside of a region: spec 3 6.3.
namespace lethe::test {
namespace {

RegionSpec keeping(const std::vector<std::string>& names) {
  RegionSpec spec{.name = "L0.mb0.layer"};
  for (const std::string& name : names) spec.keep.push_back({name});
  return spec;
}

// A layer of two kept candidates between plain operations; counts how often they run.
struct Layer {
  at::Tensor a = random_leaf({6, 6}), b = random_leaf({6, 6});
  int products = 0, roots = 0;

  RegionFn fn() {
    return [this](const Tensors& in) -> Tensors {
      const at::Tensor x = in[0].sin();
      const at::Tensor product = op_call("product",
                                         [this](const Tensors& args) -> Tensors {
                                           ++products;
                                           return {args[0].mm(a).tanh()};
                                         },
                                         {x})[0];
      const at::Tensor y = (product * x).exp();
      const at::Tensor root = op_call("root",
                                      [this](const Tensors& args) -> Tensors {
                                        ++roots;
                                        return {args[0].sqrt()};
                                      },
                                      {y})[0];
      return {root.mm(b) + y};
    };
  }

  std::vector<at::Tensor> gradients(const at::Tensor& x, const std::vector<std::string>& keep) {
    Tape tape;
    const at::Tensor out = tape.run(keeping(keep), fn(), {x})[0];
    reports = tape.report();
    return torch::autograd::grad({out.cos().sum()}, {x, a, b});
  }

  std::vector<RegionReport> reports;
};

void expect_equal_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(std::memcmp(a[i].const_data_ptr(), b[i].const_data_ptr(), a[i].nbytes()), 0) << i;
}

TEST(KeptCall, ReplaysSkipWhatIsKeptAndKeepEveryBit) {
  const at::Tensor x = random_leaf({5, 6});
  Layer plain;
  const Tensors expected =
      torch::autograd::grad({plain.fn()({x})[0].cos().sum()}, {x, plain.a, plain.b});
  for (const std::vector<std::string>& keep :
       {std::vector<std::string>{}, {"product"}, {"root"}, {"product", "root"}}) {
    Layer layer{.a = plain.a, .b = plain.b};
    expect_equal_bits(layer.gradients(x, keep), expected);
    const auto kept = [&](const char* name) {
      return std::find(keep.begin(), keep.end(), name) != keep.end();
    };
    EXPECT_EQ(layer.products, kept("product") ? 1 : 2);
    EXPECT_EQ(layer.roots, kept("root") ? 1 : 2);
  }
}

TEST(KeptCall, TheReportSaysWhatStaysByName) {
  Layer layer;
  layer.gradients(random_leaf({5, 6}), {"product"});
  ASSERT_EQ(layer.reports.size(), 1u);
  ASSERT_EQ(layer.reports[0].kept.size(), 1u);
  const KeptReport& kept = layer.reports[0].kept[0];
  EXPECT_EQ(kept.name, "product");
  EXPECT_EQ(kept.calls, 1);
  EXPECT_EQ(kept.bytes, 5 * 6 * 8);  // tanh saves its output; mm's arguments are not kept
  EXPECT_GT(kept.forward_ns, 0);
}

TEST(KeptCall, WithoutAnythingLeftToBringBackNothingIsReplayed) {
  const at::Tensor x = random_leaf({4});
  Tape tape;
  const auto fn = [](const Tensors& in) -> Tensors {
    return op_call(
        "exp", [](const Tensors& args) -> Tensors { return {args[0].exp()}; }, in);
  };
  const at::Tensor out = tape.run(keeping({"exp"}), fn, {x})[0];
  out.sum().backward();
  EXPECT_EQ(tape.report()[0].replays, 0);
}

TEST(KeptCall, OutsideOfRegionsAndForOtherNamesItIsTheFunction) {
  const at::Tensor x = random_leaf({4});
  const auto twice = [](const Tensors& in) -> Tensors { return {in[0] * 2}; };
  EXPECT_TRUE(op_call("twice", twice, {x})[0].equal(x * 2));
  Tape tape;
  const auto fn = [&](const Tensors& in) { return op_call("twice", twice, in); };
  const at::Tensor out = tape.run(keeping({"other"}), fn, {x})[0];
  EXPECT_TRUE(tape.report()[0].kept.empty());
}

TEST(KeptCall, ASecondBackwardFindsWhatIsKept) {  // R6.20: the engine keeps it with the graph
  const at::Tensor x = random_leaf({5, 6});
  Layer layer;
  Tape tape;
  const at::Tensor loss = tape.run(keeping({"product"}), layer.fn(), {x})[0].cos().sum();
  const auto first = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({loss}, {x});
  expect_equal_bits(first, second);
  EXPECT_EQ(layer.products, 1);
}

// Runs fn as a region that keeps "call"; then backward.
void run_kept(const RegionFn& fn, bool random = false) {
  Tape tape;
  const RegionSpec spec{
      .name = "L0.mb0.layer", .random = random, .stop = EarlyStop::Off, .keep = {{"call"}}};
  const at::Tensor out = tape.run(spec, fn, {random_leaf({4, 4})})[0];
  out.sum().backward();
}

TEST(KeptCall, AReplayMustMakeTheSameCalls) {
  const auto exp = [](const Tensors& in) -> Tensors { return {in[0].exp()}; };
  expect_error<RecomputeError>(
      [&] {
        run_kept([&](const Tensors& in) -> Tensors {
          const at::Tensor y = in[0].sin();
          const at::Tensor z = in_replay() ? exp({y})[0] : op_call("call", exp, {y})[0];
          return {z.mm(z).sin()};
        });
      },
      {"L0.mb0.layer [R6.18]", "1 kept calls", "got 0"});
  expect_error<RecomputeError>(
      [&] {
        run_kept([&](const Tensors& in) -> Tensors {
          const at::Tensor y = in[0].sin();
          const at::Tensor z = in_replay() ? op_call("call", exp, {y})[0] : exp({y})[0];
          return {z.mm(z)};
        });
      },
      {"L0.mb0.layer [R6.18]", "none any more", "'call'"});
}

// R6.19, T4.23.
TEST(KeptCall, WhatIsKeptMustNotBeWrittenTo) {
  const std::vector<std::function<void(const at::Tensor&)>> writes = {
      [](const at::Tensor& kept) { kept.relu_(); },
      [](const at::Tensor& kept) { kept.masked_fill_(kept.detach() > 0, 0); },
      [](const at::Tensor& kept) { kept.add_(1); }};
  for (const auto& write : writes)
    expect_error<RecomputeError>(
        [&] {
          run_kept([&write](const Tensors& in) -> Tensors {
            const at::Tensor kept = op_call(
                "call", [](const Tensors& args) -> Tensors { return {args[0] * 2}; }, {in[0]})[0];
            if (!in_replay()) write(kept);
            return {kept.sin().exp()};
          });
        },
        {"L0.mb0.layer [R6.19]", "'call'"});
}

TEST(KeptCall, WhatACallSavedOfItsInputIsComparedInCheckedMode) {
  const at::Tensor w = random_leaf({4});
  int runs = 0;
  const RegionFn fn = [&](const Tensors& in) -> Tensors {
    ++runs;
    return op_call(
        "mul", [&](const Tensors& args) -> Tensors { return {args[0] * w}; }, {in[0] + runs});
  };
  Tape tape({.checked = true});
  const at::Tensor out = tape.run(keeping({"mul"}), fn, {random_leaf({4})})[0];
  expect_error<RecomputeError>([&] { out.sum().backward(); },
                               {"L0.mb0.layer [E4]", "bytes of forward"});
}

TEST(KeptCall, TheInputOfACallMustNotBeWrittenToAfterIt) {
  const RegionFn fn = [](const Tensors& in) -> Tensors {
    const at::Tensor x = in[0] + 1;
    const at::Tensor square = op_call(
        "square", [](const Tensors& args) -> Tensors { return {args[0] * args[0]}; }, {x})[0];
    x.detach().add_(5);
    return {square + x.exp()};
  };
  Tape tape;
  const at::Tensor out = tape.run(keeping({"square"}), fn, {random_leaf({4})})[0];
  expect_error<RecomputeError>([&] { out.sum().backward(); },
                               {"L0.mb0.layer [E10]", "saved inside of the region"});
}

TEST(KeptCall, CallsThatWriteAliasOrDrawAreNotKept) {
  const auto region = [](const RegionFn& call) {
    return [call](const Tensors& in) -> Tensors {
      return {op_call("call", call, {in[0].sin()})[0].exp()};
    };
  };
  expect_error<RecomputeError>(
      [&] { run_kept(region([](const Tensors& in) -> Tensors { return {in[0].relu_().exp()}; })); },
      {"[R6.21]", "write into its inputs", "'call'"});
  expect_error<RecomputeError>(
      [&] { run_kept(region([](const Tensors& in) -> Tensors { return {in[0].view({16})}; })); },
      {"[R6.21]", "fresh tensors", "'call'"});
  expect_error<RecomputeError>(
      [&] {
        run_kept(region([](const Tensors& in) -> Tensors {
                   return {in[0] * at::rand({4, 4}, fp64())};
                 }),
                 /*random=*/true);
      },
      {"[R6.24]", "random", "'call'"});
}

// A replay takes the choice from the record: it never comes to the call.
TEST(KeptCall, CallsInsideOfARecordedChoiceAreNotKept) {
  const at::Tensor x = random_leaf({5, 6});
  int calls = 0;
  const RegionFn fn = [&calls](const Tensors& in) -> Tensors {
    const Tensors chosen = recorded([&] {
      return op_call("call",
                     [&calls](const Tensors& args) -> Tensors {
                       ++calls;
                       return {args[0].argsort(int64_t{-1}, false)};
                     },
                     {in[0].detach()});
    });
    return {in[0].gather(1, chosen[0]).exp()};
  };
  const Tensors expected = torch::autograd::grad({fn({x})[0].cos().sum()}, {x});
  calls = 0;
  Tape tape;
  const at::Tensor out = tape.run(keeping({"call"}), fn, {x})[0];
  EXPECT_TRUE(tape.report().at(0).kept.empty());
  expect_equal_bits(torch::autograd::grad({out.cos().sum()}, {x}), expected);
  EXPECT_EQ(tape.report().at(0).replays, 1);
  EXPECT_EQ(calls, 1);
}

TEST(KeptCall, NestedRegionsKeepNothing) {
  const auto exp = [](const Tensors& in) -> Tensors { return {in[0].exp()}; };
  expect_error<RecomputeError>(
      [&] {
        Tape tape;
        const RegionFn inner = [&](const Tensors& in) { return op_call("call", exp, in); };
        tape.run("outer",
                 [&](const Tensors& in) {
                   return run_region({.name = "inner", .keep = {{"call"}}}, inner, in);
                 },
                 {random_leaf({4})});
      },
      {"inner [R6.17]", "'call'", "outer"});
}

}  // namespace
}  // namespace lethe::test
