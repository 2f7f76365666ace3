#include <algorithm>
#include <iterator>

#include "lethe/base/error.h"
#include "lethe/offload/host_arena_impl.h"

namespace lethe {

HostArena::HostArena(int64_t capacity) {
  const int64_t room = capacity / kPage * kPage;
  if (room > 0) holes_.emplace(0, room);
}

int64_t HostArena::room_for(int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

std::optional<int64_t> HostArena::take(int64_t bytes) {
  const int64_t room = room_for(bytes);
  const auto hole =
      std::find_if(holes_.begin(), holes_.end(), [&](const auto& h) { return h.second >= room; });
  if (hole == holes_.end()) return std::nullopt;
  const auto [offset, size] = *hole;
  holes_.erase(hole);
  if (size > room) holes_.emplace(offset + room, size - room);
  taken_.emplace(offset, bytes);
  live_ += bytes;
  peak_ = std::max(peak_, live_);
  return offset;
}

void HostArena::give(int64_t offset) {
  const auto block = taken_.find(offset);
  if (block == taken_.end())
    fail_internal(fmt::format("swap: no host block at {} to give back", offset));
  int64_t begin = offset, end = offset + room_for(block->second);
  live_ -= block->second;
  taken_.erase(block);
  auto after = holes_.lower_bound(begin);
  if (after != holes_.end() && after->first == end) {
    end += after->second;
    after = holes_.erase(after);
  }
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      holes_.erase(before);
    }
  }
  holes_.emplace(begin, end - begin);
}

int64_t HostArena::largest_hole() const {
  int64_t largest = 0;
  for (const auto& [offset, room] : holes_) largest = std::max(largest, room);
  return largest;
}

}  // namespace lethe
