#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/core/byte_accounting.h"

namespace at {
class Tensor;
}

// Who holds the counted bytes, block by block: what a census is made of (spec 3 6.6). Off by
// default; then an allocation and a tag cost a branch each.
namespace lethe {

/// One counted storage.
struct LiveBlock {
  int64_t bytes = 0;
  ByteCategory category = ByteCategory::Temporaries;
  std::string layer, node;   // of the innermost ProducerTag of the allocation; empty: none
  std::string shape, dtype;  // of the first tensor that showed it: "[4,8]", "float32"; empty: none
};

/// All counted bytes of one moment: blocks and older ones together are ByteReport::live.
struct LiveBlocks {
  std::vector<LiveBlock> blocks;                       // of the watch, in the order of allocation
  std::array<int64_t, kNumByteCategories> older{};     // bytes of blocks from before it
  std::array<int64_t, kNumByteCategories> category{};  // ByteReport::category_live of the moment

  [[nodiscard]] int64_t of(ByteCategory c) const { return category[static_cast<size_t>(c)]; }
};

/// While it lives, the allocator keeps a list of what all threads allocate, and operators tell the
/// shapes of what they return. One at a time.
class [[nodiscard]] BlockWatch final {
 public:
  /// Throws ConfigError: byte accounting is not installed, or another watch lives.
  BlockWatch();
  ~BlockWatch();
  BlockWatch(const BlockWatch&) = delete;
  BlockWatch& operator=(const BlockWatch&) = delete;

  [[nodiscard]] LiveBlocks live() const;

 private:
  uint64_t observer_;
};

/// Blocks that this thread allocates during its life were made by `node` of `layer`; tags nest, the
/// innermost counts. Texts are read while a watch lives, and not kept.
class [[nodiscard]] ProducerTag final {
 public:
  ProducerTag(std::string_view layer, std::string_view node);
  /// In the layer of the tag outside.
  explicit ProducerTag(std::string_view node);
  ~ProducerTag();
  ProducerTag(const ProducerTag&) = delete;
  ProducerTag& operator=(const ProducerTag&) = delete;

  /// From here on another node of the same layer.
  void set_node(std::string_view node);

 private:
  uint32_t outer_layer_, outer_node_;
};

/// Tells the shape of a block that no operator of the dispatcher returned. Nothing without a watch.
void describe_block(const at::Tensor& tensor);

}  // namespace lethe
