#include "support/gradcheck.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/autograd.h>

namespace lethe::test {
namespace {

double weighted_sum(const std::vector<at::Tensor>& outputs,
                    const std::vector<at::Tensor>& cotangents) {
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i)
    sum += (outputs[i] * cotangents[i]).sum().item<double>();
  return sum;
}

}  // namespace

void expect_gradients(const TensorFn& f,
                      const std::vector<at::Tensor>& inputs,
                      int64_t max_elements) {
  const std::vector<at::Tensor> outputs = f(inputs);
  std::vector<at::Tensor> cotangents, checked;
  for (const at::Tensor& y : outputs)
    cotangents.push_back(at::randn(y.sizes(), y.options().requires_grad(false)));
  for (const at::Tensor& x : inputs)
    if (x.defined() && x.requires_grad()) checked.push_back(x);
  ASSERT_FALSE(checked.empty()) << "no input requires a gradient";
  const auto analytic = torch::autograd::grad(
      outputs, checked, cotangents, std::nullopt, false, /*allow_unused=*/true);

  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-6, kLimit = 1e-6;
  for (size_t i = 0; i < checked.size(); ++i) {
    at::Tensor x = checked[i];
    ASSERT_TRUE(x.is_contiguous() && x.scalar_type() == at::kDouble);
    const at::Tensor g = analytic[i].defined() ? analytic[i].contiguous() : at::zeros_like(x);
    ASSERT_EQ(g.sizes(), x.sizes());
    double* value = x.data_ptr<double>();
    const int64_t n = x.numel(), stride = std::max<int64_t>(1, n / max_elements);
    std::vector<double> numeric;
    double scale = 1;
    for (int64_t e = 0; e < n; e += stride) {
      const double kept = value[e];
      value[e] = kept + kStep;
      const double up = weighted_sum(f(inputs), cotangents);
      value[e] = kept - kStep;
      const double down = weighted_sum(f(inputs), cotangents);
      value[e] = kept;
      numeric.push_back((up - down) / (2 * kStep));
      scale = std::max(scale, std::abs(numeric.back()));
    }
    for (int64_t e = 0; e < n; e += stride) {
      const double want = numeric[static_cast<size_t>(e / stride)], got = g.data_ptr<double>()[e];
      if (!(std::abs(got - want) <= kLimit * scale)) {
        ADD_FAILURE() << "gradient of input " << i << " element " << e << " of " << n
                      << ": analytic " << got << ", central difference " << want << ", limit "
                      << kLimit * scale;
        break;
      }
    }
  }
}

void expect_bitwise(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  ASSERT_EQ(a.scalar_type(), b.scalar_type()) << what;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  if (std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0) return;
  const at::Tensor u = x.flatten().to(at::kDouble), v = y.flatten().to(at::kDouble);
  for (int64_t i = 0; i < u.numel(); ++i)
    if (u[i].item<double>() != v[i].item<double>()) {
      ADD_FAILURE() << what << ": bits differ first at flat element " << i << ": "
                    << u[i].item<double>() << " and " << v[i].item<double>();
      return;
    }
  ADD_FAILURE() << what << ": bits differ (equal values: signed zeros or NaN payloads)";
}

void expect_close_rms(
    const at::Tensor& a, const at::Tensor& b, double limit, const std::string& what, double floor) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  if (a.numel() == 0) return;
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  ASSERT_FALSE(at::isnan(x).any().item<bool>()) << what << ": NaN";
  const at::Tensor infinite = at::isinf(y);
  ASSERT_TRUE((x.masked_select(infinite) == y.masked_select(infinite)).all().item<bool>())
      << what << ": inf positions";
  const at::Tensor zero = at::zeros({}, y.options());
  const at::Tensor finite = at::where(infinite, zero, y),
                   diff = at::where(infinite, zero, x - y).abs();
  const double rms = std::sqrt(finite.square().mean().item<double>());
  const double worst = diff.max().item<double>();
  EXPECT_LE(worst, limit * std::max(rms, floor))
      << what << ": largest difference " << worst << " at flat element "
      << diff.argmax().item<int64_t>() << ", rms " << rms << ", allowed " << limit << " * rms";
}

}  // namespace lethe::test
