#include "bench/support/machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "lethe/kernels/cpu/isa.h"

namespace lethe::bench {
namespace {

std::string first_word(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// "32768K" as the kernel writes sizes.
int64_t size_of(const std::string& text) {
  if (text.empty()) return 0;
  const int64_t number = std::stoll(text);
  return text.back() == 'K' ? number << 10 : text.back() == 'M' ? number << 20 : number;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, name = "unknown CPU", family, model;
  while (std::getline(info, line) && !line.empty()) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) name = value;
    if (line.starts_with("cpu family")) family = value;
    if (line.starts_with("model\t")) model = value;
  }
  return family.empty() ? name : fmt::format("{} (family {}, model {})", name, family, model);
}

}  // namespace

Machine this_machine() {
  Machine machine{.cpu = cpu_name(),
                  .isa = std::string(kernels::isa_name(kernels::active_isa())),
                  .cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))};
  const std::filesystem::path caches = "/sys/devices/system/cpu/cpu0/cache";
  for (int i = 0; std::filesystem::exists(caches / fmt::format("index{}", i)); ++i) {
    const std::filesystem::path cache = caches / fmt::format("index{}", i);
    const int64_t size = size_of(first_word(cache / "size"));
    if (first_word(cache / "level") == "2") machine.l2_bytes = size;
    machine.last_cache_bytes = std::max(machine.last_cache_bytes, size);
  }
  return machine;
}

std::string machine_line(const Machine& m) {
  return fmt::format("{}; kernels {}; {} cores; L2 {} KiB a core; last cache {:.1f} MiB",
                     m.cpu,
                     m.isa,
                     m.cores,
                     m.l2_bytes >> 10,
                     static_cast<double>(m.last_cache_bytes) / (1 << 20));
}

int64_t beyond_caches(const Machine& machine) {
  return machine.last_cache_bytes > 0 ? 4 * machine.last_cache_bytes : int64_t{128} << 20;
}

}  // namespace lethe::bench
