#include <cmath>

#include "support/expect_error.h"
#include "support/settings_request.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "lethe/base/error.h"
#include "lethe/recompute/kept_call.h"
#include "lethe/recompute/layer_tape.h"
#include "lethe/train/recompute_choice.h"

// R6.19 from the setting to the engine: somebody writes into what a save unit keeps, between
// forward and backward.
namespace lethe {
namespace {

using test::expect_error;
using test::TempFolder;
using Words = std::vector<std::string>;

RunConfig keeping_attention(const Words& writable) {
  return test::tiny()
      .with("recompute-ratio", {"0.5"})
      .with("save-units", {"attn", "mhc"})
      .with("save-units-allow-mutation", writable)
      .resolve()
      .config;
}

/// The same plan by way of a file.
RecomputePlan through_a_file(RunConfig config) {
  const TempFolder folder;
  const std::string file = (folder / "plan.json").string();
  config.recompute.save_plan_file = file;
  save_chosen_plan(config, choose_recompute(config));
  config.recompute = {};
  config.recompute.plan_file = file;
  return choose_recompute(config).plan;
}

/// The gradient of exp(o + x), where o = 2 x is the attention that the plan keeps; o becomes 0
/// before backward.
at::Tensor gradient_after_a_write(const RecomputePlan& plan) {
  Tape tape;
  const LayerTape layer(
      {.tape = &tape, .plan = &plan},
      {.index = 0, .label = "L0", .constants = {}, .save_targets = &deepseek_v4_save_targets()});
  at::Tensor kept;
  const RegionFn fn = [&kept](const Tensors& in) -> Tensors {
    const at::Tensor o = op_call("lethe::sparse_attention",
                                 [](const Tensors& args) -> Tensors { return {args[0] * 2}; },
                                 {in[0]})[0];
    if (!in_replay()) kept = o.detach();
    return {(o + in[0]).exp()};
  };
  const at::Tensor x = at::ones({4}).requires_grad_();
  at::Tensor out;
  {
    const TapeScope scope(tape);
    out = layer.run(SubgraphId::Layer, fn, {x})[0];
  }
  kept.zero_();
  out.sum().backward();
  return x.grad();
}

void expect_refused(const RecomputePlan& plan) {
  expect_error<RecomputeError>([&] { (void)gradient_after_a_write(plan); },
                               {"L0.mb0.layer [R6.19]", "'lethe::sparse_attention'"});
}

/// Backward reads what was written: 3 exp(0 + 1).
void expect_allowed(const RecomputePlan& plan) {
  EXPECT_TRUE(gradient_after_a_write(plan).allclose(at::full({4}, 3 * std::exp(1.0))));
}

TEST(AllowMutation, WithoutTheSettingAWriteIsAnError) {
  for (const Words& writable : {Words{"none"}, Words{"mhc"}}) {
    const RunConfig config = keeping_attention(writable);
    expect_refused(choose_recompute(config).plan);
    expect_refused(through_a_file(config));
  }
}

TEST(AllowMutation, TheSettingReachesTheEngineAlsoByAPlanFile) {
  for (const Words& writable : {Words{"attn"}, Words{"all"}}) {
    const RunConfig config = keeping_attention(writable);
    expect_allowed(choose_recompute(config).plan);
    expect_allowed(through_a_file(config));
  }
}

}  // namespace
}  // namespace lethe
