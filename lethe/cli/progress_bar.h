#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace lethe {

/// One line that tells how far long work is: on a terminal it is drawn again in place, elsewhere a
/// line is written every ten seconds.
class ProgressBar final {
 public:
  explicit ProgressBar(std::ostream& out);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Ends the line, so that an error stands on one of its own.
  ~ProgressBar();

  /// In bytes. before: the part of `done` that an earlier call had done, which says nothing about
  /// the speed of this one.
  struct Amount {
    int64_t done = 0;
    int64_t total = 0;
    int64_t before = 0;
  };

  /// At most ten times a second on a terminal, where the line is cut to its width.
  void show(const Amount& amount, const std::string& facts);

  /// Ends the line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  std::ostream& out_;
  bool terminal_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_ = begin_;
  bool drawn_ = false;
};

}  // namespace lethe
