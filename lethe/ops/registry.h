#pragma once

#include <string>
#include <vector>

namespace lethe::ops {

/// One operator of namespace lethe as the dispatcher knows it.
struct OperatorInfo {
  std::string name;    // "rms_norm"
  std::string schema;  // "lethe::rms_norm(Tensor x, ...) -> Tensor"
  std::vector<std::string>
      devices;                  // of "CPU", "CUDA", "Meta": where an implementation is registered
  bool differentiable = false;  // has a gradient of its own
};

/// All operators, by name: the source of the reference page and of the completeness test.
std::vector<OperatorInfo> registered_operators();

}  // namespace lethe::ops
