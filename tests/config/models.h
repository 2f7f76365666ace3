#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "support/tiny_configs.h"

#include "lethe/config/recipes.h"

namespace lethe::testing {

using test::tiny_a;

/// tiny-Q of model spec 15.
inline ModelConfig tiny_q() {
  ModelConfig c = tiny_a();
  c.vocab_size = 256;
  c.hidden = 128;
  c.head_dim = 96;
  c.rope_dims = 32;
  c.q_lora_rank = 64;
  c.o_lora_rank = 32;
  c.index_head_dim = 32;
  c.expert_width = 64;
  return c;
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace lethe::testing
