#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lethe::detail {

/// Two neighbouring tokens become one. Lower rank merges first.
struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t rank = 0;
  int32_t merged = 0;
};

/// Merges by their pair, in one open-addressed table.
class MergeTable {
 public:
  struct Result {
    int32_t rank = 0;
    int32_t merged = 0;
  };

  MergeTable() : MergeTable(std::span<const Merge>()) {}

  /// merges: pairs are distinct; ids and ranks >= 0.
  explicit MergeTable(std::span<const Merge> merges);

  /// nullptr: the pair does not merge.
  [[nodiscard]] const Result* find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = slot_of(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return &slot.result;
      if (slot.key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no pair: ids are not negative

  struct Slot {
    uint64_t key = kEmpty;
    Result result;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }

  // The high half of a product by 2^64 / golden ratio.
  [[nodiscard]] size_t slot_of(uint64_t key) const {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask_;
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t mask_ = 0;
};

/// Ids of words merged before: direct-mapped, of fixed size. What it holds never changes a result.
class WordCache {
 public:
  WordCache();

  /// Appends the ids of `word` to `out` if they are here.
  bool find(std::string_view word, std::vector<int32_t>& out) const;

  /// Keeps the ids unless word or ids are too long for a slot; takes the place of another word.
  void keep(std::string_view word, std::span<const int32_t> ids);

 private:
  static constexpr size_t kWordBytes = 30;
  static constexpr size_t kNumIds = 8;

  struct alignas(64) Slot {
    uint8_t word_bytes = 0;  // 0: empty
    uint8_t num_ids = 0;
    char word[kWordBytes];
    int32_t ids[kNumIds];
  };

  static size_t slot_of(std::string_view word);

  std::vector<Slot> slots_;
};

/// Working memory of merge_word(): about 50 bytes per byte of the word. Empty after one above 1
/// MiB.
struct MergeScratch {
  struct Symbol {
    int32_t id;
    int32_t previous;  // index of the neighbour, -1: none
    int32_t next;
  };

  // Left neighbours that can merge with their right ones; stale once either has changed.
  struct Candidate {
    int32_t rank;
    int32_t at;
    int32_t merged;
  };

  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

/// Byte-pair encoding of one word (a piece of text that merges do not leave): again and again the
/// pair of lowest rank merges, of equal ones the leftmost, until none can. O(n log n).
/// byte_ids: the id of each byte. word: below 2^31 bytes. Appends to `out`.
void merge_word(std::string_view word,
                const std::array<int32_t, 256>& byte_ids,
                const MergeTable& merges,
                MergeScratch& scratch,
                std::vector<int32_t>& out);

}  // namespace lethe::detail
