#include "support/op_checks.h"

#include <algorithm>

#include <gtest/gtest.h>

#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

namespace lethe::test {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors mapped(const Tensors& inputs, const std::function<at::Tensor(const at::Tensor&)>& change) {
  Tensors out;
  for (const at::Tensor& t : inputs) out.push_back(change(t));
  return out;
}

at::Tensor as_leaf(const at::Tensor& t, at::ScalarType dtype) {
  return t.is_floating_point() ? t.detach().to(at::kFloat).to(dtype).requires_grad_() : t;
}

Tensors outputs_and_gradients(const TensorFn& f, const Tensors& inputs, const Tensors& cotangents) {
  Tensors results = f(inputs), differentiated, sent;
  for (const at::Tensor& x : inputs)
    if (x.is_floating_point()) differentiated.push_back(x);
  for (size_t i = 0; i < results.size(); ++i)
    sent.push_back(cotangents[i].to(results[i].scalar_type()));
  const Tensors grads = torch::autograd::grad(results, differentiated, sent);
  results.insert(results.end(), grads.begin(), grads.end());
  return results;
}

}  // namespace

at::Tensor leaf(const std::vector<int64_t>& shape) {
  return at::randn(shape, at::TensorOptions().dtype(at::kDouble)).requires_grad_();
}

void expect_same_maths(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  if (a.numel() == 0) return;
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  const double scale = y.abs().max().item<double>(), worst = (x - y).abs().max().item<double>();
  const double l2 = (x - y).norm().item<double>(), size = y.norm().item<double>();
  EXPECT_TRUE(worst <= 1e-5 * scale)
      << what << ": largest difference " << worst << ", scale " << scale;
  EXPECT_TRUE(l2 <= 1e-6 * size) << what << ": L2 of the difference " << l2 << ", of the tensor "
                                 << size;
}

void expect_float32_follows_float64(const TensorFn& f, const Tensors& inputs) {
  const Tensors wide = mapped(inputs, [](const at::Tensor& t) { return as_leaf(t, at::kDouble); });
  const Tensors narrow = mapped(inputs, [](const at::Tensor& t) { return as_leaf(t, at::kFloat); });
  const Tensors cotangents = mapped(f(wide), [](const at::Tensor& y) {
    return at::randn(y.sizes(), at::kFloat).to(at::kDouble);
  });
  const Tensors want = outputs_and_gradients(f, wide, cotangents),
                got = outputs_and_gradients(f, narrow, cotangents);
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].scalar_type(), at::kFloat);
    expect_same_maths(got[i], want[i], "result " + std::to_string(i));
  }
}

void expect_meta_matches(const TensorFn& f, const Tensors& inputs) {
  const Tensors real = f(inputs);
  const Tensors meta =
      f(mapped(inputs, [](const at::Tensor& t) { return t.detach().to(at::kMeta); }));
  ASSERT_EQ(real.size(), meta.size());
  for (size_t i = 0; i < real.size(); ++i) {
    EXPECT_TRUE(meta[i].is_meta());
    EXPECT_EQ(real[i].sizes(), meta[i].sizes()) << "output " << i;
    EXPECT_EQ(real[i].scalar_type(), meta[i].scalar_type()) << "output " << i;
    EXPECT_EQ(real[i].strides(), meta[i].strides()) << "output " << i;
  }
}

void expect_strides_do_not_matter(const TensorFn& f, const Tensors& inputs) {
  const Tensors plain = f(inputs),
                strided = f(mapped(inputs, [](const at::Tensor&t) {
                  return t.dim() < 2 ? t.detach()
                                     : t.detach().transpose(-1, -2).contiguous().transpose(-1, -2);
                }));
  ASSERT_EQ(plain.size(), strided.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(strided[i].is_contiguous()) << "output " << i;
    expect_close_rms(strided[i], plain[i], 1e-12, "output " + std::to_string(i));
  }
}

}  // namespace lethe::test
