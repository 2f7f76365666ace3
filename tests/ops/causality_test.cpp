// Operators without a look at other tokens: no bit of the past may move when the future does. The
// operators that mix tokens (compressor, indexer, attention) have their own cases beside their
// other tests.

#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "lethe/ops/cross_entropy.h"
#include "lethe/ops/experts.h"
#include "lethe/ops/gate.h"
#include "lethe/ops/grouped_linear.h"
#include "lethe/ops/hadamard.h"
#include "lethe/ops/linear.h"
#include "lethe/ops/mhc_head.h"
#include "lethe/ops/mhc_post.h"
#include "lethe/ops/mhc_pre.h"
#include "lethe/ops/norm_rope.h"
#include "lethe/ops/rms_norm.h"
#include "lethe/ops/rope.h"
#include "lethe/ops/sinkhorn.h"
#include "lethe/ops/swiglu_mlp.h"

namespace lethe {
namespace {

constexpr int64_t kTokens = 33, kCut = 20;

using OneInput = std::function<at::Tensor(const at::Tensor&)>;

// The operator on [33, ...] rows, then with rows 20.. replaced: the first 20 rows of the result.
void expect_causal(const std::string& name, at::IntArrayRef row_shape, const OneInput& op) {
  std::vector<int64_t> shape{kTokens};
  shape.insert(shape.end(), row_shape.begin(), row_shape.end());
  const at::Tensor before = at::randn(shape), after = before.clone();
  after.narrow(0, kCut, kTokens - kCut).copy_(at::randn(shape).narrow(0, kCut, kTokens - kCut));
  const at::Tensor a = op(before), b = op(after);
  test::expect_bitwise(a.narrow(0, 0, kCut), b.narrow(0, 0, kCut), name);
  EXPECT_FALSE(a.narrow(0, kCut, kTokens - kCut).equal(b.narrow(0, kCut, kTokens - kCut))) << name;
}

TEST(Causality, RowwiseOperatorsKeepEveryBitOfThePast) {
  const at::NoGradGuard no_grad;
  const at::Tensor w = at::randn({24, 16}),
                   positions = at::arange(kTokens, at::TensorOptions().dtype(at::kLong));
  const at::Tensor freq = ops::rope_inv_freq(8, 10000, std::nullopt);
  expect_causal(
      "rms_norm", {16}, [](const at::Tensor& x) { return ops::rms_norm(x, std::nullopt, 1e-6); });
  expect_causal("linear", {16}, [&](const at::Tensor& x) { return ops::linear(x, w); });
  expect_causal(
      "grouped_linear", {32}, [&](const at::Tensor& x) { return ops::grouped_linear(x, w, 2); });
  expect_causal("hadamard", {16}, [](const at::Tensor& x) { return ops::hadamard(x); });
  expect_causal(
      "rope", {3, 16}, [&](const at::Tensor& x) { return ops::rope(x, positions, freq, false); });
  expect_causal("norm_rope", {3, 16}, [&](const at::Tensor& x) {
    return ops::norm_rope(x, std::nullopt, positions, freq, 1e-6);
  });
  expect_causal("sinkhorn", {4, 4}, [](const at::Tensor& x) { return ops::sinkhorn(x, 20, 1e-6); });
  const at::Tensor router = at::randn({8, 16});
  expect_causal("gate", {16}, [&](const at::Tensor& x) {
    const auto [weights, indices, scores] =
        ops::gate(x, router, std::nullopt, std::nullopt, {2, "sqrtsoftplus", true, 1.5});
    return at::cat({weights, indices.to(at::kFloat), scores}, 1);
  });
}

TEST(Causality, HyperConnectionsKeepEveryBitOfThePast) {
  const at::NoGradGuard no_grad;
  const at::Tensor fn = at::randn({24, 64}), base = at::randn({24}), scale = at::randn({3});
  const at::Tensor post = at::randn({kTokens, 4}), comb = at::randn({kTokens, 4, 4}),
                   y = at::randn({kTokens, 16});
  expect_causal("mhc_pre u", {4, 16}, [&](const at::Tensor& x) {
    return std::get<0>(ops::mhc_pre(x, fn, base, scale, 20, 1e-6, 1e-6));
  });
  expect_causal("mhc_pre comb", {4, 16}, [&](const at::Tensor& x) {
    return std::get<2>(ops::mhc_pre(x, fn, base, scale, 20, 1e-6, 1e-6));
  });
  expect_causal(
      "mhc_post", {4, 16}, [&](const at::Tensor& x) { return ops::mhc_post(y, x, post, comb); });
  expect_causal("mhc_head", {4, 16}, [&](const at::Tensor& x) {
    return ops::mhc_head(
        x, fn.narrow(0, 0, 4), base.narrow(0, 0, 4), scale.narrow(0, 0, 1), 1e-6, 1e-6);
  });
}

TEST(Causality, ExpertsAndLossKeepEveryBitOfThePast) {
  const at::NoGradGuard no_grad;
  const at::Tensor fc1 = at::randn({8, 24, 16}), fc2 = at::randn({8, 16, 12}),
                   weights = at::rand({kTokens, 2});
  const at::Tensor routes =
      at::stack({at::arange(kTokens).remainder(4), at::arange(kTokens).remainder(4) + 4}, 1)
          .to(at::kInt);
  const at::Tensor head = at::randn({50, 16}),
                   labels = at::randint(50, {kTokens}, at::TensorOptions().dtype(at::kLong));
  expect_causal("experts", {16}, [&](const at::Tensor& x) {
    return ops::experts(x, weights, routes, fc1, fc2, 10);
  });
  expect_causal("swiglu_mlp", {16}, [&](const at::Tensor& x) {
    return ops::swiglu_mlp(x, fc1[0], fc2[0], 10);
  });
  expect_causal("cross_entropy", {16}, [&](const at::Tensor& x) {
    return std::get<1>(ops::cross_entropy(x, head, labels, 8));
  });
}

}  // namespace
}  // namespace lethe
