#include "lethe/model/param_rows.h"

#include "lethe/config/contract.h"

namespace lethe {

std::vector<ParamRow> param_rows(const ModelConfig& config) {
  std::vector<ParamRow> rows;
  for (const ParamSpec& spec : contract(config))
    rows.push_back({.name = spec.name,
                    .shape = spec.shape,
                    .is_integer = spec.dtype == ParamDtype::Int,
                    .fp32_kept = spec.fp32_kept,
                    .trainable = spec.kind == ParamKind::Param,
                    .matrix_rows = spec.matrix_rows,
                    .head_rows = spec.head_rows});
  return rows;
}

}  // namespace lethe
