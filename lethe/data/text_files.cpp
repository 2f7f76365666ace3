#include "lethe/data/text_files.h"

#include <algorithm>
#include <system_error>

#include "lethe/base/error.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

void add_files_below(const fs::path& folder, TextFiles& found) {
  try {
    for (auto it = fs::recursive_directory_iterator(folder); it != fs::end(it); ++it) {
      if (is_hidden(it->path())) {
        ++found.hidden_skipped;
        if (it->is_directory()) it.disable_recursion_pending();
      } else if (it->is_regular_file()) {
        found.files.push_back({it->path().lexically_relative(folder).generic_string(), it->path()});
      }
    }
  } catch (const fs::filesystem_error& error) {
    fail<DataError>(
        "data: the folder '{}' must be readable with all folders in it, got '{}'; check "
        "the permissions",
        folder.string(),
        error.what());
  }
  std::sort(found.files.begin(), found.files.end(), [](const TextFile& a, const TextFile& b) {
    return a.name < b.name;
  });
}

}  // namespace

TextFiles find_text_files(const fs::path& path) {
  std::error_code ignored;  // an unreadable parent is reported like a missing path
  const fs::file_status status = fs::status(path, ignored);
  TextFiles found{.is_folder = fs::is_directory(status)};
  LETHE_CHECK(DataError,
              found.is_folder || fs::is_regular_file(status),
              "data: '{}' must be a text file or a folder of text files, got {}; check the path",
              path.string(),
              fs::exists(status) ? "something else" : "nothing there");
  if (found.is_folder) {
    add_files_below(path, found);
  } else {
    found.files.push_back({path.filename().string(), path});
  }
  return found;
}

}  // namespace lethe
