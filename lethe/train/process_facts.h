#pragma once

#include <string>

namespace lethe {

/// What decides a process's last bits beside its settings.
struct ProcessFacts {
  int threads = 0;
  std::string kernels;  // chosen_kernels().backend
};

}  // namespace lethe
