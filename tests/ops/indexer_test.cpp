#include "lethe/ops/indexer.h"

#include <cmath>
#include <limits>

#include "support/golden.h"
#include "support/op_checks.h"
#include "support/packed_rows.h"
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/documents.h"
#include "lethe/base/error.h"
#include "lethe/ops/compressor.h"
#include "lethe/ops/rms_norm.h"
#include "lethe/ops/select_topk.h"

namespace lethe {
namespace {

using test::leaf;

constexpr double kInvisible = -std::numeric_limits<double>::infinity();

std::vector<at::Tensor> index_inputs(const test::Lengths& lengths, int64_t ratio) {
  const int64_t tokens = test::tokens_of(lengths);
  return {leaf({tokens, 3, 4}), leaf({test::slots_of(lengths, ratio), 4}), leaf({tokens, 3})};
}

/// Finite scores, 0 where -inf: what a weighted sum can read.
at::Tensor finite(const at::Tensor& scores) {
  return scores.masked_fill(scores.detach() == kInvisible, 0.0);
}

test::TensorFn scores_of(const test::Lengths& lengths, int64_t ratio) {
  return [cu = test::cu_of(lengths), ratio](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{finite(ops::indexer_scores({in[0], in[1], in[2]}, cu, ratio))};
  };
}

test::TensorFn values_of(const test::Lengths& lengths, int64_t ratio, int64_t topk) {
  return [cu = test::cu_of(lengths), ratio, topk](const std::vector<at::Tensor>& in) {
    const auto [indices, values] = ops::lightning_indexer({in[0], in[1], in[2]}, cu, ratio, topk);
    return std::vector<at::Tensor>{finite(values)};
  };
}

TEST(Indexer, MatchesGoldenUnitInFloat64) {
  const test::TensorMap g = test::load_unit("indexer");
  const test::Lengths lengths{37, 37};
  const Documents documents = Documents::from_lengths(lengths);
  const at::Tensor cu = test::cu_of(lengths), table = g.at("inv_freq").to(at::kFloat);
  std::vector<at::Tensor> in{test::packed_leaf(g.at("x")), test::packed_leaf(g.at("qa"))};
  const char* names[] = {"x", "qa", "wq_b", "weights_proj", "wkv", "wgate", "ape", "norm"};
  for (size_t i = 2; i < 8; ++i) in.push_back(g.at(names[i]).clone().requires_grad_());
  const at::Tensor q =
      test::rotated(at::matmul(in[1], in[2].t()).view({74, 8, 16}), documents.positions(), table);
  const at::Tensor e =
      ops::compress(at::matmul(in[0], in[4].t()), at::matmul(in[0], in[5].t()), in[6], cu, 4);
  const at::Tensor k =
      test::rotated(ops::rms_norm(e, in[7], 1e-6), documents.slot_positions(4), table);
  const at::Tensor w = at::matmul(in[0], in[3].t()) / std::sqrt(8.0 * 16.0);
  test::expect_close_rms(
      ops::indexer_scores({q, k, w}, cu, 4), g.at("scores_masked").flatten(0, 1), 1e-12, "masked");
  const at::Tensor local =
      std::get<0>(ops::lightning_indexer({q, k, w}, cu, 4, 4)).view({2, 37, 4});
  const at::Tensor offset = at::tensor(std::vector<int>{0, 9}, at::kInt).view({2, 1, 1});
  EXPECT_TRUE(at::equal(at::where(local < 0, local, local - offset), g.at("topk")));

  // The golden scores cover slots of the future too: queries moved 36 positions later see all nine.
  std::vector<at::Tensor> all;
  for (int64_t b = 0; b < 2; ++b) {
    const at::Tensor later =
        at::cat({at::zeros({36, 8, 16}, q.options()), q.narrow(0, 37 * b, 37)});
    const at::Tensor keys = at::cat({k.narrow(0, 9 * b, 9), at::zeros({9, 16}, k.options())});
    const at::Tensor weights = at::cat({at::zeros({36, 8}, w.options()), w.narrow(0, 37 * b, 37)});
    all.push_back(ops::indexer_scores({later, keys, weights}, test::cu_of({73}), 4)
                      .narrow(0, 36, 37)
                      .narrow(1, 0, 9));
  }
  const at::Tensor scores = at::stack(all);
  test::expect_close_rms(scores, g.at("scores"), 1e-12, "scores");
  const auto grads = torch::autograd::grad(
      {scores, q, k}, in, {g.at("d.scores"), g.at("d.q").flatten(0, 1), g.at("d.k").flatten(0, 1)});
  for (size_t i = 0; i < grads.size(); ++i) {
    const at::Tensor& want = g.at(std::string("grad.") + names[i]);
    test::expect_close_rms(grads[i].reshape(want.sizes()), want, 1e-12, names[i]);
  }
}

TEST(Indexer, MatchesTheNumbersOfSpec424) {
  const auto one = [](const std::vector<double>& q, const std::vector<double>& w) {
    const auto wide = at::TensorOptions().dtype(at::kDouble);
    const at::Tensor last = at::tensor(q, at::kDouble).view({1, 2, 1}),
                     weight = at::tensor(w, at::kDouble).view({1, 2});
    return ops::indexer_scores({at::cat({at::zeros({1, 2, 1}, wide), last}),
                                at::ones({1, 1}, wide),
                                at::cat({at::zeros({1, 2}, wide), weight})},
                               test::cu_of({2}),
                               2)[1][0]
        .item<double>();
  };
  EXPECT_EQ(one({2, 3}, {1, -1}), -1.0);
  EXPECT_EQ(one({-2, 3}, {1, 1}), 3.0);
}

TEST(Indexer, GradientsMatchCentralDifferences) {
  for (const test::Lengths& lengths : test::packed_rows()) {
    SCOPED_TRACE(test::lengths_text(lengths));
    for (const int64_t ratio : {4, 8}) {
      test::expect_gradients(scores_of(lengths, ratio), index_inputs(lengths, ratio), 24);
      test::expect_gradients(values_of(lengths, ratio, 3), index_inputs(lengths, ratio), 24);
    }
  }
}

TEST(Indexer, Float32FollowsFloat64) {
  test::expect_float32_follows_float64(scores_of({33, 3, 16}, 4), index_inputs({33, 3, 16}, 4));
}

TEST(Indexer, SelectionIsTheBestOfTheScores) {
  for (const test::Lengths& lengths : test::packed_rows()) {
    SCOPED_TRACE(test::lengths_text(lengths));
    const auto in = index_inputs(lengths, 4);
    const at::Tensor scores =
        ops::indexer_scores({in[0], in[1], in[2]}, test::cu_of(lengths), 4).detach();
    const auto [indices, values] =
        ops::lightning_indexer({in[0], in[1], in[2]}, test::cu_of(lengths), 4, 3);
    const int64_t width = std::min<int64_t>(3, scores.size(1));
    ASSERT_EQ(indices.sizes(), (std::vector<int64_t>{scores.size(0), width}));
    const at::Tensor best = std::get<0>(scores.sort(1, true)).narrow(1, 0, width);
    test::expect_close_rms(std::get<0>(values.detach().sort(1, true)), best, 1e-14, "values");
    EXPECT_TRUE(at::equal(indices < 0, values.detach() == kInvisible));
  }
}

// Model spec 14 #12, known failure M8: a query before its first complete window sees nothing.
TEST(Indexer, EarlyQueriesSelectNothingEvenWhenTopkExceedsTheSlots) {
  const auto in = index_inputs({16}, 4);
  const auto [indices, values] =
      ops::lightning_indexer({in[0], in[1], in[2]}, test::cu_of({16}), 4, 100);
  EXPECT_TRUE((indices.narrow(0, 0, 3) == -1).all().item<bool>());
  for (int64_t p = 0; p < 16; ++p)
    EXPECT_EQ((indices[p] >= 0).sum().item<int64_t>(), (p + 1) / 4) << "position " << p;
}

TEST(Indexer, EqualScoresSelectTheLowerSlotAsGolden) {
  const test::TensorMap g = test::load_unit("topk_ties");
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor chosen =
        ops::select_topk(g.at("scores").to(dtype), g.at("visible").to(at::kLong), 5);
    EXPECT_TRUE(at::equal(chosen.to(at::kInt), g.at("topk")));
  }
}

TEST(Indexer, NegativeZeroTiesWithZero) {
  const at::Tensor scores =
      at::tensor(std::vector<double>{-0.0, 0.0, -1.0, 0.0}, at::kDouble).view({1, 4});
  const at::Tensor chosen = ops::select_topk(scores, at::full({1}, 4, at::kLong), 2);
  EXPECT_TRUE(at::equal(chosen, at::tensor(std::vector<int64_t>{0, 1}, at::kLong).view({1, 2})));
}

// All-zero weights make every score +0: the first slots win, whatever the block size.
TEST(Indexer, ExactTiesOfTheScorerSelectTheFirstSlots) {
  auto in = index_inputs({600}, 4);
  const at::Tensor none = at::zeros_like(in[2]).detach();
  const at::Tensor ids =
      std::get<0>(ops::lightning_indexer({in[0], in[1], none}, test::cu_of({600}), 4, 3));
  EXPECT_TRUE((ids.narrow(0, 11, 589) == at::arange(3, at::kInt)).all().item<bool>());
}

// Model spec 14 #23; known failure C8: many small documents.
TEST(Indexer, PackedDocumentsEqualSeparateOnes) {
  const test::Lengths lengths{3, 8, 5, 33};
  const auto in = index_inputs(lengths, 4);
  const auto [indices, values] =
      ops::lightning_indexer({in[0], in[1], in[2]}, test::cu_of(lengths), 4, 3);
  int64_t token = 0, slot = 0;
  for (const int64_t n : lengths) {
    const auto [alone, score] = ops::lightning_indexer(
        {in[0].narrow(0, token, n), in[1].narrow(0, slot, n / 4), in[2].narrow(0, token, n)},
        test::cu_of({n}),
        4,
        3);
    const at::Tensor rows = indices.narrow(0, token, n), own = rows.narrow(1, 0, alone.size(1));
    EXPECT_TRUE(at::equal(at::where(own < 0, own, own - slot), alone));
    EXPECT_EQ((rows >= 0).sum().item<int64_t>(), (alone >= 0).sum().item<int64_t>());
    test::expect_close_rms(
        values.narrow(0, token, n).narrow(1, 0, alone.size(1)), score, 1e-13, "values");
    token += n;
    slot += n / 4;
  }
}

TEST(Indexer, LaterTokensAndSlotsDoNotTouchEarlierRows) {
  const auto in = index_inputs({16}, 4);
  const at::Tensor q = at::cat({in[0].narrow(0, 0, 11), leaf({5, 3, 4})}),
                   k = at::cat({in[1].narrow(0, 0, 2), leaf({2, 4})});
  const at::Tensor cu = test::cu_of({16});
  const at::Tensor a = ops::indexer_scores({in[0], in[1], in[2]}, cu, 4),
                   b = ops::indexer_scores({q, k, in[2]}, cu, 4);
  test::expect_bitwise(a.narrow(0, 0, 11), b.narrow(0, 0, 11), "scores of tokens 0..10");
  EXPECT_FALSE(at::equal(a, b));
}

TEST(Indexer, MetaShapesAndStridesOfInputs) {
  const test::Lengths lengths{9, 1, 33};
  const auto both = [&](const std::vector<at::Tensor>& in) {
    const at::Tensor cu = test::cu_of(lengths);
    const auto [indices, values] = ops::lightning_indexer({in[0], in[1], in[2]}, cu, 4, 3);
    return std::vector<at::Tensor>{
        indices, values, ops::indexer_scores({in[0], in[1], in[2]}, cu, 4)};
  };
  test::expect_meta_matches(both, index_inputs(lengths, 4));
  test::expect_strides_do_not_matter(scores_of(lengths, 4), index_inputs(lengths, 4));
}

TEST(Indexer, WrongInputsAreNamed) {
  const auto in = index_inputs({16}, 4);
  const at::Tensor cu = test::cu_of({16});
  EXPECT_THROW(ops::lightning_indexer({in[0], in[1], in[2]}, cu, 4, 0), ShapeError);
  EXPECT_THROW(ops::indexer_scores({in[0], in[1], in[2]}, cu, 8), ShapeError);
  EXPECT_THROW(ops::indexer_scores({in[0], in[1], in[2].narrow(1, 0, 2)}, cu, 4), ShapeError);
  EXPECT_THROW(ops::indexer_scores({in[0], in[1].to(at::kFloat), in[2]}, cu, 4), DtypeError);
  EXPECT_THROW(ops::indexer_scores({in[0][0], in[1], in[2]}, cu, 4), ShapeError);
}

}  // namespace
}  // namespace lethe
