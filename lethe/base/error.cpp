#include "lethe/base/error.h"

namespace lethe {

void fail_internal(const std::string& text, std::source_location where) {
  throw InternalError(fmt::format("{} ({}:{}); this is a bug in Lethe, please report it with the command that led here",
                                  text, where.file_name(), where.line()));
}

}  // namespace lethe
