#include <algorithm>

#include "recompute/model_run.h"

#include "lethe/base/random.h"
#include "lethe/plan/layer_plan.h"
#include "lethe/plan/save_targets.h"

namespace lethe::test {
namespace {

using G = RecomputeGranularity;
using M = RecomputeMethod;

struct Wish {
  const char* name;
  RecomputeConfig config;
  std::vector<std::string> save_units = {};
  bool swap = false;
};

RecomputeConfig selective(std::vector<std::string> modules) {
  return {.granularity = G::Selective, .modules = std::move(modules)};
}

RecomputeConfig whole(M method, int64_t num_layers) {
  return {.granularity = G::Full, .method = method, .num_layers = num_layers};
}

std::vector<Wish> wishes() {
  return {
      {"none", {}},
      {"core_attn", selective({"core_attn"})},
      {"mla_up_proj", selective({"mla_up_proj"})},
      {"layernorm", selective({"layernorm"})},
      {"moe", selective({"moe"})},
      {"shared_experts", selective({"shared_experts"})},
      {"mhc module", selective({"mhc"})},
      {"all modules", selective({"core_attn", "layernorm", "mla_up_proj", "moe", "mhc"})},
      {"csa", {.csa_attention = true}},
      {"csa keep output", {.csa_attention = true, .csa_keep_output = true}},
      {"csa+norm", {.csa_attention = true, .norm = true}},
      {"csa+norm of two layers", {.csa_attention = true, .norm = true, .norm_num_layers = 2}},
      {"norm", {.norm = true}},
      {"mhc", {.mhc = true}},
      {"mhc blocks of 2", {.mhc = true, .mhc_layer_num = 2}},
      {"mhc blocks of 4", {.mhc = true, .mhc_layer_num = 4}},
      {"csa+mhc", {.csa_attention = true, .mhc = true}},
      {"csa+mhc blocks of 4", {.csa_attention = true, .mhc = true, .mhc_layer_num = 4}},
      {"csa+mhc keep output", {.csa_attention = true, .csa_keep_output = true, .mhc = true}},
      {"csa+norm+mhc", {.csa_attention = true, .mhc = true, .norm = true}},
      {"csa+norm+mhc, no mtp",
       {.csa_attention = true, .mhc = true, .norm = true, .mtp = MtpSelection::Skip}},
      {"full uniform 1", whole(M::Uniform, 1)},
      {"full uniform 2", whole(M::Uniform, 2)},
      {"full uniform 4", whole(M::Uniform, 4)},
      {"full block 2", whole(M::Block, 2)},
      {"ratio 0.5", {.ratio = 0.5}},
      {"full, attn stays", whole(M::Uniform, 1), {"attn"}},
      {"full, moe_gate stays", whole(M::Uniform, 1), {"moe_gate"}},
      {"full, experts stay", whole(M::Uniform, 1), {"experts"}},
      {"full, mhc stays", whole(M::Uniform, 1), {"mhc"}},
      {"full, compressor stays", whole(M::Uniform, 1), {"compressor"}},
      {"full uniform 2, all units stay",
       whole(M::Uniform, 2),
       {"attn", "moe_gate", "experts", "mhc", "compressor"}},
      {"swap", {}, {}, true},
      {"swap csa+norm+mhc", {.csa_attention = true, .mhc = true, .norm = true}, {}, true},
      {"swap mhc blocks of 2", {.mhc = true, .mhc_layer_num = 2}, {}, true},
      {"swap full uniform 1", whole(M::Uniform, 1), {}, true},
      {"swap full uniform 2, experts stay", whole(M::Uniform, 2), {"experts"}, true},
      {"swap full block 2", whole(M::Block, 2), {}, true},
  };
}

// One class per choice of a layer.
class PlanOfLayers {
 public:
  explicit PlanOfLayers(const PlanSubject& subject)
      : subject_(subject), layers_(stage_layers(subject)) {}

  [[nodiscard]] size_t size() const { return layers_.size(); }

  void add(const LayerChoice& choice) {
    LayerPlan layer =
        make_layer_plan(layers_[plan_.layer_to_class.size()].kind, subject_.operators, choice);
    auto found = std::find_if(plan_.classes.begin(), plan_.classes.end(), [&](const LayerPlan& c) {
      return c.layer_class == layer.layer_class;
    });
    if (found == plan_.classes.end())
      found = plan_.classes.insert(plan_.classes.end(), std::move(layer));
    plan_.layer_to_class.push_back(static_cast<uint16_t>(found - plan_.classes.begin()));
  }

  RecomputePlan take() { return std::move(plan_); }

 private:
  const PlanSubject& subject_;
  std::vector<StageLayer> layers_;
  RecomputePlan plan_;
};

RecomputePlan nested_plan(const PlanSubject& subject) {
  PlanOfLayers layers(subject);
  for (size_t i = 0; i < layers.size(); ++i)
    layers.add({.full = true,
                .parts = {.csa = true, .q_norm = true, .mhc = true},
                .layer_norms = true,
                .moe = true,
                .nested = true});
  return layers.take();
}

LayerChoice random_choice(Random& random) {
  const auto coin = [&random] { return random.uniform_below(2) == 1; };
  LayerChoice choice;
  const uint64_t kind = random.uniform_below(4);
  choice.full = kind < 2;
  choice.nested = kind == 1;
  if (kind == 0) {
    for (const SaveTarget& target : deepseek_v4_save_targets().targets)
      if (coin()) choice.save_units.emplace_back(save_unit_name(target.unit));
    return choice;
  }
  choice.parts = {.csa = coin(), .q_norm = coin(), .mhc = coin()};
  choice.layer_norms = choice.parts.q_norm;
  choice.core_attention = coin();
  choice.q_up = coin();
  choice.moe = coin();
  choice.shared_expert = !choice.moe && coin();
  if (choice.parts.csa && coin()) choice.attn_keep = AttnKeep::AttnOut;
  if (choice.parts.mhc && choice.attn_keep == AttnKeep::Nothing && coin())
    choice.attn_keep = AttnKeep::Stream;
  return choice;
}

}  // namespace

std::vector<RecomputeMode> recompute_modes(const PlanSubject& subject) {
  std::vector<RecomputeMode> modes;
  for (const Wish& wish : wishes())
    modes.push_back(
        {wish.name, make_recompute_plan(subject, wish.config, wish.save_units, wish.swap)});
  modes.push_back({"nested", nested_plan(subject)});
  RecomputePlan checked =
      make_recompute_plan(subject, {.csa_attention = true, .mhc = true, .norm = true});
  checked.checks = PlanChecks::Checked;
  modes.push_back({"csa+norm+mhc, checked", std::move(checked)});
  RecomputePlan checked_whole = make_recompute_plan(subject, whole(M::Uniform, 2), {"experts"});
  checked_whole.checks = PlanChecks::Checked;
  modes.push_back({"full uniform 2, experts stay, checked", std::move(checked_whole)});
  RecomputePlan checked_swap =
      make_recompute_plan(subject, {.csa_attention = true, .mhc = true}, {}, true);
  checked_swap.checks = PlanChecks::Checked;
  modes.push_back({"swap csa+mhc, checked", std::move(checked_swap)});
  return modes;
}

RecomputePlan random_plan(const PlanSubject& subject, uint64_t seed) {
  Random random(seed);
  PlanOfLayers layers(subject);
  for (size_t i = 0; i < layers.size(); ++i) {
    LayerChoice choice = random_choice(random);
    const auto last = static_cast<size_t>(subject.model.num_layers) - 1;
    choice.swap_input = i < last && random.uniform_below(2) == 1;
    layers.add(choice);
  }
  return layers.take();
}

}  // namespace lethe::test
