#include "lethe/model/rope_tables.h"

#include <optional>

#include "lethe/ops/rope.h"

namespace lethe {
namespace {

std::optional<ops::RopeYarn> yarn_of(const ModelConfig& config) {
  if (!config.yarn) return std::nullopt;
  return ops::RopeYarn{.factor = config.yarn->factor,
                       .original_max_positions = config.yarn->original_max_positions,
                       .beta_fast = config.yarn->beta_fast,
                       .beta_slow = config.yarn->beta_slow};
}

}  // namespace

RopeTables::RopeTables(const ModelConfig& config, at::Device device)
    : main(ops::rope_inv_freq(config.rope_dims, config.rope_theta, std::nullopt).to(device)),
      compress(ops::rope_inv_freq(config.rope_dims, config.compress_rope_theta, yarn_of(config))
                   .to(device)) {}

}  // namespace lethe
