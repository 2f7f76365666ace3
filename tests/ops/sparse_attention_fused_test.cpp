#include "support/expect_error.h"
#include "support/op_checks.h"
#include "support/packed_rows.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/documents.h"
#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/ops/implementation.h"
#include "lethe/ops/rope.h"
#include "lethe/ops/sparse_attention.h"

// What the kernel of sparse attention and the outputs beyond its definition must do.
namespace lethe {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Tensors = std::vector<at::Tensor>;
using test::leaf;

struct Shape {
  test::Lengths lengths;
  int64_t heads, width, window, ratio, topk;  // topk 0: all visible slots
  int64_t pairs;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{{1}, 1, 2, 1, 0, 0, 1},
                                      {{33}, 17, 33, 6, 4, 3, 5},
                                      {{9, 1, 33, 3, 8}, 16, 64, 8, 4, 5, 16},
                                      {{1, 1}, 3, 6, 4, 2, 2, 0},
                                      {{64, 7}, 24, 70, 20, 8, 0, 32},
                                      {{50}, 8, 16, 50, 0, 0, 8}};
  return all;
}

/// The tensors of one call; the leaves are q, kv, sink and, with a ratio, slots.
struct Row {
  explicit Row(const Shape& shape)
      : s(shape),
        cu(test::cu_of(s.lengths)),
        inv_freq(at::rand({s.pairs})),
        positions(at::tensor(Documents::from_lengths(s.lengths).positions(), at::kLong)) {
    const int64_t tokens = test::tokens_of(s.lengths);
    leaves = {leaf({tokens, s.heads, s.width}), leaf({tokens, s.width}), leaf({s.heads})};
    if (s.ratio > 0) leaves.push_back(leaf({test::slots_of(s.lengths, s.ratio), s.width}));
    if (s.topk > 0) ids = test::random_selection(s.lengths, s.ratio, s.topk);
    for (at::Tensor& t : leaves) t = t.detach().to(at::kFloat).to(at::kDouble).requires_grad_();
  }

  [[nodiscard]] ops::AttentionResult run(const Tensors& in) const {
    const OptionalTensor slots = in.size() > 3 ? OptionalTensor(in[3]) : std::nullopt;
    return ops::sparse_attention({in[0], in[1], slots, ids, in[2], cu},
                                 {s.window, s.ratio, 0.3},
                                 {positions, inv_freq, /*slot_mass=*/true});
  }

  /// The oracle, rotated back by the operator for that.
  [[nodiscard]] std::tuple<at::Tensor, at::Tensor> oracle() const {
    const OptionalTensor slots = leaves.size() > 3 ? OptionalTensor(leaves[3]) : std::nullopt;
    const auto [o, lse] = ops::reference::sparse_attention_dense(
        {leaves[0], leaves[1], slots, ids, leaves[2], cu}, {s.window, s.ratio, 0.3});
    return {ops::rope(o, positions, inv_freq, /*inverse=*/true), lse};
  }

  [[nodiscard]] Tensors narrow() const {
    Tensors out;
    for (const at::Tensor& t : leaves) out.push_back(t.detach().to(at::kFloat).requires_grad_());
    return out;
  }

  Shape s;
  at::Tensor cu, inv_freq, positions;
  OptionalTensor ids;
  Tensors leaves;
};

class SparseAttentionFused : public testing::Test {
 protected:
  void TearDown() override {
    ops::choose_implementations({});
    ops::set_checked_mode(false);
  }
};

void choose(ops::Implementation implementation) {
  ops::choose_implementations({.all = implementation, .overrides = {}});
}

/// o, lse, slot_mass and gradients.
Tensors results_of(const Row& row, const Tensors& leaves, const at::Tensor& d_o) {
  const auto [o, lse, mass] = row.run(leaves);
  Tensors results = torch::autograd::grad({o}, leaves, {d_o.to(o.scalar_type())});
  results.insert(results.end(), {o, lse, mass});
  return results;
}

TEST_F(SparseAttentionFused, FollowsTheReferenceInFloat64) {
  for (const Shape& shape : shapes()) {
    const Row row(shape);
    SCOPED_TRACE(test::lengths_text(shape.lengths));
    const at::Tensor d_o = at::randn(row.leaves[0].sizes());
    choose(ops::Implementation::Reference);
    const Tensors want = results_of(row, row.leaves, d_o);
    choose(ops::Implementation::Fused);
    ops::reset_implementations_that_ran();
    const Tensors got = results_of(row, row.narrow(), d_o);
    EXPECT_EQ(ops::implementations_that_ran().at("sparse_attention").substr(0, 5), "fused");
    for (size_t i = 0; i < want.size(); ++i)
      test::expect_same_maths(got[i], want[i], "result " + std::to_string(i));
  }
}

TEST_F(SparseAttentionFused, ReferenceRotatesBackAndCountsMassLikeTheOracle) {
  for (const Shape& shape : shapes()) {
    const Row row(shape);
    SCOPED_TRACE(test::lengths_text(shape.lengths));
    const auto [o, lse, mass] = row.run(row.leaves);
    const auto [oracle, oracle_lse] = row.oracle();
    test::expect_close_rms(o, oracle, 1e-12, "o");
    const at::Tensor d_o = at::randn(o.sizes(), o.options());
    const auto got = torch::autograd::grad({o}, row.leaves, {d_o}),
               want = torch::autograd::grad({oracle}, row.leaves, {d_o});
    for (size_t i = 0; i < got.size(); ++i)
      test::expect_close_rms(got[i], want[i], 1e-11, "gradient " + std::to_string(i));
    if (!row.ids) {
      EXPECT_EQ(mass.numel(), 0);
      continue;
    }
    const at::Tensor keys = at::cat({row.leaves[3], at::zeros({1, shape.width}, o.options())});
    const at::Tensor named =
        keys.index_select(0, row.ids->to(at::kLong).flatten().remainder(keys.size(0)))
            .view({o.size(0), shape.topk, shape.width});
    const at::Tensor z = at::matmul(row.leaves[0], named.transpose(1, 2)) * 0.3;
    const at::Tensor share = (z - oracle_lse.unsqueeze(2)).exp().mean(1);
    test::expect_close_rms(mass, share.masked_fill(*row.ids < 0, 0.0), 1e-12, "slot_mass");
  }
}

TEST_F(SparseAttentionFused, RotatedGradientsMatchCentralDifferences) {
  const Row row({{7, 3}, 2, 6, 4, 2, 2, 2});
  const auto f = [&](const Tensors& in) { return Tensors{std::get<0>(row.run(in))}; };
  test::expect_gradients(f, row.leaves, 16);
}

TEST_F(SparseAttentionFused, MetaKnowsEveryOutput) {
  for (const Shape& shape : shapes()) {
    Row row(shape);
    const auto [o, lse, mass] = row.run(row.leaves);
    if (row.ids) row.ids = row.ids->to(at::kMeta);
    row.positions = row.positions.to(at::kMeta);
    row.inv_freq = row.inv_freq.to(at::kMeta);
    Tensors meta;
    for (const at::Tensor& t : row.leaves) meta.push_back(t.detach().to(at::kMeta));
    const auto [meta_o, meta_lse, meta_mass] = row.run(meta);
    EXPECT_EQ(meta_o.sizes(), o.sizes());
    EXPECT_EQ(meta_lse.sizes(), lse.sizes());
    EXPECT_EQ(meta_mass.sizes(), mass.sizes());
  }
}

TEST_F(SparseAttentionFused, BitsDoNotDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const Shape& shape : shapes()) {
    const Row row(shape);
    SCOPED_TRACE(test::lengths_text(shape.lengths));
    const at::Tensor d_o = at::randn(row.leaves[0].sizes(), at::kFloat);
    const Tensors leaves = row.narrow();
    at::set_num_threads(1);
    const Tensors one = results_of(row, leaves, d_o);
    for (const int threads : {2, 3}) {
      at::set_num_threads(threads);
      const Tensors more = results_of(row, leaves, d_o);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], more[i])) << i;
    }
  }
  at::set_num_threads(before);
}

/// Peak bytes of forward and backward beyond inputs, outputs and gradients.
int64_t temporary_bytes(int64_t tokens) {
  const Row row({{tokens}, 4, 16, 8, 4, 4, 4});
  const Tensors leaves = row.narrow();
  const at::Tensor d_o = at::randn(leaves[0].sizes(), at::kFloat);
  const int64_t before = bytes().live;
  reset_peak();
  const Tensors results = results_of(row, leaves, d_o);
  int64_t kept = 0;
  for (const at::Tensor& t : results) kept += static_cast<int64_t>(t.nbytes());
  return bytes().peak - before - kept;
}

TEST_F(SparseAttentionFused, TemporariesDoNotGrowWithTheTokens) {
  install_byte_accounting();
  EXPECT_LE(temporary_bytes(4096), temporary_bytes(512));
}

TEST_F(SparseAttentionFused, CheckedModeNamesADuplicate) {
  Row row({{12}, 2, 4, 3, 2, 2, 1});
  row.ids->narrow(0, 6, 1).fill_(1);
  (void)row.run(row.leaves);
  ops::set_checked_mode(true);
  test::expect_error<ShapeError>([&] { (void)row.run(row.leaves); }, {"indices[6]", "got 1 twice"});
}

TEST_F(SparseAttentionFused, WrongInputsAreNamed) {
  Row row({{12}, 2, 4, 3, 2, 2, 1});
  row.ids->select(0, 5).select(0, 1).fill_(4);
  test::expect_error<ShapeError>([&] { (void)row.run(row.leaves); },
                                 {"indices[5,1]", "[0,3)", "got 4"});
  row.ids = {};
  row.inv_freq = at::ones({3});
  EXPECT_THROW((void)row.run(row.leaves), ShapeError);
  row.inv_freq = at::ones({2}, at::kDouble);
  EXPECT_THROW((void)row.run(row.leaves), DtypeError);
  row.inv_freq = at::ones({2});
  row.positions = row.positions.narrow(0, 1, 5);
  EXPECT_THROW((void)row.run(row.leaves), ShapeError);
  const OptionalTensor none;
  EXPECT_THROW(
      ops::sparse_attention({row.leaves[0], row.leaves[1], none, none, row.leaves[2], row.cu},
                            {3, 0, 1.0},
                            {.inv_freq = row.inv_freq}),
      ShapeError);
}

TEST_F(SparseAttentionFused, NoColumnsOfIndicesNameNoSlot) {
  Row row({{12}, 2, 4, 3, 2, 2, 1});
  row.ids = at::empty({12, 0}, at::kInt);
  const at::Tensor d_o = at::randn(row.leaves[0].sizes());
  const Tensors want = results_of(row, row.leaves, d_o), got = results_of(row, row.narrow(), d_o);
  for (size_t i = 0; i < want.size(); ++i)
    test::expect_same_maths(got[i], want[i], "result " + std::to_string(i));
}

TEST_F(SparseAttentionFused, LargeGradientsStayExact) {
  for (const double factor : {1e-6, 1e8}) {
    const Row row(shapes()[2]);
    const at::Tensor d_o = at::randn(row.leaves[0].sizes()) * factor;
    const Tensors want = results_of(row, row.leaves, d_o), got = results_of(row, row.narrow(), d_o);
    for (size_t i = 0; i < want.size(); ++i)
      test::expect_same_maths(got[i], want[i], "result " + std::to_string(i));
  }
}

}  // namespace
}  // namespace lethe
