#include "lethe/base/error.h"

namespace lethe {

void fail_internal(const std::string& text, const char* file, int line) {
  throw InternalError(fmt::format(
      "{} ({}:{}); this is a bug in Lethe, please report it with the command that led here",
      text,
      file,
      line));
}

}  // namespace lethe
