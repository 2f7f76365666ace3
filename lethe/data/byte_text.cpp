#include "lethe/data/byte_text.h"

#include <fstream>

#include "lethe/base/error.h"
#include "lethe/data/text_files.h"

namespace lethe {
namespace {

void append_file(const TextFile& text_file, ByteText& text) {
  std::ifstream file(text_file.path, std::ios::binary | std::ios::ate);
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
      text_file.path.string());
  if (size == 0) {
    ++text.empty_files;
    return;
  }
  text.documents.push_back({static_cast<int64_t>(begin), static_cast<int64_t>(text.bytes.size())});
  text.names.push_back(text_file.name);
}

}  // namespace

ByteText load_text(const std::filesystem::path& path) {
  const TextFiles found = find_text_files(path);
  ByteText text;
  text.hidden_skipped = found.hidden_skipped;
  for (const TextFile& file : found.files) append_file(file, text);
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
