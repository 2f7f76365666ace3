#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lethe {

/// Label of a token whose loss is not counted.
inline constexpr int64_t kIgnoredLabel = -100;

/// Documents of one packed row of tokens, by their cumulative starts (model spec 11).
/// All rules of the model are per document: positions restart at 0, the window, the slots and the
/// top-k never cross a boundary, and a document of length n has floor(n / ratio) slots.
class Documents {
 public:
  /// cu_seqlens: [N+1], first 0, strictly increasing. Throws ShapeError naming the first bad entry.
  explicit Documents(std::span<const int32_t> cu_seqlens);

  /// From the documents' lengths, each >= 1.
  static Documents from_lengths(std::span<const int64_t> lengths);

  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(starts_.size()) - 1; }

  [[nodiscard]] int64_t tokens() const { return starts_.back(); }

  [[nodiscard]] int64_t begin(int64_t doc) const { return starts_[static_cast<size_t>(doc)]; }

  [[nodiscard]] int64_t end(int64_t doc) const { return starts_[static_cast<size_t>(doc) + 1]; }

  [[nodiscard]] int64_t length(int64_t doc) const { return end(doc) - begin(doc); }

  [[nodiscard]] int64_t longest() const;

  [[nodiscard]] const std::vector<int32_t>& cu_seqlens() const { return starts_; }

  /// Position of every token inside its document, [T].
  [[nodiscard]] std::vector<int64_t> positions() const;

  /// Cumulative slot counts, [N+1], from the real lengths: cu[d+1] - cu[d] = floor(length(d) /
  /// ratio). ratio >= 2.
  [[nodiscard]] std::vector<int32_t> cu_slots(int64_t ratio) const;

  /// Position (first token of its own window, j * ratio) of every slot, [C].
  [[nodiscard]] std::vector<int64_t> slot_positions(int64_t ratio) const;

 private:
  Documents() = default;
  std::vector<int32_t> starts_;
};

/// Slots that a query at document position p may see: those whose window is complete at p,
/// (p + 1) / ratio, at most the document's own count (model spec 5.3).
[[nodiscard]] inline int64_t visible_slots(int64_t position, int64_t ratio, int64_t slots) {
  const int64_t complete = (position + 1) / ratio;
  return complete < slots ? complete : slots;
}

}  // namespace lethe
