#include "lethe/optim/grad_norm.h"

#include <algorithm>
#include <cmath>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/kernels/cpu/sum_of_squares.h"
#include "lethe/optim/groups.h"

namespace lethe {
namespace {

template <class T>
[[noreturn]] void fail_not_finite(const std::string& name, const at::Tensor& grad) {
  const T* const values = grad.const_data_ptr<T>();
  const int64_t at = kernels::first_not_finite(values, grad.numel());
  if (at < 0)
    fail<NumericError>(
        "grad_norm: the squares of the gradient of '{}' must not overflow float64, got a larger "
        "sum; "
        "lower the learning rate or the loss scale",
        name);
  fail<NumericError>(
      "grad_norm: the gradient of '{}' must be finite, got {} at flat element {} of {}; lower the "
      "learning rate, or look for the first bad operator from this parameter on",
      name,
      values[at],
      at,
      shape_text(grad));
}

template <class T>
double squares_of(const std::string& name, const at::Tensor& grad) {
  const double sum = kernels::sum_of_squares(grad.const_data_ptr<T>(), grad.numel());
  if (!std::isfinite(sum)) fail_not_finite<T>(name, grad);
  return sum;
}

}  // namespace

double grad_norm(const std::vector<ParameterGroup>& groups) {
  double sum = 0;
  for (const ParameterGroup& group : groups)
    for (size_t i = 0; i < group.tensors.size(); ++i) {
      if (!group.tensors[i].grad().defined()) continue;
      const at::Tensor grad = group.tensors[i].grad().contiguous();
      sum += grad.scalar_type() == at::kDouble ? squares_of<double>(group.names[i], grad)
                                               : squares_of<float>(group.names[i], grad);
    }
  return std::sqrt(sum);
}

double clip_coefficient(double norm, double max_norm) {
  LETHE_CHECK(
      ConfigError,
      max_norm > 0,
      "grad_norm: the largest gradient norm must be > 0, got {}; leave clipping off instead",
      max_norm);
  if (!std::isfinite(norm)) fail_internal("clip_coefficient: the norm must be finite");
  constexpr double kTiny = 1e-6;
  return std::min(1.0, max_norm / (norm + kTiny));
}

}  // namespace lethe
