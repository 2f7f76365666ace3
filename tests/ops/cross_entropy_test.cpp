#include "lethe/ops/cross_entropy.h"

#include <algorithm>

#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/tensors.h"
#include "support/tolerance.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/randint.h>

#include "lethe/base/documents.h"
#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/kernels/cpu/matmul.h"
#include "lethe/ops/implementation.h"

namespace lethe {
namespace {

using test::gradients;
using test::leaf_of;
using test::random_leaf;

constexpr int64_t kVocab = 11, kWidth = 6;

at::Tensor loss_sum(const at::Tensor& hidden,
                    const at::Tensor& head,
                    const at::Tensor& labels,
                    int64_t chunk = 4) {
  return std::get<0>(ops::cross_entropy(hidden, head, labels, chunk));
}

// Labels in [0, kVocab), every third one not counted.
at::Tensor labels_with_gaps(int64_t tokens) {
  at::Tensor labels = at::randint(kVocab, {tokens}, at::kLong);
  for (int64_t t = 1; t < tokens; t += 3) labels[t] = kIgnoredLabel;
  return labels;
}

at::Tensor one() {
  return at::ones({}, test::fp64());
}

TEST(CrossEntropy, LogitsZeroToThreeWithLabelThree) {
  const at::Tensor hidden = at::ones({1, 1}, test::fp64()),
                   head = at::arange(4, test::fp64()).unsqueeze(1);
  const auto [sum, per_token] = ops::cross_entropy(hidden, head, at::full({1}, 3, at::kLong), 16);
  EXPECT_NEAR(sum.item<double>(), 0.4401897, 5e-8);
  EXPECT_EQ(per_token[0].item<double>(), sum.item<double>());
}

TEST(CrossEntropy, EqualsLogSoftmaxWithGradientsAndMasks) {
  at::manual_seed(41);
  const at::Tensor hidden = random_leaf({33, kWidth}, 2), head = random_leaf({kVocab, kWidth}),
                   labels = labels_with_gaps(33);
  const at::Tensor counted = labels != kIgnoredLabel;
  const at::Tensor picked = at::log_softmax(at::matmul(hidden, head.t()), -1)
                                .gather(1, labels.clamp_min(0).unsqueeze(1))
                                .squeeze(1);
  const at::Tensor expected = -picked * counted;
  const auto [sum, per_token] = ops::cross_entropy(hidden, head, labels, 8);
  EXPECT_FALSE(per_token.requires_grad());
  test::expect_close_rms(per_token, expected, test::kSameMathsFp64, "token_loss");
  test::expect_close_rms(sum, expected.sum(), test::kSameMathsFp64, "sum");
  const at::Tensor seed = at::full({}, 0.3, test::fp64());
  const auto a = gradients(sum, {hidden, head}, seed),
             b = gradients(expected.sum(), {hidden, head}, seed);
  test::expect_close_rms(a[0], b[0], test::kSameMathsFp64, "hidden");
  test::expect_close_rms(a[1], b[1], test::kSameMathsFp64, "head");
}

TEST(CrossEntropy, GradientsMatchCentralDifferences) {
  at::manual_seed(42);
  for (const int64_t tokens : test::kTokenCounts) {
    const at::Tensor labels = labels_with_gaps(tokens);
    const auto f = [&labels](const std::vector<at::Tensor>& in) {
      return std::vector<at::Tensor>{loss_sum(in[0], in[1], labels)};
    };
    test::expect_gradients(f, {random_leaf({tokens, kWidth}), random_leaf({kVocab, kWidth})});
  }
}

TEST(CrossEntropy, TwoMicrobatchesEqualOneBatch) {
  at::manual_seed(43);
  const at::Tensor hidden = random_leaf({100, kWidth}), head = random_leaf({kVocab, kWidth}),
                   labels = labels_with_gaps(100);
  const double counted = (labels != kIgnoredLabel).sum().item<double>();
  const at::Tensor whole = loss_sum(hidden, head, labels) / counted;
  const at::Tensor first =
      loss_sum(hidden.narrow(0, 0, 10), head, labels.narrow(0, 0, 10)) / counted;
  const at::Tensor second =
      loss_sum(hidden.narrow(0, 10, 90), head, labels.narrow(0, 10, 90)) / counted;
  test::expect_close_rms(first + second, whole, test::kSameMathsFp64, "loss");
  const auto a = gradients(first + second, {hidden, head}, one()),
             b = gradients(whole, {hidden, head}, one());
  test::expect_close_rms(a[0], b[0], test::kSameMathsFp64, "hidden");
  test::expect_close_rms(a[1], b[1], test::kSameMathsFp64, "head");
}

TEST(CrossEntropy, AllLabelsMaskedGiveZeroLossAndZeroGradients) {
  at::manual_seed(44);
  const at::Tensor hidden = random_leaf({9, kWidth}, 1e3),
                   head = random_leaf({kVocab, kWidth}, 1e3);
  const at::Tensor sum = loss_sum(hidden, head, at::full({9}, kIgnoredLabel, at::kLong));
  EXPECT_EQ(sum.item<double>(), 0);
  for (const at::Tensor& g : gradients(sum, {hidden, head}, one()))
    EXPECT_EQ(g.abs().max().item<double>(), 0);
}

TEST(CrossEntropy, MaskedTokensLeaveTheOthersUntouchedInEveryBit) {
  at::manual_seed(45);
  const at::Tensor labels = labels_with_gaps(16), masked = (labels == kIgnoredLabel).unsqueeze(1);
  const at::Tensor hidden = random_leaf({16, kWidth}), head = random_leaf({kVocab, kWidth});
  const at::Tensor other = leaf_of(hidden.detach() + masked * 100.0);
  const auto [sum, per_token] = ops::cross_entropy(hidden, head, labels, 8);
  const auto [other_sum, other_per_token] = ops::cross_entropy(other, head, labels, 8);
  test::expect_bitwise(per_token, other_per_token, "token_loss");
  const at::Tensor a = gradients(sum, {hidden}, one())[0],
                   b = gradients(other_sum, {other}, one())[0];
  test::expect_bitwise(a, b, "gradient of hidden");
  EXPECT_EQ((a * masked).abs().max().item<double>(), 0);
}

TEST(CrossEntropy, HugeLogitsStayFinite) {
  const at::Tensor hidden = leaf_of(at::ones({1, 1}), at::kFloat),
                   head = leaf_of(at::tensor({1e4F, -1e4F, 9e3F}).unsqueeze(1), at::kFloat);
  const at::Tensor sum = loss_sum(hidden, head, at::ones({1}, at::kLong));
  EXPECT_EQ(sum.item<float>(), 2e4F);
  for (const at::Tensor& g : gradients(sum, {hidden, head}, at::ones({})))
    EXPECT_TRUE(g.isfinite().all().item<bool>());
}

TEST(CrossEntropy, ChunkSizeMovesTheResultOnlyWithinRounding) {
  at::manual_seed(46);
  const at::Tensor hidden = leaf_of(at::randn({64, kWidth}), at::kFloat),
                   head = leaf_of(at::randn({kVocab, kWidth}), at::kFloat);
  const at::Tensor labels = labels_with_gaps(64), whole = loss_sum(hidden, head, labels, 1000);
  const auto expected = gradients(whole, {hidden, head}, one());
  for (const int64_t chunk : {1, 3, 7, 16, 63, 64}) {
    const at::Tensor sum = loss_sum(hidden, head, labels, chunk);
    test::expect_close_rms(sum, whole, test::kSameMathsFp32, "sum");
    const auto g = gradients(sum, {hidden, head}, one());
    test::expect_close_rms(
        g[0], expected[0], test::kSameMathsFp32, "hidden, chunk " + std::to_string(chunk));
    test::expect_close_rms(
        g[1], expected[1], test::kSameMathsFp32, "head, chunk " + std::to_string(chunk));
  }
}

TEST(CrossEntropy, Float32AgreesWithFloat64) {
  at::manual_seed(47);
  const at::Tensor hidden = at::randn({64, kWidth}), head = at::randn({kVocab, kWidth}),
                   labels = labels_with_gaps(64);
  const at::Tensor h32 = leaf_of(hidden, at::kFloat), w32 = leaf_of(head, at::kFloat),
                   h64 = leaf_of(hidden), w64 = leaf_of(head);
  const at::Tensor a = loss_sum(h32, w32, labels, 16), b = loss_sum(h64, w64, labels, 16);
  test::expect_close_rms(a, b, test::kSameMathsFp32, "sum");
  const auto ga = gradients(a, {h32, w32}, one()), gb = gradients(b, {h64, w64}, one());
  test::expect_close_rms(ga[0], gb[0], test::kSameMathsFp32, "hidden");
  test::expect_close_rms(ga[1], gb[1], test::kSameMathsFp32, "head");
}

// Of the largest of the products with a chunk of n tokens: logits, and the two gradients.
int64_t scratch_floats(int64_t n, int64_t vocab, int64_t width) {
  const int threads = at::get_num_threads();
  return std::max({kernels::matmul_scratch({n, vocab, width, threads}),
                   kernels::matmul_scratch({n, width, vocab, threads}),
                   kernels::matmul_scratch({vocab, width, n, threads})});
}

TEST(CrossEntropy, NeverHoldsTheLogitsOfAllTokens) {
  install_byte_accounting();
  at::manual_seed(48);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // each has a scratch of its own
  const int64_t tokens = 256, vocab = 2048, width = 8;
  const at::Tensor hidden = leaf_of(at::randn({tokens, width}), at::kFloat),
                   head = leaf_of(at::randn({vocab, width}), at::kFloat);
  const at::Tensor labels = at::randint(vocab, {tokens}, at::kLong);
  const auto peak_bytes = [&](int64_t chunk) {
    const int64_t before = bytes().live;
    reset_peak();
    static_cast<void>(
        gradients(loss_sum(hidden, head, labels, chunk), {hidden, head}, at::ones({})));
    return bytes().peak - before;
  };
  constexpr int64_t kFloatBytes = 4;
  const int64_t whole = peak_bytes(tokens), part = peak_bytes(16);
  const int64_t scratch = scratch_floats(tokens, vocab, width) - scratch_floats(16, vocab, width);
  at::set_num_threads(threads);
  EXPECT_EQ(whole - part, ((tokens - 16) * vocab + scratch) * kFloatBytes);
  EXPECT_LT(part, tokens * vocab * kFloatBytes / 4);
}

std::vector<at::Tensor> everything(const at::Tensor& labels) {
  at::manual_seed(50);
  const at::Tensor hidden = leaf_of(at::randn({70, kWidth}), at::kFloat),
                   head = leaf_of(at::randn({301, kWidth}), at::kFloat);
  const auto [sum, per_token] = ops::cross_entropy(hidden, head, labels, 32);
  const auto g = gradients(sum, {hidden, head}, at::full({}, 0.25));
  return {per_token, g[0], g[1], sum};
}

TEST(CrossEntropy, KernelAgreesWithTheReference) {
  const at::Tensor labels = labels_with_gaps(70);
  const auto fused = everything(labels);
  ops::choose_implementations({.all = ops::Implementation::Reference, .overrides = {}});
  const auto reference = everything(labels);
  ops::choose_implementations({});
  for (size_t i = 0; i < fused.size(); ++i)
    test::expect_close_rms(
        fused[i], reference[i], test::kSameMathsFp32, "result " + std::to_string(i));
}

TEST(CrossEntropy, ZeroTokensStridedAndMetaInputsWork) {
  at::manual_seed(49);
  const at::Tensor none = random_leaf({0, kWidth}), head = random_leaf({kVocab, kWidth});
  const at::Tensor empty_sum = loss_sum(none, head, at::zeros({0}, at::kLong));
  EXPECT_EQ(empty_sum.item<double>(), 0);
  EXPECT_EQ(gradients(empty_sum, {none, head}, one())[1].abs().max().item<double>(), 0);

  const at::Tensor hidden = random_leaf({9, kWidth}).detach(), labels = labels_with_gaps(9);
  const at::Tensor strided = hidden.t().contiguous().t().requires_grad_(), packed = leaf_of(hidden);
  const at::Tensor a = loss_sum(strided, head.t().contiguous().t(), labels),
                   b = loss_sum(packed, head, labels);
  test::expect_close_rms(a, b, test::kSameMathsFp64, "sum");
  test::expect_close_rms(gradients(a, {strided}, one())[0],
                         gradients(b, {packed}, one())[0],
                         test::kSameMathsFp64,
                         "gradient");

  const auto meta = at::TensorOptions().device(at::kMeta);
  const auto [sum, per_token] = ops::cross_entropy(
      at::empty({7, 6}, meta), at::empty({9, 6}, meta), at::empty({7}, meta.dtype(at::kLong)), 2);
  EXPECT_TRUE(sum.is_meta() && sum.dim() == 0 && per_token.is_meta() &&
              per_token.sizes() == at::IntArrayRef({7}));
}

TEST(CrossEntropy, WrongArgumentsNameRuleValueAndRemedy) {
  const at::Tensor hidden = at::ones({2, 6}), head = at::ones({9, 6});
  const auto with_label = [&](int64_t label) {
    ops::cross_entropy(
        hidden, head, at::tensor({int64_t{1}, label}, at::TensorOptions().dtype(at::kLong)), 4);
  };
  test::expect_error<DataError>(
      [&] { with_label(9); },
      {"cross_entropy [labels]", "[0, 9)", "label 9 at token 1", "vocabulary"});
  test::expect_error<DataError>([&] { with_label(-1); }, {"-100", "label -1 at token 1"});
  const at::Tensor labels = at::zeros({2}, at::kLong);
  test::expect_error<ConfigError>([&] { ops::cross_entropy(hidden, head, labels, 0); },
                                  {"chunk_tokens", ">= 1", "got 0"});
  test::expect_error<ShapeError>(
      [&] {
        ops::cross_entropy(hidden, at::ones({0, 6}), labels, 4);
      },
      {"V >= 1", "[0,6]"});
  test::expect_error<ShapeError>([&] { ops::cross_entropy(hidden, head.t(), labels, 4); },
                                 {"head must be [V,D] = [*,6]", "[6,9]"});
  test::expect_error<DtypeError>(
      [&] { ops::cross_entropy(hidden, head.to(at::kDouble), labels, 4); },
      {"head must be float32", "float64"});
}

}  // namespace
}  // namespace lethe
