#include "bench/support/resident.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include <unistd.h>

namespace lethe::bench {

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
}

ResidentWatch::ResidentWatch()
    : sampler_([this] {
        while (!done_) {
          peak_ = std::max(peak_.load(), resident_bytes());
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
      }) {}

ResidentWatch::~ResidentWatch() {
  finish();
}

int64_t ResidentWatch::finish() {
  done_ = true;
  if (sampler_.joinable()) sampler_.join();
  return peak_;
}

}  // namespace lethe::bench
