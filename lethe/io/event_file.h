#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace lethe {

namespace detail {
class File;
}

/// One curve's value at a step. tag: UTF-8; '/' groups curves, e.g. "loss/main".
struct EventScalar {
  std::string tag;
  float value = 0;
};

/// A TensorBoard event file: records of tensorflow.Event in TFRecord framing (u64 length, masked
/// crc32c of it, the bytes, masked crc32c of them; little-endian). Every call is one write to the
/// kernel, so that what was written survives the death of the process. Same calls and same times,
/// same bytes. Not thread-safe. Source: spec 2-foundations 4 (row TensorBoard).
class EventFile {
 public:
  /// Creates FOLDER/events.out.tfevents.SECONDS.HOST.PID.0, a new file for every process that goes
  /// on with a run, and the folder where missing. TensorBoard reads the files in order of their
  /// names: SECONDS is the time, or one more than the newest file's where that is not later.
  ///
  /// wall_time   seconds since 1970, called once per record
  /// first_step  the first step that will be written. Greater than 1 = the run goes on from a
  ///             checkpoint: a session start at this step makes TensorBoard drop the points from
  ///             there on, which a killed process may have left.
  /// Throws DataError where the folder cannot be written.
  EventFile(const std::filesystem::path& folder,
            std::function<double()> wall_time,
            int64_t first_step);
  EventFile(EventFile&&) noexcept;
  EventFile& operator=(EventFile&&) noexcept;
  ~EventFile();

  /// All values of one step, in one record. DataError where the file cannot be written.
  void scalars(int64_t step, std::span<const EventScalar> values);

  /// Returns when the device has everything. DataError where it reports a failure.
  void flush();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  std::function<double()> wall_time_;
  std::unique_ptr<detail::File> file_;
};

}  // namespace lethe
