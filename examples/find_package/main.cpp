// Uses an installed Lethe: one operator, its gradient, and an error that names what is wrong.
#include <cmath>
#include <cstdio>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include "lethe/base/error.h"
#include "lethe/base/version.h"
#include "lethe/ops/rms_norm.h"

int main() {
  std::printf("lethe %s\n", lethe::version());

  // A constant row has the norm of its own value: y = weight, and no gradient flows through the
  // norm.
  const at::Tensor x = at::full({2, 8}, 3.0).requires_grad_();
  const at::Tensor weight = at::full({8}, 0.5).requires_grad_();
  const at::Tensor y = lethe::ops::rms_norm(x, weight, 0.0);
  y.sum().backward();
  const float value = y.flatten()[0].item<float>();
  const float d_x = x.grad().abs().max().item<float>();
  const float d_weight = weight.grad()[0].item<float>();
  std::printf("y %g, largest |dx| %g, dweight %g\n", value, d_x, d_weight);
  if (std::abs(value - 0.5F) > 1e-6F || d_x > 1e-6F || std::abs(d_weight - 2.0F) > 1e-5F) return 1;

  try {
    lethe::ops::rms_norm(x, at::full({7}, 1.0), 0.0);
  } catch (const lethe::ShapeError& error) {
    std::printf("%s: %s\n", error.kind(), error.what());
    return 0;
  }
  std::printf("a weight of the wrong size was accepted\n");
  return 1;
}
