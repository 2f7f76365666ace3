#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lethe {

/// What became of a tensor that was offered for swapping.
enum class SwapVerdict : uint8_t {
  Swapped,
  Owned,        // the same tensor of the same layer again (a replay): nothing to do
  Absent,       // undefined, or without a storage
  NoGrad,       // grad mode is off: no backward will come
  Parameter,    // weights, gradients, optimizer state
  Empty,        // a storage without bytes
  NotFloating,  // ids, masks
  Small,        // fewer than min_bytes
  Slice,        // less than its whole storage
  Foreign,      // memory that LibTorch did not allocate
  Shared,       // registered as shared, owned by another layer's entry, or held by others
  LastLayer,    // its backward comes first
  Mtp,          // of an MTP block
};
inline constexpr size_t kNumSwapVerdicts = static_cast<size_t>(SwapVerdict::Mtp) + 1;

/// "swapped", "last layer", ...: for reports.
[[nodiscard]] std::string_view verdict_text(SwapVerdict verdict);

/// Counts of one micro-batch or, added up, of a step (spec 5 6.5). Times are ns of the steady
/// clock. Once backward is through or everything is dropped:
///   entries_out = entries_in + cancelled + dropped.
struct SwapStats {
  int64_t bytes_out = 0, bytes_in = 0;      // of storages
  int64_t entries_out = 0, entries_in = 0;  // copies out issued, copies in ended
  int64_t cancelled = 0;                    // restored before the release: nothing was copied back
  int64_t dropped = 0;        // given up: the tensor died, a copy failed, an exception
  int64_t prefetch_hits = 0;  // the bytes were there when backward asked
  int64_t prefetch_misses = 0;
  int64_t wait_out_ns = 0;                           // forward waited for a copy out
  int64_t wait_in_ns = 0;                            // backward waited for a copy in
  std::array<int64_t, kNumSwapVerdicts> verdicts{};  // offers by SwapVerdict

  SwapStats& operator+=(const SwapStats& other);

  [[nodiscard]] int64_t offers_with(SwapVerdict verdict) const {
    return verdicts[static_cast<size_t>(verdict)];
  }
};

}  // namespace lethe
