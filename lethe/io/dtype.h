#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lethe {

/// Element types of tensors on disk, in the order of safetensors' rank (low to high, spec 6 2.2):
/// files list their tensors by descending rank. Other safetensors types are refused: F8_E4M3FNUZ
/// has another bias than F8_E4M3 (the `fn` variant, no infinities, largest value 448), and no
/// DeepSeek-V4 file uses the rest.
enum class StoredDtype : uint8_t { F4, U8, I8, F8E4M3, F8E8M0, F16, BF16, I32, F32, F64, I64 };

/// "F32", "F8_E4M3", ...: the spelling of safetensors headers.
[[nodiscard]] std::string_view dtype_name(StoredDtype dtype);

/// Bits per element: 4 (F4: two per byte, low nibble first), 8, 16, 32 or 64.
[[nodiscard]] int dtype_bits(StoredDtype dtype);

/// The type of that exact name; none for a name that Lethe does not read.
[[nodiscard]] std::optional<StoredDtype> dtype_from_name(std::string_view name);

/// Whether safetensors defines this name although Lethe does not read it, e.g. "BOOL".
[[nodiscard]] bool is_refused_dtype(std::string_view name);

}  // namespace lethe
