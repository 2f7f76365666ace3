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
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

StopRequest::~StopRequest() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int StopRequest::signal() const {
  return requested;
}

}  // namespace lethe
