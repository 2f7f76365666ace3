#include "lethe/io/file_facts.h"

#include <cerrno>

#include <sys/stat.h>

#include "lethe/io/file_impl.h"

namespace lethe {

std::optional<FileFacts> file_facts(const std::filesystem::path& path) {
  struct stat status {};

  if (::stat(path.c_str(), &status) == 0)
    return FileFacts{.id = {status.st_dev, status.st_ino},
                     .bytes = status.st_size,
                     .is_folder = S_ISDIR(status.st_mode)};
  if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) return std::nullopt;
  detail::fail_errno(path, "look at the path", errno);
}

bool file_exists(const std::filesystem::path& path) {
  return file_facts(path).has_value();
}

}  // namespace lethe
