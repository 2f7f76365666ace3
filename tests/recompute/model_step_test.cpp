#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>

#include "recompute/model_run.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/tiny_model.h"
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/plan/plan_file.h"
#include "lethe/plan/saved_bytes.h"

// One step of the model under a plan: what it chooses, which operators it runs, what it holds.
namespace lethe::test {
namespace {

const std::vector<int64_t> kLengths{40, 8};

RecomputePlan plan_of(const PlanSubject& subject, const std::string& name) {
  for (RecomputeMode& mode : recompute_modes(subject))
    if (mode.name == name) return std::move(mode.plan);
  throw std::runtime_error("no mode " + name);
}

PlanSubject subject_without_indexer_loss() {
  PlanSubject subject = subject_of({});
  subject.operators.indexer_loss = false;
  return subject;
}

std::vector<at::Tensor> trained(const ParamStore& params) {
  std::vector<at::Tensor> leaves;
  for (size_t i = 0; i < params.size(); ++i)
    if (params.value(i).requires_grad()) leaves.push_back(params.value(i));
  return leaves;
}

std::vector<at::Tensor> gradients_of(const at::Tensor& total, const ParamStore& params) {
  return torch::autograd::grad(
      {total}, trained(params), {}, std::nullopt, false, /*allow_unused=*/true);
}

using Change = std::function<void(const ParamStore&)>;

struct StepOptions {
  bool trains_indexer = true;  // false: it is frozen, and has no loss
  bool observed = true;        // or no choices; an indexer without a loss is its choice then
  Change before_forward = {};
  Change before_backward = {};
};

struct Step {
  std::map<std::string, at::Tensor> choices;  // of experts and slots, by golden name
  std::vector<at::Tensor> gradients;
  std::vector<RegionReport> regions;  // after backward
};

Step take_step(const RecomputePlan& plan, const StepOptions& options) {
  const auto model = lively_model(model_of({}), {}, /*seed=*/7);
  ParamStore& params = model->params();
  LossFactors factors = all_losses(model->config());
  factors.balance = 0.1;
  if (!options.trains_indexer) {
    params.set_trained([](const ParamRow& row) { return !is_indexer_param(row); });
    factors.indexer_loss = IndexerLoss::Off;
  }
  if (options.before_forward) options.before_forward(params);
  Step step;
  const Observer watch = [&step](const std::string& name, const at::Tensor& value) {
    if (name.ends_with("ffn.gate.indices") || name.ends_with("attn.indexer.topk"))
      step.choices[name] = value.clone();
  };
  RunTally tally = model->make_tally();
  Tape tape;
  const MicroBatch batch = random_batch(model->config(), kLengths, 100);
  const Observer observer = options.observed ? watch : Observer();
  const at::Tensor total =
      model->forward(batch, factors, tally, observer, {.tape = &tape, .plan = &plan}).total;
  if (options.before_backward) options.before_backward(params);
  step.gradients = gradients_of(total, params);
  step.regions = tape.report();
  return step;
}

void expect_same_gradients(const Step& a, const Step& b) {
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    ASSERT_EQ(a.gradients[i].defined(), b.gradients[i].defined());
    if (a.gradients[i].defined())
      expect_bitwise(a.gradients[i], b.gradients[i], fmt::format("gradient {}", i));
  }
}

// The choices change with `change` before forward; before backward it must not reach a gradient,
// whatever is run again.
void expect_recorded(const std::vector<std::string>& choices,
                     const PlanSubject& subject,
                     bool trains_indexer,
                     const Change& change) {
  const Step plain = take_step({}, {.trains_indexer = trains_indexer});
  const Step other = take_step({}, {.trains_indexer = trains_indexer, .before_forward = change});
  for (const std::string& name : choices)
    EXPECT_FALSE(at::equal(plain.choices.at(name), other.choices.at(name))) << name;
  int modes = 0;
  for (const RecomputeMode& mode : recompute_modes(subject)) {
    // Checks refuse the change: these parameters are inputs then.
    if (mode.plan.checks != PlanChecks::Off) continue;
    for (const bool observed : {true, false}) {
      SCOPED_TRACE(mode.name + (observed ? ", observed" : ""));
      const Step step = take_step(
          mode.plan,
          {.trains_indexer = trains_indexer, .observed = observed, .before_backward = change});
      const bool replays =
          std::any_of(step.regions.begin(), step.regions.end(), [](const RegionReport& region) {
            return region.replays > 0;
          });
      EXPECT_EQ(replays, mode.plan.recomputes());
      expect_same_gradients(step, plain);
    }
    ++modes;
  }
  EXPECT_GE(modes, 30);
}

// T4.8, R6.25. The bias decides who is chosen and has no gradient: nothing but the record tells a
// replay what forward chose.
TEST(ModelStep, ARouterBiasThatMovesBeforeBackwardChangesNoChoice) {
  const Change move = [](const ParamStore& params) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < params.size(); ++i) {
      if (!params.row(i).name.ends_with("router.expert_bias")) continue;
      const at::Tensor& bias = params.value(i);
      bias.copy_(at::arange(bias.size(0)) * 100);
    }
  };
  expect_recorded(
      {"layers.2.ffn.gate.indices", "layers.3.ffn.gate.indices", "mtp.0.ffn.gate.indices"},
      subject_of({}),
      /*trains_indexer=*/true,
      move);
}

// The same of slots. Weights that train must not change (E10); those of a frozen indexer decide,
// and no node saves them.
TEST(ModelStep, AFrozenIndexerThatMovesBeforeBackwardChangesNoChoice) {
  const Change turn = [](const ParamStore& params) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < params.size(); ++i)
      if (params.row(i).name.ends_with("indexer.linear_wq_b.weight")) params.value(i).neg_();
  };
  expect_recorded({"layers.1.attn.indexer.topk", "layers.3.attn.indexer.topk"},
                  subject_without_indexer_loss(),
                  /*trains_indexer=*/false,
                  turn);
}

// R6.37: a plan file keeps a unit where it is worth its bytes.
TEST(ModelStep, AUnitMayBeKeptInOneLayerOnly) {
  const PlanSubject subject = subject_of({});
  RecomputePlan whole = plan_of(subject, "full uniform 1");
  whole.classes.at(whole.layer_to_class.at(3)).save_units = {"experts"};
  const RecomputePlan plan = read_plan(plan_text(subject, whole), subject, "a file");
  const Step step = take_step(plan, {});
  expect_same_gradients(step, take_step({}, {}));
  EXPECT_EQ(step.regions.size(), 5u);
  for (const RegionReport& region : step.regions) {
    const bool keeps = region.name == "L3.mb0.layer";
    EXPECT_EQ(region.kept.size(), keeps ? 2u : 0u) << region.name;  // routed and shared experts
  }
}

// R6.20: kept results stay with a graph that is retained; a tape that allows one backward says so.
TEST(ModelStep, ASecondBackwardOverKeptUnitsIsRefusedWhereTheTapeAllowsOne) {
  const RecomputePlan plan = plan_of(subject_of({}), "full, experts stay");
  const auto model = lively_model(model_of({}), {}, /*seed=*/7);
  RunTally tally = model->make_tally();
  Tape tape({.second_backward = SecondBackward::Refuse});
  const MicroBatch batch = random_batch(model->config(), kLengths, 100);
  const LossFactors factors = all_losses(model->config());
  const at::Tensor total =
      model->forward(batch, factors, tally, {}, {.tape = &tape, .plan = &plan}).total;
  const std::vector<at::Tensor> leaves = trained(model->params());
  (void)torch::autograd::grad(
      {total}, leaves, {}, /*retain_graph=*/true, false, /*allow_unused=*/true);
  expect_error<RecomputeError>([&] { (void)gradients_of(total, model->params()); },
                               {".mb0.layer [E7]", "one backward only"});
}

// The operators that this thread calls, those of replays marked.
thread_local std::vector<std::string>* heard = nullptr;

std::unique_ptr<at::ObserverContext> hear(const at::RecordFunction& call) {
  if (heard != nullptr) heard->push_back((in_replay() ? "replay " : "") + std::string(call.name()));
  return nullptr;
}

class Listening {
 public:
  explicit Listening(std::vector<std::string>& to)
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(hear).scopes({at::RecordScope::FUNCTION}))) {
    heard = &to;
  }

  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

  ~Listening() {
    heard = nullptr;
    at::removeCallback(handle_);
  }

 private:
  at::CallbackHandle handle_;
};

std::vector<std::string> operators_of_a_step(const DeepseekV4& model,
                                             const RecomputePlan& plan,
                                             IndexerLoss loss = IndexerLoss::Sparse) {
  std::vector<std::string> operators;
  const Listening listening(operators);
  RunTally tally = model.make_tally();
  Tape tape;
  const MicroBatch batch = random_batch(model.config(), kLengths, 100);
  LossFactors factors = all_losses(model.config());
  factors.indexer_loss = loss;
  const at::Tensor total =
      model.forward(batch, factors, tally, {}, {.tape = &tape, .plan = &plan}).total;
  (void)gradients_of(total, model.params());
  return operators;
}

// R6.25: an indexer without a loss is its choice, of which a replay makes nothing again.
TEST(ModelStep, AReplayRunsTheIndexersOnlyForTheirLoss) {
  const auto model = lively_model(model_of({}), {}, /*seed=*/7);
  for (const char* name : {"csa", "full uniform 1", "nested"}) {
    SCOPED_TRACE(name);
    const auto calls = [&](const PlanSubject& subject, IndexerLoss loss, const std::string& call) {
      const auto all = operators_of_a_step(*model, plan_of(subject, name), loss);
      return std::count(all.begin(), all.end(), call);
    };
    const PlanSubject with = subject_of({}), without = subject_without_indexer_loss();
    EXPECT_GT(calls(with, IndexerLoss::Sparse, "replay lethe::rope"), 0);
    EXPECT_EQ(calls(without, IndexerLoss::Off, "replay lethe::rope"), 0);
    EXPECT_GT(calls(without, IndexerLoss::Off, "lethe::rope"), 0);
    EXPECT_GT(calls(without, IndexerLoss::Off, "replay lethe::sparse_attention"), 0);
  }
}

// T4.22, R6.23: nothing is set up by the first forward or the first replay.
TEST(ModelStep, TheFirstOneRunsTheOperatorsOfTheSecond) {
  for (const char* name : {"csa+norm+mhc", "full uniform 1", "nested"}) {
    SCOPED_TRACE(name);
    const RecomputePlan plan = plan_of(subject_of({}), name);
    const auto model = lively_model(model_of({}), {}, /*seed=*/7);
    const std::vector<std::string> first = operators_of_a_step(*model, plan);
    const std::vector<std::string> second = operators_of_a_step(*model, plan);
    const auto replayed = std::count_if(first.begin(), first.end(), [](const std::string& call) {
      return call.starts_with("replay ");
    });
    EXPECT_GT(replayed, 50);
    ASSERT_EQ(first.size(), second.size());
    const auto [a, b] = std::mismatch(first.begin(), first.end(), second.begin());
    if (a != first.end())
      ADD_FAILURE() << "operators differ from position " << a - first.begin() << " on: " << *a
                    << " in the first step, " << *b << " in the second";
  }
}

// The peak of each main layer's MLP half in a forward. late: what stage 1 gives back lives until
// the layer has ended, as without it.
std::vector<int64_t> mlp_peaks(const DeepseekV4& model, const RecomputePlan& plan, bool late) {
  std::vector<int64_t> peaks;
  std::vector<at::Tensor> held;
  const Observer watch = [&](const std::string& name, const at::Tensor& value) {
    if (!name.starts_with("layers.")) return;
    const auto is = [&name](const char* end) { return name.ends_with(end); };
    if (late && (is(".attn.q") || is(".attn.lse") || is(".attn.o"))) held.push_back(value);
    if (is(".ffn.gate.scores")) reset_peak();
    if (!is(".out") || is(".attn.out") || is(".ffn.out")) return;
    peaks.push_back(bytes().peak);
    held.clear();
  };
  LossFactors factors = all_losses(model.config());
  factors.indexer_loss = IndexerLoss::Off;
  RunTally tally = model.make_tally();
  Tape tape;
  const MicroBatch batch = random_batch(model.config(), kLengths, 100);
  (void)model.forward(batch, factors, tally, watch, {.tape = &tape, .plan = &plan});
  return peaks;
}

// T3.4.
TEST(ModelStep, WithoutStageOneOfTheReleaseThePeakIsHigherByWhatItGivesBack) {
  install_byte_accounting();
  const PlanSubject subject = subject_without_indexer_loss();
  const RecomputePlan plan = plan_of(subject, "csa+norm+mhc");
  const auto model = lively_model(subject.model, {}, /*seed=*/7);
  const std::vector<int64_t> early = mlp_peaks(*model, plan, /*late=*/false);
  const std::vector<int64_t> late = mlp_peaks(*model, plan, /*late=*/true);
  ASSERT_EQ(early.size(), static_cast<size_t>(subject.model.num_layers));
  ASSERT_EQ(late.size(), early.size());
  const MicroBatchShape shape{.documents = Documents::from_lengths(kLengths)};
  for (size_t i = 0; i < early.size(); ++i) {
    const LayerPlan& layer = plan.layer(i);
    const std::vector<ActId> stage_one = stage_one_releases(layer);
    EXPECT_EQ(stage_one.size(), 3u);  // q, o and its log-sum-exp
    int64_t predicted = 0;
    for (const ActId id : stage_one)
      predicted += act_bytes(subject.model, sizes_of(subject.model, shape, layer.kind), id);
    EXPECT_EQ(late[i] - early[i], predicted) << "L" << i;
  }
}

}  // namespace
}  // namespace lethe::test
