#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lethe::report {

/// What the processes of a run left in FOLDER/sessions.jsonl: JSON objects, one a line, each with
/// "event" and "time" (seconds since 1970):
///   started, resumed  a process began; pid, host, step, and for resumed checkpoint
///   saved             a checkpoint is on disk; step, folder, bytes, seconds
///   stopped           the process ended; step, reason, seconds
struct Sessions {
  double started = 0;                 // time of the first line
  std::optional<std::string> reason;  // of the last line where it is "stopped"
};

/// Nothing where the file is missing or has no line. DataError with the line where it is malformed.
std::optional<Sessions> read_sessions(const std::filesystem::path& path);

}  // namespace lethe::report
