#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lethe::detail {

/// The alphabet in which a hub tokenizer.json spells bytes (GPT-2's): a printable byte of Latin-1
/// is its own code point, the 68 others are U+0100 and up in their order.

/// The letter of a byte, as UTF-8.
[[nodiscard]] std::string byte_letter(uint8_t byte);

/// The bytes that `spelled` stands for; nothing when one of its characters is no letter of the
/// alphabet. spelled: well-formed UTF-8.
[[nodiscard]] std::optional<std::string> bytes_of_letters(std::string_view spelled);

}  // namespace lethe::detail
