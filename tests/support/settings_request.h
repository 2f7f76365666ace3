#pragma once

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lethe/base/error.h"
#include "lethe/config/resolve.h"
#include "lethe/config/settings_layer.h"
#include "lethe/config/settings_text.h"

namespace lethe::test {

/// A request from flags written as {"lr", "1e-3"}: name, then words.
class Request {
 public:
  Request& with(const std::string& name, std::vector<std::string> words) {
    GivenSetting given;
    given.name = name;
    given.words = std::move(words);
    given.shown = "--" + name;
    given.origin = kCommandLineOrigin;
    request_.command_line.push_back(std::move(given));
    return *this;
  }

  Request& file(const std::string& text) {
    const std::string path = testing::TempDir() +
                             testing::UnitTest::GetInstance()->current_test_info()->name() +
                             std::to_string(request_.config_files.size()) + ".toml";
    std::ofstream(path) << text;
    request_.config_files.push_back(path);
    return *this;
  }

  Request& from(CheckpointSettings saved) {
    request_.checkpoint = std::move(saved);
    return *this;
  }

  Request& command(const std::string& name) {
    request_.command = name;
    return *this;
  }

  [[nodiscard]] ResolvedSettings resolve() const { return lethe::resolve(request_); }

  [[nodiscard]] std::string error() const {
    try {
      (void)resolve();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }

 private:
  SettingsRequest request_;
};

inline Request tiny() {
  return Request().with("recipe", {"tiny"});
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline bool has_note(const ResolvedSettings& resolved, const std::string& part) {
  for (const std::string& note : resolved.notes)
    if (has(note, part)) return true;
  return false;
}

/// What a run with these settings leaves in its checkpoint.
inline CheckpointSettings saved_by(const Request& request) {
  return {.text = print_config(request.resolve()),
          .origin = "checkpoint out/checkpoints/step-0000000010",
          .hub_kept = "{\"kept\":1}"};
}

}  // namespace lethe::test
