#include "lethe/data/byte_text.h"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <utility>

#include "lethe/base/error.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

void append_file(const fs::path& path, const std::string& name, ByteText& text) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  const size_t begin = text.bytes.size();
  if (size > 0) {
    text.bytes.resize(begin + static_cast<size_t>(size));
    file.seekg(0);
    file.read(reinterpret_cast<char*>(text.bytes.data() + begin), size);
  }
  LETHE_CHECK(
      DataError,
      file && size >= 0,
      "data: '{}' must be readable to its end, got an error of the operating system; check its "
      "permissions",
      path.string());
  if (size == 0) {
    ++text.empty_files;
    return;
  }
  text.documents.push_back({static_cast<int64_t>(begin), static_cast<int64_t>(text.bytes.size())});
  text.names.push_back(name);
}

struct FoundFile {
  std::string name;  // relative to the folder, with '/'
  fs::path path;
};

std::vector<FoundFile> files_below(const fs::path& folder, ByteText& text) {
  std::vector<FoundFile> found;
  try {
    for (auto it = fs::recursive_directory_iterator(folder); it != fs::end(it); ++it) {
      if (is_hidden(it->path())) {
        ++text.hidden_skipped;
        if (it->is_directory()) it.disable_recursion_pending();
      } else if (it->is_regular_file()) {
        found.push_back({it->path().lexically_relative(folder).generic_string(), it->path()});
      }
    }
  } catch (const fs::filesystem_error& error) {
    fail<DataError>(
        "data: the folder '{}' must be readable with all folders in it, got '{}'; check "
        "the permissions",
        folder.string(),
        error.what());
  }
  std::sort(found.begin(), found.end(), [](const FoundFile& a, const FoundFile& b) {
    return a.name < b.name;
  });
  return found;
}

}  // namespace

int64_t total_size(std::span<const TextRange> ranges) {
  int64_t total = 0;
  for (const TextRange& range : ranges) total += range.size();
  return total;
}

ByteText load_text(const fs::path& path) {
  std::error_code ignored;  // an unreadable parent is reported like a missing path
  const fs::file_status status = fs::status(path, ignored);
  const bool is_folder = fs::is_directory(status);
  LETHE_CHECK(DataError,
              is_folder || fs::is_regular_file(status),
              "data: '{}' must be a text file or a folder of text files, got {}; check the path",
              path.string(),
              fs::exists(status) ? "something else" : "nothing there");
  ByteText text;
  if (is_folder) {
    for (const FoundFile& file : files_below(path, text)) append_file(file.path, file.name, text);
  } else {
    append_file(path, path.filename().string(), text);
  }
  LETHE_CHECK(
      DataError,
      !text.documents.empty(),
      "data: '{}' must hold at least one byte of text, got {} empty and {} hidden files; name "
      "another file or folder",
      path.string(),
      text.empty_files,
      text.hidden_skipped);
  return text;
}

}  // namespace lethe
