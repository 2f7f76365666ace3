#include "lethe/io/event_file.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "lethe/base/error.h"
#include "lethe/io/checksum.h"
#include "lethe/io/file_impl.h"
#include "lethe/io/host_name.h"

namespace lethe {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

// The protobuf wire format: each field is a varint (number << 3 | type), then its value.
enum class Wire : uint8_t { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

template <class Word>
void put_fixed(std::string& out, Word word) {
  for (size_t byte = 0; byte < sizeof(Word); ++byte)
    out += static_cast<char>(word >> (8 * byte) & 0xFF);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, unsigned field, Wire type) {
  put_varint(out, field << 3 | static_cast<unsigned>(type));
}

void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_key(out, field, Wire::Bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// tensorflow.Event: wall_time 1, step 2. A zero is left out, as proto3 does.
std::string event_front(double wall_time, int64_t step) {
  std::string out;
  if (std::bit_cast<uint64_t>(wall_time) != 0) {
    put_key(out, 1, Wire::Fixed64);
    put_fixed(out, std::bit_cast<uint64_t>(wall_time));
  }
  if (step != 0) {
    put_key(out, 2, Wire::Varint);
    put_varint(out, static_cast<uint64_t>(step));
  }
  return out;
}

// tensorflow.Summary: repeated value 1 {tag 1, simple_value 2}.
std::string summary(std::span<const EventScalar> values) {
  std::string out;
  for (const EventScalar& scalar : values) {
    std::string value;
    if (!scalar.tag.empty()) put_bytes(value, 1, scalar.tag);
    put_key(value, 2, Wire::Fixed32);
    put_fixed(value, std::bit_cast<uint32_t>(scalar.value));
    put_bytes(out, 1, value);
  }
  return out;
}

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

/// One record of a TFRecord file.
std::string framed(std::string_view payload) {
  std::string out;
  put_fixed(out, static_cast<uint64_t>(payload.size()));
  put_fixed(out, masked_crc(out));
  out += payload;
  put_fixed(out, masked_crc(payload));
  return out;
}

/// The largest SECONDS of the event files in the folder; 0 without one.
int64_t newest_seconds(const fs::path& folder) {
  int64_t newest = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t seconds = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), seconds);
    newest = std::max(newest, seconds);
  }
  return newest;
}

fs::path new_name(const fs::path& folder, double wall_time) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) detail::fail_errno(folder, "make the folder", error.value());
  const int64_t seconds = std::max(static_cast<int64_t>(wall_time), newest_seconds(folder) + 1);
  // Ten digits: the order of the names is the order of the times.
  return folder / fmt::format("{}{:010}.{}.{}.0", kPrefix, seconds, host_name(), ::getpid());
}

}  // namespace

EventFile::EventFile(const fs::path& folder, std::function<double()> wall_time, int64_t first_step)
    : wall_time_(std::move(wall_time)) {
  const double now = wall_time_();
  path_ = new_name(folder, now);
  file_ = std::make_unique<detail::File>(
      path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, "create the event file");
  std::string version = event_front(now, 0);
  put_bytes(version, 3, "brain.Event:2");
  append(version);
  if (first_step > 1) {
    std::string session = event_front(wall_time_(), first_step);
    put_bytes(session, 7, "\x08\x01");  // tensorflow.SessionLog: status 1 = START
    append(session);
  }
}

EventFile::EventFile(EventFile&&) noexcept = default;

EventFile& EventFile::operator=(EventFile&&) noexcept = default;

EventFile::~EventFile() = default;

void EventFile::append(const std::string& event) {
  file_->write_all(std::as_bytes(std::span<const char>(framed(event))));
}

void EventFile::scalars(int64_t step, std::span<const EventScalar> values) {
  std::string event = event_front(wall_time_(), step);
  put_bytes(event, 5, summary(values));
  append(event);
}

void EventFile::flush() {
  file_->sync();
}

}  // namespace lethe
