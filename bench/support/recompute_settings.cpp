#include "bench/support/recompute_settings.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "lethe/base/error.h"

namespace lethe::bench {
namespace {

using G = RecomputeGranularity;
using M = RecomputeMethod;

RecomputeConfig whole(int64_t num_layers) {
  return {.granularity = G::Full, .method = M::Uniform, .num_layers = num_layers};
}

RecomputeConfig selective(std::vector<std::string> modules, RecomputeConfig beside = {}) {
  beside.granularity = G::Selective;
  beside.modules = std::move(modules);
  return beside;
}

const std::vector<std::string> kAllUnits{"attn", "moe_gate", "experts", "mhc", "compressor"};

}  // namespace

const std::vector<RecomputeSetting>& recompute_settings() {
  static const std::string selective_flags =
      "--recompute-granularity selective --recompute-modules ";
  static const std::string whole_flags =
      "--recompute-granularity full --recompute-method uniform --recompute-num-layers ";
  static const std::vector<RecomputeSetting> settings{
      {"none", "", {}},
      {"norm", "--recompute-norm", {.norm = true}},
      {"mhc", "--mhc-recompute", {.mhc = true}},
      {"mhc+norm", "--mhc-recompute --recompute-norm", {.mhc = true, .norm = true}},
      {"shared_experts", selective_flags + "shared_experts", selective({"shared_experts"})},
      {"moe", selective_flags + "moe", selective({"moe"})},
      {"csa, output stays",
       "--recompute-csa-attention --recompute-csa-keep-output",
       {.csa_attention = true, .csa_keep_output = true}},
      {"csa", "--recompute-csa-attention", {.csa_attention = true}},
      {"csa+norm",
       "--recompute-csa-attention --recompute-norm",
       {.csa_attention = true, .norm = true}},
      {"csa+mhc",
       "--recompute-csa-attention --mhc-recompute",
       {.csa_attention = true, .mhc = true}},
      {"csa+norm+mhc",
       "--recompute-csa-attention --recompute-norm --mhc-recompute",
       {.csa_attention = true, .mhc = true, .norm = true}},
      {"csa+norm+mhc, blocks of 3",
       "--recompute-csa-attention --recompute-norm --mhc-recompute --mhc-recompute-layer-num 3",
       {.csa_attention = true, .mhc = true, .mhc_layer_num = 3, .norm = true}},
      {"mhc+norm+moe",
       selective_flags + "moe layernorm mhc",
       selective({"moe", "layernorm", "mhc"})},
      {"csa+norm+mhc+moe",
       selective_flags + "moe --recompute-csa-attention --recompute-norm --mhc-recompute",
       selective({"moe"}, {.csa_attention = true, .mhc = true, .norm = true})},
      {"half of the layers", "--recompute-ratio 0.5", {.ratio = 0.5}},
      {"whole layers", whole_flags + "1", whole(1)},
      {"whole layers, chunks of 3", whole_flags + "3", whole(3)},
      {"whole layers, attn stays", whole_flags + "1 --save-units attn", whole(1), {"attn"}},
      {"whole layers, attn and experts stay",
       whole_flags + "1 --save-units attn experts",
       whole(1),
       {"attn", "experts"}},
      {"whole layers, all units stay", whole_flags + "1 --save-units all", whole(1), kAllUnits},
      {"csa+norm+mhc+moe, inputs swapped",
       selective_flags +
           "moe --recompute-csa-attention --recompute-norm --mhc-recompute --swap-layer-input",
       selective({"moe"}, {.csa_attention = true, .mhc = true, .norm = true}),
       {},
       true},
      {"whole layers, inputs swapped", whole_flags + "1 --swap-layer-input", whole(1), {}, true},
  };
  return settings;
}

RecomputePlan plan_of(const std::string& name, const ModelConfig& model, bool indexer_loss) {
  const auto& all = recompute_settings();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.name == name; });
  std::vector<std::string> names;
  for (const RecomputeSetting& setting : all) names.push_back("'" + setting.name + "'");
  LETHE_CHECK(ConfigError,
              found != all.end(),
              "--recompute: must be one of {}, got '{}'; take one of these",
              fmt::join(names, ", "),
              name);
  return make_recompute_plan(PlanSubject::of(model, {.indexer_loss = indexer_loss}),
                             found->config,
                             found->save_units,
                             found->swap);
}

}  // namespace lethe::bench
