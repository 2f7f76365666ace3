#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lethe {

/// What is known about the rounding of the program that wrote a tensor (golden README, Tolerance).
struct Tolerance {
  std::optional<double> max_abs;  // its own float32 against float64
  std::optional<double> norm64, sum64;
};

/// Which limits apply: the gradient of a tensor may be further off than an activation.
enum class TensorClass { Forward, Gradient };

/// One tensor against its expectation.
struct CompareRow {
  enum class Verdict { Pass, Miss, NotCompared };
  std::string name;
  double max_abs = 0;  // largest |got - expected|; for integers the number of unequal elements
  double max_rel = 0;  // max_abs / rms of the expectation
  double allowed = 0;  // limit of max_abs
  Verdict verdict = Verdict::Pass;
  std::string note;  // why it missed or was not compared
};

/// Compares by the criterion of the golden README.
///   float32  max_abs <= max(4 * tolerance.max_abs, f * rms), f = 2e-5 (forward) or 1e-4
///   (gradients) float64  max_abs <= 1.01 * tolerance.max_abs + 1e-7 * rms; norm and sum equal to
///   norm64, sum64 to 1e-9 of the norm without a tolerance: f * rms alone. Integers must be equal;
///   infinities must stand in the same places.
/// got and expected must have equally many elements; shapes may differ by flattening.
CompareRow compare_tensor(const std::string& name,
                          const at::Tensor& got,
                          const at::Tensor& expected,
                          TensorClass kind,
                          const Tolerance& tolerance);

/// A row for an expectation that does not exist (or was not produced).
CompareRow not_compared(const std::string& name, const std::string& why);

/// Misses first, then by how much of the limit is used; not compared last.
void sort_worst_first(std::vector<CompareRow>& rows);

/// max_abs / allowed, 0 where nothing is allowed and nothing differs.
double share_of_limit(const CompareRow& row);

}  // namespace lethe
