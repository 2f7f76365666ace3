#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace lethe {

/// Short numbers for texts that come again and again (layers, operators, shapes): equal texts have
/// equal numbers. "" is 0. They stay as long as the table. Thread-safe.
class TextNumbers final {
 public:
  [[nodiscard]] uint32_t number_of(std::string_view text);
  /// number: of this table.
  [[nodiscard]] std::string text_of(uint32_t number) const;

 private:
  mutable std::mutex mutex_;
  std::deque<std::string> texts_{""};
  std::map<std::string, uint32_t, std::less<>> numbers_{{"", 0}};
};

}  // namespace lethe
