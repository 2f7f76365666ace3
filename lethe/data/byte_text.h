#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lethe/data/token_range.h"

namespace lethe {

/// Text as tokens 0 .. 255, one per byte, whatever its encoding. Documents lie one after another.
struct ByteText {
  std::vector<uint8_t> bytes;
  std::vector<TokenRange> documents;  // never empty ones; together exactly `bytes`
  std::vector<std::string> names;     // one per document: its file, relative to the folder
  int64_t empty_files = 0;            // files without a byte: no document
  int64_t hidden_skipped = 0;         // files and folders whose name begins with a dot
};

/// Vocabulary of byte tokens.
inline constexpr int64_t kByteVocab = 256;

/// Reads a file (one document) or every regular file below a folder (one document each, in the
/// order of find_text_files). Throws DataError: no such path, nothing to read, a file that cannot
/// be read.
ByteText load_text(const std::filesystem::path& path);

}  // namespace lethe
