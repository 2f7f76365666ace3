#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace lethe::bench {

/// Resident bytes of this process now (/proc/self/statm).
[[nodiscard]] int64_t resident_bytes();

/// The highest resident bytes between construction and finish(), sampled every 2 ms as
/// bench/peers/peer_step.py does: good to the size of a tensor that lives longer than that.
class ResidentWatch final {
 public:
  ResidentWatch();
  ~ResidentWatch();
  ResidentWatch(const ResidentWatch&) = delete;
  ResidentWatch& operator=(const ResidentWatch&) = delete;

  /// Stops sampling; the peak.
  int64_t finish();

 private:
  std::atomic<bool> done_{false};
  std::atomic<int64_t> peak_{0};
  std::thread sampler_;
};

}  // namespace lethe::bench
