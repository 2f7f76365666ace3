#include "lethe/offload/layer_input_swap.h"

#include <vector>

#include "offload/swap_chain.h"
#include "offload/swap_parts.h"
#include "support/expect_error.h"
#include "support/gradcheck.h"
#include "support/process_threads.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "lethe/base/error.h"
#include "lethe/core/byte_accounting.h"
#include "lethe/recompute/recompute.h"

// A whole forward and backward with swapped layer inputs: rows F1, F6 to F8, F13, F14, G11 of the
// test matrix (spec 5 10).
namespace lethe {
namespace {

using test::chain_gradients;
using test::chain_loss;
using test::expect_error;
using test::make_swap_chain;
using test::SwapChain;
using test::TestTier;

constexpr int64_t kTokens = 48, kWidth = 64, kLayers = 5;
constexpr int64_t kInputBytes = kTokens * kWidth * 4;

class LayerInputSwapTest : public ::testing::Test {
 protected:
  LayerInputSwapTest() { install_byte_accounting(); }

  SwapChain chain_ = make_swap_chain(kLayers, kWidth, at::kFloat);
  at::Tensor x_ = at::randn({kTokens, kWidth}).requires_grad_();
};

SwapPolicy policy(int64_t distance = 1) {
  return {.num_layers = kLayers, .prefetch_distance = distance, .checked = true};
}

struct Step {
  at::Tensor loss;
  std::vector<at::Tensor> grads;
};

Step plain_step(const SwapChain& chain, const at::Tensor& x) {
  const at::Tensor loss = chain_loss(chain, x, nullptr);
  return {loss.detach(), chain_gradients(chain, x, loss)};
}

void expect_same(const Step& a, const Step& b, const std::string& what) {
  test::expect_bitwise(a.loss, b.loss, what + ": loss");
  ASSERT_EQ(a.grads.size(), b.grads.size());
  for (size_t i = 0; i < a.grads.size(); ++i)
    test::expect_bitwise(a.grads[i], b.grads[i], fmt::format("{}: gradient {}", what, i));
}

struct Threads {
  explicit Threads(int n) : before(at::get_num_threads()) { at::set_num_threads(n); }

  ~Threads() { at::set_num_threads(before); }

  int before;
};

TEST_F(LayerInputSwapTest, F1LossAndGradientsKeepEveryBit) {
  const test::TempFolder folder;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const int threads : {1, 2})
      for (const bool file : {false, true}) {
        const Threads set(threads);
        const SwapChain chain = make_swap_chain(kLayers, kWidth, dtype);
        const at::Tensor x = x_.detach().to(dtype).requires_grad_();
        const Step plain = plain_step(chain, x);
        for (const int64_t distance : {0, 1, 2, 9}) {
          const auto backend =
              make_cpu_swap_backend(1 << 22, file ? folder.path() : std::filesystem::path());
          LayerInputSwap swap("mb0", policy(distance), backend);
          const at::Tensor loss = chain_loss(chain, x, &swap);
          const Step swapped = {loss.detach(), chain_gradients(chain, x, loss)};
          expect_same(plain, swapped, fmt::format("distance {}, file {}", distance, file));
          const SwapStats stats = swap.stats();
          EXPECT_EQ(stats.entries_out, kLayers - 1);
          EXPECT_EQ(stats.entries_in, kLayers - 1);
          EXPECT_EQ(backend->report().host_bytes, 0);
        }
      }
}

TEST_F(LayerInputSwapTest, F7BytesAreThoseOfTheFormulaAndTheLiveBytesFallByThem) {
  const int64_t start = bytes().live;
  int64_t plain = 0;
  {
    const at::Tensor loss = chain_loss(chain_, x_, nullptr);
    plain = bytes().live - start;
  }
  TestTier tier;
  LayerInputSwap swap("mb0", policy(), tier.backend);
  const at::Tensor loss = chain_loss(chain_, x_, &swap);
  constexpr int64_t kSwapped = (kLayers - 1) * kInputBytes;
  EXPECT_EQ(plain - (bytes().live - start), kSwapped);
  EXPECT_EQ(tier.backend->report().host_bytes, kSwapped);
  EXPECT_EQ(swap.stats().bytes_out, kSwapped);
  for (int64_t i = 0; i + 1 < kLayers; ++i) EXPECT_EQ(swap.state_of(i), SwapState::Host) << i;
  EXPECT_EQ(swap.state_of(kLayers - 1), std::nullopt);
  (void)chain_gradients(chain_, x_, loss);
  const SwapStats stats = swap.stats();
  EXPECT_EQ(stats.bytes_in, kSwapped);
  EXPECT_EQ(stats.entries_out, stats.entries_in + stats.cancelled + stats.dropped);
  EXPECT_EQ(stats.prefetch_hits + stats.prefetch_misses, stats.entries_in);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
  EXPECT_EQ(tier.backend->report().host_bytes_peak, kSwapped);
  for (int64_t i = 0; i + 1 < kLayers; ++i) EXPECT_EQ(swap.state_of(i), SwapState::Restored) << i;
}

TEST_F(LayerInputSwapTest, F6MicroBatchesInReversedOrderGetTheirOwnBytes) {
  TestTier tier;
  const at::Tensor x[] = {x_, at::randn({kTokens, kWidth}).requires_grad_(), x_};
  std::vector<Step> plain;
  for (const at::Tensor& one : x) plain.push_back(plain_step(chain_, one));
  std::vector<std::unique_ptr<LayerInputSwap>> records;
  std::vector<at::Tensor> losses;
  for (const at::Tensor& one : x) {
    records.push_back(std::make_unique<LayerInputSwap>(
        fmt::format("mb{}", records.size()), policy(), tier.backend));
    losses.push_back(chain_loss(chain_, one, records.back().get()));
  }
  EXPECT_EQ(tier.backend->report().host_bytes, 3 * (kLayers - 1) * kInputBytes);
  for (const size_t i : {2, 1, 0})
    expect_same(plain[i],
                {losses[i].detach(), chain_gradients(chain_, x[i], losses[i])},
                fmt::format("micro-batch {}", i));
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

// What fits the limit with swap and does not without.
TEST_F(LayerInputSwapTest, F8ALimitBelowThePlainPeakHoldsWithSwapOnly) {
  // Long enough for activations to outweigh the gradients of the weights.
  const at::Tensor x = at::randn({20 * kTokens, kWidth}).requires_grad_();
  const auto peak_of = [&](LayerInputSwap* swap) {
    const int64_t start = bytes().live;
    reset_peak();
    const at::Tensor loss = chain_loss(chain_, x, swap);
    (void)chain_gradients(chain_, x, loss);
    return bytes().peak - start;
  };
  TestTier tier;
  const int64_t plain = peak_of(nullptr);
  LayerInputSwap first("mb0", policy(0), tier.backend), second("mb1", policy(0), tier.backend);
  const int64_t swapped = peak_of(&first);
  ASSERT_LT(swapped, plain);
  const Step expected = plain_step(chain_, x);
  const ByteLimit limit(bytes().live + swapped);
  expect_error<OutOfArena>([&] { (void)peak_of(nullptr); },
                           {"tensors [limit]: live bytes must be <=", "a request for", "swap or"});
  const at::Tensor loss = chain_loss(chain_, x, &second);
  const Step step = {loss.detach(), chain_gradients(chain_, x, loss)};
  expect_same(expected, step, "under the limit");
}

TEST_F(LayerInputSwapTest, ABackwardOnItsOwnHeelsCancelsTheLastCopy) {
  // Two layers, the second one never offered: nothing has released the first one's input.
  TestTier tier;
  LayerInputSwap swap("mb0", policy(), tier.backend);
  const at::Tensor input = x_ * 2;
  const at::Tensor expected = input.detach().clone();
  const at::Tensor out = input * input;
  tier.store->close();
  EXPECT_EQ(swap.offer(0, input), SwapVerdict::Swapped);
  swap.trigger_at(0, out);
  {
    const test::OpenLater opening(*tier.store);
    out.sum().backward();
  }
  EXPECT_EQ(swap.state_of(0), SwapState::Device);
  EXPECT_EQ(swap.stats().cancelled, 1);
  EXPECT_EQ(tier.store->reads, 0);
  test::expect_bitwise(x_.grad(), expected * 2 * 2, "gradient");
  x_.mutable_grad().reset();
}

TEST_F(LayerInputSwapTest, PrefetchBringsTheNextInputsWhileALayerIsInBackward) {
  for (const int64_t distance : {0, 1, 2}) {
    TestTier tier;
    LayerInputSwap swap("mb0", policy(distance), tier.backend);
    const at::Tensor loss = chain_loss(chain_, x_, &swap);
    swap.step_backward(kLayers - 1);
    for (int64_t i = 0; i + 1 < kLayers; ++i)
      EXPECT_EQ(swap.state_of(i),
                i >= kLayers - 1 - distance ? SwapState::H2dIssued : SwapState::Host);
    swap.step_backward(kLayers - 1);  // again: nothing
    swap.step_backward(kLayers - 2);
    EXPECT_EQ(swap.state_of(kLayers - 2), SwapState::Restored);
    EXPECT_GE(tier.store->reads, 1);
  }
}

TEST_F(LayerInputSwapTest, F14WaitsAndMissesOfAThrottledTierAreReported) {
  TestTier tier;
  tier.store->delay_ms = 5;
  LayerInputSwap swap("mb0", policy(0), tier.backend);
  const at::Tensor loss = chain_loss(chain_, x_, &swap);
  (void)chain_gradients(chain_, x_, loss);
  SwapStats stats = swap.stats();
  EXPECT_EQ(stats.prefetch_misses, kLayers - 1);
  EXPECT_EQ(stats.prefetch_hits, 0);
  EXPECT_GE(stats.wait_in_ns, (kLayers - 1) * 5'000'000);
  EXPECT_GT(stats.wait_out_ns, 0);
  const SwapStats once = stats;
  stats += once;
  EXPECT_EQ(stats.wait_in_ns, 2 * once.wait_in_ns);
  EXPECT_EQ(stats.offers_with(SwapVerdict::Swapped), 2 * (kLayers - 1));
}

TEST_F(LayerInputSwapTest, PrefetchedInputsOfAFastTierAreHits) {
  TestTier tier;
  LayerInputSwap swap("mb0", policy(1), tier.backend);
  const at::Tensor loss = chain_loss(chain_, x_, &swap);
  for (int64_t i = kLayers - 1; i >= 0; --i) {
    swap.step_backward(i);
    const HostBlock block = tier.backend->alloc_host(4, "a test");
    const float behind = 0;  // the prefetched copies
    tier.backend->wait(tier.backend->issue_out(&behind, block));
    tier.backend->free_host(block);
  }
  EXPECT_EQ(swap.stats().prefetch_hits, kLayers - 1);
  EXPECT_EQ(swap.stats().prefetch_misses, 0);
}

TEST_F(LayerInputSwapTest, RegionsAroundLayersReadTheirInputsWhenTheyAreBack) {
  const Step plain = plain_step(chain_, x_);
  TestTier tier;
  LayerInputSwap swap("mb0", policy(), tier.backend);
  Tape tape;
  const int64_t start = bytes().live;
  const at::Tensor loss = chain_loss(chain_, x_, &swap, &tape);
  // Left of five layers: the input of the last one, its output (for the loss), random state.
  EXPECT_EQ(bytes().live - start, 2 * kInputBytes + 4 + 5056);
  expect_same(plain, {loss.detach(), chain_gradients(chain_, x_, loss)}, "recompute and swap");
  for (const RegionReport& region : tape.report()) EXPECT_EQ(region.replays, 1) << region.name;
  EXPECT_EQ(swap.stats().entries_in, kLayers - 1);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST_F(LayerInputSwapTest, TheRecordMayDieBeforeBackward) {
  const Step plain = plain_step(chain_, x_);
  TestTier tier;
  at::Tensor loss;
  {
    LayerInputSwap swap("mb0", policy(), tier.backend);
    loss = chain_loss(chain_, x_, &swap);
  }
  expect_same(plain, {loss.detach(), chain_gradients(chain_, x_, loss)}, "no record");
}

TEST_F(LayerInputSwapTest, ASecondBackwardOverARetainedGraphFindsTheBytesInPlace) {
  const Step plain = plain_step(chain_, x_);
  TestTier tier;
  LayerInputSwap swap("mb0", policy(), tier.backend);
  const at::Tensor loss = chain_loss(chain_, x_, &swap);
  (void)torch::autograd::grad({loss}, {x_}, {}, /*retain_graph=*/true);
  expect_same(plain, {loss.detach(), chain_gradients(chain_, x_, loss)}, "second backward");
  EXPECT_EQ(swap.stats().entries_in, kLayers - 1);
}

TEST_F(LayerInputSwapTest, ABackwardThatLeavesTheOutputOutMeetsTheGuard) {
  TestTier tier;
  LayerInputSwap swap("mb0", policy(), tier.backend);
  const at::Tensor input = x_ * 2;
  const at::Tensor side = (input * input).sum(), out = input.exp();
  ASSERT_EQ(swap.offer(0, input), SwapVerdict::Swapped);
  swap.trigger_at(0, out);
  swap.settle();
  expect_error<c10::Error>([&] { side.backward(); },
                           {"swap L0.mb0 [released]", "the gradient of the layer's output"});
}

TEST_F(LayerInputSwapTest, F13AnExceptionInTheMiddleOfForwardFreesAll) {
  const int64_t before = bytes().live;
  TestTier tier;
  tier.store->delay_ms = 2;
  {
    LayerInputSwap swap("mb0", policy(), tier.backend);
    at::Tensor hidden = x_ * 2;
    try {
      for (int64_t i = 0; i < kLayers; ++i) {
        const at::Tensor input = hidden;
        hidden = input * input;
        swap.offer(i, input);
        swap.trigger_at(i, hidden);
        if (i == 2) throw std::runtime_error("a layer fails");
      }
    } catch (const std::runtime_error&) {
    }
    hidden.reset();
  }
  EXPECT_EQ(bytes().live, before);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST_F(LayerInputSwapTest, F13ACopyThatFailsEndsThePassAndTheNextOneIsRight) {
  const Step plain = plain_step(chain_, x_);
  const int64_t before = bytes().live;
  TestTier tier;
  {
    LayerInputSwap swap("mb0", policy(), tier.backend);
    tier.store->fail_writes = true;
    expect_error<DataError>([&] { (void)chain_loss(chain_, x_, &swap); },
                            {"swap L0.mb0 [copy]", "must go out to", "as it was told"});
    EXPECT_EQ(swap.stats().dropped, 1);
    tier.store->fail_writes = false;
  }
  {
    LayerInputSwap swap("mb1", policy(), tier.backend);
    const at::Tensor loss = chain_loss(chain_, x_, &swap);
    tier.store->fail_reads = true;
    expect_error<DataError>([&] { (void)chain_gradients(chain_, x_, loss); },
                            {"swap L3.mb1 [copy]", "must go back from", "as it was told"});
    tier.store->fail_reads = false;
    swap.drop();
    const SwapStats stats = swap.stats();
    EXPECT_EQ(stats.entries_out, stats.entries_in + stats.cancelled + stats.dropped);
  }
  EXPECT_EQ(bytes().live, before);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
  LayerInputSwap swap("mb2", policy(), tier.backend);
  const at::Tensor loss = chain_loss(chain_, x_, &swap);
  expect_same(plain, {loss.detach(), chain_gradients(chain_, x_, loss)}, "the next step");
}

TEST_F(LayerInputSwapTest, ATierThatIsTooSmallNamesTheEntriesAndTheWayOut) {
  TestTier tier(2 * kInputBytes + 4096);
  const int64_t before = bytes().live;
  {
    LayerInputSwap swap("mb0", policy(), tier.backend);
    expect_error<OutOfArena>([&] { (void)chain_loss(chain_, x_, &swap); },
                             {"swap L2.mb0 (entries of mb0: 2 Host) [budget]",
                              "must fit --offload-budget-mb",
                              "got 2 blocks with 24.0 KiB",
                              "raise --offload-budget-mb"});
  }
  EXPECT_EQ(bytes().live, before);
  EXPECT_EQ(tier.backend->report().host_bytes, 0);
}

TEST_F(LayerInputSwapTest, AHundredStepsLeaveNoBytesThreadsOrHostBlocks) {
  TestTier tier;
  const auto step = [&](int i) {
    LayerInputSwap swap(fmt::format("mb{}", i), policy(i % 3), tier.backend);
    const at::Tensor loss = chain_loss(chain_, x_, &swap);
    if (i % 4 != 3) (void)chain_gradients(chain_, x_, loss);  // every fourth is given up
  };
  for (int i = 0; i < 8; ++i) step(i);
  const int64_t live = bytes().live;
  const size_t threads = test::thread_names().size();
  for (int i = 0; i < 100; ++i) {
    step(i);
    ASSERT_EQ(bytes().live, live) << "step " << i;
    ASSERT_EQ(tier.backend->report().host_bytes, 0) << "step " << i;
    ASSERT_EQ(tier.backend->report().host_blocks, 0) << "step " << i;
  }
  EXPECT_EQ(test::thread_names().size(), threads);
  EXPECT_EQ(tier.backend->report().host_bytes_peak, (kLayers - 1) * kInputBytes);
}

}  // namespace
}  // namespace lethe
