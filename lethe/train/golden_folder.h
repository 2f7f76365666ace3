#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lethe/train/compare_row.h"

namespace lethe {

/// A directory of expected tensors in the format of tests/golden/README.md, read whole.
struct GoldenFolder {
  using TensorMap = std::map<std::string, at::Tensor>;
  std::filesystem::path path;
  at::Tensor ids, labels;                 // int64 [B,S]
  std::vector<int64_t> document_lengths;  // of one row; all rows alike
  double mtp_loss_weight = 0;
  TensorMap forward, grads, mtp;  // by the names of the README; empty where the file is absent
  std::map<std::string, std::pair<double, double>> grad_norms_total;  // L2 norm and sum
  std::vector<std::string> absent_files;  // optional files that are not there

  /// The entry of tolerance.json, part "forward", "grads" or "mtp"; empty without one.
  [[nodiscard]] Tolerance tolerance(const std::string& part, const std::string& name) const;
  std::map<std::string, std::map<std::string, Tolerance>> tolerances;

  /// cu_seqlens over all B rows, [B * documents + 1].
  [[nodiscard]] std::vector<int32_t> cu_seqlens() const;
};

/// Reads inputs.safetensors (mandatory) and whatever else the directory has. DataError for a
/// missing or inconsistent input: documents of run.json that do not fill a row, ids and labels of
/// different shapes.
GoldenFolder read_golden_folder(const std::filesystem::path& path);

}  // namespace lethe
