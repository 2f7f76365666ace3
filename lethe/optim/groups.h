#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace lethe {

using Tensors = std::vector<at::Tensor>;

/// Parameters that share their settings. Defaults: model spec 12.
struct ParameterGroup {
  std::vector<std::string> names;  // contract names
  Tensors tensors;                 // leaves, in the order of `names`; float32 | float64, contiguous
  double lr_scale = 1;             // multiplies the schedule's learning rate
  double weight_decay = 0.1;       // decoupled: param -= lr * weight_decay * param
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-20;
};

/// Weight decay by shape (model spec 12: 0 for 1-D parameters, 0.1 otherwise).
struct WeightDecayRule {
  double vectors = 0;     // parameters of at most one dimension
  double matrices = 0.1;  // all others
};

/// At most two groups, matrices before vectors, each in the order given; an empty group is left
/// out. `names` and `tensors` must have the same length (ConfigError).
std::vector<ParameterGroup> group_by_weight_decay(const std::vector<std::string>& names,
                                                  const Tensors& tensors,
                                                  const WeightDecayRule& rule);

/// Throws ConfigError naming the first group whose settings are outside their ranges, whose lists
/// differ in length, or which repeats a name; DtypeError and ShapeError naming the first tensor
/// that is not a contiguous float32 or float64 CPU tensor.
void check(const std::vector<ParameterGroup>& groups);

}  // namespace lethe
