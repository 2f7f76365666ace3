#pragma once

#include <string>
#include <vector>

#include "lethe/base/error.h"

namespace lethe {

/// Collects the errors of one configuration, so that the user sees them together (style 2.7).
class ErrorList {
 public:
  void add(std::string text) { texts_.push_back(std::move(text)); }

  /// Runs check; a ConfigError that it throws joins the list, everything else passes through.
  template <class Check>
  void collect(Check&& check) {
    try {
      check();
    } catch (const ConfigError& error) {
      add(error.what());
    }
  }

  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }

  [[nodiscard]] bool empty() const { return texts_.empty(); }

  /// Throws one ConfigError with every text, one a line; returns where there is none.
  void raise() const {
    if (texts_.empty()) return;
    if (texts_.size() == 1) throw ConfigError(texts_.front());
    std::string all = fmt::format("{} errors:", texts_.size());
    for (const std::string& text : texts_) all += "\n  " + text;
    throw ConfigError(all);
  }

 private:
  std::vector<std::string> texts_;
};

}  // namespace lethe
