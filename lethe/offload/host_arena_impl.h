#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace lethe {

/// Which bytes of [0, capacity) are taken: first fit, in whole pages. Layer inputs have one size,
/// so holes fit the next ones. Not thread-safe.
class HostArena {
 public:
  /// Offsets and the room of a block are multiples of it: what files and direct copies ask for.
  static constexpr int64_t kPage = 4096;

  explicit HostArena(int64_t capacity);

  /// The offset of `bytes` > 0; nothing where no hole is large enough.
  [[nodiscard]] std::optional<int64_t> take(int64_t bytes);

  /// Gives back what take() returned.
  void give(int64_t offset);

  [[nodiscard]] int64_t live() const { return live_; }  // bytes asked for

  [[nodiscard]] int64_t peak() const { return peak_; }  // highest live()

  [[nodiscard]] int64_t blocks() const { return static_cast<int64_t>(taken_.size()); }

  [[nodiscard]] int64_t largest_hole() const;

 private:
  static int64_t room_for(int64_t bytes);

  std::map<int64_t, int64_t> holes_;  // room by offset; never adjacent
  std::map<int64_t, int64_t> taken_;  // bytes asked for, by offset
  int64_t live_ = 0, peak_ = 0;
};

}  // namespace lethe
