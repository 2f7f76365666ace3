#pragma once

#include <string>
#include <vector>

namespace lethe::bench {

/// Cells of text under headings. The first `left` columns are aligned left, numbers right.
struct Table {
  std::vector<std::string> headings;
  std::vector<std::vector<std::string>> rows;
  size_t left = 1;
};

/// For a terminal: aligned columns.
[[nodiscard]] std::string plain_text(const Table& table);

/// A Markdown table, aligned in its source too.
[[nodiscard]] std::string markdown(const Table& table);

/// Appends text to a file; an empty path does nothing. Throws DataError where the disk refuses.
void append_to_file(const std::string& path, const std::string& text);

}  // namespace lethe::bench
