#pragma once

#include <cstdint>
#include <string>

namespace lethe {

/// Bytes for people, in powers of 1024 with three digits: "0 B", "1023 B", "1.25 MiB", "-3.00 GiB".
[[nodiscard]] std::string bytes_text(int64_t bytes);

/// A duration for people: "0.42s", "12.3s", "3m 12s", "2h 05m", "3d 04h"; the smaller unit is cut,
/// not rounded. seconds: >= 0; NaN and infinity (an unknown time left) give "?".
[[nodiscard]] std::string duration_text(double seconds);

/// A count for people, in powers of 1000 with three digits: "0", "999", "1.25k", "284B" (k, M, B,
/// T).
[[nodiscard]] std::string count_text(double count);

}  // namespace lethe
