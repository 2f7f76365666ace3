#include "lethe/base/log.h"

#include <memory>

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

namespace lethe {
namespace {

// Our own logger, not spdlog's default one: a program that links Lethe keeps its settings.
spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("lethe", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made.set_pattern("%^%l%$: %v");
    made.flush_on(spdlog::level::info);
    return made;
  }();
  return instance;
}

}  // namespace

void log_line(LogLevel level, std::string_view text) {
  logger().log(level == LogLevel::Info ? spdlog::level::info : spdlog::level::warn,
               spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace lethe
