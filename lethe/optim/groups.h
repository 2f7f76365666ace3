#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

namespace lethe {

using Tensors = std::vector<at::Tensor>;

/// How a parameter is updated (model spec 12).
enum class Rule : uint8_t { AdamW, Muon };

/// "adamw", "muon".
std::string_view name_of(Rule rule);

/// Parameters that share their rule and its settings. Defaults: model spec 12.
struct ParameterGroup {
  std::vector<std::string> names;  // contract names
  Tensors tensors;  // leaves, in the order of `names`; float32 | float64 | bfloat16, contiguous
  std::vector<int64_t> matrix_rows;  // Muon only, per tensor: rows of each independent matrix; the
                                     // tensor is a stack of equal matrices [rows, last dimension]
  Rule rule = Rule::AdamW;
  double lr_scale = 1;        // multiplies the schedule's learning rate
  double weight_decay = 0.1;  // decoupled: param -= lr * weight_decay * param
  double beta1 = 0.9;         // AdamW
  double beta2 = 0.95;        // AdamW
  double eps = 1e-20;         // AdamW
  double momentum = 0.95;     // Muon: mu
  double update_rms = 0.18;   // Muon: gamma
};

/// Independent matrices of tensor i of a Muon group; 0 for an AdamW group.
int64_t matrix_count(const ParameterGroup& group, size_t i);

/// Throws ConfigError naming the first group whose settings are outside their ranges, whose lists
/// differ in length, or which repeats a name; DtypeError and ShapeError naming the first tensor
/// that is not a contiguous float32, float64 or bfloat16 CPU tensor, or that its matrix_rows do not
/// divide. A bfloat16 leaf whose gradients would be rounded is ConfigError (core/leaf_gradient.h).
void check(const std::vector<ParameterGroup>& groups);

}  // namespace lethe
