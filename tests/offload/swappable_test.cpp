#include "lethe/offload/swappable.h"

#include <set>
#include <vector>

#include "offload/swap_parts.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/offload/layer_input_swap.h"

// What is not swapped, and why: rows F9 of the test matrix (spec 5 10), S4 and S5 of the known
// failures.
namespace lethe {
namespace {

using test::expect_error;
using test::TestTier;

at::Tensor activation(at::IntArrayRef shape) {
  return at::randn(shape) * 2;
}

TEST(Swappable, F9TensorsThatMustStayAreToldApart) {
  install_byte_accounting();
  const auto judge = [](const at::Tensor& t) { return judge_tensor(t, 64); };
  EXPECT_EQ(judge(activation({16})), SwapVerdict::Swapped);
  EXPECT_EQ(judge({}), SwapVerdict::Absent);
  EXPECT_EQ(judge(at::empty({16}, at::kMeta)), SwapVerdict::Absent);
  EXPECT_EQ(judge(activation({0, 8})), SwapVerdict::Empty);
  EXPECT_EQ(judge(at::arange(16)), SwapVerdict::NotFloating);
  EXPECT_EQ(judge(activation({15})), SwapVerdict::Small);
  std::vector<float> own(16);
  EXPECT_EQ(judge(at::from_blob(own.data(), {16})), SwapVerdict::Foreign);
  {
    const ByteTag tag(ByteCategory::Parameters);
    EXPECT_EQ(judge(at::empty({16})), SwapVerdict::Parameter);
  }
  const at::NoGradGuard no_grad;
  EXPECT_EQ(judge(activation({16})), SwapVerdict::NoGrad);
}

TEST(Swappable, ATensorMustCoverItsStorage) {
  const at::Tensor t = activation({8, 6});
  const auto judge = [](const at::Tensor& v) { return judge_tensor(v, 1); };
  for (const at::Tensor& whole : {t.t(), t.view({48}), t.view({2, 4, 6}).permute({2, 0, 1})})
    EXPECT_EQ(judge(whole), SwapVerdict::Swapped);
  // Streams of the first layer: an expanded view is larger than its storage.
  EXPECT_EQ(judge(t.unsqueeze(1).expand({-1, 4, -1})), SwapVerdict::Swapped);
  for (const at::Tensor& part : {t.narrow(0, 0, 7),
                                 t.narrow(0, 1, 7),
                                 t.narrow(1, 0, 3),
                                 t.slice(1, 0, 6, 5),
                                 t.select(0, 7)})
    EXPECT_EQ(judge(part), SwapVerdict::Slice) << part.sizes();
}

TEST(Swappable, VerdictsHaveDistinctTexts) {
  std::set<std::string_view> texts;
  for (size_t i = 0; i < kNumSwapVerdicts; ++i)
    texts.insert(verdict_text(static_cast<SwapVerdict>(i)));
  EXPECT_EQ(texts.size(), kNumSwapVerdicts);
}

constexpr SwapPolicy kPolicy = {.num_layers = 4, .min_bytes = 64};

TEST(SwapOffers, F9TheLastLayerMtpBlocksAndRefusedTensorsMakeNoEntry) {
  TestTier tier;
  LayerInputSwap swap("mb0", kPolicy, tier.backend);
  EXPECT_EQ(swap.offer(3, activation({64})), SwapVerdict::LastLayer);
  EXPECT_EQ(swap.offer(4, activation({64})), SwapVerdict::Mtp);
  EXPECT_EQ(swap.offer(0, activation({4})), SwapVerdict::Small);
  EXPECT_EQ(swap.offer(0, activation({64, 2}).select(1, 0)), SwapVerdict::Slice);
  EXPECT_EQ(swap.offer(0, {}), SwapVerdict::Absent);
  for (int64_t i = 0; i <= 4; ++i) {
    EXPECT_EQ(swap.state_of(i), std::nullopt);
    EXPECT_NO_THROW(swap.step_backward(i));  // empty paths
  }
  swap.settle();
  swap.drop();
  EXPECT_EQ(swap.stats().entries_out, 0);
  EXPECT_EQ(swap.stats().offers_with(SwapVerdict::Slice), 1);
  EXPECT_EQ(tier.backend->report().host_bytes_peak, 0);
}

TEST(SwapOffers, APassWithoutGradientsChangesNothing) {
  TestTier tier;
  LayerInputSwap swap("mb0", kPolicy, tier.backend);
  const at::Tensor input = activation({64});
  ASSERT_EQ(swap.offer(0, input), SwapVerdict::Swapped);
  {
    const at::NoGradGuard no_grad;
    const at::Tensor other = activation({64});
    EXPECT_EQ(swap.offer(1, other), SwapVerdict::NoGrad);
  }
  EXPECT_EQ(swap.state_of(0), SwapState::D2hIssued);
  EXPECT_EQ(swap.state_of(1), std::nullopt);
}

TEST(SwapOffers, AnOutputWithoutGradientKeepsTheInput) {
  TestTier tier;
  LayerInputSwap swap("mb0", kPolicy, tier.backend);
  const at::Tensor input = activation({64});
  const at::Tensor expected = input.clone();
  ASSERT_EQ(swap.offer(0, input), SwapVerdict::Swapped);
  swap.trigger_at(0, input * 2);
  swap.settle();
  EXPECT_EQ(swap.state_of(0), SwapState::Device);
  EXPECT_EQ(swap.stats().cancelled, 1);
  test::expect_bitwise(input, expected, "input");
}

TEST(SwapOffers, F9aSharedTensorsAreRefused) {
  TestTier tier;
  LayerInputSwap swap("mb0", kPolicy, tier.backend);
  const at::Tensor table = activation({64});
  swap.share(table);
  EXPECT_EQ(swap.offer(0, table.view({8, 8})), SwapVerdict::Shared);

  // Two layers with one storage: the first one's copy is given up, its bytes stay.
  const at::Tensor input = activation({64});
  const at::Tensor expected = input.clone();
  ASSERT_EQ(swap.offer(1, input), SwapVerdict::Swapped);
  EXPECT_EQ(swap.offer(2, input.detach()), SwapVerdict::Shared);
  EXPECT_EQ(swap.state_of(1), SwapState::Device);
  swap.settle();
  test::expect_bitwise(input, expected, "input");
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST(SwapOffers, F9aTheLastLayerSharesTheInputOfAnEarlierOne) {
  TestTier tier;
  LayerInputSwap swap("mb0", kPolicy, tier.backend);
  const at::Tensor input = activation({64});
  ASSERT_EQ(swap.offer(2, input), SwapVerdict::Swapped);
  EXPECT_EQ(swap.offer(3, input), SwapVerdict::LastLayer);
  EXPECT_EQ(swap.state_of(2), SwapState::Device);
  EXPECT_NO_THROW((void)input.sum());
}

TEST(SwapOffers, MoreHoldersThanTheCallerKnowsAreSomebodyElse) {
  TestTier tier;
  LayerInputSwap swap("mb0", kPolicy, tier.backend);
  const at::Tensor input = activation({64});
  {
    const at::Tensor other = input.detach();
    EXPECT_EQ(swap.offer(0, input, /*holders=*/1), SwapVerdict::Shared);
    EXPECT_EQ(swap.offer(1, activation({64}), /*holders=*/1), SwapVerdict::Swapped);
  }
  EXPECT_EQ(swap.offer(0, input, /*holders=*/1), SwapVerdict::Swapped);
}

TEST(SwapOffers, AReplayOffersTheSameTensorAgainAndASecondOneIsRefused) {
  TestTier tier;
  LayerInputSwap swap("mb0", kPolicy, tier.backend);
  const at::Tensor input = activation({64});
  ASSERT_EQ(swap.offer(0, input), SwapVerdict::Swapped);
  EXPECT_EQ(swap.offer(0, input.detach()), SwapVerdict::Owned);
  EXPECT_EQ(swap.state_of(0), SwapState::D2hIssued);
  expect_error<SwapError>([&] { (void)swap.offer(0, activation({64})); },
                          {"swap L0.mb0 [once]", "one input in a record", "every forward pass"});
  expect_error<SwapError>([&] { (void)swap.offer(-1, activation({64})); },
                          {"swap mb0 [layer]", "got -1"});
}

}  // namespace
}  // namespace lethe
