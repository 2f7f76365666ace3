#include "lethe/ops/compressor.h"

#include "support/golden.h"
#include "support/op_checks.h"
#include "support/packed_rows.h"
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/documents.h"
#include "lethe/base/error.h"
#include "lethe/ops/rms_norm.h"

namespace lethe {
namespace {

using test::leaf;

std::vector<at::Tensor> pool_inputs(int64_t tokens, int64_t ratio, int64_t d = 3) {
  const int64_t width = ratio == 4 ? 2 * d : d;
  return {leaf({tokens, width}), leaf({tokens, width}), leaf({ratio, width})};
}

test::TensorFn pool(const test::Lengths& lengths, int64_t ratio) {
  return [cu = test::cu_of(lengths), ratio](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{ops::compress(in[0], in[1], in[2], cu, ratio)};
  };
}

void expect_golden(const std::string& name, int64_t ratio) {
  SCOPED_TRACE(name);
  const test::TensorMap g = test::load_unit(name);
  const int64_t length = g.at("x").size(1);
  const test::Lengths lengths{length, length};
  const Documents documents = Documents::from_lengths(lengths);
  const at::Tensor x = test::packed_leaf(g.at("x"));
  std::vector<at::Tensor> inputs{x};
  for (const char* weight : {"wkv", "wgate", "ape", "norm"})
    inputs.push_back(g.at(weight).clone().requires_grad_());
  const at::Tensor e = ops::compress(at::matmul(x, inputs[1].t()),
                                     at::matmul(x, inputs[2].t()),
                                     inputs[3],
                                     test::cu_of(lengths),
                                     ratio);
  const at::Tensor slots = test::rotated(ops::rms_norm(e, inputs[4], 1e-6),
                                         documents.slot_positions(ratio),
                                         g.at("inv_freq").to(at::kFloat));
  test::expect_close_rms(slots.view_as(g.at("slots")), g.at("slots"), 1e-12, "slots");
  const auto grads = torch::autograd::grad({slots}, inputs, {g.at("d.slots").flatten(0, 1)});
  const char* names[] = {"x", "wkv", "wgate", "ape", "norm"};
  for (size_t i = 0; i < grads.size(); ++i) {
    const at::Tensor& want = g.at(std::string("grad.") + names[i]);
    test::expect_close_rms(grads[i].reshape(want.sizes()), want, 1e-12, names[i]);
  }
}

TEST(Compressor, MatchesGoldenUnitsInFloat64) {
  expect_golden("compressor_ratio4", 4);
  expect_golden("compressor_ratio8", 8);
  expect_golden("compressor_ratio128", 128);
}

TEST(Compressor, MatchesTheNumbersOfSpec51) {
  const at::Tensor t = at::arange(8, at::kDouble);
  const at::Tensor kv = at::stack({t + 1, (t + 1) * 10}, 1),
                   gate = at::stack({t * 0.1, t * -0.1}, 1);
  const at::Tensor e = ops::compress(kv, gate, at::zeros({4, 2}, at::kDouble), test::cu_of({8}), 4);
  EXPECT_NEAR(e[0][0].item<double>(), 23.753528, 1e-6);
  EXPECT_NEAR(e[1][0].item<double>(), 22.907957, 1e-6);
}

TEST(Compressor, GradientsMatchCentralDifferences) {
  for (const test::Lengths& lengths : test::packed_rows())
    for (const int64_t ratio : {4, 8, 2}) {
      SCOPED_TRACE(test::lengths_text(lengths) + " ratio " + std::to_string(ratio));
      test::expect_gradients(
          pool(lengths, ratio), pool_inputs(test::tokens_of(lengths), ratio), 24);
    }
}

TEST(Compressor, Float32FollowsFloat64) {
  test::expect_float32_follows_float64(pool({9, 1, 33}, 4), pool_inputs(43, 4, 16));
}

// Model spec 14 #23, known failure K3: counts come from real lengths, windows never straddle
// documents.
TEST(Compressor, PackedDocumentsEqualSeparateOnes) {
  for (const int64_t ratio : {4, 8}) {
    const auto in = pool_inputs(45, ratio);
    const at::Tensor packed = ops::compress(in[0], in[1], in[2], test::cu_of({3, 4, 5, 33}), ratio);
    std::vector<at::Tensor> parts;
    int64_t begin = 0;
    for (const int64_t n : {3, 4, 5, 33}) {
      parts.push_back(ops::compress(
          in[0].narrow(0, begin, n), in[1].narrow(0, begin, n), in[2], test::cu_of({n}), ratio));
      begin += n;
    }
    test::expect_close_rms(packed, at::cat(parts), 1e-14, "slots");
  }
}

// Known failure M12: the overlap half must reach back when windows come one by one.
TEST(Compressor, LaterWindowsPoolEightTokensTheFirstOnlyFour) {
  const auto in = pool_inputs(12, 4, 1);
  const at::Tensor e = ops::compress(in[0], in[1], in[2], test::cu_of({12}), 4);
  const auto read_by = [&](int64_t slot) {
    return (torch::autograd::grad({e[slot].sum()}, {in[0]}, {}, true)[0] != 0).sum(0);
  };
  EXPECT_EQ(read_by(0)[0].item<int64_t>(), 0) << "the first slot has no previous half";
  for (const int64_t slot : {1, 2}) EXPECT_EQ(read_by(slot)[0].item<int64_t>(), 4);
  for (const int64_t slot : {0, 1, 2}) EXPECT_EQ(read_by(slot)[1].item<int64_t>(), 4);
}

// Model spec 14 #24: packed input must not cut the compressor's gradient.
TEST(Compressor, PackedRowsSendGradientToEveryCompleteWindow) {
  const auto in = pool_inputs(13, 8);
  const at::Tensor e = ops::compress(in[0], in[1], in[2], test::cu_of({8, 5}), 8);
  const at::Tensor d_kv = torch::autograd::grad({e.sum()}, {in[0]})[0];
  EXPECT_TRUE((d_kv.narrow(0, 0, 8) != 0).all().item<bool>());
  EXPECT_TRUE((d_kv.narrow(0, 8, 5) == 0).all().item<bool>()) << "trailing tokens of no window";
}

TEST(Compressor, NoCompleteWindowGivesNoSlotAndZeroGradients) {
  const auto in = pool_inputs(6, 4);
  const at::Tensor e = ops::compress(in[0], in[1], in[2], test::cu_of({3, 3}), 4);
  EXPECT_EQ(e.sizes(), (std::vector<int64_t>{0, 3}));
  for (const at::Tensor& g : torch::autograd::grad({e.sum()}, in))
    EXPECT_TRUE((g == 0).all().item<bool>());
}

// Model spec 14 #9.
TEST(Compressor, RatioFourRefusesInputsWithoutTheOverlapHalf) {
  const auto in = pool_inputs(8, 8);
  EXPECT_THROW(ops::compress(in[0], in[1], in[2].narrow(0, 0, 4), test::cu_of({8}), 4), ShapeError);
}

TEST(Compressor, LaterTokensDoNotTouchEarlierSlots) {
  const auto in = pool_inputs(16, 4);
  const at::Tensor other = at::cat({in[0].narrow(0, 0, 12), leaf({4, 6})});
  const at::Tensor a = ops::compress(in[0], in[1], in[2], test::cu_of({16}), 4);
  const at::Tensor b = ops::compress(other, in[1], in[2], test::cu_of({16}), 4);
  test::expect_bitwise(a.narrow(0, 0, 3), b.narrow(0, 0, 3), "slots of tokens 0..11");
  EXPECT_FALSE(at::equal(a[3], b[3]));
}

TEST(Compressor, MetaShapesAndStridesOfInputs) {
  for (const int64_t ratio : {4, 8}) {
    test::expect_meta_matches(pool({9, 1, 33}, ratio), pool_inputs(43, ratio));
    test::expect_strides_do_not_matter(pool({9, 1, 33}, ratio), pool_inputs(43, ratio));
  }
}

TEST(Compressor, WrongInputsAreNamed) {
  const auto in = pool_inputs(8, 8);
  const at::Tensor cu = test::cu_of({8});
  EXPECT_THROW(ops::compress(in[0], in[1], in[2], cu, 1), ShapeError);
  EXPECT_THROW(ops::compress(in[0], in[1], in[2], test::cu_of({9}), 8), ShapeError);
  EXPECT_THROW(ops::compress(in[0], in[1], in[2], cu.to(at::kLong), 8), DtypeError);
  EXPECT_THROW(ops::compress(in[0], in[1].to(at::kFloat), in[2], cu, 8), DtypeError);
  EXPECT_THROW(ops::compress(in[0], in[1], leaf({4, 3}), cu, 8), ShapeError);
}

}  // namespace
}  // namespace lethe
