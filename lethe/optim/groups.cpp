#include "lethe/optim/groups.h"

#include <cmath>
#include <unordered_set>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/leaf_gradient.h"

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
  expect(g.momentum >= 0 && g.momentum < 1, "momentum", "in [0, 1)", g.momentum);
  expect(std::isfinite(g.update_rms) && g.update_rms > 0, "update_rms", "> 0", g.update_rms);
  // Below, float32 rounds eps to a denormal or to 0, and an element without gradient would be 0/0.
  expect(g.eps >= 1e-37 && g.eps < 1, "eps", "in [1e-37, 1)", g.eps);
}

void check_tensor(const std::string& name, const at::Tensor& t) {
  LETHE_CHECK(
      DtypeError,
      t.defined() && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble ||
                      t.scalar_type() == at::kBFloat16),
      "optimizer: '{}' must be float32, float64 or bfloat16, got {}; store it in one of these",
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
  if (t.scalar_type() != at::kBFloat16) return;
  LETHE_CHECK(ConfigError,
              has_leaf_gradient_dtype(),
              "optimizer: to train '{}' in bfloat16, LibTorch must be 2.10 or newer, got an older "
              "one, which rounds its gradient; train with float32 weights",
              name);
  LETHE_CHECK(ConfigError,
              keeps_float32_gradient(t),
              "optimizer: the gradient of the bfloat16 '{}' must be float32, got one that autograd "
              "rounds; call keep_float32_gradient on it",
              name);
}

void check_matrices(const ParameterGroup& g, size_t index) {
  if (g.rule != Rule::Muon) return;
  LETHE_CHECK(ConfigError,
              g.matrix_rows.size() == g.tensors.size(),
              "parameter group {}: a Muon group must have matrix_rows for each of its {} tensors, "
              "got {}; build both from the same list",
              index,
              g.tensors.size(),
              g.matrix_rows.size());
  for (size_t i = 0; i < g.tensors.size(); ++i) {
    const at::Tensor& t = g.tensors[i];
    const int64_t rows = t.dim() >= 2 && t.numel() > 0 ? t.numel() / t.size(-1) : 0;
    LETHE_CHECK(ShapeError,
                rows > 0 && g.matrix_rows[i] > 0 && rows % g.matrix_rows[i] == 0,
                "optimizer: '{}' must be a stack of matrices of {} rows for Muon, got {}; leave it "
                "to AdamW",
                g.names[i],
                g.matrix_rows[i],
                shape_text(t));
  }
}

}  // namespace

std::string_view name_of(Rule rule) {
  return rule == Rule::Muon ? "muon" : "adamw";
}

int64_t matrix_count(const ParameterGroup& group, size_t i) {
  if (group.rule != Rule::Muon) return 0;
  const at::Tensor& t = group.tensors[i];
  return t.numel() / (group.matrix_rows[i] * t.size(-1));
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
    check_matrices(groups[g], g);
  }
}

}  // namespace lethe
