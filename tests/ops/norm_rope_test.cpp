#include "lethe/ops/norm_rope.h"

#include <limits>

#include "support/op_checks.h"
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/ops/implementation.h"
#include "lethe/ops/rms_norm.h"
#include "lethe/ops/rope.h"

namespace lethe {
namespace {

using test::leaf;

constexpr double kEps = 1e-6;

at::Tensor positions_of(const at::Tensor& x) {
  return (at::arange(x.size(0), at::kLong) * 37 + 5).to(x.device());
}

at::Tensor table_of(int64_t pairs, const at::Tensor& x) {
  const at::Tensor table =
      pairs == 0 ? at::empty({0}, at::kFloat) : ops::rope_inv_freq(2 * pairs, 10000, {});
  return table.to(x.device());
}

// in: x, then the weight where there is one.
test::TensorFn norm_rope(int64_t pairs) {
  return [pairs](const std::vector<at::Tensor>& in) {
    const auto weight = in.size() > 1 ? std::optional<at::Tensor>(in[1]) : std::nullopt;
    return std::vector<at::Tensor>{
        ops::norm_rope(in[0], weight, positions_of(in[0]), table_of(pairs, in[0]), kEps)};
  };
}

std::vector<at::Tensor> in_float32(const std::vector<at::Tensor>& wide) {
  std::vector<at::Tensor> out;
  for (const at::Tensor& t : wide) out.push_back(t.detach().to(at::kFloat).requires_grad_());
  return out;
}

TEST(NormRope, IsTheNormThenTheRotation) {
  const at::Tensor x = leaf({9, 2, 10}), w = leaf({10}), table = table_of(3, x);
  const at::Tensor p = positions_of(x);
  test::expect_bitwise(ops::norm_rope(x, w, p, table, kEps),
                       ops::rope(ops::rms_norm(x, w, kEps), p, table, false),
                       "weighted");
  test::expect_bitwise(ops::norm_rope(x, {}, p, table, kEps),
                       ops::rope(ops::rms_norm(x, {}, kEps), p, table, false),
                       "unweighted");
}

TEST(NormRope, GradientsMatchCentralDifferences) {
  for (const int64_t tokens : test::kTokenCounts) {
    SCOPED_TRACE(tokens);
    test::expect_gradients(norm_rope(3), {leaf({tokens, 9}), leaf({9})}, 24);
    test::expect_gradients(norm_rope(4), {leaf({tokens, 2, 8})}, 24);
  }
}

TEST(NormRope, Float32FollowsFloat64) {
  for (const int64_t tokens : test::kTokenCounts) {
    SCOPED_TRACE(tokens);
    test::expect_float32_follows_float64(norm_rope(3), {leaf({tokens, 21}), leaf({21})});
    test::expect_float32_follows_float64(norm_rope(32), {leaf({tokens, 3, 64})});
  }
  for (const int64_t d : {2, 6, 7, 8, 16, 33, 100})
    for (const int64_t pairs : {int64_t{0}, d / 2}) {
      SCOPED_TRACE(std::to_string(d) + " channels, pairs " + std::to_string(pairs));
      test::expect_float32_follows_float64(norm_rope(pairs), {leaf({40, 2, d}), leaf({d})});
    }
}

TEST(NormRope, KernelAndReferenceAgreeInFloat32) {
  const auto in = in_float32({leaf({65, 3, 40}), leaf({40})});
  const auto run = [&](ops::Implementation choice) {
    ops::choose_implementations({.all = choice});
    std::vector<at::Tensor> out = norm_rope(8)(in);
    const auto grads = torch::autograd::grad({out[0].sum() + out[0].pow(3).sum()}, in);
    out.insert(out.end(), grads.begin(), grads.end());
    ops::choose_implementations({});
    return out;
  };
  const auto fused = run(ops::Implementation::Fused),
             reference = run(ops::Implementation::Reference);
  for (size_t i = 0; i < fused.size(); ++i)
    test::expect_same_maths(fused[i], reference[i], "result " + std::to_string(i));
}

// Gradients of every size, rows near the ends of float32's range.
TEST(NormRope, ExtremeMagnitudesFollowFloat64) {
  for (const double size : {1e-30, 1e-6, 1e8, 1e17})
    for (const double gradient : {1e-6, 1e8}) {
      SCOPED_TRACE(size);
      const at::Tensor x = (leaf({12, 24}).detach() * size).to(at::kFloat),
                       d_y = (leaf({12, 24}).detach() * gradient).to(at::kFloat);
      const auto run = [&](at::ScalarType dtype) {
        const at::Tensor in = x.to(dtype).requires_grad_();
        const at::Tensor y = norm_rope(4)({in})[0];
        return std::pair{y, torch::autograd::grad({y}, {in}, {d_y.to(dtype)})[0]};
      };
      const auto [y, d_x] = run(at::kFloat);
      const auto [wide_y, wide_d_x] = run(at::kDouble);
      test::expect_same_maths(y, wide_y, "y");
      test::expect_same_maths(d_x, wide_d_x, "d_x");
    }
}

TEST(NormRope, NotFiniteValuesStayInTheirRow) {
  at::Tensor x = at::randn({4, 2, 24});
  x[1][0][23] = std::numeric_limits<float>::quiet_NaN();
  x[2][1][0] = std::numeric_limits<float>::infinity();
  const at::Tensor bad = norm_rope(4)({x})[0].isnan().any(2);
  EXPECT_TRUE(
      at::equal(bad, at::tensor({0, 0, 1, 0, 0, 1, 0, 0}, at::kInt).to(at::kBool).view({4, 2})));
}

TEST(NormRope, Bfloat16IsComputedInFloat32AndRoundedOnce) {
  const at::Tensor x = at::randn({7, 24}).to(at::kBFloat16), w = at::randn({24});
  test::expect_bitwise(
      norm_rope(4)({x, w})[0], norm_rope(4)({x.to(at::kFloat), w})[0].to(at::kBFloat16), "bf16");
}

TEST(NormRope, MetaAndStrides) {
  test::expect_meta_matches(norm_rope(3), {leaf({5, 3, 10}), leaf({10})});
  test::expect_strides_do_not_matter(norm_rope(3), {leaf({5, 3, 10}), leaf({10})});
}

TEST(NormRope, ZeroTokensGiveZeroTokensAndAZeroWeightGradient) {
  const auto in = in_float32({leaf({0, 3, 10}), leaf({10})});
  const at::Tensor y = norm_rope(3)(in)[0];
  EXPECT_EQ(y.sizes(), at::IntArrayRef({0, 3, 10}));
  EXPECT_TRUE((torch::autograd::grad({y.sum()}, in)[1] == 0).all().item<bool>());
}

TEST(NormRope, TemporariesDoNotGrowWithTheTokens) {
  install_byte_accounting();
  const auto grown = [](int64_t tokens) {
    const auto in = in_float32({leaf({tokens, 64}), leaf({64})});
    const at::Tensor positions = positions_of(in[0]), table = table_of(8, in[0]);
    const auto run = [&] { return ops::norm_rope(in[0], in[1], positions, table, kEps); };
    const at::Tensor y = run(), d_y = at::ones_like(y);
    const int64_t before = bytes().live;
    reset_peak();
    const auto grads = torch::autograd::grad({y}, in, {d_y});
    const int64_t backward = bytes().peak - before - static_cast<int64_t>(grads[0].nbytes()),
                  live = bytes().live;
    reset_peak();
    const at::NoGradGuard no_grad;
    const at::Tensor again = run();
    return std::pair{bytes().peak - live - static_cast<int64_t>(again.nbytes()), backward};
  };
  EXPECT_EQ(grown(64), grown(4096));
}

TEST(NormRope, WrongArgumentsAreRefused) {
  const at::Tensor x = at::zeros({3, 8}), w = at::zeros({8}), p = at::zeros({3}, at::kLong),
                   table = table_of(4, x);
  EXPECT_THROW(ops::norm_rope(at::zeros({8}), w, p, table, kEps), ShapeError);
  EXPECT_THROW(ops::norm_rope(x, at::zeros({7}), p, table, kEps), ShapeError);
  EXPECT_THROW(ops::norm_rope(x, w, at::zeros({4}, at::kLong), table, kEps), ShapeError);
  EXPECT_THROW(ops::norm_rope(x, w, p, table_of(5, x), kEps), ShapeError);
  EXPECT_THROW(ops::norm_rope(x, w.to(at::kDouble), p, table, kEps), DtypeError);
  EXPECT_THROW(ops::norm_rope(x, w, p.to(at::kInt), table, kEps), DtypeError);
  EXPECT_THROW(ops::norm_rope(x.to(at::kLong), w, p, table, kEps), DtypeError);
}

}  // namespace
}  // namespace lethe
