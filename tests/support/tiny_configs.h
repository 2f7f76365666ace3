#pragma once

#include "lethe/config/model_config.h"

namespace lethe::test {

/// Model spec 15's tiny-A: window + hash, CSA + hash, HCA + scored, CSA + scored, one MTP block.
inline ModelConfig tiny_a() {
  return {.vocab_size = 128,
          .hidden = 64,
          .num_layers = 4,
          .heads = 4,
          .head_dim = 32,
          .rope_dims = 8,
          .q_lora_rank = 32,
          .o_groups = 2,
          .o_lora_rank = 16,
          .window = 8,
          .ratios = {0, 4, 8, 4, 0},
          .num_experts = 8,
          .experts_per_token = 2,
          .expert_width = 32,
          .num_hash_layers = 2,
          .num_mtp = 1,
          .index_heads = 4,
          .index_head_dim = 16,
          .index_topk = 4,
          .yarn = YarnScaling{
              .factor = 16, .original_max_positions = 64, .beta_fast = 32, .beta_slow = 1}};
}

}  // namespace lethe::test
