#include "lethe/optim/group_parameters.h"

#include <ATen/core/Tensor.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

int64_t matrix_rows(const ParamRow& row, const OptimizerSettings& settings) {
  if (settings.kind != OptimizerKind::Muon) return 0;
  return settings.muon_split_heads && row.head_rows > 0 ? row.head_rows : row.matrix_rows;
}

ParameterGroup empty_group(const OptimizerSettings& settings, Rule rule, double weight_decay) {
  ParameterGroup group;
  group.rule = rule;
  group.weight_decay = weight_decay;
  group.beta1 = settings.adam_beta1;
  group.beta2 = settings.adam_beta2;
  group.eps = settings.adam_eps;
  group.momentum = settings.muon_momentum;
  group.update_rms = settings.muon_update_rms;
  return group;
}

}  // namespace

std::vector<ParameterGroup> group_parameters(const ParamStore& params,
                                             const OptimizerSettings& settings) {
  const WeightDecays& decays = settings.weight_decays;
  ParameterGroup muon = empty_group(settings, Rule::Muon, decays.muon_matrices),
                 matrices = empty_group(settings, Rule::AdamW, decays.adamw_matrices),
                 vectors = empty_group(settings, Rule::AdamW, decays.adamw_vectors);
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& value = params.value(i);
    if (!value.requires_grad()) continue;
    const int64_t rows = matrix_rows(params.row(i), settings);
    ParameterGroup& group = rows > 0 ? muon : value.dim() > 1 ? matrices : vectors;
    group.names.push_back(params.row(i).name);
    group.tensors.push_back(value);
    if (rows > 0) group.matrix_rows.push_back(rows);
  }
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* group : {&muon, &matrices, &vectors})
    if (!group->names.empty()) groups.push_back(std::move(*group));
  return groups;
}

}  // namespace lethe
