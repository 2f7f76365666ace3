#include "lethe/train/stop_request.h"

#include <csignal>

namespace lethe {
namespace {

// A signal handler can reach nothing but a static flag.
volatile std::sig_atomic_t requested = 0;

void on_signal(int number) {
  if (requested != 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  requested = number;
}

}  // namespace

StopRequest::StopRequest() {
  requested = 0;
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, on_signal);
  // A terminal that closes; nohup has it ignored, and so it stays.
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);  // nobody reads the output any more: the run matters more
}

StopRequest::~StopRequest() {
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) std::signal(number, SIG_DFL);
  if (std::signal(SIGHUP, SIG_DFL) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
}

int StopRequest::signal() const {
  return requested;
}

}  // namespace lethe
