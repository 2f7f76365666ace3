#include "lethe/ops/sparse_attention.h"

#include <cmath>
#include <limits>

#include "support/golden.h"
#include "support/op_checks.h"
#include "support/packed_rows.h"
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

using test::leaf;
using OptionalTensor = std::optional<at::Tensor>;

struct Case {
  test::Lengths lengths;
  int64_t ratio = 0;
  bool selected = false;
};

constexpr int64_t kWindow = 6;

/// q, kv, sink and, with a ratio, slots.
std::vector<at::Tensor> row_inputs(const Case& c, int64_t heads = 2, int64_t width = 4) {
  const int64_t tokens = test::tokens_of(c.lengths);
  std::vector<at::Tensor> in{leaf({tokens, heads, width}), leaf({tokens, width}), leaf({heads})};
  if (c.ratio > 0) in.push_back(leaf({test::slots_of(c.lengths, c.ratio), width}));
  return in;
}

test::TensorFn attend(const Case& c) {
  const OptionalTensor ids =
      c.selected ? OptionalTensor(test::random_selection(c.lengths, c.ratio, 3)) : std::nullopt;
  return [=, cu = test::cu_of(c.lengths)](const std::vector<at::Tensor>& in) {
    const OptionalTensor slots = in.size() > 3 ? OptionalTensor(in[3]) : std::nullopt;
    const OptionalTensor indices =
        ids && in[0].is_meta() ? OptionalTensor(ids->to(at::kMeta)) : ids;
    return std::vector<at::Tensor>{std::get<0>(
        ops::sparse_attention({in[0], in[1], slots, indices, in[2], cu}, {kWindow, c.ratio, 0.5}))};
  };
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const test::Lengths& lengths : test::packed_rows())
    for (const Case& c : {Case{lengths, 0, false}, Case{lengths, 8, false}, Case{lengths, 4, true}})
      all.push_back(c);
  return all;
}

std::string text(const Case& c) {
  return test::lengths_text(c.lengths) + " ratio " + std::to_string(c.ratio);
}

TEST(SparseAttention, MatchesGoldenUnitInFloat64) {
  const test::TensorMap g = test::load_unit("attention");
  const at::Tensor q = test::packed_leaf(g.at("q"));
  const at::Tensor kv = test::packed_leaf(g.at("kv").narrow(1, 0, 37)),
                   slots = test::packed_leaf(g.at("kv").narrow(1, 37, 9));
  const at::Tensor sink = g.at("sinks").clone().requires_grad_();
  const at::Tensor local = g.at("topk"),
                   offset = at::tensor(std::vector<int>{0, 9}, at::kInt).view({2, 1, 1});
  const OptionalTensor ids = at::where(local < 0, local, local + offset).flatten(0, 1),
                       some = slots;
  const auto [o, lse, mass] =
      ops::sparse_attention({q, kv, some, ids, sink, test::cu_of({37, 37})}, {6, 4, 0.25});
  test::expect_close_rms(o.view({2, 37, 4, 16}), g.at("o"), 1e-12, "o");
  const auto grads = torch::autograd::grad({o}, {q, kv, slots, sink}, {g.at("d.o").flatten(0, 1)});
  test::expect_close_rms(grads[0].view({2, 37, 4, 16}), g.at("grad.q"), 1e-12, "grad.q");
  const at::Tensor d_kv = at::cat({grads[1].view({2, 37, 16}), grads[2].view({2, 9, 16})}, 1);
  test::expect_close_rms(d_kv, g.at("grad.kv"), 1e-12, "grad.kv");
  test::expect_close_rms(grads[3], g.at("grad.sinks"), 1e-12, "grad.sinks");
}

void expect_near(const at::Tensor& got, const std::vector<double>& want, const char* what) {
  const at::Tensor flat = got.detach().flatten();
  ASSERT_EQ(flat.numel(), static_cast<int64_t>(want.size())) << what;
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(flat[static_cast<int64_t>(i)].item<double>(), want[i], 1e-8) << what << " " << i;
}

TEST(SparseAttention, MatchesTheNumbersOfSpec73) {
  const auto of = [](const std::vector<double>& v, at::IntArrayRef shape) {
    return at::tensor(v, at::kDouble).view(shape);
  };
  const at::Tensor q =
      at::cat({at::zeros({2, 1, 2}, at::kDouble), of({1, -0.5}, {1, 1, 2})}).requires_grad_();
  const at::Tensor kv = of({0.3, 0.8, -1.2, 0.4, 0.5, 0.5}, {3, 2}).requires_grad_();
  const at::Tensor sink = of({0.25}, {1}).requires_grad_();
  const auto [o, lse, mass] =
      ops::sparse_attention({q, kv, {}, {}, sink, test::cu_of({3})}, {3, 0, std::sqrt(0.5)});
  expect_near(o[2], {0.11381100, 0.39429179}, "o");
  expect_near(lse[2], {1.32991364}, "lse_with_sink");
  const auto grads = torch::autograd::grad({o[2]}, {q, kv, sink}, {of({0.7, -0.2}, {1, 2})});
  expect_near(grads[0][2], {0.10717551, 0.00906837}, "dq");
  expect_near(
      grads[1], {0.18108218, -0.05357463, 0.00480520, 0.01234045, 0.27656959, -0.09093803}, "dk");
  expect_near(grads[2], {-0.00027487}, "dsink");
}

TEST(SparseAttention, GradientsMatchCentralDifferences) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(text(c));
    test::expect_gradients(attend(c), row_inputs(c), 16);
  }
}

void expect_within_largest(const at::Tensor& a,
                           const at::Tensor& b,
                           double limit,
                           const char* what) {
  const double largest = b.detach().abs().max().item<double>();
  EXPECT_LE((a - b).detach().abs().max().item<double>(), limit * largest)
      << what << ", largest " << largest;
}

void expect_gather_equals_oracle(const Case& c,
                                 at::ScalarType dtype,
                                 double forward,
                                 double backward) {
  std::vector<at::Tensor> in;
  for (const at::Tensor& t : row_inputs(c)) in.push_back(t.detach().to(dtype).requires_grad_());
  const OptionalTensor ids =
      c.selected ? OptionalTensor(test::random_selection(c.lengths, c.ratio, 3)) : std::nullopt;
  const OptionalTensor slots = in.size() > 3 ? OptionalTensor(in[3]) : std::nullopt;
  const at::Tensor cu = test::cu_of(c.lengths);
  const ops::AttentionInputs inputs{in[0], in[1], slots, ids, in[2], cu};
  const ops::AttentionRule rule{kWindow, c.ratio, 0.5};
  const auto [o, lse, mass] = ops::sparse_attention(inputs, rule);
  const auto [oracle, oracle_lse] = ops::reference::sparse_attention_dense(inputs, rule);
  expect_within_largest(o, oracle, forward, "o");
  expect_within_largest(lse, oracle_lse, forward, "lse_with_sink");
  const at::Tensor d_o = leaf(o.sizes().vec()).detach().to(dtype);
  const auto got = torch::autograd::grad({o}, in, {d_o}),
             want = torch::autograd::grad({oracle}, in, {d_o});
  for (size_t i = 0; i < got.size(); ++i)
    test::expect_close_rms(got[i], want[i], backward, "gradient " + std::to_string(i));
}

// Model spec 7.4; 14 #8, #10, #13: the oracle masks by position, so a wrong slot, order or clamp
// shows here. Float64 shows that it is one function; float32 adds two roundings of its own.
TEST(SparseAttention, GatherEqualsTheDenseOracle) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(text(c));
    expect_gather_equals_oracle(c, at::kFloat, 1e-6, 1e-5);
    expect_gather_equals_oracle(c, at::kDouble, 1e-14, 1e-12);
  }
}

TEST(SparseAttention, SinkMovesMassAndMinusInfinityMeansNone) {
  const at::Tensor q = at::zeros({3, 1, 2}, at::kDouble), kv = leaf({3, 2}).detach(),
                   cu = test::cu_of({3});
  const auto last = [&](double sink) {
    return std::get<0>(ops::sparse_attention({q, kv, {}, {}, at::full({1}, sink, at::kDouble), cu},
                                             {3, 0, 1.0}))[2][0];
  };
  test::expect_close_rms(last(0.0), kv.sum(0) / 4, 1e-14, "sink 0");
  test::expect_close_rms(
      last(-std::numeric_limits<double>::infinity()), kv.mean(0), 1e-14, "no sink");
  EXPECT_LT(last(50.0).abs().max().item<double>(), 1e-20);
}

TEST(SparseAttention, PackedDocumentsEqualSeparateOnes) {
  const Case c{{3, 8, 5, 33}, 8, false};
  const auto in = row_inputs(c);
  const at::Tensor packed = attend(c)(in)[0];
  int64_t token = 0, slot = 0;
  for (const int64_t n : c.lengths) {
    const at::Tensor alone = attend({{n}, 8, false})({in[0].narrow(0, token, n),
                                                      in[1].narrow(0, token, n),
                                                      in[2],
                                                      in[3].narrow(0, slot, n / 8)})[0];
    test::expect_close_rms(
        packed.narrow(0, token, n), alone, 1e-13, "document of " + std::to_string(n));
    token += n;
    slot += n / 8;
  }
}

// Known failure M8 and model spec 14 #10, in bits.
TEST(SparseAttention, LaterTokensAndSlotsDoNotTouchEarlierOutputs) {
  for (const Case& c : {Case{{16}, 4, true}, Case{{16}, 4, false}, Case{{16}, 0, false}}) {
    SCOPED_TRACE(text(c));
    const auto f = attend(c);
    const auto in = row_inputs(c);
    auto later = in;
    later[0] = at::cat({in[0].narrow(0, 0, 12), leaf({4, 2, 4})});
    later[1] = at::cat({in[1].narrow(0, 0, 12), leaf({4, 4})});
    if (c.ratio > 0) later[3] = at::cat({in[3].narrow(0, 0, 3), leaf({1, 4})});
    const at::Tensor a = f(in)[0], b = f(later)[0];
    test::expect_bitwise(a.narrow(0, 0, 12), b.narrow(0, 0, 12), "tokens 0..11");
    EXPECT_FALSE(at::equal(a, b));
  }
}

// Known failure M13.
TEST(SparseAttention, TokensBeyondTheWindowDoNotCount) {
  const Case c{{kWindow + 8}, 0, false};
  auto in = row_inputs(c);
  const at::Tensor a = attend(c)(in)[0];
  in[1] = at::cat({leaf({1, 4}), in[1].narrow(0, 1, kWindow + 7)});
  const at::Tensor b = attend(c)(in)[0];
  test::expect_bitwise(
      a.narrow(0, kWindow, 8), b.narrow(0, kWindow, 8), "tokens from the window on");
  EXPECT_FALSE(at::equal(a[kWindow - 1], b[kWindow - 1]));
}

// Model spec 14 #13: padding of -1 beside a selected slot 0 must not hide it.
TEST(SparseAttention, PaddingDoesNotHideSlotZero) {
  const auto in = row_inputs({{8}, 4, true});
  const auto run = [&](const OptionalTensor& ids) {
    const OptionalTensor slots = in[3];
    return std::get<0>(
        ops::sparse_attention({in[0], in[1], slots, ids, in[2], test::cu_of({8})}, {2, 4, 0.5}));
  };
  at::Tensor only_zero = at::full({8, 2}, -1, at::kInt);
  only_zero.narrow(0, 3, 5).select(1, 0).fill_(0);
  const at::Tensor with = run(only_zero), without = run(at::full({8, 2}, -1, at::kInt));
  for (int64_t p = 3; p < 8; ++p) EXPECT_FALSE(at::equal(with[p], without[p])) << "position " << p;
}

// Model spec 14 #17: the saved o is protected.
TEST(SparseAttention, ChangingTheOutputInPlaceIsAnErrorInBackward) {
  at::Tensor o = attend({{8}, 0, false})(row_inputs({{8}, 0, false}))[0];
  o.mul_(2);
  EXPECT_THROW(torch::autograd::backward({o.sum()}, {}), std::exception);
}

TEST(SparseAttention, MetaShapesAndStridesOfInputs) {
  for (const Case& c :
       {Case{{9, 1, 33}, 4, true}, Case{{9, 1, 33}, 8, false}, Case{{9, 1, 33}, 0, false}}) {
    test::expect_meta_matches(attend(c), row_inputs(c));
    test::expect_strides_do_not_matter(attend(c), row_inputs(c));
  }
}

TEST(SparseAttention, WrongInputsAreNamed) {
  const auto in = row_inputs({{8}, 4, true});
  const at::Tensor cu = test::cu_of({8});
  const OptionalTensor slots = in[3], future = at::ones({8, 1}, at::kInt),
                       wide = at::zeros({8, 1}, at::kLong);
  EXPECT_THROW(ops::sparse_attention({in[0], in[1], slots, {}, in[2], cu}, {2, 0, 1.0}),
               ShapeError);
  EXPECT_THROW(ops::sparse_attention({in[0], in[1], {}, {}, in[2], cu}, {2, 4, 1.0}), ShapeError);
  EXPECT_THROW(ops::sparse_attention({in[0], in[1], slots, future, in[2], cu}, {2, 4, 1.0}),
               ShapeError);
  EXPECT_THROW(ops::sparse_attention({in[0], in[1], slots, wide, in[2], cu}, {2, 4, 1.0}),
               DtypeError);
  EXPECT_THROW(ops::sparse_attention({in[0], in[1], slots, {}, in[2], cu}, {0, 4, 1.0}),
               ShapeError);
  EXPECT_THROW(ops::sparse_attention({in[0], in[1], slots, {}, in[2], cu}, {2, 4, 0.0}),
               ShapeError);
  EXPECT_THROW(ops::sparse_attention({in[0], in[1], slots, {}, leaf({3}), cu}, {2, 4, 1.0}),
               ShapeError);
}

}  // namespace
}  // namespace lethe
