#pragma once

#include <string>

namespace lethe {

/// What decides a process's last bits beside its settings, and what it recomputes, which does not.
struct ProcessFacts {
  int threads = 0;
  std::string kernels;  // chosen_kernels().backend
  std::string plan;  // plan_hash() of its recompute plan; empty = nothing is recomputed or swapped
};

}  // namespace lethe
