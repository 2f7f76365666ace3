#include "lethe/optim/groups.h"

#include <cmath>
#include <unordered_set>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"

namespace lethe {
namespace {

void check_settings(const ParameterGroup& g, size_t index) {
  LETHE_CHECK(ConfigError,
              g.names.size() == g.tensors.size(),
              "parameter group {}: it must have one name per tensor, got {} names and {} tensors; "
              "build both from the same list",
              index,
              g.names.size(),
              g.tensors.size());
  const auto expect = [index](bool ok, const char* setting, const char* range, double got) {
    LETHE_CHECK(ConfigError,
                ok,
                "parameter group {}: {} must be {}, got {}; correct the setting",
                index,
                setting,
                range,
                got);
  };
  expect(std::isfinite(g.lr_scale) && g.lr_scale >= 0, "lr_scale", ">= 0", g.lr_scale);
  expect(
      std::isfinite(g.weight_decay) && g.weight_decay >= 0, "weight_decay", ">= 0", g.weight_decay);
  expect(g.beta1 >= 0 && g.beta1 < 1, "beta1", "in [0, 1)", g.beta1);
  expect(g.beta2 >= 0 && g.beta2 < 1, "beta2", "in [0, 1)", g.beta2);
  // Below, float32 rounds eps to a denormal or to 0, and an element without gradient would be 0/0.
  expect(g.eps >= 1e-37 && g.eps < 1, "eps", "in [1e-37, 1)", g.eps);
}

void check_tensor(const std::string& name, const at::Tensor& t) {
  LETHE_CHECK(
      DtypeError,
      t.defined() && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble),
      "optimizer: '{}' must be float32 or float64, got {}; keep a float32 master copy of it",
      name,
      t.defined() ? dtype_text(t) : "an undefined tensor");
  LETHE_CHECK(
      ShapeError,
      t.is_cpu() && t.is_contiguous(),
      "optimizer: '{}' must be a contiguous CPU tensor, got {} on {}; call contiguous() before "
      "it becomes a parameter",
      name,
      shape_text(t),
      t.device().str());
}

}  // namespace

std::vector<ParameterGroup> group_by_weight_decay(const std::vector<std::string>& names,
                                                  const Tensors& tensors,
                                                  const WeightDecayRule& rule) {
  LETHE_CHECK(
      ConfigError,
      names.size() == tensors.size(),
      "optimizer: there must be one name per tensor, got {} names and {} tensors; build both "
      "from the same list",
      names.size(),
      tensors.size());
  ParameterGroup matrices, vectors;
  matrices.weight_decay = rule.matrices;
  vectors.weight_decay = rule.vectors;
  for (size_t i = 0; i < names.size(); ++i) {
    ParameterGroup& group = tensors[i].dim() > 1 ? matrices : vectors;
    group.names.push_back(names[i]);
    group.tensors.push_back(tensors[i]);
  }
  std::vector<ParameterGroup> groups;
  for (ParameterGroup* group : {&matrices, &vectors})
    if (!group->names.empty()) groups.push_back(std::move(*group));
  return groups;
}

void check(const std::vector<ParameterGroup>& groups) {
  std::unordered_set<std::string> seen;
  for (size_t g = 0; g < groups.size(); ++g) {
    check_settings(groups[g], g);
    for (size_t i = 0; i < groups[g].names.size(); ++i) {
      const std::string& name = groups[g].names[i];
      check_tensor(name, groups[g].tensors[i]);
      LETHE_CHECK(ConfigError,
                  seen.insert(name).second,
                  "parameter group {}: every parameter must be in one group once, got '{}' again; "
                  "remove it from one of them",
                  g,
                  name);
    }
  }
}

}  // namespace lethe
