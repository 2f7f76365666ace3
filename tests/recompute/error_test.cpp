#include "lethe/base/error.h"

#include "recompute/nets.h"
#include "recompute/reentrant.h"
#include "support/expect_error.h"
#include "support/tensors.h"
#include <gtest/gtest.h>

#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tanh.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "lethe/recompute/kept_call.h"
#include "lethe/recompute/recompute.h"
#include "lethe/recompute/region_trace.h"

// Every refusal of the engine names the region (spec 3 1.10).
namespace lethe {
namespace {

using test::expect_error;
using test::random_leaf;

// Runs fn(inputs, call) as region "L2.mb1.part", then backward; call counts from 1.
at::Tensor loss_of(Tape& tape,
                   const std::function<Tensors(const at::Tensor&, int)>& fn,
                   const at::Tensor& x,
                   EarlyStop stop = EarlyStop::Off) {
  auto calls = std::make_shared<int>(0);
  const TapeScope scope(tape);
  const Tensors out = tape.run({.name = "L2.mb1.part", .release_outputs = true, .stop = stop},
                               [calls, fn](const Tensors& in) { return fn(in[0], ++*calls); },
                               {x});
  return (out[0] * out[0]).sum();
}

void expect_mismatch(const std::function<Tensors(const at::Tensor&, int)>& fn,
                     std::initializer_list<const char*> parts,
                     TapeOptions options = {}) {
  Tape tape(options);
  const at::Tensor loss = loss_of(tape, fn, random_leaf({4, 6}));
  expect_error<RecomputeError>([&] { loss.backward(); }, parts);
}

TEST(RecomputeErrors, AReplayThatDiffersIsRefusedWithBothSides) {
  const char* const region = "recompute L2.mb1.part [E4]";
  expect_mismatch(
      [](const at::Tensor& t, int call) { return Tensors{call == 1 ? t.exp() : t.exp().exp()}; },
      {region, "as many tensors as forward, 1"});
  expect_mismatch(
      [](const at::Tensor& t, int call) { return Tensors{call == 1 ? t.exp().exp() : t.exp()}; },
      {region, "as many tensors as forward, 2", "got 1"});
  expect_mismatch([](const at::Tensor& t,
                     int call) { return Tensors{(call == 1 ? t : t.narrow(0, 0, 2)).exp()}; },
                  {region, "saved tensor 0", "[4,6] Double on cpu", "[2,6] Double on cpu"});
  expect_mismatch([](const at::Tensor& t,
                     int call) { return Tensors{(call == 1 ? t : t.to(at::kFloat)).exp()}; },
                  {region, "saved tensor 0", "Double", "Float"});
  expect_mismatch([](const at::Tensor& t,
                     int call) { return Tensors{(call == 1 ? t : t.t().contiguous().t()).exp()}; },
                  {region, "strides [6,1]", "strides [1,4]"});
  expect_mismatch(
      [](const at::Tensor& t, int call) {
        const at::Tensor y = t + 1;
        return call == 1 ? Tensors{y} : Tensors{y, y};
      },
      {region, "1 outputs", "got 2"});
  expect_mismatch(
      [](const at::Tensor& t, int call) { return Tensors{call == 1 ? t + 1 : (t + 1).view({24})}; },
      {region, "output 0", "[4,6]", "[24]"});
  expect_mismatch(
      [](const at::Tensor& t, int call) {
        const at::Tensor y = t + 1;
        return Tensors{y, call == 1 ? y.view({24}) : y.view({24}).clone()};
      },
      {region, "output 1", "shared with output 0"});
}

TEST(RecomputeErrors, CheckedModeComparesBytesAndNamesWhatDiffers) {
  const TapeOptions checked{.checked = true};
  expect_mismatch([](const at::Tensor& t, int call) { return Tensors{t + call}; },
                  {"L2.mb1.part [E4]", "output 0 must have the bytes of forward"},
                  checked);
  expect_mismatch([](const at::Tensor& t, int call) { return Tensors{(t + call).exp() * 1}; },
                  {"L2.mb1.part [E4]", "saved tensor 0 must have the bytes of forward"},
                  checked);
}

TEST(RecomputeErrors, CheckedModeFindsRandomNumbersThatWereNotDeclared) {
  Tape tape({.checked = true});
  const RegionFn noisy = [](const Tensors& in) { return Tensors{in[0] + at::rand({4}).sum()}; };
  expect_error<RecomputeError>(
      [&] {
        tape.run({.name = "L0.mb0.noise", .release_outputs = true, .random = false},
                 noisy,
                 {random_leaf({4})});
      },
      {"L0.mb0.noise [E5]", "random = true"});
  EXPECT_NO_THROW(
      tape.run({.name = "declared", .release_outputs = true}, noisy, {random_leaf({4})}));
}

TEST(RecomputeErrors, CheckedModeFindsCapturedTensors) {
  const at::Tensor captured = random_leaf({4, 6}).detach();
  const auto fn = [captured](const at::Tensor& t, int) { return Tensors{t * captured}; };
  expect_mismatch(fn, {"L2.mb1.part [CR3]", "[4,6]", "pass it as an input"}, {.checked = true});
}

TEST(RecomputeErrors, AClearedRegionCannotBeRead) {
  Tape tape;
  const at::Tensor loss = loss_of(
      tape, [](const at::Tensor& t, int) { return Tensors{t.exp()}; }, random_leaf({3}));
  tape.clear();
  expect_error<RecomputeError>([&] { loss.backward(); }, {"L2.mb1.part [E6]", "cleared"});
  expect_error<RecomputeError>([&] { tape.restore("L2.mb1.part"); }, {"L2.mb1.part [E6]"});
  expect_error<RecomputeError>([&] { tape.release("L9.mb0.none"); }, {"L9.mb0.none [E6]"});
}

TEST(RecomputeErrors, ReleaseNamesAnOutputThatIsThere) {
  Tape tape;
  const at::Tensor loss = loss_of(
      tape, [](const at::Tensor& t, int) { return Tensors{t.exp()}; }, random_leaf({3}));
  expect_error<RecomputeError>([&] { tape.release("L2.mb1.part", 1); },
                               {"L2.mb1.part [E6]", "one of 1", "number 1"});
}

TEST(RecomputeErrors, ASecondBackwardIsRefusedInStrictMode) {
  Tape tape({.second_backward = SecondBackward::Refuse});
  const at::Tensor loss = loss_of(
      tape, [](const at::Tensor& t, int) { return Tensors{t.exp().exp()}; }, random_leaf({3}));
  loss.backward({}, /*retain_graph=*/true);
  expect_error<RecomputeError>([&] { loss.backward(); }, {"L2.mb1.part [E7]", "one backward only"});
}

struct ReadsTwice : torch::autograd::Function<ReadsTwice> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x * 2});
    return x.clone();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    (void)context->get_saved_variables();
    (void)context->get_saved_variables();
    return {grads[0]};
  }
};

TEST(RecomputeErrors, ASlotIsReadOnceInABackward) {
  Tape tape;
  const at::Tensor loss = loss_of(
      tape,
      [](const at::Tensor& t, int) { return Tensors{ReadsTwice::apply(t)}; },
      random_leaf({3}));
  expect_error<RecomputeError>([&] { loss.backward(); },
                               {"L2.mb1.part [E7]", "unpacked once in a backward"});
}

TEST(RecomputeErrors, AReentrantRegionNeedsItsParameters) {
  const at::Tensor x = random_leaf({3, 3}), w = random_leaf({3, 3});
  const at::Tensor loss =
      test::reentrant_region(
          "L0.mb0.r", [w](const Tensors& in) { return Tensors{at::mm(in[0], w)}; }, {x}, {})[0]
          .sum();
  expect_error<RecomputeError>([&] { (void)torch::autograd::grad({loss}, {x}); },
                               {"L0.mb0.r [E8]", "pass it"});
}

TEST(RecomputeErrors, ARestoreNeedsGradMode) {
  Tape tape;
  const at::Tensor loss = loss_of(
      tape, [](const at::Tensor& t, int) { return Tensors{t.exp().exp()}; }, random_leaf({3}));
  {
    const at::NoGradGuard no_grad;
    expect_error<RecomputeError>([&] { tape.restore("L2.mb1.part"); },
                                 {"L2.mb1.part [E9]", "grad mode off"});
  }
  {
    const c10::InferenceMode inference;
    expect_error<RecomputeError>([&] { tape.restore("L2.mb1.part"); },
                                 {"L2.mb1.part [E9]", "inference mode"});
  }
  tape.restore("L2.mb1.part");
  loss.backward();
  EXPECT_EQ(tape.report()[0].replays, 1);
}

TEST(RecomputeErrors, AnInputThatChangesBeforeTheReplayIsRefused) {
  Tape tape;
  const at::Tensor h = random_leaf({3}) * 2;
  const at::Tensor loss = loss_of(
      tape, [](const at::Tensor& t, int) { return Tensors{(t + 1).exp()}; }, h);
  h.detach().add_(1);
  expect_error<RecomputeError>([&] { loss.backward(); }, {"L2.mb1.part [E10]", "version 1"});
}

TEST(RecomputeErrors, AParameterThatChangesBeforeTheReplayIsRefused) {
  const at::Tensor w = random_leaf({6, 6});
  const auto fn = [w](const at::Tensor& t, int) { return Tensors{at::mm(t, w).exp()}; };
  for (const bool replaced : {false, true}) {
    Tape tape;
    const at::Tensor loss = loss_of(tape, fn, random_leaf({4, 6}));
    if (replaced)
      w.set_data(w.detach().clone());
    else
      w.detach().mul_(2);
    expect_error<RecomputeError>(
        [&] { loss.backward(); },
        {"L2.mb1.part [E10]",
         replaced ? "reads must be that of forward" : "reads must stay unchanged"});
  }
}

TEST(RecomputeErrors, AParameterThatNobodySavesMustNotChangeEither) {
  const at::Tensor b = random_leaf({6});
  const auto fn = [b](const at::Tensor& t, int) { return Tensors{(t + b).relu()}; };
  for (const bool replaced : {false, true}) {
    Tape tape;
    const at::Tensor loss = loss_of(tape, fn, random_leaf({4, 6}));
    if (replaced)
      b.set_data(b.detach().clone());
    else
      b.detach().add_(1);
    expect_error<RecomputeError>(
        [&] { loss.backward(); },
        {"L2.mb1.part [E10]",
         "shape [6]",
         replaced ? "reads must be that of forward" : "reads must stay unchanged"});
  }
}

TEST(RecomputeErrors, AParameterThatTheRegionDoesNotReadMayChange) {
  const at::Tensor before = random_leaf({4, 6}), b = random_leaf({6});
  Tape tape;
  const at::Tensor loss = loss_of(
      tape,
      [b](const at::Tensor& t, int) { return Tensors{(t + b).relu()}; },
      random_leaf({4, 6}) + before);
  before.detach().add_(1);
  EXPECT_NO_THROW(loss.backward());
}

TEST(RecomputeErrors, AReplayThatReadsAnotherParameterIsRefused) {
  const at::Tensor w = random_leaf({6, 6}), other = random_leaf({6, 6});
  expect_mismatch([&](const at::Tensor& t,
                      int call) { return Tensors{at::mm(t, call == 1 ? w : other).exp()}; },
                  {"recompute L2.mb1.part [E10]", "the parameter saved at position"});
}

TEST(RecomputeErrors, AReplayThatSkipsARecordedChoiceIsRefused) {
  const auto choose = [] { return Tensors{at::ones({6}, at::kDouble)}; };
  expect_mismatch(
      [&](const at::Tensor& t, int call) {
        if (call == 1) recorded(choose);
        return Tensors{(t * recorded(choose)[0]).exp()};
      },
      {"recompute L2.mb1.part [E4]", "2 recorded choices", "got 1"});
}

TEST(RecomputeErrors, ACapturedConstantThatChangesIsRefusedWithoutCheckedModeToo) {
  const at::Tensor table = random_leaf({4, 6}).detach();
  Tape tape;
  const at::Tensor loss = loss_of(
      tape, [table](const at::Tensor& t, int) { return Tensors{t * table}; }, random_leaf({4, 6}));
  table.add_(1);
  expect_error<RecomputeError>([&] { loss.backward(); },
                               {"L2.mb1.part [E10]", "position", "version 1"});
}

TEST(RecomputeErrors, AnOutputThatChangesAfterAReaderSavedItIsRefused) {
  Tape tape;
  const TapeScope scope(tape);
  at::Tensor y = tape.run(
      test::released("L2.mb1.part"), [](const at::Tensor& t) { return t + 1; }, random_leaf({3}));
  const at::Tensor loss = (y * y).sum();
  y.detach().mul_(3);
  expect_error<RecomputeError>([&] { loss.backward(); }, {"L2.mb1.part [E10]", "output 0"});
}

TEST(RecomputeErrors, AnOutputThatChangesBeforeItsReaderIsKeptAsItIs) {
  Tape tape;
  const TapeScope scope(tape);
  const at::Tensor x = random_leaf({3});
  const at::Tensor y = tape.run(
      test::released("relu"), [](const at::Tensor& t) { return t + 1; }, x);
  y.detach().mul_(3);
  const at::Tensor kept = y.detach().clone();
  (y * y).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), 2 * kept));
  EXPECT_EQ(tape.report()[0].handles, 0);
}

TEST(RecomputeErrors, ARegionThatWritesIntoItsInputIsRefusedInForward) {
  Tape tape;
  const at::Tensor h = random_leaf({3}) * 2;
  expect_error<RecomputeError>(
      [&] {
        tape.run(
            test::released("L0.mb0.relu"),
            [](const at::Tensor& t) {
              t.detach().relu_();
              return t * 1;
            },
            h);
      },
      {"L0.mb0.relu [E10]", "input 0"});
}

TEST(RecomputeErrors, ASavedTensorThatTheRegionItselfOverwritesIsRefused) {
  Tape tape;
  const at::Tensor loss = loss_of(
      tape,
      [](const at::Tensor& t, int) {
        at::Tensor e = t.exp();
        const at::Tensor y = e * e;
        e.detach().add_(1);
        return Tensors{y};
      },
      random_leaf({3}));
  expect_error<RecomputeError>([&] { loss.backward(); },
                               {"L2.mb1.part [E10]", "inside of the region"});
}

TEST(RecomputeErrors, AHookTensorMustRestoreInTime) {
  Tape tape;
  const TapeScope scope(tape);
  const at::Tensor x = random_leaf({3});
  const at::Tensor before = x * 2;
  const at::Tensor y = tape.run(
      test::released("L1.mb0.q"), [](const at::Tensor& t) { return t.exp(); }, before);
  const at::Tensor z = (y * y).sin();
  const std::vector<std::string> names{"L1.mb0.q"};
  expect_error<RecomputeError>([&] { tape.restore_at(z.detach(), names); },
                               {"L1.mb0.q [E2]", "requires no gradient"});
  expect_error<RecomputeError>([&] { tape.restore_at(y, names); },
                               {"L1.mb0.q [E2]", "output of the region"});
  expect_error<RecomputeError>([&] { tape.restore_at(before, names); },
                               {"L1.mb0.q [E2]", "not downstream"});
  expect_error<RecomputeError>([&] { tape.restore_at(x.exp(), names); },
                               {"L1.mb0.q [E2]", "not downstream"});
  EXPECT_NO_THROW(tape.restore_at(z, names));
}

TEST(RecomputeErrors, AnOutputThatShouldBeFreeNamesItsHolders) {
  Tape tape;
  const TapeScope scope(tape);
  at::Tensor y = tape.run(
      test::released("L1.mb0.q"), [](const at::Tensor& t) { return t.exp(); }, random_leaf({3}));
  const at::Tensor z = (y * y).sum();
  tape.event("attn.sparse.end");
  expect_error<RecomputeError>([&] { tape.require_freed("L1.mb0.q"); },
                               {"L1.mb0.q.out0 [DC2]", "attn.sparse.end", "1 references"});
  y.reset();
  EXPECT_NO_THROW(tape.require_freed("L1.mb0.q"));
}

TEST(RecomputeErrors, AScopeNeedsSavedTensorHooks) {
  Tape tape;
  at::SavedTensorDefaultHooks::disable("a test");
  expect_error<ConfigError>([&] { const TapeScope scope(tape); }, {"must be enabled"});
  at::SavedTensorDefaultHooks::enable();
}

TEST(RecomputeErrors, ARecordedChoiceThatForwardDidNotMakeIsRefused) {
  const auto choose = [](const at::Tensor& t) {
    return recorded([&] { return Tensors{t.detach().argsort(int64_t{-1}, false)}; })[0];
  };
  expect_mismatch(
      [choose](const at::Tensor& t, int call) {
        const at::Tensor index = choose(t);
        return Tensors{t.gather(1, call == 1 ? index : choose(t)).exp()};
      },
      {"L2.mb1.part [E4]", "1 recorded choices"});
}

TEST(RecomputeErrors, WhileTracingAReplayThatDiffersSaysFromWhichOperatorOn) {
  const RegionTrace trace;
  expect_mismatch(
      [](const at::Tensor& t, int call) {
        const at::Tensor y = t.neg();
        return Tensors{call == 1 ? y.exp() : y.abs().exp().exp()};
      },
      {"as many tensors as forward, 1",
       "L2.mb1.part operators differ from position 1 on: aten::exp in forward, aten::abs in the "
       "replay"});
  expect_mismatch(
      [](const at::Tensor& t, int call) { return Tensors{call == 1 ? t.exp().exp() : t.exp()}; },
      {"position 1 on: aten::exp in forward, none any more in the replay"});
}

// Operators of nested regions were noted in forward, and would be missing from the replay.
TEST(RecomputeErrors, AfterTheTraceOperatorsAreNotCompared) {
  Tape tape;
  at::Tensor loss;
  {
    const RegionTrace trace;
    loss = loss_of(
        tape,
        [](const at::Tensor& t, int call) {
          const RegionFn exp = [](const Tensors& in) { return Tensors{in[0].exp()}; };
          const at::Tensor y = run_region("inner", exp, {t})[0].neg();
          return Tensors{call == 1 ? y : y.narrow(0, 0, 2)};
        },
        random_leaf({4, 6}));
  }
  std::string error;
  try {
    loss.backward();
  } catch (const RecomputeError& e) {
    error = e.what();
  }
  EXPECT_NE(error.find("L2.mb1.part [E4]"), std::string::npos) << error;
  EXPECT_EQ(error.find("operators differ"), std::string::npos) << error;
}

TEST(RecomputeErrors, OnlyAThreadInsideARegionListensToOperators) {
  const RegionTrace trace;
  Tape tape;
  const at::Tensor loss = loss_of(
      tape,
      [](const at::Tensor& t, int call) {
        EXPECT_TRUE(at::hasThreadLocalCallbacks());
        if (call == 2) throw std::runtime_error("no replay");
        return Tensors{t.exp()};
      },
      random_leaf({4, 6}));
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
  EXPECT_ANY_THROW(loss.backward());
  EXPECT_FALSE(at::hasThreadLocalCallbacks());
}

// What forward alone does, and what hooks do, is no difference: only the added operator is.
TEST(RecomputeErrors, WhileTracingOnlyOperatorsOfTheFunctionCount) {
  const RegionTrace trace;
  Tape tape({.checked = true});
  const auto calls = std::make_shared<int>(0);
  const RegionFn part = [calls](const Tensors& in) {
    const at::Tensor order =
        recorded([&] { return Tensors{in[0].detach().argsort(int64_t{-1}, false)}; })[0];
    once([&] { in[0].detach().sum(); });
    const at::Tensor root = op_call(
        "root", [](const Tensors& t) { return Tensors{t[0].abs().sqrt()}; }, in)[0];
    const RegionFn twice = [](const Tensors& t) {
      return Tensors{t[0].exp().t().contiguous().t().tanh()};
    };
    const at::Tensor out = run_region("inner", twice, {root.gather(1, order)})[0].neg();
    return Tensors{++*calls == 1 ? out : out.t().contiguous()};
  };
  const TapeScope scope(tape);
  const at::Tensor y = tape.run(
      {.name = "part", .release_outputs = true, .stop = EarlyStop::Off, .keep = {{"root"}}},
      part,
      {random_leaf({4, 6})})[0];
  expect_error<RecomputeError>(
      [&] { (y * y).sum().backward(); },
      {"part [E4]: output 0", "on: none any more in forward, aten::t in the replay"});
}

}  // namespace
}  // namespace lethe
