#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lethe::bench {

/// Time of one kind of call in one pass. The parts never overlap: `seconds` is inclusive.
struct OpTime {
  std::string pass;  // "forward", "backward"
  std::string name;  // operator or autograd node that no other one encloses, with its sizes
  int64_t calls = 0;
  double seconds = 0;
  double gemm = 0;    // thereof inside ATen's matrix products
  double copies = 0;  // thereof inside ATen's other operators
};

/// Times every operator that this thread's code calls, and every autograd node, from construction
/// to destruction: what the dispatcher and the autograd engine report. One at a time.
class OpProfile final {
 public:
  OpProfile();
  ~OpProfile();
  OpProfile(const OpProfile&) = delete;
  OpProfile& operator=(const OpProfile&) = delete;

  /// The pass of the calls that follow.
  void begin(const std::string& pass);

  /// Slowest first.
  [[nodiscard]] std::vector<OpTime> times() const;

 private:
  uint64_t handle_;
};

/// A table for people: the slowest calls of both passes, with shares of `step_seconds`, the time
/// that all calls of `steps` steps together took.
[[nodiscard]] std::string profile_text(const std::vector<OpTime>& times,
                                       int64_t steps,
                                       double step_seconds);

}  // namespace lethe::bench
