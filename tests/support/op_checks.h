#pragma once

#include <string>
#include <vector>

#include "support/gradcheck.h"
#include "support/token_counts.h"

// What every operator's test asks, so that a test file holds only the operator's own facts.
// Linking this file seeds the generator before every test; --gtest_repeat=N tries N seeds.
namespace lethe::test {

/// A float64 leaf of standard normal values that requires a gradient.
at::Tensor leaf(const std::vector<int64_t>& shape);

/// Class E2 (style 6.3): each |a-b| <= 1e-5 * (largest |b|) and relative L2 <= 1e-6. Below eight
/// elements the latter is left out: it would be the elementwise relative error, for which the class
/// allows 1e-5, and a gradient of one number is a sum that may cancel.
void expect_same_maths(const at::Tensor& a, const at::Tensor& b, const std::string& what);

/// Runs f on float64 inputs and on their float32 roundings; outputs and input gradients (fixed
/// random cotangents) must agree within E2. The float64 run gets the rounded values. f's outputs
/// are all differentiable; every floating input is differentiated.
void expect_float32_follows_float64(const TensorFn& f, const std::vector<at::Tensor>& inputs);

/// f on meta copies of the inputs gives the shapes and dtypes that f gives on the CPU.
void expect_meta_matches(const TensorFn& f, const std::vector<at::Tensor>& inputs);

/// f on inputs whose last two dimensions lie swapped in memory gives the same numbers to
/// 1e-12 of their rms (a GEMM may add in another order), outputs contiguous.
void expect_strides_do_not_matter(const TensorFn& f, const std::vector<at::Tensor>& inputs);

}  // namespace lethe::test
