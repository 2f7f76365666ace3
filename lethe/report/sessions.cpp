#include "lethe/report/sessions.h"

#include "lethe/base/error.h"
#include "lethe/report/event_lines.h"

namespace lethe::report {

std::optional<Sessions> read_sessions(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const EventLines file{.path = path, .what = "session record", .skip_broken = true};
  std::optional<Sessions> sessions;
  read_event_lines(file, [&](const EventLine& line) {
    require_number(file, line, "time");
    if (!sessions) sessions = Sessions{.started = line.fields["time"].get<double>()};
    sessions->reason.reset();
    if (line.event != "stopped") return;
    const auto reason = line.fields.find("reason");
    LETHE_CHECK(DataError,
                reason != line.fields.end() && reason->is_string(),
                "session record: line {} of '{}' must have a text 'reason', got '{}'",
                line.number,
                path.string(),
                line.fields.dump());
    sessions->reason = reason->get<std::string>();
  });
  return sessions;
}

}  // namespace lethe::report
