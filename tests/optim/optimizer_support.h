#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/optim/groups.h"

namespace lethe::test {

/// "w0", "w1", ... under AdamW.
inline ParameterGroup group_of(const Tensors& tensors, double weight_decay = 0.1) {
  ParameterGroup group;
  group.tensors = tensors;
  for (size_t i = 0; i < tensors.size(); ++i) group.names.push_back("w" + std::to_string(i));
  group.weight_decay = weight_decay;
  return group;
}

/// One parameter under Muon.
inline ParameterGroup muon_group(const at::Tensor& tensor,
                                 int64_t rows,
                                 const std::string& name = "matrix") {
  ParameterGroup group;
  group.rule = Rule::Muon;
  group.names = {name};
  group.tensors = {tensor};
  group.matrix_rows = {rows};
  return group;
}

}  // namespace lethe::test
