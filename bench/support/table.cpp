#include "bench/support/table.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "lethe/base/error.h"

namespace lethe::bench {
namespace {

std::vector<size_t> widths_of(const Table& table) {
  std::vector<size_t> widths;
  for (const std::string& heading : table.headings)
    widths.push_back(std::max<size_t>(3, heading.size()));
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  return widths;
}

std::string line(const Table& table,
                 const std::vector<std::string>& cells,
                 const std::vector<size_t>& widths,
                 const std::string& separator) {
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) text += separator;
    text += i < table.left ? fmt::format("{:<{}}", cells[i], widths[i])
                           : fmt::format("{:>{}}", cells[i], widths[i]);
  }
  return text;
}

}  // namespace

std::string plain_text(const Table& table) {
  const std::vector<size_t> widths = widths_of(table);
  std::string text = line(table, table.headings, widths, "  ") + "\n";
  for (const auto& row : table.rows) text += line(table, row, widths, "  ") + "\n";
  return text;
}

std::string markdown(const Table& table) {
  const std::vector<size_t> widths = widths_of(table);
  std::string text = "| " + line(table, table.headings, widths, " | ") + " |\n|";
  for (size_t i = 0; i < widths.size(); ++i)
    text += i < table.left ? std::string(widths[i] + 2, '-') + "|"
                           : std::string(widths[i] + 1, '-') + ":|";
  text += "\n";
  for (const auto& row : table.rows) text += "| " + line(table, row, widths, " | ") + " |\n";
  return text;
}

void append_to_file(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::app);
  file << text << std::flush;
  LETHE_CHECK(
      DataError, file.good(), "--out: '{}' must be writable, got an error; check the path", path);
}

}  // namespace lethe::bench
