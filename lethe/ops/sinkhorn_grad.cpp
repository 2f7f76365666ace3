#include "lethe/ops/sinkhorn_grad.h"

#include <vector>

namespace lethe::ops {
namespace {

constexpr int64_t kFrom = -2, kTo = -1;

struct Step {
  at::Tensor y, divisor;  // y = m / divisor, divisor = sum of m over axis + eps
  int64_t axis;
};

std::vector<Step> repeat_steps(at::Tensor m, int64_t iterations, double eps) {
  std::vector<Step> steps;
  for (int64_t i = 0; i < 2 * iterations - 1; ++i) {
    const int64_t axis = i % 2 == 0 ? kFrom : kTo;
    const at::Tensor divisor = m.sum(axis, /*keepdim=*/true) + eps;
    m = m / divisor;
    steps.push_back({m, divisor, axis});
  }
  return steps;
}

}  // namespace

at::Tensor sinkhorn_backward(const at::Tensor& d_comb,
                             const at::Tensor& logits,
                             int64_t iterations,
                             double eps) {
  const at::Tensor p = logits.softmax(kTo);
  const std::vector<Step> steps = repeat_steps(p + eps, iterations, eps);
  at::Tensor d = d_comb;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    d = (d - (d * step->y).sum(step->axis, true)) / step->divisor;
  return p * (d - (d * p).sum(kTo, true));
}

}  // namespace lethe::ops
