#pragma once

#include <functional>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace lethe::test {

using TensorFn = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Compares the analytic gradient of f with central differences, in float64.
///   f       inputs -> differentiable outputs (any number)
///   inputs  float64 leaves; those with requires_grad are checked, each element of each
/// The scalar is the sum of output * cotangent with fixed random cotangents. Step 1e-6,
/// limit |analytic - numeric| <= 1e-6 * max(1, largest |numeric| of that input) (style 6.3: the
/// numeric side carries about 1e-10/1e-6 of rounding, the rest is the step's curvature).
/// Reports the input's index, the element and both values. At most `max_elements` elements per
/// input are tried, chosen evenly.
void expect_gradients(const TensorFn& f,
                      const std::vector<at::Tensor>& inputs,
                      int64_t max_elements = 200);

/// Same bytes, shape and dtype (class E0). On failure names the first differing element.
void expect_bitwise(const at::Tensor& a, const at::Tensor& b, const std::string& what);

/// Largest |a-b| <= limit * max(rms(b), floor); positions of inf must agree, nan nowhere.
void expect_close_rms(const at::Tensor& a,
                      const at::Tensor& b,
                      double limit,
                      const std::string& what,
                      double floor = 1e-30);

}  // namespace lethe::test
