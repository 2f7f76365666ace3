#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace lethe::test {

/// The names of the threads that this process has now; one that ends meanwhile has none.
inline std::vector<std::string> thread_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "comm");
    std::string name;
    std::getline(file, name);
    names.push_back(name);
  }
  return names;
}

}  // namespace lethe::test
