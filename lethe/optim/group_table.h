#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lethe/optim/groups.h"

namespace lethe {

/// One parameter of the table.
struct ParameterLine {
  std::string name;
  std::string shape;        // "[8,64,64]"
  std::string dtype;        // as stored
  int64_t matrices = 0;     // Muon: independent matrices; 0 = AdamW
  int64_t matrix_rows = 0;  // Muon
  int64_t matrix_cols = 0;  // Muon
  int64_t elements = 0;
  int64_t state_bytes = 0;
};

/// One group of the table.
struct GroupLine {
  ParameterGroup settings;  // without names and tensors
  std::vector<ParameterLine> parameters;

  [[nodiscard]] int64_t matrices() const;
  [[nodiscard]] int64_t elements() const;
  [[nodiscard]] int64_t state_bytes() const;
};

/// The facts of the groups; needs no data, so meta tensors do.
std::vector<GroupLine> group_table(const std::vector<ParameterGroup>& groups);

/// The table as text, for --print-optimizer: one line per group with rule, learning-rate scale,
/// weight decay and the rule's constants, counts of tensors, matrices and elements, state bytes;
/// then one line per parameter; then the totals.
std::string group_table_text(const std::vector<GroupLine>& table);

}  // namespace lethe
