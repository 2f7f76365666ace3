#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lethe {

/// One file that a path of the user stands for.
struct TextFile {
  std::string name;  // relative to the folder, with '/'; a single file's own name
  std::filesystem::path path;
};

struct TextFiles {
  std::vector<TextFile> files;  // in the byte order of their names
  int64_t hidden_skipped = 0;   // files and folders whose name begins with a dot, not looked into
  bool is_folder = false;       // the path named a folder
};

/// The file itself, or every regular file below a folder. Hidden files and folders are skipped and
/// counted, unless the path itself names one; links to files are followed, links to folders are
/// not. Throws DataError: no such path, a folder that cannot be read.
TextFiles find_text_files(const std::filesystem::path& path);

}  // namespace lethe
