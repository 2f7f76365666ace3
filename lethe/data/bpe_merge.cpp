#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "lethe/data/bpe_merge_impl.h"

namespace lethe::detail {
namespace {

constexpr size_t kCacheSlots = size_t{1} << 16;   // 4 MiB
constexpr size_t kKeptSymbols = size_t{1} << 20;  // of a longer word, the memory is given back
constexpr int32_t kMerged = -1;  // id of a symbol that its left neighbour has taken

using Symbol = MergeScratch::Symbol;
using Candidate = MergeScratch::Candidate;

// Order of std::push_heap, whose front is the largest: lowest rank, then leftmost.
bool merges_later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
}

void push_candidate(int32_t at, const MergeTable& merges, MergeScratch& scratch) {
  const auto& symbols = scratch.symbols;
  if (at < 0 || symbols[static_cast<size_t>(at)].next < 0) return;
  const Symbol& left = symbols[static_cast<size_t>(at)];
  const auto* result = merges.find(left.id, symbols[static_cast<size_t>(left.next)].id);
  if (result == nullptr) return;
  scratch.heap.push_back({result->rank, at, result->merged});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), merges_later);
}

// The pair has changed since the candidate was pushed, if it no longer merges into the same.
bool is_stale(const Candidate& candidate, const MergeTable& merges, const MergeScratch& scratch) {
  const Symbol& left = scratch.symbols[static_cast<size_t>(candidate.at)];
  if (left.id == kMerged || left.next < 0) return true;
  const auto* result = merges.find(left.id, scratch.symbols[static_cast<size_t>(left.next)].id);
  return result == nullptr || result->rank != candidate.rank;
}

void take_right_neighbour(int32_t at, int32_t merged, MergeScratch& scratch) {
  Symbol& left = scratch.symbols[static_cast<size_t>(at)];
  Symbol& right = scratch.symbols[static_cast<size_t>(left.next)];
  left.id = merged;
  right.id = kMerged;
  left.next = right.next;
  if (right.next >= 0) scratch.symbols[static_cast<size_t>(right.next)].previous = at;
}

}  // namespace

MergeTable::MergeTable(std::span<const Merge> merges)
    : slots_(std::bit_ceil(2 * merges.size() + 2)), mask_(slots_.size() - 1) {
  for (const Merge& merge : merges) {
    const uint64_t key = key_of(merge.left, merge.right);
    size_t at = slot_of(key);
    while (slots_[at].key != kEmpty) at = (at + 1) & mask_;
    slots_[at] = {key, {merge.rank, merge.merged}};
  }
}

WordCache::WordCache() : slots_(kCacheSlots) {}

size_t WordCache::slot_of(std::string_view word) {
  return std::hash<std::string_view>()(word) & (kCacheSlots - 1);
}

bool WordCache::find(std::string_view word, std::vector<int32_t>& out) const {
  if (word.size() > kWordBytes) return false;
  const Slot& slot = slots_[slot_of(word)];
  if (slot.word_bytes != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0)
    return false;
  out.insert(out.end(), slot.ids, slot.ids + slot.num_ids);
  return true;
}

void WordCache::keep(std::string_view word, std::span<const int32_t> ids) {
  if (word.size() > kWordBytes || ids.size() > kNumIds) return;
  Slot& slot = slots_[slot_of(word)];
  slot.word_bytes = static_cast<uint8_t>(word.size());
  slot.num_ids = static_cast<uint8_t>(ids.size());
  std::memcpy(slot.word, word.data(), word.size());
  std::copy(ids.begin(), ids.end(), slot.ids);
}

void merge_word(std::string_view word,
                const std::array<int32_t, 256>& byte_ids,
                const MergeTable& merges,
                MergeScratch& scratch,
                std::vector<int32_t>& out) {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto size = static_cast<int32_t>(word.size());
  symbols.clear();
  heap.clear();
  symbols.reserve(word.size());
  for (int32_t i = 0; i < size; ++i)
    symbols.push_back({byte_ids[static_cast<unsigned char>(word[static_cast<size_t>(i)])],
                       i - 1,
                       i + 1 < size ? i + 1 : -1});
  for (int32_t i = 0; i + 1 < size; ++i) push_candidate(i, merges, scratch);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), merges_later);
    const Candidate candidate = heap.back();
    heap.pop_back();
    if (is_stale(candidate, merges, scratch)) continue;
    take_right_neighbour(candidate.at, candidate.merged, scratch);
    push_candidate(symbols[static_cast<size_t>(candidate.at)].previous, merges, scratch);
    push_candidate(candidate.at, merges, scratch);
  }
  for (const Symbol& symbol : symbols)
    if (symbol.id != kMerged) out.push_back(symbol.id);
  if (word.size() > kKeptSymbols) scratch = {};
}

}  // namespace lethe::detail
