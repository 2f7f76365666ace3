#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lethe {

enum class LogLevel { Info, Warning };

/// Writes one line "info: TEXT" or "warning: TEXT" to stderr and flushes it; the word is coloured
/// on a terminal. Thread-safe: lines never interleave. Standard output stays free for a command's
/// results. The logger behind it is the only global of this library (style 3.3).
void log_line(LogLevel level, std::string_view text);

template <class... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::Info, fmt::format(text, std::forward<Args>(args)...));
}

/// For what the user should act on, e.g. a setting that has no effect here: name the setting and
/// the reason.
template <class... Args>
void log_warn(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::Warning, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace lethe
