#pragma once

namespace lethe {

/// While it lives, SIGINT, SIGTERM and SIGHUP (a closed terminal; not under nohup) ask the run to
/// stop after the present step instead of ending the process; a second signal ends it at once.
/// SIGPIPE is ignored. One at a time per process.
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
