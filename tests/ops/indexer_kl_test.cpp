#include "lethe/ops/indexer_kl.h"

#include <cmath>

#include "support/golden.h"
#include "support/op_checks.h"
#include "support/packed_rows.h"
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/logaddexp.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/ops/implementation.h"

namespace lethe {
namespace {

using test::leaf;
using OptionalTensor = std::optional<at::Tensor>;
using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

struct Sizes {
  int64_t heads = 2, dim = 4, index_heads = 3, index_dim = 4;
};

/// A row with everything the loss reads, detached, float64.
struct Row {
  explicit Row(const test::Lengths& lengths, int64_t ratio, const Sizes& sizes = {})
      : cu(test::cu_of(lengths)),
        q(leaf({test::tokens_of(lengths), sizes.heads, sizes.dim}).detach()),
        kv(leaf({test::tokens_of(lengths), sizes.dim}).detach()),
        slots(leaf({test::slots_of(lengths, ratio), sizes.dim}).detach()),
        sink(leaf({sizes.heads}).detach()),
        index{leaf({test::tokens_of(lengths), sizes.index_heads, sizes.index_dim}).detach(),
              leaf({test::slots_of(lengths, ratio), sizes.index_dim}).detach(),
              leaf({test::tokens_of(lengths), sizes.index_heads}).detach()},
        rule{6, ratio, 0.5} {}

  [[nodiscard]] Results run(bool joint = true) const {
    const OptionalTensor some(slots);
    const ops::AttentionInputs attention{q, kv, some, indices, sink, cu};
    const at::Tensor* mass = slot_mass ? &*slot_mass : nullptr;
    return ops::indexer_kl({attention, lse, rule, joint, mass}, {index[0], index[1], index[2]});
  }

  /// The same numbers rounded to float32, in `dtype`.
  [[nodiscard]] Row in(at::ScalarType dtype) const {
    Row out = *this;
    const auto round = [&](at::Tensor& t) { t = t.to(at::kFloat).to(dtype); };
    for (at::Tensor* t : {&out.q, &out.kv, &out.slots, &out.sink}) round(*t);
    for (at::Tensor& t : out.index) round(t);
    if (out.lse) round(*out.lse);
    if (out.slot_mass) round(*out.slot_mass);
    return out;
  }

  at::Tensor cu, q, kv, slots, sink;
  std::vector<at::Tensor> index;
  ops::AttentionRule rule;
  OptionalTensor indices, lse, slot_mass;
};

void expect_golden(const std::string& name, bool sparse) {
  SCOPED_TRACE(name);
  const test::TensorMap g = test::load_unit(name);
  const at::Tensor kv = g.at("teacher.kv");
  const at::Tensor q = g.at("teacher.q").flatten(0, 1), window = kv.narrow(1, 0, 37).flatten(0, 1);
  const OptionalTensor slots = kv.narrow(1, 37, 9).flatten(0, 1);
  const at::Tensor sink = g.at("teacher.sinks"), cu = test::cu_of({37, 37});
  const at::Tensor local = g.at("topk"),
                   offset = at::tensor(std::vector<int>{0, 9}, at::kInt).view({2, 1, 1});
  OptionalTensor ids, lse;
  const ops::AttentionInputs attention{q, window, slots, ids, sink, cu};
  const ops::AttentionRule rule{6, 4, 0.25};
  if (sparse) {
    ids = at::where(local < 0, local, local + offset).flatten(0, 1);
    lse = std::get<1>(ops::sparse_attention(attention, rule));
  }
  const at::Tensor index_q = test::packed_leaf(g.at("index_q")),
                   index_k = test::packed_leaf(g.at("index_k"));
  const at::Tensor x = test::packed_leaf(g.at("x")),
                   proj = g.at("weights_proj").clone().requires_grad_();
  const at::Tensor w = at::matmul(x, proj.t()) / std::sqrt(8.0 * 16.0), out = leaf({74, 5});
  std::vector<at::Tensor> reports;
  const at::Tensor attached =
      ops::attach_indexer_kl(out,
                             {attention, lse, rule, true},
                             {index_q, index_k, w},
                             1.0 / 74,
                             [&](const at::Tensor& loss) { reports.push_back(loss); });
  test::expect_bitwise(attached, out, "forward of the attach node");
  EXPECT_TRUE(reports.empty()) << "the loss runs in backward";
  const at::Tensor d_out = leaf({74, 5}).detach();
  const auto grads = torch::autograd::grad({attached}, {out, index_q, index_k, x, proj}, {d_out});
  test::expect_bitwise(grads[0], d_out, "d_out");
  ASSERT_EQ(reports.size(), 1U);
  test::expect_close_rms(reports[0] / 74, g.at("loss"), 1e-12, "loss");
  const char* names[] = {"index_q", "index_k", "x", "weights_proj"};
  for (size_t i = 0; i < 4; ++i) {
    const at::Tensor& want = g.at(std::string("grad.") + names[i]);
    test::expect_close_rms(grads[i + 1].view(want.sizes()), want, 1e-12, names[i]);
  }
}

TEST(IndexerKl, MatchesGoldenUnitsThroughTheAttachNode) {
  expect_golden("indexer_loss_sparse", true);
  expect_golden("indexer_loss_dense", false);
}

/// The case of model spec 8.1: one query, two heads, three slots; identity keys make the rows the
/// scores.
Row spec_row() {
  Row row({6}, 2);
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor z =
      at::tensor(std::vector<double>{1, 0, -1, 0.2, 0.6, 1.5}, at::kDouble).view({1, 2, 3});
  const at::Tensor score =
      at::tensor(std::vector<double>{0.4, 0.1, 0.9}, at::kDouble).view({1, 1, 3});
  row.q = at::cat({at::zeros({5, 2, 3}, wide), z});
  row.kv = at::zeros({6, 3}, wide);
  row.slots = at::eye(3, wide);
  row.index = {
      at::cat({at::zeros({5, 1, 3}, wide), score}), at::eye(3, wide), at::ones({6, 1}, wide)};
  row.rule = {1, 2, 1.0};
  row.indices = at::cat({at::full({5, 3}, -1, at::kInt), at::arange(3, at::kInt).unsqueeze(0)});
  return row;
}

void expect_near(const at::Tensor& got, const std::vector<double>& want) {
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got.flatten()[static_cast<int64_t>(i)].item<double>(), want[i], 1e-8) << i;
}

// Model spec 14 #15 and #16, known failure M10: joint teacher; dI = Q - P exactly.
TEST(IndexerKl, JointTeacherMatchesTheNumbersOfSpec81) {
  Row row = spec_row();
  const at::Tensor others = at::tensor(std::vector<double>{2, -1}, at::kDouble), z = row.q[5];
  row.lse =
      at::cat({at::zeros({5, 2}, z.options()), at::logaddexp(others, z.logsumexp(1)).unsqueeze(0)});
  const auto [d_q, d_k, d_w, loss] = row.run();
  expect_near(loss, {0.00217017});
  expect_near(d_q[5], {-0.00404508, -0.02428029, 0.02832537});
  EXPECT_TRUE((d_q.narrow(0, 0, 5) == 0).all().item<bool>());
}

TEST(IndexerKl, ConditionalTeacherIsAnotherLoss) {
  const auto [d_q, d_k, d_w, loss] = spec_row().run(/*joint=*/false);
  expect_near(loss, {0.04624478});
  expect_near(d_q[5], {0.29502533 - 0.41377454, 0.21856014 - 0.24343186, 0.48641453 - 0.34279360});
}

// Known failure M10: a head whose mass goes to its sink weighs less.
TEST(IndexerKl, LargeSinkTakesItsHeadOutOfTheTeacher) {
  Row row = spec_row();
  row.sink = at::tensor(std::vector<double>{40.0, 0.0}, at::kDouble);
  const at::Tensor with = std::get<0>(row.run())[5][0], p = row.index[0][5][0].softmax(0) - with;
  test::expect_close_rms(p, row.q[5][1].softmax(0), 1e-12, "teacher is head 1 alone");
}

TEST(IndexerKl, RecomputedMassEqualsTheAttentionsLse) {
  const test::Lengths lengths{9, 1, 33};
  for (const bool sparse : {true, false}) {
    Row row(lengths, 4);
    if (sparse) row.indices = test::random_selection(lengths, 4, 3);
    const at::Tensor recomputed = std::get<0>(row.run());
    const OptionalTensor slots(row.slots);
    row.lse = std::get<1>(
        ops::sparse_attention({row.q, row.kv, slots, row.indices, row.sink, row.cu}, row.rule));
    test::expect_close_rms(recomputed, std::get<0>(row.run()), 1e-12, "d_index_q");
  }
}

/// Central differences of the loss in some elements of one input.
void expect_slopes(Row& row, size_t input, bool joint) {
  const Results results = row.run(joint);
  const at::Tensor grads[] = {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
  const at::Tensor x = row.index[input];
  for (int64_t e = 0; e < x.numel(); e += std::max<int64_t>(1, x.numel() / 12)) {
    constexpr double kStep = 1e-6;
    double* value = x.data_ptr<double>() + e;
    const double kept = *value;
    *value = kept + kStep;
    const double up = std::get<3>(row.run(joint)).item<double>();
    *value = kept - kStep;
    const double down = std::get<3>(row.run(joint)).item<double>();
    *value = kept;
    EXPECT_NEAR(grads[input].flatten()[e].item<double>(), (up - down) / (2 * kStep), 1e-6)
        << "input " << input << " element " << e;
  }
}

TEST(IndexerKl, GradientsMatchCentralDifferences) {
  for (const test::Lengths& lengths : test::packed_rows())
    for (const bool sparse : {true, false}) {
      SCOPED_TRACE(test::lengths_text(lengths) + (sparse ? " sparse" : " dense"));
      Row row(lengths, 4);
      if (sparse) row.indices = test::random_selection(lengths, 4, 3);
      for (size_t input = 0; input < 3; ++input)
        for (const bool joint : {true, false}) expect_slopes(row, input, joint);
    }
}

TEST(IndexerKl, TeacherEqualToTheIndexerCostsNothing) {
  Row row = spec_row();
  row.q = at::cat({row.q.narrow(0, 0, 5), row.index[0].narrow(0, 5, 1).expand({1, 2, 3})});
  const auto [d_q, d_k, d_w, loss] = row.run();
  EXPECT_NEAR(loss.item<double>(), 0.0, 1e-15);
  EXPECT_LT(d_q.abs().max().item<double>(), 1e-15);
}

TEST(IndexerKl, RowsWithoutSlotsContributeExactlyNothing) {
  for (const bool joint : {true, false}) {
    const auto [d_q, d_k, d_w, loss] = Row({3, 2, 1}, 4).run(joint);
    EXPECT_EQ(loss.item<double>(), 0.0);
    EXPECT_TRUE((d_q == 0).all().item<bool>() && (d_w == 0).all().item<bool>());
    EXPECT_EQ(d_k.sizes(), (std::vector<int64_t>{0, 4}));
  }
}

TEST(IndexerKl, TinyTeacherMassDoesNotUnderflow) {
  Row row({16}, 4);
  row.sink = at::full({2}, 2000.0, at::kDouble);
  EXPECT_TRUE(std::isfinite(std::get<3>(row.run()).item<double>()));
  EXPECT_GT(std::get<3>(row.run()).item<double>(), 0.0);
}

TEST(IndexerKl, PackedDocumentsEqualSeparateOnes) {
  const test::Lengths lengths{3, 8, 5, 33};
  const Row packed(lengths, 4);
  const auto [d_q, d_k, d_w, loss] = packed.run();
  at::Tensor sum = at::zeros({1}, at::kDouble);
  int64_t token = 0, slot = 0;
  for (const int64_t n : lengths) {
    Row alone({n}, 4);
    alone.q = packed.q.narrow(0, token, n), alone.kv = packed.kv.narrow(0, token, n);
    alone.slots = packed.slots.narrow(0, slot, n / 4), alone.sink = packed.sink;
    alone.index = {packed.index[0].narrow(0, token, n),
                   packed.index[1].narrow(0, slot, n / 4),
                   packed.index[2].narrow(0, token, n)};
    const auto [one_q, one_k, one_w, one_loss] = alone.run();
    sum += one_loss;
    test::expect_close_rms(d_q.narrow(0, token, n), one_q, 1e-12, "d_index_q");
    test::expect_close_rms(d_k.narrow(0, slot, n / 4), one_k, 1e-12, "d_index_k");
    token += n, slot += n / 4;
  }
  test::expect_close_rms(loss, sum, 1e-12, "loss");
}

TEST(IndexerKl, LaterTokensDoNotTouchEarlierGradients) {
  const Row row({16}, 4);
  Row later = row;
  later.q = at::cat({row.q.narrow(0, 0, 11), leaf({5, 2, 4}).detach()});
  later.slots = at::cat({row.slots.narrow(0, 0, 2), leaf({2, 4}).detach()});
  later.index[1] = at::cat({row.index[1].narrow(0, 0, 2), leaf({2, 4}).detach()});
  const at::Tensor a = std::get<0>(row.run()), b = std::get<0>(later.run());
  test::expect_bitwise(a.narrow(0, 0, 11), b.narrow(0, 0, 11), "d_index_q of tokens 0..10");
  EXPECT_FALSE(at::equal(a, b));
}

TEST(IndexerKl, WithoutGradientsTheAttachNodeIsNothing) {
  const Row row({8}, 4);
  const OptionalTensor slots(row.slots);
  const ops::AttentionInputs attention{row.q, row.kv, slots, row.indices, row.sink, row.cu};
  const at::NoGradGuard no_grad;
  const at::Tensor out = leaf({8, 2});
  EXPECT_TRUE(ops::attach_indexer_kl(out,
                                     {attention, row.lse, row.rule, true},
                                     {row.index[0], row.index[1], row.index[2]},
                                     1.0,
                                     [](const at::Tensor&) { ADD_FAILURE() << "reported"; })
                  .is_same(out));
}

TEST(IndexerKl, MetaShapesFollowTheInputs) {
  const Row row({9, 1, 33}, 4);
  const auto f = [&](const std::vector<at::Tensor>& in) {
    const OptionalTensor slots(in[2]);
    const ops::AttentionInputs attention{in[0], in[1], slots, {}, in[3], row.cu};
    const auto [d_q, d_k, d_w, loss] =
        ops::indexer_kl({attention, {}, row.rule, true}, {in[4], in[5], in[6]});
    return std::vector<at::Tensor>{d_q, d_k, d_w, loss};
  };
  const std::vector<at::Tensor> in{
      row.q, row.kv, row.slots, row.sink, row.index[0], row.index[1], row.index[2]};
  test::expect_meta_matches(f, in);
  test::expect_strides_do_not_matter(f, in);
}

void expect_same_results(const Results& a, const Results& b) {
  test::expect_same_maths(std::get<0>(a), std::get<0>(b), "d_index_q");
  test::expect_same_maths(std::get<1>(a), std::get<1>(b), "d_index_k");
  test::expect_same_maths(std::get<2>(a), std::get<2>(b), "d_index_w");
  test::expect_same_maths(std::get<3>(a), std::get<3>(b), "loss");
}

TEST(IndexerKl, Float32FollowsFloat64) {
  std::vector<test::Lengths> rows = test::packed_rows();
  rows.push_back({600, 3, 40});  // more than one tile of visible slots
  for (const test::Lengths& lengths : rows)
    for (const Sizes& sizes : {Sizes{}, Sizes{17, 20, 9, 12}, Sizes{16, 32, 16, 64}})
      for (const bool sparse : {true, false})
        for (const bool joint : {true, false}) {
          SCOPED_TRACE(test::lengths_text(lengths) + (sparse ? " sparse" : " dense") +
                       (joint ? " joint" : " conditional"));
          Row row(lengths, 4, sizes);
          row.rule.scale = 1.0 / std::sqrt(static_cast<double>(sizes.dim));
          // Eighths: the products are exact in float32 too, and relu bends at the same places.
          for (const size_t i : {0, 1}) row.index[i] = (row.index[i] * 8).round() / 8;
          row.index[2] = row.index[2] / std::sqrt(static_cast<double>(sizes.index_dim));
          if (sparse) row.indices = test::random_selection(lengths, 4, 5);
          expect_same_results(row.in(at::kFloat).run(joint), row.in(at::kDouble).run(joint));
        }
}

TEST(IndexerKl, FusedFollowsTheReference) {
  Row row({70, 3, 33}, 4, {5, 12, 7, 20});
  for (const bool sparse : {true, false}) {
    if (sparse) row.indices = test::random_selection({70, 3, 33}, 4, 6);
    const Row narrow = row.in(at::kFloat);
    ops::choose_implementations({ops::Implementation::Fused, {}});
    const Results fused = narrow.run();
    ops::choose_implementations({ops::Implementation::Reference, {}});
    const Results reference = narrow.run();
    ops::choose_implementations({});
    expect_same_results(fused, reference);
    row.indices.reset();
  }
}

/// (1/H) sum_h exp(z_hj - lse_h) of the selected slots, 0 at -1.
at::Tensor mass_of(const Row& row) {
  const OptionalTensor slots(row.slots);
  const at::Tensor lse = std::get<1>(
      ops::sparse_attention({row.q, row.kv, slots, row.indices, row.sink, row.cu}, row.rule));
  const at::Tensor ids = row.indices->to(at::kLong), none = ids < 0;
  const at::Tensor keys = row.slots.index_select(0, ids.flatten().clamp_min(0))
                              .view({ids.size(0), ids.size(1), row.slots.size(1)});
  const at::Tensor z = at::matmul(row.q, keys.transpose(1, 2)) * row.rule.scale;
  return (z - lse.unsqueeze(2)).exp().mean(1).masked_fill(none, 0.0);
}

TEST(IndexerKl, GivenMassIsTheTeacherWithoutTheAttention) {
  const test::Lengths lengths{33, 1, 9, 64};
  Row row(lengths, 4);
  row.indices = test::random_selection(lengths, 4, 5);
  const Results computed = row.run();
  row.slot_mass = mass_of(row);
  row.q.fill_(NAN), row.slots.fill_(NAN), row.kv.fill_(NAN);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat})
    expect_same_results(row.in(dtype).run(), computed);
}

TEST(IndexerKl, RowsOfTinyMassAreComputed) {
  const test::Lengths lengths{33};
  Row row(lengths, 4);
  row.indices = test::random_selection(lengths, 4, 5);
  const Results computed = row.run();
  row.slot_mass = mass_of(row);
  for (const int64_t token : {5, 20, 32}) (*row.slot_mass)[token] *= 1e-36;
  (*row.slot_mass)[21].zero_();
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat})
    expect_same_results(row.in(dtype).run(), computed);
}

TEST(IndexerKl, GivenMassPassesThroughTheAttachNode) {
  Row row({33}, 4);
  row.indices = test::random_selection({33}, 4, 5);
  row.slot_mass = mass_of(row);
  const auto [d_q, d_k, d_w, loss] = row.run();
  row.q.fill_(NAN);
  const OptionalTensor slots(row.slots);
  const ops::AttentionInputs attention{row.q, row.kv, slots, row.indices, row.sink, row.cu};
  std::vector<at::Tensor> in;
  for (const at::Tensor& t : row.index) in.push_back(t.clone().requires_grad_());
  at::Tensor reported;
  const at::Tensor out = ops::attach_indexer_kl(leaf({33, 2}),
                                                {attention, {}, row.rule, true, &*row.slot_mass},
                                                {in[0], in[1], in[2]},
                                                0.25,
                                                [&](const at::Tensor& sum) { reported = sum; });
  const auto grads = torch::autograd::grad({out.sum()}, in);
  test::expect_close_rms(grads[0], d_q * 0.25, 1e-12, "d_index_q");
  test::expect_close_rms(grads[1], d_k * 0.25, 1e-12, "d_index_k");
  test::expect_bitwise(reported, loss, "loss");
}

// Spec 4 2.4: two slots, P = (0.75, 0.25), equal scores.
TEST(IndexerKl, MatchesTheNumbersOfSpec424) {
  Row row({4}, 2, {1, 1, 1, 1});
  row.indices = at::tensor(std::vector<int>{-1, -1, 0, -1, 0, -1, 0, 1}, at::kInt).view({4, 2});
  row.slot_mass = at::tensor(std::vector<double>{0, 0, 1, 0, 1, 0, 3, 1}, at::kDouble).view({4, 2});
  row.index = {at::ones({4, 1, 1}, at::kDouble),
               at::ones({2, 1}, at::kDouble),
               at::ones({4, 1}, at::kDouble)};
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const auto [d_q, d_k, d_w, loss] = row.in(dtype).run();
    EXPECT_NEAR(loss.item<double>(), 0.1308120, 1e-7);
    EXPECT_NEAR(d_k[0][0].item<double>(), -0.25, 1e-7);  // w q = 1: the gradient of the score
    EXPECT_NEAR(d_k[1][0].item<double>(), 0.25, 1e-7);
  }
}

TEST(IndexerKl, TemporaryMemoryDoesNotGrowWithTheRow) {
  install_byte_accounting();
  for (const bool sparse : {false, true}) {
    std::vector<int64_t> temporary;
    for (const int64_t tokens : {512, 4096}) {
      Row row = Row({tokens}, 4, {2, 8, 2, 8}).in(at::kFloat);
      row.lse = at::zeros({tokens, 2}, at::kFloat);
      if (sparse) row.indices = test::random_selection({tokens}, 4, 8);
      const int64_t before = bytes().live;
      reset_peak();
      const Results results = row.run();
      temporary.push_back(bytes().peak - std::max(before, bytes().live));
    }
    EXPECT_LE(temporary[1], temporary[0] + 4096) << (sparse ? "sparse" : "dense");
  }
}

TEST(IndexerKl, WrongInputsAreNamed) {
  Row row({8}, 4);
  row.lse = at::zeros({8, 2}, at::kDouble);
  EXPECT_THROW(row.run(/*joint=*/false), ConfigError);
  row.lse = at::zeros({8, 3}, at::kDouble);
  EXPECT_THROW(row.run(), ShapeError);
  row.lse.reset();
  row.slot_mass = at::zeros({8, 2}, at::kDouble);
  EXPECT_THROW(row.run(), ConfigError) << "without indices";
  row.indices = at::full({8, 2}, -1, at::kInt);
  EXPECT_THROW(row.run(/*joint=*/false), ConfigError);
  row.slot_mass = at::zeros({8, 3}, at::kDouble);
  EXPECT_THROW(row.run(), ShapeError);
  row.slot_mass.reset(), row.indices.reset();
  row.q.requires_grad_();
  EXPECT_THROW(row.run(), ConfigError);
  row.q = row.q.detach();
  row.index[1] = row.index[1].narrow(0, 0, 1);
  EXPECT_THROW(row.run(), ShapeError);
}

}  // namespace
}  // namespace lethe
