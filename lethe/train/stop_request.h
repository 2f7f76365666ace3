#pragma once

namespace lethe {

/// While it lives, SIGINT and SIGTERM ask the run to stop after the present step instead of ending
/// the process; a second signal ends it at once. One at a time per process.
class StopRequest final {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  /// The signal that asked, 0 = none yet.
  [[nodiscard]] int signal() const;
};

}  // namespace lethe
