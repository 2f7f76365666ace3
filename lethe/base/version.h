#pragma once

namespace lethe {

/// Version of Lethe as "major.minor.patch", from the project's CMake file. In one object file, so
/// that a new version recompiles nothing else.
[[nodiscard]] const char* version() noexcept;

}  // namespace lethe
