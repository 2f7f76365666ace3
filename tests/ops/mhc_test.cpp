#include <cmath>

#include "support/golden.h"
#include "support/op_checks.h"
#include <gtest/gtest.h>

#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"
#include "lethe/ops/mhc_head.h"
#include "lethe/ops/mhc_post.h"
#include "lethe/ops/mhc_pre.h"
#include "lethe/ops/sinkhorn.h"

namespace lethe {
namespace {

using Tensors = std::vector<at::Tensor>;
constexpr double kEps = 1e-6;
constexpr int64_t kStreams = 3, kWidth = 6, kRows = (2 + kStreams) * kStreams;

auto pre_site(const Tensors& in) {
  return ops::mhc_pre(in[0], in[1], in[2], in[3], 20, kEps, kEps);
}

Tensors pre(const Tensors& in) {
  const auto [u, post, comb, weights] = pre_site(in);
  return {u, post, comb};
}

Tensors post(const Tensors& in) {
  return {ops::mhc_post(in[0], in[1], in[2], in[3])};
}

Tensors head(const Tensors& in) {
  return {ops::mhc_head(in[0], in[1], in[2], in[3], kEps, kEps)};
}

// Of the model's size: mix is of order one and the sigmoids do not saturate.
at::Tensor projection(int64_t rows) {
  const at::Tensor fn = test::leaf({rows, kStreams * kWidth}).detach();
  return (fn / std::sqrt(static_cast<double>(kStreams * kWidth))).requires_grad_();
}

Tensors pre_inputs(int64_t tokens) {
  return {test::leaf({tokens, kStreams, kWidth}),
          projection(kRows),
          test::leaf({kRows}),
          test::leaf({3})};
}

Tensors post_inputs(int64_t tokens) {
  return {test::leaf({tokens, kWidth}),
          test::leaf({tokens, kStreams, kWidth}),
          test::leaf({tokens, kStreams}),
          test::leaf({tokens, kStreams, kStreams})};
}

Tensors head_inputs(int64_t tokens) {
  return {test::leaf({tokens, kStreams, kWidth}),
          projection(kStreams),
          test::leaf({kStreams}),
          test::leaf({1})};
}

at::Tensor golden_leaf(const test::TensorMap& golden, const std::string& name) {
  return golden.at(name).clone().requires_grad_();
}

TEST(Mhc, MatchesTheGoldenUnit) {
  const test::TensorMap golden = test::load_unit("mhc");
  const at::Tensor x = golden_leaf(golden, "X"), fn = golden_leaf(golden, "fn"),
                   base = golden_leaf(golden, "base"), scale = golden_leaf(golden, "scale"),
                   y = golden_leaf(golden, "y");
  const at::Tensor streams = x.flatten(0, 1);
  const auto [u, post_weights, comb, weights] =
      ops::mhc_pre(streams, fn, base, scale, 20, kEps, kEps);
  const at::Tensor next = ops::mhc_post(y.flatten(0, 1), streams, post_weights, comb);
  const std::vector<std::string> names = {"u", "post", "comb", "X_next"};
  const Tensors outputs = {u, post_weights, comb, next};
  Tensors cotangents;
  for (size_t i = 0; i < names.size(); ++i) {
    test::expect_close_rms(outputs[i], golden.at(names[i]).flatten(0, 1), 1e-12, names[i]);
    cotangents.push_back(golden.at("d." + names[i]).flatten(0, 1));
  }
  const Tensors grads = torch::autograd::grad(outputs, {x, fn, base, scale, y}, cotangents);
  const std::vector<std::string> leaves = {"X", "fn", "base", "scale", "y"};
  for (size_t i = 0; i < leaves.size(); ++i)
    test::expect_close_rms(grads[i], golden.at("grad." + leaves[i]), 1e-12, "grad." + leaves[i]);
}

TEST(MhcHead, MatchesTheGoldenUnit) {
  const test::TensorMap golden = test::load_unit("hc_head");
  const at::Tensor x = golden_leaf(golden, "X"), fn = golden_leaf(golden, "fn"),
                   base = golden_leaf(golden, "base"), scale = golden_leaf(golden, "scale");
  const at::Tensor y = ops::mhc_head(x.flatten(0, 1), fn, base, scale, kEps, kEps);
  test::expect_close_rms(y, golden.at("y").flatten(0, 1), 1e-12, "y");
  const Tensors grads =
      torch::autograd::grad({y}, {x, fn, base, scale}, {golden.at("d.y").flatten(0, 1)});
  const std::vector<std::string> leaves = {"X", "fn", "base", "scale"};
  for (size_t i = 0; i < leaves.size(); ++i)
    test::expect_close_rms(grads[i], golden.at("grad." + leaves[i]), 1e-12, "grad." + leaves[i]);
}

TEST(Mhc, GradientsMatchCentralDifferences) {
  for (const int64_t tokens : test::kTokenCounts) {
    SCOPED_TRACE(tokens);
    test::expect_gradients(pre, pre_inputs(tokens), 24);
    test::expect_gradients(post, post_inputs(tokens), 60);
    test::expect_gradients(head, head_inputs(tokens), 60);
  }
}

// Each output alone: the other gradients arrive undefined.
TEST(MhcPre, GradientsOfEachOutputAlone) {
  for (const size_t kept : {0U, 1U, 2U}) {
    SCOPED_TRACE(kept);
    test::expect_gradients(
        [kept](const Tensors& in) { return Tensors{pre(in)[kept]}; }, pre_inputs(5), 24);
  }
}

TEST(MhcPre, OnlyNeededGradientsAreGiven) {
  Tensors in = pre_inputs(5);
  const at::Tensor all = torch::autograd::grad({pre(in)[0].sum()}, {in[3]})[0];
  for (size_t i = 0; i < 3; ++i) in[i] = in[i].detach();
  test::expect_bitwise(
      torch::autograd::grad({pre(in)[0].sum()}, {in[3]})[0], all, "gradient of scale alone");
}

TEST(MhcPre, ReadWeightsAreNotDifferentiable) {
  const auto [u, post_weights, comb, weights] = pre_site(pre_inputs(3));
  EXPECT_TRUE(u.requires_grad() && post_weights.requires_grad() && comb.requires_grad());
  EXPECT_FALSE(weights.requires_grad());
}

TEST(Mhc, Float32FollowsFloat64) {
  test::expect_float32_follows_float64(pre, pre_inputs(33));
  test::expect_float32_follows_float64(post, post_inputs(33));
  test::expect_float32_follows_float64(head, head_inputs(33));
}

TEST(Mhc, MetaStridesAndZeroTokens) {
  test::expect_meta_matches(pre, pre_inputs(5));
  test::expect_meta_matches(post, post_inputs(5));
  test::expect_meta_matches(head, head_inputs(5));
  test::expect_strides_do_not_matter(pre, pre_inputs(5));
  test::expect_strides_do_not_matter(post, post_inputs(5));
  test::expect_strides_do_not_matter(head, head_inputs(5));
  const Tensors none = pre(pre_inputs(0));
  EXPECT_EQ(none[0].sizes(), at::IntArrayRef({0, kWidth}));
  EXPECT_EQ(none[2].sizes(), at::IntArrayRef({0, kStreams, kStreams}));
  EXPECT_EQ(post(post_inputs(0))[0].sizes(), at::IntArrayRef({0, kStreams, kWidth}));
  EXPECT_EQ(head(head_inputs(0))[0].sizes(), at::IntArrayRef({0, kWidth}));
}

TEST(Mhc, Bfloat16StreamsKeepFloat32MixingWeights) {
  Tensors in = pre_inputs(4);
  for (at::Tensor& t : in) t = t.detach().to(at::kFloat);
  in[0] = in[0].to(at::kBFloat16);
  const Tensors out = pre(in), wide = pre({in[0].to(at::kFloat), in[1], in[2], in[3]});
  test::expect_bitwise(out[0], wide[0].to(at::kBFloat16), "u");
  test::expect_bitwise(out[2], wide[2], "comb");
}

// model spec 14 #6, known failures M1
TEST(MhcPost, Pitfall6MixesOverTheFirstIndexOfComb) {
  const at::Tensor comb = ops::sinkhorn(at::randn({5, 4, 4}, at::kDouble) * 2, 20, kEps);
  const at::Tensor streams = at::randn({5, 4, 7}, at::kDouble), y = at::randn({5, 7}, at::kDouble);
  const at::Tensor weights = at::randn({5, 4}, at::kDouble);
  at::Tensor want = at::zeros_like(streams), swapped = at::zeros_like(streams);
  for (int64_t j = 0; j < 4; ++j)
    for (int64_t i = 0; i < 4; ++i) {
      const at::Tensor own = i == 0 ? weights.select(1, j).unsqueeze(1) * y : at::zeros_like(y);
      want.select(1, j).add_(own +
                             comb.select(1, i).select(1, j).unsqueeze(1) * streams.select(1, i));
      swapped.select(1, j).add_(own +
                                comb.select(1, j).select(1, i).unsqueeze(1) * streams.select(1, i));
    }
  const at::Tensor got = ops::mhc_post(y, streams, weights, comb);
  test::expect_close_rms(got, want, 1e-14, "comb transposed times X");
  EXPECT_GE((got - swapped).abs().max().item<double>(), 0.05)
      << "comb is symmetric by accident: the test is blind";
}

// model spec 14 #7, known failures M3: with fn = 0 the base alone decides
TEST(MhcPre, Pitfall7PostIsTwiceSigmoidAndCombIsSinkhorn) {
  const at::Tensor logits =
      at::tensor({0.5, -1., 2., 0., 1.5, 0.25, -0.5, 1., -2., 0., 0.75, 0.1, 0.3, 0.3, -1.2, 2.2},
                 at::kDouble);
  const at::Tensor base =
      at::cat({at::zeros({4}, at::kDouble), at::tensor({0., -40., 40., 1.}, at::kDouble), logits});
  const auto [u, post_weights, comb, weights] = ops::mhc_pre(at::randn({1, 4, 5}, at::kDouble),
                                                             at::zeros({24, 20}, at::kDouble),
                                                             base,
                                                             at::ones({3}, at::kDouble),
                                                             20,
                                                             kEps,
                                                             kEps);
  const at::Tensor want = at::tensor({1., 0., 2., 2 / (1 + std::exp(-1.))}, at::kDouble);
  EXPECT_LE((post_weights[0] - want).abs().max().item<double>(), 1e-15);
  EXPECT_LE((weights - (0.5 + kEps)).abs().max().item<double>(), 1e-15);
  EXPECT_NEAR(comb[0][0][2].item<double>(), .5961160, 6e-8);
  EXPECT_NEAR(comb[0][2][0].item<double>(), .0404617, 6e-8);
}

TEST(Mhc, WrongArgumentsAreRefused) {
  const auto with = [](Tensors in, size_t i, const at::Tensor& t) {
    in[i] = t;
    return in;
  };
  EXPECT_THROW(pre(with(pre_inputs(3), 0, at::zeros({3, 18}, at::kDouble))), ShapeError);
  EXPECT_THROW(pre(with(pre_inputs(3), 1, at::zeros({24, 18}, at::kDouble))), ShapeError);
  EXPECT_THROW(pre(with(pre_inputs(3), 3, at::zeros({1}, at::kDouble))), ShapeError);
  EXPECT_THROW(pre(with(pre_inputs(3), 2, at::zeros({kRows}))), DtypeError);
  EXPECT_THROW(post(with(post_inputs(3), 0, at::zeros({4, kWidth}, at::kDouble))), ShapeError);
  EXPECT_THROW(post(with(post_inputs(3), 0, at::zeros({3, kWidth}))), DtypeError);
  EXPECT_THROW(post(with(post_inputs(3), 3, at::zeros({3, 3, 4}, at::kDouble))), ShapeError);
  EXPECT_THROW(post(with(post_inputs(3), 2, at::zeros({3, 3}))), DtypeError);
  EXPECT_THROW(head(with(head_inputs(3), 1, at::zeros({4, 18}, at::kDouble))), ShapeError);
  EXPECT_THROW(head(with(head_inputs(3), 3, at::zeros({1}))), DtypeError);
  const Tensors in = pre_inputs(3);
  EXPECT_THROW(ops::mhc_pre(in[0], in[1], in[2], in[3], 0, kEps, kEps), ConfigError);
}

}  // namespace
}  // namespace lethe
