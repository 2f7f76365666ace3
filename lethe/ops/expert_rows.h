#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

// Inside lethe/ops only.
namespace lethe::ops {

/// The routes of all tokens sorted by expert, stable: within an expert rows keep the order of the
/// tokens.
struct ExpertRows {
  at::Tensor routes;            // int64 [T*k]: the route token * k + j that each row serves
  at::Tensor tokens;            // int64 [T*k]: its token
  std::vector<int64_t> begins;  // [E+1]: rows of expert e are begins[e] .. begins[e+1]

  [[nodiscard]] int64_t experts() const { return static_cast<int64_t>(begins.size()) - 1; }

  [[nodiscard]] int64_t begin(int64_t expert) const { return begins[static_cast<size_t>(expert)]; }

  [[nodiscard]] int64_t count(int64_t expert) const { return begin(expert + 1) - begin(expert); }

  /// Rows of one expert of a tensor [T*k, ...].
  [[nodiscard]] at::Tensor of(const at::Tensor& rows, int64_t expert) const {
    return rows.narrow(0, begin(expert), count(expert));
  }
};

/// indices: int32 [T,k], checked.
ExpertRows sort_by_expert(const at::Tensor& indices, int64_t num_experts);

/// DataError naming the first id outside [0, num_experts).
void check_expert_ids(const char* op, const at::Tensor& indices, int64_t num_experts);

}  // namespace lethe::ops
