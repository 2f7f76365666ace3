#pragma once

#include <cstdint>

#include <c10/core/alignment.h>

#include "lethe/core/byte_accounting.h"
#include "lethe/core/live_blocks.h"

namespace lethe {

/// Who made a block and what it shows: numbers of texts, 0 = none.
struct BlockLabels {
  uint32_t layer = 0, node = 0, shape = 0, dtype = 0;
};

/// Stands before every counted storage. A whole alignment unit, so that the data behind it stays
/// aligned.
struct alignas(c10::gAlignment) CountedBlock {
  int64_t size = 0;
  ByteCategory category = ByteCategory::Temporaries;
  BlockLabels labels;
  CountedBlock *before = nullptr, *after = nullptr;  // in the list of a watch; nullptr: in none
};

static_assert(sizeof(CountedBlock) == c10::gAlignment);

/// The blocks of a watch, oldest first. Without a lock of its own. Blocks leave it before they die.
class WatchedBlocks final {
 public:
  WatchedBlocks() { end_.before = end_.after = &end_; }

  WatchedBlocks(const WatchedBlocks&) = delete;
  WatchedBlocks& operator=(const WatchedBlocks&) = delete;

  void add(CountedBlock& block) {
    block.before = end_.before;
    block.after = &end_;
    end_.before->after = &block;
    end_.before = &block;
  }

  void remove(CountedBlock& block) {
    block.before->after = block.after;
    block.after->before = block.before;
    block.before = block.after = nullptr;
  }

  void clear() {
    while (end_.after != &end_) remove(*end_.after);
  }

  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const CountedBlock* block = end_.after; block != &end_; block = block->after)
      visit(*block);
  }

 private:
  CountedBlock end_;
};

/// The labels of what this thread allocates now.
BlockLabels labels_of_thread();

/// The text of a label; "" for 0.
std::string label_text(uint32_t label);

// The allocator's side of a watch (byte_accounting.cpp).

/// False where it is that already.
bool set_watching(bool on);
LiveBlocks blocks_now();
/// The block of the tensor where a watch has it and no tensor has shown it; else nullptr.
CountedBlock* nameless_block(const at::Tensor& tensor);
/// Once; later calls change nothing.
void set_shape(CountedBlock& block, uint32_t shape, uint32_t dtype);

}  // namespace lethe
