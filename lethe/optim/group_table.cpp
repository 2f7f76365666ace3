#include "lethe/optim/group_table.h"

#include <algorithm>

#include <fmt/format.h>

#include <ATen/core/Tensor.h>

#include "lethe/base/format.h"
#include "lethe/core/describe.h"

namespace lethe {
namespace {

// Moments or momentum, and the master of a bfloat16 parameter.
int64_t state_bytes_of(Rule rule, const at::Tensor& t) {
  const int64_t copies = (rule == Rule::AdamW ? 2 : 1) + (t.scalar_type() == at::kBFloat16 ? 1 : 0);
  return copies * t.numel() * (t.scalar_type() == at::kDouble ? 8 : 4);
}

ParameterLine parameter_line(const ParameterGroup& group, size_t i) {
  const at::Tensor& t = group.tensors[i];
  ParameterLine line{.name = group.names[i],
                     .shape = shape_text(t),
                     .dtype = dtype_text(t),
                     .elements = t.numel(),
                     .state_bytes = state_bytes_of(group.rule, t)};
  if (group.rule == Rule::Muon) {
    line.matrices = matrix_count(group, i);
    line.matrix_rows = group.matrix_rows[i];
    line.matrix_cols = t.size(-1);
  }
  return line;
}

int64_t sum_over(const GroupLine& group, int64_t ParameterLine::*field) {
  int64_t sum = 0;
  for (const ParameterLine& line : group.parameters) sum += line.*field;
  return sum;
}

std::string rule_constants(const ParameterGroup& g) {
  return g.rule == Rule::Muon ? fmt::format("momentum {}, update rms {}", g.momentum, g.update_rms)
                              : fmt::format("betas {} {}, eps {:g}", g.beta1, g.beta2, g.eps);
}

std::string group_text(const GroupLine& g, size_t index) {
  return fmt::format(
      "group {}  {}  lr x {}, weight decay {}, {}: {} tensor(s), {}{} elements, {} state\n",
      index,
      name_of(g.settings.rule),
      g.settings.lr_scale,
      g.settings.weight_decay,
      rule_constants(g.settings),
      g.parameters.size(),
      g.settings.rule == Rule::Muon ? fmt::format("{} matrices, ", g.matrices()) : "",
      g.elements(),
      bytes_text(g.state_bytes()));
}

struct Widths {
  size_t name = 0, shape = 0;
};

Widths widths_of(const std::vector<GroupLine>& table) {
  Widths widths;
  for (const GroupLine& group : table)
    for (const ParameterLine& line : group.parameters) {
      widths.name = std::max(widths.name, line.name.size());
      widths.shape = std::max(widths.shape, line.shape.size());
    }
  return widths;
}

std::string parameter_text(const ParameterLine& line, Rule rule, const Widths& widths) {
  std::string text = fmt::format("  {:<{}}  {:<5}  {:<{}}  {}",
                                 line.name,
                                 widths.name,
                                 name_of(rule),
                                 line.shape,
                                 widths.shape,
                                 line.dtype);
  if (rule == Rule::Muon)
    text += fmt::format("  {} x [{},{}]", line.matrices, line.matrix_rows, line.matrix_cols);
  return text + "\n";
}

}  // namespace

int64_t GroupLine::matrices() const {
  return sum_over(*this, &ParameterLine::matrices);
}

int64_t GroupLine::elements() const {
  return sum_over(*this, &ParameterLine::elements);
}

int64_t GroupLine::state_bytes() const {
  return sum_over(*this, &ParameterLine::state_bytes);
}

std::vector<GroupLine> group_table(const std::vector<ParameterGroup>& groups) {
  std::vector<GroupLine> table;
  for (const ParameterGroup& group : groups) {
    GroupLine line{.settings = group};
    line.settings.names.clear();
    line.settings.tensors.clear();
    line.settings.matrix_rows.clear();
    for (size_t i = 0; i < group.tensors.size(); ++i)
      line.parameters.push_back(parameter_line(group, i));
    table.push_back(std::move(line));
  }
  return table;
}

std::string group_table_text(const std::vector<GroupLine>& table) {
  std::string text;
  const Widths widths = widths_of(table);
  size_t tensors = 0;
  int64_t elements = 0, state = 0;
  for (size_t g = 0; g < table.size(); ++g) {
    text += group_text(table[g], g);
    for (const ParameterLine& line : table[g].parameters)
      text += parameter_text(line, table[g].settings.rule, widths);
    tensors += table[g].parameters.size();
    elements += table[g].elements();
    state += table[g].state_bytes();
  }
  return text + fmt::format("total    {} tensor(s), {} elements, {} state\n",
                            tensors,
                            elements,
                            bytes_text(state));
}

}  // namespace lethe
