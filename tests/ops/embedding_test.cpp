#include "lethe/ops/embedding.h"

#include "support/op_checks.h"
#include <gtest/gtest.h>

#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kVocab = 7;

// Every id occurs, most of them several times.
at::Tensor ids_of(int64_t tokens) {
  return (at::arange(tokens, at::kLong) * 3 + 2).remainder(kVocab);
}

Tensors lookup(const Tensors& in) {
  return {ops::embedding(in[0], in[1])};
}

TEST(Embedding, GathersRows) {
  const at::Tensor w = at::randn({kVocab, 4});
  const at::Tensor y = ops::embedding(at::tensor({6, 0, 6}, at::kLong), w);
  test::expect_bitwise(y, at::stack({w[6], w[0], w[6]}), "rows");
}

TEST(Embedding, GradientsMatchCentralDifferences) {
  for (const int64_t tokens : test::kTokenCounts) {
    SCOPED_TRACE(tokens);
    test::expect_gradients(lookup, {ids_of(tokens), test::leaf({kVocab, 5})});
  }
}

TEST(Embedding, GradientIsAddedInTokenOrder) {
  const at::Tensor ids = ids_of(64), dy = at::randn({64, 5});
  const at::Tensor w = at::randn({kVocab, 5}).requires_grad_();
  at::Tensor want = at::zeros({kVocab, 5});
  for (int64_t t = 0; t < 64; ++t) want[ids[t].item<int64_t>()].add_(dy[t]);
  const at::Tensor got = torch::autograd::grad({ops::embedding(ids, w)}, {w}, {dy})[0];
  test::expect_bitwise(got, want, "gradient");
}

TEST(Embedding, Bfloat16GradientIsAddedInFloat32) {
  const at::Tensor ids = at::zeros({300}, at::kLong);
  const at::Tensor w = at::zeros({2, 1}, at::kBFloat16).requires_grad_();
  const at::Tensor dy = at::ones({300, 1}, at::kBFloat16);
  const at::Tensor got = torch::autograd::grad({ops::embedding(ids, w)}, {w}, {dy})[0];
  EXPECT_EQ(got.scalar_type(), at::kBFloat16);
  EXPECT_EQ(got[0].item<float>(), 300) << "added in bf16 the sum stops at 256";
}

TEST(Embedding, Float32FollowsFloat64) {
  test::expect_float32_follows_float64(lookup, {ids_of(64), test::leaf({kVocab, 5})});
}

TEST(Embedding, MetaStridesAndZeroTokens) {
  test::expect_meta_matches(lookup, {ids_of(5), test::leaf({kVocab, 4})});
  test::expect_strides_do_not_matter(lookup, {ids_of(5), test::leaf({kVocab, 4})});
  const at::Tensor every_second = ids_of(10).slice(0, 0, 10, 2), w = at::randn({kVocab, 4});
  test::expect_bitwise(
      ops::embedding(every_second, w), ops::embedding(every_second.contiguous(), w), "strided ids");
  EXPECT_EQ(ops::embedding(ids_of(0), w).sizes(), at::IntArrayRef({0, 4}));
}

TEST(Embedding, IdOutsideTheTableNamesTokenAndId) {
  const at::Tensor w = at::zeros({kVocab, 4});
  try {
    ops::embedding(at::tensor({1, 2, 7, -1}, at::kLong), w);
    FAIL() << "id 7 of 7 rows was accepted";
  } catch (const DataError& e) {
    EXPECT_NE(std::string(e.what()).find("got 7 at token 2"), std::string::npos) << e.what();
  }
  EXPECT_THROW(ops::embedding(at::tensor({-1}, at::kLong), w), DataError);
}

TEST(Embedding, WrongArgumentsAreRefused) {
  const at::Tensor w = at::zeros({kVocab, 4}), ids = ids_of(3);
  EXPECT_THROW(ops::embedding(ids.unsqueeze(0), w), ShapeError);
  EXPECT_THROW(ops::embedding(ids, w[0]), ShapeError);
  EXPECT_THROW(ops::embedding(ids.to(at::kInt), w), DtypeError);
  EXPECT_THROW(ops::embedding(ids, w.to(at::kLong)), DtypeError);
}

}  // namespace
}  // namespace lethe
