#include "lethe/config/recompute_config.h"

#include <algorithm>

#include "lethe/base/error.h"

namespace lethe {
namespace {

void move_ratio(std::optional<double>& from,
                std::optional<double>& to,
                const char* old_flag,
                const char* new_flag,
                std::vector<std::string>& notes) {
  if (!from) return;
  LETHE_CHECK(ConfigError,
              !to,
              "{} [R6.30]: must be left out where {} = {} is given, got {}; the first is the "
              "deprecated place of the second",
              old_flag,
              new_flag,
              *to,
              *from);
  notes.push_back(fmt::format("{} is deprecated and goes with version 1.0: write {} {} instead",
                              old_flag,
                              new_flag,
                              *from));
  to = from;
  from.reset();
}

}  // namespace

const std::vector<std::string>& module_names() {
  static const std::vector<std::string> names = {
      "core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts", "mhc"};
  return names;
}

std::string_view module_name(RecomputeModule module) {
  return module_names()[static_cast<size_t>(module)];
}

bool recomputes_module(const RecomputeConfig& config, RecomputeModule module) {
  return config.granularity == RecomputeGranularity::Selective &&
         std::find(config.modules.begin(), config.modules.end(), module_name(module)) !=
             config.modules.end();
}

bool recomputes_mhc(const RecomputeConfig& config) {
  return config.mhc || recomputes_module(config, RecomputeModule::Mhc);
}

bool recomputes_norms(const RecomputeConfig& config) {
  return config.norm || recomputes_module(config, RecomputeModule::Layernorm);
}

bool recomputes_anything(const RecomputeConfig& config) {
  return config.granularity != RecomputeGranularity::None || recomputes_layers(config) ||
         config.csa_attention || config.mhc || config.norm || config.plan_file.has_value();
}

bool recomputes_layers(const RecomputeConfig& config) {
  return config.granularity == RecomputeGranularity::Full || config.ratio.value_or(0) > 0;
}

RecomputeConfig with_moved_ratios(RecomputeConfig config, std::vector<std::string>& notes) {
  move_ratio(config.fsdp_ratio, config.ratio, "--fsdp-recompute-ratio", "--recompute-ratio", notes);
  move_ratio(config.fsdp_vision_ratio,
             config.vision_ratio,
             "--fsdp-vision-recompute-ratio",
             "--vision-recompute-ratio",
             notes);
  return config;
}

}  // namespace lethe
