#pragma once

#include <cstdint>
#include <string>

namespace lethe::bench {

/// What a reader of a figure needs to know about the machine.
struct Machine {
  std::string cpu;               // as the kernel names it
  std::string isa;               // of the kernels: "avx512", "avx2", "portable"
  int cores = 1;                 // that this process may use
  int64_t l2_bytes = 0;          // of one core; 0 = not known
  int64_t last_cache_bytes = 0;  // of the largest cache, shared by the cores; 0 = not known
};

[[nodiscard]] Machine this_machine();

/// One line: CPU, instruction set, cores, caches.
[[nodiscard]] std::string machine_line(const Machine& machine);

/// Bytes that no cache holds: 4 times the last one, 128 MiB where it is not known.
[[nodiscard]] int64_t beyond_caches(const Machine& machine);

}  // namespace lethe::bench
