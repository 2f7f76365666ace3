#pragma once

#include <cstdint>
#include <string>

#include "lethe/config/model_config.h"
#include "lethe/config/train_config.h"

namespace lethe {

/// `lethe generate`: a sample from a trained model.
struct GenerateConfig {
  std::string prompt = "\n";  // text before the first generated token
  int64_t max_new_tokens = 300;
  double temperature = 0.8;  // 0 = always the likeliest token
  int64_t seed = 1234;       // of the draws
  bool operator==(const GenerateConfig&) const = default;
};

/// Element type that `lethe compare` computes in.
enum class CompareDtype { Fp32, Fp64 };

/// `lethe compare`: a model against expected tensors.
struct CompareConfig {
  CompareDtype dtype = CompareDtype::Fp32;
  bool json = false;  // rows as JSON, for programs
  bool operator==(const CompareConfig&) const = default;
};

/// `lethe docs`: the generated reference pages.
struct DocsConfig {
  std::string out = "docs/reference";  // folder
  bool operator==(const DocsConfig&) const = default;
};

/// Everything the settings decide; each command reads its own part.
struct RunConfig {
  ModelConfig model;
  TrainConfig train;
  GenerateConfig generate;
  CompareConfig compare;
  DocsConfig docs;
  int64_t threads = 0;  // of the CPU; 0 = all
  bool operator==(const RunConfig&) const = default;
};

/// The values before any recipe, file or flag.
[[nodiscard]] RunConfig built_in_config();

}  // namespace lethe
