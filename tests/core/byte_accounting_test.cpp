#include "lethe/core/byte_accounting.h"

#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/expect_error.h"
#include <gtest/gtest.h>

#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>

#include "lethe/base/error.h"
#include "lethe/core/node.h"

namespace lethe {
namespace {

constexpr int64_t kSize = 1000;  // elements; 4000 bytes are no multiple of the alignment

// A static constructor: before any test, so before the installation.
at::Tensor made_before_installation = at::ones({kSize});
const bool installed_at_start = byte_accounting_installed();

class ByteAccounting : public ::testing::Test {
 protected:
  void SetUp() override { install_byte_accounting(); }
};

int64_t live() {
  return bytes().live;
}

int64_t live_of(ByteCategory category) {
  return bytes().live_of(category);
}

TEST_F(ByteAccounting, OlderTensorsAreValidAndFreeThemselvesUncounted) {
  ASSERT_FALSE(installed_at_start);
  ASSERT_TRUE(byte_accounting_installed());
  const int64_t before = live();
  EXPECT_EQ(made_before_installation.sum().item<float>(), kSize);
  made_before_installation = at::Tensor();
  EXPECT_EQ(live(), before);
}

TEST_F(ByteAccounting, InstallingAgainChangesNothing) {
  const c10::Allocator* const allocator = c10::GetAllocator(c10::kCPU);
  const at::Tensor held = at::empty({kSize});
  const int64_t before = live();
  install_byte_accounting();
  EXPECT_EQ(c10::GetAllocator(c10::kCPU), allocator);
  EXPECT_EQ(live(), before);
}

TEST_F(ByteAccounting, AStorageCountsItsRequestedBytesUntilItIsFreed) {
  const int64_t before = live();
  for (const int64_t n : {1, 3, 63, 64, 65, 1000003}) {
    const at::Tensor t = at::empty({n}, at::kByte);
    EXPECT_EQ(live() - before, n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data_ptr()) % 64, 0u) << n;
  }
  EXPECT_EQ(live(), before);
}

TEST_F(ByteAccounting, AChainOfSquaresSavesExactlyFourBytesPerElementAndLink) {
  for (const int64_t n : {1, 7, 1000, 4097})
    for (const int64_t links : {1, 2, 5, 16}) {
      const int64_t at_start = live();
      {
        const at::Tensor x = at::full({n}, 1.5).requires_grad_();
        const int64_t before = live();
        at::Tensor y = x;
        for (int64_t i = 0; i < links; ++i) y = y.square();
        EXPECT_EQ(live() - before, 4 * n * links) << n << " elements, " << links << " links";
      }
      EXPECT_EQ(live(), at_start);
    }
}

TEST_F(ByteAccounting, BackwardLeavesOnlyTheGradient) {
  const at::Tensor x = at::full({kSize}, 0.5).requires_grad_();
  const int64_t before = live();
  x.square().square().sum().backward();
  EXPECT_EQ(live() - before, 4 * kSize);
  x.mutable_grad().reset();
  EXPECT_EQ(live(), before);
}

TEST_F(ByteAccounting, PeakIsTheHighestLiveValueSinceTheReset) {
  const at::Tensor held = at::empty({kSize});
  reset_peak();
  const int64_t before = live();
  EXPECT_EQ(bytes().peak, before);
  at::Tensor a = at::empty({kSize}), b = at::empty({2 * kSize});
  a = at::Tensor();
  b = at::empty({kSize});  // the old b still lives while the new one is made
  EXPECT_EQ(bytes().peak, before + 12 * kSize);
  EXPECT_EQ(live(), before + 4 * kSize);
  reset_peak();
  EXPECT_EQ(bytes().peak, before + 4 * kSize);
}

TEST_F(ByteAccounting, TheInnermostTagOfTheAllocationOwnsAStorageUntilItIsFreed) {
  const ByteReport before = bytes();
  at::Tensor untagged = at::empty({1}), outer, inner, outer_again;
  {
    const ByteTag parameters(ByteCategory::Parameters);
    outer = at::empty({2});
    {
      const ByteTag optimizer(ByteCategory::Optimizer);
      inner = at::empty({4});
    }
    outer_again = at::empty({8});
  }
  const auto grown = [&](ByteCategory c) { return live_of(c) - before.live_of(c); };
  EXPECT_EQ(grown(ByteCategory::Temporaries), 4);
  EXPECT_EQ(grown(ByteCategory::Parameters), 4 * (2 + 8));
  EXPECT_EQ(grown(ByteCategory::Optimizer), 4 * 4);
  {
    const ByteTag activations(ByteCategory::Activations);
    inner = at::Tensor();  // freed under another tag
  }
  EXPECT_EQ(grown(ByteCategory::Optimizer), 0);
  EXPECT_EQ(grown(ByteCategory::Activations), 0);
}

TEST_F(ByteAccounting, EachCategoryHasItsOwnPeakAndTheySumToLive) {
  const ByteTag tag(ByteCategory::Activations);
  const at::Tensor held = at::empty({kSize});
  reset_peak();
  const int64_t before = live_of(ByteCategory::Activations);
  { const at::Tensor t = at::empty({kSize}); }
  const ByteReport report = bytes();
  EXPECT_EQ(report.peak_of(ByteCategory::Activations), before + 4 * kSize);
  EXPECT_EQ(report.live_of(ByteCategory::Activations), before);
  int64_t sum = 0;
  for (const int64_t category : report.category_live) sum += category;
  EXPECT_EQ(sum, report.live);
}

TEST_F(ByteAccounting, ABackwardPassRunsUnderTheTagOfItsCaller) {
  const at::Tensor x = at::full({kSize}, 0.5).requires_grad_();
  const at::Tensor loss = x.square().sum();
  const int64_t before = live_of(ByteCategory::Gradients);
  {
    const ByteTag tag(ByteCategory::Gradients);
    loss.backward();
  }
  EXPECT_EQ(live_of(ByteCategory::Gradients) - before, 4 * kSize);
}

TEST_F(ByteAccounting, ThePeakIsSplitIntoWhatEachCategoryHeldAtItsMoment) {
  const ByteTag outer(ByteCategory::Temporaries);
  at::Tensor parameter, moment;
  {
    const ByteTag tag(ByteCategory::Parameters);
    parameter = at::empty({kSize});
  }
  reset_peak();
  const ByteReport before = bytes();
  EXPECT_EQ(before.at_peak, before.category_live);
  {
    const at::Tensor temporary = at::empty({3 * kSize});  // the peak is here
  }
  {
    const ByteTag tag(ByteCategory::Optimizer);
    moment = at::empty({2 * kSize});
  }
  const ByteReport after = bytes();
  const auto at_peak = [](const ByteReport& r, ByteCategory c) {
    return r.at_peak[static_cast<size_t>(c)];
  };
  EXPECT_EQ(at_peak(after, ByteCategory::Temporaries),
            at_peak(before, ByteCategory::Temporaries) + 12 * kSize);
  EXPECT_EQ(at_peak(after, ByteCategory::Optimizer), at_peak(before, ByteCategory::Optimizer));
  int64_t sum = 0;
  for (const int64_t category : after.at_peak) sum += category;
  EXPECT_EQ(sum, after.peak);
}

TEST_F(ByteAccounting, WhatAnOperatorSavesIsAnActivationUntilItIsFreed) {
  const at::Tensor x = at::full({kSize}, 0.5).requires_grad_();
  const int64_t before = live_of(ByteCategory::Activations);
  {
    const at::Tensor kept = at::empty({kSize}), y = at::empty({kSize});
    EXPECT_EQ(live_of(ByteCategory::Activations), before);
    record("test::op", {x}, {y}, {kept}, [](const BackwardInput& in) { return Tensors{in.grads}; });
    EXPECT_EQ(live_of(ByteCategory::Activations), before + 4 * kSize);
  }
  EXPECT_EQ(live_of(ByteCategory::Activations), before);
}

TEST_F(ByteAccounting, SavedParametersStayParameters) {
  at::Tensor weight;
  {
    const ByteTag tag(ByteCategory::Parameters);
    weight = at::full({kSize}, 0.5).requires_grad_();
  }
  const ByteReport before = bytes();
  const at::Tensor y = at::empty({kSize});
  record("test::op", {weight}, {y}, {weight}, [](const BackwardInput& in) {
    return Tensors{in.grads};
  });
  EXPECT_EQ(live_of(ByteCategory::Parameters), before.live_of(ByteCategory::Parameters));
  EXPECT_EQ(live_of(ByteCategory::Activations), before.live_of(ByteCategory::Activations));
}

TEST_F(ByteAccounting, AGradientIsCountedAsOneFromItsArrival) {
  const at::Tensor x = at::full({kSize}, 0.5).requires_grad_();
  count_gradients_of(x);
  const int64_t before = live_of(ByteCategory::Gradients);
  for (int pass = 0; pass < 2; ++pass) {  // accumulation keeps one gradient
    x.square().sum().backward();
    EXPECT_EQ(live_of(ByteCategory::Gradients), before + 4 * kSize);
  }
  x.mutable_grad().reset();
  EXPECT_EQ(live_of(ByteCategory::Gradients), before);
}

TEST_F(ByteAccounting, OtherThreadsMayAllocateAndFree) {
  const ByteReport before = bytes();
  std::vector<at::Tensor> made_here;
  {
    const ByteTag tag(ByteCategory::Parameters);
    for (int i = 0; i < 64; ++i) made_here.push_back(at::empty({kSize + i}));
  }
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&made_here, t] {
      const ByteTag tag(ByteCategory::Activations);
      for (int i = 0; i < 500; ++i) const at::Tensor own = at::empty({i + 1});
      for (size_t i = t; i < made_here.size(); i += 4) made_here[i] = at::Tensor();
    });
  for (std::thread& thread : threads) thread.join();
  const ByteReport after = bytes();
  EXPECT_EQ(after.live, before.live);
  EXPECT_EQ(after.category_live, before.category_live);
  EXPECT_GE(after.peak, before.live + 4 * 64 * kSize);
}

TEST_F(ByteAccounting, RawAllocationsAreCountedAndFreed) {
  c10::Allocator* const allocator = c10::GetAllocator(c10::kCPU);
  const int64_t before = live();
  void* const block = allocator->raw_allocate(123);
  EXPECT_EQ(live() - before, 123);
  allocator->raw_deallocate(block);
  EXPECT_EQ(live(), before);
}

TEST_F(ByteAccounting, ClonedAllocationsHoldTheSameBytes) {
  c10::Allocator* const allocator = c10::GetAllocator(c10::kCPU);
  const std::string text = "one allocation";
  const int64_t before = live();
  {
    const c10::DataPtr copy = allocator->clone(text.data(), text.size());
    EXPECT_EQ(std::string(static_cast<const char*>(copy.get()), text.size()), text);
    EXPECT_TRUE(allocator->is_simple_data_ptr(copy));
    EXPECT_EQ(live() - before, static_cast<int64_t>(text.size()));
  }
  EXPECT_EQ(live(), before);
}

TEST_F(ByteAccounting, EmptyTensorsAndForeignMemoryCountNothing) {
  const int64_t before = live();
  const at::Tensor empty = at::empty({0, 7});
  std::vector<float> own(kSize, 2.0F);
  const at::Tensor view = at::from_blob(own.data(), {kSize});
  void* const nothing = c10::GetAllocator(c10::kCPU)->raw_allocate(0);
  c10::GetAllocator(c10::kCPU)->raw_deallocate(nothing);
  EXPECT_EQ(live(), before);
}

TEST_F(ByteAccounting, ResizingAStorageCountsItsNewSize) {
  const int64_t before = live();
  at::Tensor t = at::full({10}, 3.0F);
  t.resize_({100});
  EXPECT_EQ(live() - before, 400);
  EXPECT_EQ(t[9].item<float>(), 3.0F);
}

TEST_F(ByteAccounting, AStoragesCategoryIsKnownWhereItIsCounted) {
  const ByteTag tag(ByteCategory::Optimizer);
  const at::Tensor t = at::empty({kSize});
  EXPECT_EQ(category_of(t.view({-1, 10})), ByteCategory::Optimizer);
  std::vector<float> own(kSize);
  EXPECT_EQ(category_of(at::from_blob(own.data(), {kSize})), std::nullopt);
  EXPECT_EQ(category_of({}), std::nullopt);
}

TEST_F(ByteAccounting, ALimitRefusesTheStorageThatWouldExceedItAndCountsNothing) {
  const int64_t before = live();
  {
    const ByteLimit limit(before + 4 * kSize);
    const at::Tensor fits = at::empty({kSize});
    const auto one_more = [] { (void)at::empty({1}); };
    test::expect_error<OutOfArena>(
        one_more, {"tensors [limit]: live bytes must be <=", "a request for 4 more", "raise the"});
    {
      const ByteLimit inner(before + 4 * kSize + 4);
      EXPECT_NO_THROW(one_more());
    }
    EXPECT_THROW(one_more(), OutOfArena);
    EXPECT_THROW((void)at::empty({int64_t{1} << 60}, at::kByte), OutOfArena);
    EXPECT_EQ(live(), before + 4 * kSize);
  }
  EXPECT_EQ(live(), before);
  EXPECT_NO_THROW((void)at::empty({2 * kSize}));
}

TEST_F(ByteAccounting, CategoriesHaveDistinctNames) {
  EXPECT_STREQ(name_of(ByteCategory::Parameters), "parameters");
  EXPECT_STREQ(name_of(ByteCategory::Gradients), "gradients");
  EXPECT_STREQ(name_of(ByteCategory::Optimizer), "optimizer");
  EXPECT_STREQ(name_of(ByteCategory::Activations), "activations");
  EXPECT_STREQ(name_of(ByteCategory::Temporaries), "temporaries");
}

}  // namespace
}  // namespace lethe
