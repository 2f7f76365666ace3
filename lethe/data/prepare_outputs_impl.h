#pragma once

#include <memory>
#include <span>
#include <string>

#include "lethe/data/prepare.h"
#include "lethe/data/prepare_sources_impl.h"
#include "lethe/io/file_impl.h"

namespace lethe::detail {

/// Keeps a second preparation of the same NAME away while the object lives: flock(LOCK_EX) on
/// NAME.lock, which is removed at the end. What a killed process leaves behind locks nothing.
class OutputLock {
 public:
  /// DataError: another open file has the lock, or the system refuses it.
  explicit OutputLock(const std::string& name);
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;
  ~OutputLock();

 private:
  std::string path_;
  std::unique_ptr<File> file_;
};

/// ConfigError where an input or the tokenizer's file is one that the preparation would write,
/// under whatever name: it must never replace what it reads.
void check_inputs_stay(const PrepareSettings& settings, std::span<const Source> sources);

/// DataError where a file that the preparation gives in the end exists, unless it may be replaced.
void check_free(const PrepareSettings& settings);

}  // namespace lethe::detail
