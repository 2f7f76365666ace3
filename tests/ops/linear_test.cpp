#include "lethe/ops/linear.h"

#include "support/golden.h"
#include "support/op_checks.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"
#include "lethe/ops/grouped_linear.h"

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

// Views that need no copy, that need one, and rows of size one, whose strides mean nothing.
TEST(Linear, TheKernelReadsAnyStridesToTheSameBits) {
  const at::Tensor w = at::randn({6, 4}), x = at::randn({5, 12});
  const auto expect_same = [&](const at::Tensor& x_view, const at::Tensor& w_view) {
    const at::Tensor alone = x_view.narrow(1, 0, 4);
    test::expect_bitwise(
        ops::linear(alone, w_view), ops::linear(alone.contiguous(), w_view.contiguous()), "linear");
    test::expect_bitwise(ops::grouped_linear(x_view, w_view, 3),
                         ops::grouped_linear(x_view.contiguous(), w_view.contiguous(), 3),
                         "grouped_linear");
  };
  expect_same(x, w);
  expect_same(x.t().contiguous().t(), w.t().contiguous().t());
  expect_same(at::randn({5, 12, 2}).select(2, 1), at::randn({6, 4, 2}).select(2, 1));
  expect_same(at::randn({12, 1}).t(), w);
  expect_same(at::randn({1, 12}).expand({5, 12}), w);
  expect_same(at::randn({5, 1}).expand({5, 12}), at::randn({6, 1}).expand({6, 4}));
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
