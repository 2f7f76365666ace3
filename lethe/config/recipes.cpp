#include "lethe/config/recipes.h"

#include <algorithm>

#include "lethe/base/error.h"
#include "lethe/base/nearest.h"

namespace lethe {
namespace {

/// `lead`, then (4, 128) `pairs` times, 4, and 0 for the MTP block (model spec 1.2).
std::vector<int64_t> release_ratios(int64_t lead, int64_t pairs) {
  std::vector<int64_t> ratios = {lead, lead};
  for (int64_t i = 0; i < pairs; ++i) ratios.insert(ratios.end(), {kCsaRatio, 128});
  ratios.insert(ratios.end(), {kCsaRatio, 0});
  return ratios;
}

ModelConfig flash() {
  ModelConfig c;
  c.vocab_size = 129280;
  c.hidden = 4096;
  c.num_layers = 43;
  c.heads = 64;
  c.ratios = release_ratios(0, 20);
  c.num_mtp = 1;
  c.yarn = YarnScaling{};
  return c;
}

ModelConfig pro() {
  ModelConfig c = flash();
  c.hidden = 7168;
  c.num_layers = 61;
  c.heads = 128;
  c.q_lora_rank = 1536;
  c.o_groups = 16;
  c.ratios = release_ratios(128, 29);
  c.num_experts = 384;
  c.expert_width = 3072;
  c.route_scale = 2.5;
  c.index_topk = 1024;
  return c;
}

ModelConfig flash_four_layers() {
  ModelConfig c = flash();
  c.num_layers = 4;
  c.num_mtp = 0;
  c.ratios = {0, 0, kCsaRatio, 128};
  return c;
}

ModelConfig tiny() {
  ModelConfig c;
  c.vocab_size = 256;
  c.hidden = 128;
  c.num_layers = 4;
  c.heads = 4;
  c.head_dim = 32;
  c.rope_dims = 8;
  c.q_lora_rank = 64;
  c.o_groups = 2;
  c.o_lora_rank = 32;
  c.window = 32;
  c.ratios = {0, kCsaRatio, 8, kCsaRatio, 0};
  c.num_experts = 8;
  c.experts_per_token = 2;
  c.expert_width = 96;
  c.num_hash_layers = 2;
  c.num_mtp = 1;
  c.index_heads = 4;
  c.index_head_dim = 16;
  c.index_topk = 16;
  c.yarn = YarnScaling{.factor = 16, .original_max_positions = 64, .beta_fast = 32, .beta_slow = 1};
  c.max_positions = 1024;
  return c;
}

}  // namespace

const std::vector<std::string>& recipe_names() {
  static const std::vector<std::string> names = {"flash", "pro", "tiny", "flash-4layer"};
  return names;
}

ModelConfig recipe(std::string_view name) {
  if (name == "flash") return flash();
  if (name == "pro") return pro();
  if (name == "tiny") return tiny();
  if (name == "flash-4layer") return flash_four_layers();
  fail<ConfigError>("recipe: must be one of {}, got '{}'; {}",
                    fmt::join(recipe_names(), ", "),
                    name,
                    did_you_mean(name, recipe_names(), "choose one of them"));
}

}  // namespace lethe
