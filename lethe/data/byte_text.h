#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lethe {

/// Bytes [begin, end) of a ByteText: a document or a part of one.
struct TextRange {
  int64_t begin = 0;
  int64_t end = 0;

  [[nodiscard]] int64_t size() const { return end - begin; }

  bool operator==(const TextRange&) const = default;
};

/// Sum of the ranges' sizes.
int64_t total_size(std::span<const TextRange> ranges);

/// Text as tokens 0 .. 255, one per byte, whatever its encoding. Documents lie one after another.
struct ByteText {
  std::vector<uint8_t> bytes;
  std::vector<TextRange> documents;  // never empty ones; together exactly `bytes`
  std::vector<std::string> names;    // one per document: its file, relative to the folder
  int64_t empty_files = 0;           // files without a byte: no document
  int64_t hidden_skipped = 0;        // files and folders whose name begins with a dot
};

/// Vocabulary of byte tokens.
inline constexpr int64_t kByteVocab = 256;

/// Reads a file (one document) or every regular file below a folder (one document each, in the byte
/// order of their relative paths with '/'). Hidden files and folders are skipped and counted; links
/// to files are followed, links to folders are not. Throws DataError: no such path, nothing to
/// read, a file that cannot be read.
ByteText load_text(const std::filesystem::path& path);

}  // namespace lethe
