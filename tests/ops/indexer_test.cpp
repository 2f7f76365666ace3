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
#include "lethe/core/byte_accounting.h"
#include "lethe/ops/compressor.h"
#include "lethe/ops/implementation.h"
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
    const auto [indices, values] =
        ops::lightning_indexer({in[0], in[1], in[2]}, cu, ratio, {.topk = topk});
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
  const at::Tensor kv = at::matmul(in[0], in[4].t()), gate = at::matmul(in[0], in[5].t()),
                   positions = at::tensor(documents.slot_positions(4), at::kLong);
  const at::Tensor k = ops::compressor({.kv = kv,
                                        .gate = gate,
                                        .ape = in[6],
                                        .norm_weight = in[7],
                                        .slot_positions = positions,
                                        .inv_freq = table,
                                        .cu_seqlens = cu},
                                       {.ratio = 4, .eps = 1e-6});
  const at::Tensor w = at::matmul(in[0], in[3].t()) / std::sqrt(8.0 * 16.0);
  test::expect_close_rms(
      ops::indexer_scores({q, k, w}, cu, 4), g.at("scores_masked").flatten(0, 1), 1e-12, "masked");
  const at::Tensor local =
      std::get<0>(ops::lightning_indexer({q, k, w}, cu, 4, {.topk = 4})).view({2, 37, 4});
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

/// Values of slots that were chosen before.
test::TensorFn values_given(const test::Lengths& lengths, int64_t ratio, const at::Tensor& given) {
  return [cu = test::cu_of(lengths), ratio, given](const std::vector<at::Tensor>& in) {
    const auto [indices, values] =
        ops::lightning_indexer({in[0], in[1], in[2]}, cu, ratio, {.topk = 1, .given = &given});
    return std::vector<at::Tensor>{finite(values)};
  };
}

TEST(Indexer, Float32FollowsFloat64) {
  std::vector<test::Lengths> rows = test::packed_rows();
  rows.push_back({900, 3, 70});  // more than one tile of slots
  for (const test::Lengths& lengths : rows)
    for (const auto& [heads, dim] : {std::pair<int64_t, int64_t>{3, 4}, {9, 20}, {16, 64}}) {
      SCOPED_TRACE(test::lengths_text(lengths));
      const int64_t tokens = test::tokens_of(lengths);
      // Eighths: the products are exact in float32 too, and relu bends at the same places.
      const at::Tensor q = leaf({tokens, heads, dim}), k = leaf({test::slots_of(lengths, 4), dim});
      const std::vector<at::Tensor> in{
          (q.detach() * 8).round() / 8, (k.detach() * 8).round() / 8, leaf({tokens, heads})};
      const at::Tensor given = test::random_selection(lengths, 4, 5);
      test::expect_float32_follows_float64(scores_of(lengths, 4), in);
      test::expect_float32_follows_float64(values_given(lengths, 4, given), in);
    }
}

TEST(Indexer, FusedFollowsTheReference) {
  const test::Lengths lengths{300, 3, 40};
  std::vector<at::Tensor> in;
  for (const at::Tensor& t : index_inputs(lengths, 4)) in.push_back(t.detach().to(at::kFloat));
  const at::Tensor cu = test::cu_of(lengths);
  std::vector<std::vector<at::Tensor>> results;
  for (const ops::Implementation choice :
       {ops::Implementation::Fused, ops::Implementation::Reference}) {
    ops::choose_implementations({choice, {}});
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& t : in) leaves.push_back(t.clone().requires_grad_());
    const ops::IndexerInputs inputs{leaves[0], leaves[1], leaves[2]};
    const auto [indices, values] = ops::lightning_indexer(inputs, cu, 4, {.topk = 20});
    const at::Tensor scores = ops::indexer_scores(inputs, cu, 4);
    const at::Tensor total = finite(values).square().sum() + finite(scores).sum();
    results.push_back({indices, values, scores});
    for (const at::Tensor& grad : torch::autograd::grad({total}, leaves))
      results.back().push_back(grad);
  }
  ops::choose_implementations({});
  EXPECT_TRUE(at::equal(results[0][0], results[1][0]));
  for (size_t i = 1; i < results[0].size(); ++i)
    test::expect_same_maths(i < 3 ? finite(results[0][i]) : results[0][i],
                            i < 3 ? finite(results[1][i]) : results[1][i],
                            "result " + std::to_string(i));
}

TEST(Indexer, WithoutValuesTheIndicesAreTheSame) {
  for (const test::Lengths& lengths : test::packed_rows())
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
      for (const int64_t topk : {1, 3, 100}) {
        std::vector<at::Tensor> in;
        for (const at::Tensor& t : index_inputs(lengths, 4)) in.push_back(t.detach().to(dtype));
        const ops::IndexerInputs inputs{in[0], in[1], in[2]};
        const at::Tensor cu = test::cu_of(lengths);
        const auto [with, values] = ops::lightning_indexer(inputs, cu, 4, {.topk = topk});
        const auto [without, none] =
            ops::lightning_indexer(inputs, cu, 4, {.topk = topk, .return_values = false});
        EXPECT_TRUE(at::equal(with, without));
        EXPECT_EQ(none.numel(), 0);
      }
}

TEST(Indexer, GivenIndicesComeBackWithTheirValues) {
  const test::Lengths lengths{33, 3, 16};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    std::vector<at::Tensor> in;
    for (const at::Tensor& t : index_inputs(lengths, 4)) in.push_back(t.detach().to(dtype));
    const ops::IndexerInputs inputs{in[0], in[1], in[2]};
    const at::Tensor cu = test::cu_of(lengths);
    const auto [indices, values] = ops::lightning_indexer(inputs, cu, 4, {.topk = 3});
    const auto [again, same] =
        ops::lightning_indexer(inputs, cu, 4, {.topk = 3, .given = &indices});
    EXPECT_TRUE(at::equal(again, indices));
    test::expect_same_maths(finite(same), finite(values), "values");
    const auto [alone, none] = ops::lightning_indexer(
        inputs, cu, 4, {.topk = 3, .return_values = false, .given = &indices});
    EXPECT_TRUE(at::equal(alone, indices));
    EXPECT_EQ(none.numel(), 0);
  }
}

TEST(Indexer, GivenIndicesAreChecked) {
  const auto in = index_inputs({16}, 4);
  const auto replay = [&](const at::Tensor& given) {
    ops::lightning_indexer(
        {in[0], in[1], in[2]}, test::cu_of({16}), 4, {.topk = 2, .given = &given});
  };
  const at::Tensor good = test::random_selection({16}, 4, 2);
  replay(good);
  const auto with = [&](int first, int second) {
    at::Tensor changed = good.clone();
    changed[11][0] = first, changed[11][1] = second;  // sees slots 0, 1, 2
    return changed;
  };
  replay(with(0, 2)), replay(with(1, -1)), replay(with(-1, -1));
  EXPECT_THROW(replay(with(2, 0)), ShapeError) << "descending";
  EXPECT_THROW(replay(with(1, 1)), ShapeError) << "twice";
  EXPECT_THROW(replay(with(1, 3)), ShapeError) << "not visible";
  EXPECT_THROW(replay(with(-1, 1)), ShapeError) << "behind -1";
  EXPECT_THROW(replay(with(-2, -1)), ShapeError) << "negative";
  EXPECT_THROW(replay(good.narrow(0, 0, 15)), ShapeError);
  EXPECT_THROW(replay(good.to(at::kLong)), DtypeError);
}

TEST(Indexer, ScoresThatAreNaNAreNeverSelected) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    auto in = index_inputs({64}, 4);
    for (at::Tensor& t : in) t = t.detach().to(dtype);
    in[1][3].fill_(NAN);
    const auto [indices, values] =
        ops::lightning_indexer({in[0], in[1], in[2]}, test::cu_of({64}), 4, {.topk = 5});
    EXPECT_FALSE((indices == 3).any().item<bool>());
    EXPECT_EQ((indices[63] >= 0).sum().item<int64_t>(), 5);
    EXPECT_EQ((indices[19] >= 0).sum().item<int64_t>(), 4) << "five are visible";
  }
}

TEST(Indexer, TemporaryMemoryDoesNotGrowWithTheRow) {
  install_byte_accounting();
  std::vector<int64_t> forward, backward;
  for (const int64_t tokens : {512, 4096}) {
    std::vector<at::Tensor> in;
    for (const at::Tensor& t : index_inputs({tokens}, 4))
      in.push_back(t.detach().to(at::kFloat).requires_grad_());
    const at::Tensor cu = test::cu_of({tokens});
    int64_t before = bytes().live;
    reset_peak();
    const auto [indices, values] =
        ops::lightning_indexer({in[0], in[1], in[2]}, cu, 4, {.topk = 16});
    forward.push_back(bytes().peak - bytes().live);
    const at::Tensor d = at::ones(values.sizes(), values.options());
    before = bytes().live;
    reset_peak();
    const auto grads = torch::autograd::grad({values}, in, {d});
    backward.push_back(bytes().peak - std::max(before, bytes().live));
  }
  EXPECT_LE(forward[1], forward[0] + 4096);
  EXPECT_LE(backward[1], backward[0] + 4096);
}

TEST(Indexer, SelectionIsTheBestOfTheScores) {
  for (const test::Lengths& lengths : test::packed_rows()) {
    SCOPED_TRACE(test::lengths_text(lengths));
    const auto in = index_inputs(lengths, 4);
    const at::Tensor scores =
        ops::indexer_scores({in[0], in[1], in[2]}, test::cu_of(lengths), 4).detach();
    const auto [indices, values] =
        ops::lightning_indexer({in[0], in[1], in[2]}, test::cu_of(lengths), 4, {.topk = 3});
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
      ops::lightning_indexer({in[0], in[1], in[2]}, test::cu_of({16}), 4, {.topk = 100});
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
      std::get<0>(ops::lightning_indexer({in[0], in[1], none}, test::cu_of({600}), 4, {.topk = 3}));
  EXPECT_TRUE((ids.narrow(0, 11, 589) == at::arange(3, at::kInt)).all().item<bool>());
}

// Model spec 14 #23; known failure C8: many small documents.
TEST(Indexer, PackedDocumentsEqualSeparateOnes) {
  const test::Lengths lengths{3, 8, 5, 33};
  const auto in = index_inputs(lengths, 4);
  const auto [indices, values] =
      ops::lightning_indexer({in[0], in[1], in[2]}, test::cu_of(lengths), 4, {.topk = 3});
  int64_t token = 0, slot = 0;
  for (const int64_t n : lengths) {
    const auto [alone, score] = ops::lightning_indexer(
        {in[0].narrow(0, token, n), in[1].narrow(0, slot, n / 4), in[2].narrow(0, token, n)},
        test::cu_of({n}),
        4,
        {.topk = 3});
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
    const auto [indices, values] =
        ops::lightning_indexer({in[0], in[1], in[2]}, cu, 4, {.topk = 3});
    return std::vector<at::Tensor>{
        indices, values, ops::indexer_scores({in[0], in[1], in[2]}, cu, 4)};
  };
  test::expect_meta_matches(both, index_inputs(lengths, 4));
  test::expect_strides_do_not_matter(scores_of(lengths, 4), index_inputs(lengths, 4));
}

TEST(Indexer, WrongInputsAreNamed) {
  const auto in = index_inputs({16}, 4);
  const at::Tensor cu = test::cu_of({16});
  EXPECT_THROW(ops::lightning_indexer({in[0], in[1], in[2]}, cu, 4, {.topk = 0}), ShapeError);
  EXPECT_THROW(ops::indexer_scores({in[0], in[1], in[2]}, cu, 8), ShapeError);
  EXPECT_THROW(ops::indexer_scores({in[0], in[1], in[2].narrow(1, 0, 2)}, cu, 4), ShapeError);
  EXPECT_THROW(ops::indexer_scores({in[0], in[1].to(at::kFloat), in[2]}, cu, 4), DtypeError);
  EXPECT_THROW(ops::indexer_scores({in[0][0], in[1], in[2]}, cu, 4), ShapeError);
}

}  // namespace
}  // namespace lethe
