#include "lethe/core/live_blocks.h"

#include <numeric>
#include <optional>
#include <thread>

#include "support/expect_error.h"
#include <gtest/gtest.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

class LiveBlocksTest : public ::testing::Test {
 protected:
  void SetUp() override { install_byte_accounting(); }
};

/// The blocks that `node` made.
std::vector<LiveBlock> made_by(const BlockWatch& watch, const std::string& node) {
  std::vector<LiveBlock> found;
  for (LiveBlock& block : watch.live().blocks)
    if (block.node == node) found.push_back(std::move(block));
  return found;
}

int64_t sum(const std::vector<LiveBlock>& blocks) {
  int64_t bytes = 0;
  for (const LiveBlock& block : blocks) bytes += block.bytes;
  return bytes;
}

TEST_F(LiveBlocksTest, BlocksAndOlderOnesAreTheLiveBytesOfEachCategory) {
  const at::Tensor older = at::empty({1000});
  const BlockWatch watch;
  const int64_t before = bytes().live;
  at::Tensor a = at::empty({10}), b;
  {
    const ByteTag tag(ByteCategory::Optimizer);
    b = at::empty({7}, at::kByte);
  }
  const LiveBlocks now = watch.live();
  ASSERT_EQ(now.blocks.size(), 2u);
  EXPECT_EQ(sum(now.blocks), 47);
  EXPECT_EQ(std::accumulate(now.older.begin(), now.older.end(), int64_t{0}), before);
  std::array<int64_t, kNumByteCategories> by_category = now.older;
  for (const LiveBlock& block : now.blocks)
    by_category[static_cast<size_t>(block.category)] += block.bytes;
  EXPECT_EQ(by_category, bytes().category_live);
  EXPECT_EQ(now.of(ByteCategory::Optimizer), bytes().live_of(ByteCategory::Optimizer));
  a.reset();
  EXPECT_EQ(sum(watch.live().blocks), 7);
}

// Texts are kept for shapes that come again: of these pairs each could be taken for the other.
TEST_F(LiveBlocksTest, ShapesAndTypesAreToldApart) {
  const BlockWatch watch;
  const ProducerTag tag("L0", "pairs");
  std::vector<at::Tensor> held;
  std::vector<std::string> want;
  const auto make = [&](at::IntArrayRef sizes, at::ScalarType type, const char* text) {
    held.push_back(at::empty(sizes, type));
    want.emplace_back(text);
  };
  for (int round = 0; round < 2; ++round) {
    make({1, 32}, at::kFloat, "[1,32] float32");
    make({2, 1}, at::kFloat, "[2,1] float32");
    make({6}, at::kFloat, "[6] float32");
    make({262}, at::kFloat, "[262] float32");
    make({100}, at::kFloat, "[100] float32");
    make({69}, at::kDouble, "[69] float64");
  }
  std::vector<std::string> got;
  for (const LiveBlock& block : made_by(watch, "pairs"))
    got.push_back(block.shape + " " + block.dtype);
  EXPECT_EQ(got, want);
}

TEST_F(LiveBlocksTest, ABlockKnowsWhoMadeItAndWhatItShows) {
  const BlockWatch watch;
  at::Tensor q, k, loss;
  {
    ProducerTag layer("L3", "attn.q");
    q = at::empty({4, 8});
    {
      const ProducerTag inner("attn.k");
      k = at::empty({6}, at::kLong);
    }
    layer.set_node("attn.loss");
    (void)q.view({8, 4});
    loss = at::full({}, 1.0);
  }
  const at::Tensor nameless = at::empty({3});
  const auto of_q = made_by(watch, "attn.q");
  ASSERT_EQ(of_q.size(), 1u);
  EXPECT_EQ(of_q[0].layer, "L3");
  EXPECT_EQ(of_q[0].shape, "[4,8]");  // not that of the later view
  EXPECT_EQ(of_q[0].dtype, "float32");
  EXPECT_EQ(of_q[0].bytes, 128);
  const auto of_k = made_by(watch, "attn.k");
  ASSERT_EQ(of_k.size(), 1u);
  EXPECT_EQ(of_k[0].layer, "L3");
  EXPECT_EQ(of_k[0].dtype, "int64");
  const auto of_loss = made_by(watch, "attn.loss");
  ASSERT_EQ(of_loss.size(), 1u);
  EXPECT_EQ(of_loss[0].shape, "[]");
  ASSERT_EQ(made_by(watch, "").size(), 1u);
  EXPECT_EQ(made_by(watch, "")[0].layer, "");
}

TEST_F(LiveBlocksTest, ABlockThatNoOperatorReturnedCanBeDescribed) {
  const BlockWatch watch;
  c10::Allocator* const allocator = c10::GetAllocator(c10::kCPU);
  c10::Storage storage(c10::Storage::use_byte_size_t(), 24, allocator, true);
  ASSERT_EQ(watch.live().blocks.size(), 1u);
  EXPECT_EQ(watch.live().blocks[0].shape, "");
  at::Tensor t =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                               c10::DispatchKeySet(c10::DispatchKey::CPU),
                                               caffe2::TypeMeta::Make<float>());
  t.unsafeGetTensorImpl()->set_sizes_contiguous({2, 3});
  describe_block(t);
  EXPECT_EQ(watch.live().blocks[0].shape, "[2,3]");
}

TEST_F(LiveBlocksTest, BlocksMayOutliveTheWatchAndTheNextOneStartsAnew) {
  std::optional<BlockWatch> watch(std::in_place);
  at::Tensor a = at::empty({5});
  watch.reset();
  const at::Tensor between = at::empty({5});
  watch.emplace();
  EXPECT_TRUE(watch->live().blocks.empty());
  const int64_t before = bytes().live;
  a.reset();
  EXPECT_EQ(bytes().live, before - 20);
  EXPECT_TRUE(watch->live().blocks.empty());
}

TEST_F(LiveBlocksTest, OneWatchMayLive) {
  const BlockWatch watch;
  test::expect_error<ConfigError>([] { const BlockWatch second; },
                                  {"block watch", "one watch may live", "got a second"});
  const at::Tensor t = at::empty({5});
  EXPECT_EQ(watch.live().blocks.size(), 1u);
}

TEST_F(LiveBlocksTest, ThreadsMayAllocateAndFreeWhileAnotherLooks) {
  const BlockWatch watch;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([] {
      const ProducerTag tag("L0", "thread");
      for (int i = 0; i < 300; ++i) const at::Tensor own = at::zeros({i + 1}).add(1);
    });
  for (int i = 0; i < 50; ++i)
    for (const LiveBlock& block : watch.live().blocks) EXPECT_EQ(block.node, "thread");
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(watch.live().blocks.empty());
}

}  // namespace
}  // namespace lethe
