#pragma once

#include <cstdint>
#include <string>

namespace lethe {

/// Room in the host tier.
struct HostBlock {
  int64_t offset = -1;  // bytes from the start of the tier; -1: no block
  int64_t bytes = 0;    // as asked for
};

/// A copy that was issued: 1, 2, ... in the order of issuing.
using TransferId = int64_t;

/// What a back end holds and has held.
struct SwapBackendReport {
  int64_t host_bytes = 0;       // asked for and not freed; 0 once nothing is swapped
  int64_t host_bytes_peak = 0;  // highest host_bytes
  int64_t host_blocks = 0;
  int64_t queued = 0;      // copies that have been issued and not begun
  int64_t queue_peak = 0;  // highest queued
};

/// Moves bytes between one device and its host tier, asynchronously (spec 5 6.4). Copies begin and
/// end in the order of issuing, so a copy in never overtakes the copy out that it reads. Every
/// member may be called from any thread. A block must stay until its copies are done, and so must
/// the bytes on the device: SwapEntry sees to both.
class SwapBackend {
 public:
  SwapBackend() = default;
  SwapBackend(const SwapBackend&) = delete;
  SwapBackend& operator=(const SwapBackend&) = delete;
  virtual ~SwapBackend() = default;

  /// Room for `bytes` > 0. Throws OutOfArena, with `owner` in its text, when the budget of the tier
  /// has none; DataError when the system has none.
  [[nodiscard]] virtual HostBlock alloc_host(int64_t bytes, const std::string& owner) = 0;

  /// Once for every block.
  virtual void free_host(const HostBlock& block) = 0;

  /// Copies block.bytes from the device into the block (D2H). May wait for a place in the queue.
  virtual TransferId issue_out(const void* device, const HostBlock& block) = 0;

  /// Copies the block to the device (H2D). May wait for a place in the queue.
  virtual TransferId issue_in(const HostBlock& block, void* device) = 0;

  /// Whether the copy has ended, well or not.
  [[nodiscard]] virtual bool done(TransferId id) const = 0;

  /// Returns when the copy has ended; throws what it threw, to the first who waits for it.
  virtual void wait(TransferId id) = 0;

  [[nodiscard]] virtual SwapBackendReport report() const = 0;
};

}  // namespace lethe
