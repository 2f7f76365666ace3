#include "lethe/ops/linear.h"

#include "support/golden.h"
#include "support/op_checks.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"
#include "lethe/ops/grouped_linear.h"
#include "lethe/ops/implementation.h"

namespace lethe {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors linear(const Tensors& in) {
  return {ops::linear(in[0], in[1])};
}

Tensors grouped(const Tensors& in) {
  return {ops::grouped_linear(in[0], in[1], 3)};
}

Tensors grouped_inputs(int64_t tokens) {
  return {test::leaf({tokens, 3 * 4}), test::leaf({3 * 2, 4})};
}

TEST(Linear, OutputProjectionMatchesTheGoldenUnit) {
  const test::TensorMap golden = test::load_unit("output_projection");
  const std::vector<std::string> names = {"o", "wo_a", "wo_b"};
  Tensors in;
  for (const std::string& name : names) in.push_back(golden.at(name).clone().requires_grad_());
  const at::Tensor low = ops::grouped_linear(in[0].reshape({10, 32}), in[1], 2);
  const at::Tensor y = ops::linear(low, in[2]);
  test::expect_close_rms(y, golden.at("y").flatten(0, 1), 1e-12, "y");
  const Tensors grads = torch::autograd::grad({y}, in, {golden.at("d.y").flatten(0, 1)});
  for (size_t i = 0; i < names.size(); ++i)
    test::expect_close_rms(grads[i], golden.at("grad." + names[i]), 1e-12, "grad." + names[i]);
}

TEST(Linear, GradientsMatchCentralDifferences) {
  for (const int64_t tokens : test::kTokenCounts) {
    SCOPED_TRACE(tokens);
    test::expect_gradients(linear, {test::leaf({tokens, 5}), test::leaf({7, 5})});
    test::expect_gradients(grouped, grouped_inputs(tokens));
  }
  test::expect_gradients(linear, {test::leaf({2, 3, 5}), test::leaf({7, 5})});
}

TEST(Linear, OnlyNeededGradientsAreGiven) {
  const at::Tensor x = test::leaf({3, 5}), w = test::leaf({7, 5});
  const at::Tensor alone = torch::autograd::grad({ops::linear(x.detach(), w).sum()}, {w})[0];
  test::expect_bitwise(
      alone, torch::autograd::grad({ops::linear(x, w).sum()}, {w})[0], "gradient of w alone");
}

TEST(Linear, Float32FollowsFloat64) {
  test::expect_float32_follows_float64(linear, {test::leaf({33, 64}), test::leaf({48, 64})});
  test::expect_float32_follows_float64(grouped, grouped_inputs(33));
}

TEST(Linear, MetaStridesAndZeroTokens) {
  const Tensors in = {test::leaf({2, 3, 5}), test::leaf({7, 5})};
  test::expect_meta_matches(linear, in);
  test::expect_strides_do_not_matter(linear, in);
  test::expect_meta_matches(grouped, grouped_inputs(5));
  test::expect_strides_do_not_matter(grouped, grouped_inputs(5));
  EXPECT_EQ(linear({test::leaf({0, 5}), in[1]})[0].sizes(), at::IntArrayRef({0, 7}));
  EXPECT_EQ(grouped(grouped_inputs(0))[0].sizes(), at::IntArrayRef({0, 6}));
}

TEST(Linear, Bfloat16IsComputedInFloat32AndCastOnce) {
  const at::Tensor x = at::randn({5, 64}).to(at::kBFloat16),
                   w = at::randn({8, 64}).to(at::kBFloat16);
  const at::Tensor want = ops::linear(x.to(at::kFloat), w.to(at::kFloat)).to(at::kBFloat16);
  test::expect_bitwise(ops::linear(x, w), want, "bf16");
  test::expect_bitwise(ops::linear(x, w.to(at::kFloat)), want, "bf16 with float32 weight");
}

// y, dx and dw for a gradient of y that lies transposed in memory.
template <class F>
Tensors with_gradients(F&& f, const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor x_leaf = x.detach().requires_grad_(), w_leaf = w.detach().requires_grad_();
  const at::Tensor y = f(x_leaf, w_leaf);
  Tensors out = torch::autograd::grad({(y.t().exp()).sum()}, {x_leaf, w_leaf});
  out.push_back(y);
  return out;
}

void expect_kernel_ran(const std::string& op) {
  EXPECT_EQ(ops::implementations_that_ran()[op].rfind("fused (", 0), 0U) << op;
}

// Views that need no copy, that need one, and rows of size one, whose strides mean nothing.
TEST(Linear, TheKernelReadsAnyStridesToTheSameBits) {
  ops::reset_implementations_that_ran();
  const at::Tensor w = at::randn({6, 4}), x = at::randn({5, 12});
  const auto grouped_by_three = [](const at::Tensor& a, const at::Tensor& b) {
    return ops::grouped_linear(a, b, 3);
  };
  const auto expect_same = [&](const at::Tensor& x_view, const at::Tensor& w_view) {
    const at::Tensor alone = x_view.narrow(1, 0, 4);
    const Tensors linear_view = with_gradients(ops::linear, alone, w_view),
                  linear_copy =
                      with_gradients(ops::linear, alone.contiguous(), w_view.contiguous()),
                  grouped_view = with_gradients(grouped_by_three, x_view, w_view),
                  grouped_copy =
                      with_gradients(grouped_by_three, x_view.contiguous(), w_view.contiguous());
    for (size_t i = 0; i < linear_view.size(); ++i) {
      test::expect_bitwise(linear_view[i], linear_copy[i], "linear");
      test::expect_bitwise(grouped_view[i], grouped_copy[i], "grouped_linear");
    }
  };
  expect_same(x, w);
  expect_same(x.t().contiguous().t(), w.t().contiguous().t());
  expect_same(at::randn({5, 12, 2}).select(2, 1), at::randn({6, 4, 2}).select(2, 1));
  expect_same(at::randn({12, 1}).t(), w);
  expect_same(at::randn({1, 12}).expand({5, 12}), w);
  expect_same(at::randn({5, 1}).expand({5, 12}), at::randn({6, 1}).expand({6, 4}));
  expect_kernel_ran("linear");
  expect_kernel_ran("grouped_linear");
}

// The gradient of x in its dtype, that of w unrounded.
TEST(Linear, Bfloat16GradientsAreThoseOfTheWidenedOperands) {
  const at::Tensor x = at::randn({5, 64}).to(at::kBFloat16),
                   w = at::randn({8, 64}).to(at::kBFloat16);
  const at::Tensor d_y = at::randn({5, 8}).to(at::kBFloat16);
  const auto gradients = [&](at::ScalarType dtype) {
    const at::Tensor x_leaf = x.to(dtype).detach().requires_grad_(),
                     w_leaf = w.to(at::kFloat).detach().requires_grad_();
    return torch::autograd::grad({ops::linear(x_leaf, w_leaf)}, {x_leaf, w_leaf}, {d_y.to(dtype)});
  };
  const Tensors narrow = gradients(at::kBFloat16), wide = gradients(at::kFloat);
  test::expect_bitwise(narrow[0], wide[0].to(at::kBFloat16), "dx");
  test::expect_bitwise(narrow[1], wide[1], "dw");
}

TEST(Linear, BitsDoNotDependOnTheNumberOfThreads) {
  const Tensors in = {at::randn({300, 96}).requires_grad_(), at::randn({48, 32}).requires_grad_()};
  const auto outputs = [&] {
    const at::Tensor y = ops::grouped_linear(in[0], in[1], 3), z = ops::linear(y, in[1].t());
    Tensors out = torch::autograd::grad({(z * z).sum()}, in);
    out.push_back(z);
    return out;
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors one = outputs();
  at::set_num_threads(threads > 1 ? threads : 2);
  const Tensors more = outputs();
  at::set_num_threads(threads);
  expect_kernel_ran("linear");
  for (size_t i = 0; i < one.size(); ++i) test::expect_bitwise(more[i], one[i], "output");
}

TEST(Linear, WrongArgumentsAreRefused) {
  const at::Tensor x = at::zeros({3, 5}), w = at::zeros({7, 5});
  EXPECT_THROW(ops::linear(x, w.t()), ShapeError);
  EXPECT_THROW(ops::linear(x, at::zeros({5})), ShapeError);
  EXPECT_THROW(ops::linear(x, w.to(at::kDouble)), DtypeError);
  EXPECT_THROW(ops::linear(x.to(at::kLong), w), DtypeError);
  EXPECT_THROW(ops::grouped_linear(at::zeros({3, 12}), at::zeros({7, 4}), 3), ShapeError);
  EXPECT_THROW(ops::grouped_linear(at::zeros({3, 13}), at::zeros({6, 4}), 3), ShapeError);
  EXPECT_THROW(ops::grouped_linear(at::zeros({3, 12}), at::zeros({6, 4}), 0), ConfigError);
  EXPECT_THROW(ops::grouped_linear(at::zeros({3, 12}), at::zeros({6, 4}, at::kDouble), 3),
               DtypeError);
}

}  // namespace
}  // namespace lethe
