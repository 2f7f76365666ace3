#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lethe/data/indexed_writer.h"

namespace lethe::detail {

/// What NAME.progress holds: everything a later call needs to go on with a preparation.
struct PrepareState {
  /// What decides the output, by the names that errors use. A later call must have the same.
  std::map<std::string, std::string> settings;

  IndexedMark mark;
  int64_t source = 0;  // the input that is being read; those before it are done
  int64_t offset = 0;  // the place in it
  int64_t line = 1;
  int64_t input_bytes = 0;        // read so far, of all inputs
  std::string sha256;             // of bytes [0, offset) of that input
  std::vector<std::string> done;  // SHA-256 of the inputs before it
  int64_t empty_documents = 0;
  int64_t largest_id = -1;
  std::vector<IndexedWriter::Rename> renames;  // not empty: everything is written, these are left

  bool operator==(const PrepareState&) const = default;
};

/// The key in PrepareState::settings of input file i, counted from 0. Its value names the file.
[[nodiscard]] std::string input_key(size_t i);

/// What differs between two PrepareState::settings, for people: settings with both values, at most
/// three names of input files that are gone and of such that are new. Empty: nothing.
[[nodiscard]] std::string differences(const std::map<std::string, std::string>& then,
                                      const std::map<std::string, std::string>& now);

/// Replaces the file in one step; it ends in a checksum of itself. Gives its size.
int64_t save_state(const std::string& path, const PrepareState& state);

/// Nothing when there is no such file. DataError when it is damaged.
std::optional<PrepareState> load_state(const std::string& path);

}  // namespace lethe::detail
