#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lethe/data/tokenizer.h"

namespace lethe {

/// How show_tokens() writes.
enum class TokenListing {
  Table,  // for people: one line per token "id  bytes", aligned, then the line of counts
  Ids,    // one line: the ids, separated by single spaces
  Json,   // one line: {"bytes": n, "tokens": n, "ids": [...], "pieces": ["...", ...]}
};

/// The tokens of one text; ends with '\n'. `ids` are tokens of `tokenizer` (else DataError).
/// A token's bytes are shown in double quotes: visible UTF-8 as it is, \n \r \t \\ \" by name,
/// other bytes as \xNN: those of controls, of invisible characters (joiners, direction marks) and
/// of what is no UTF-8. Under Json a piece is the same text without the quotes, as a JSON string.
[[nodiscard]] std::string show_tokens(const Tokenizer& tokenizer,
                                      std::span<const int32_t> ids,
                                      TokenListing listing);

/// Totals for people: "12 bytes, 4 tokens, 3.00 bytes per token".
[[nodiscard]] std::string token_counts_text(int64_t num_bytes, int64_t num_tokens);

/// Bytes inside double quotes as show_tokens() writes them.
[[nodiscard]] std::string quoted_bytes(std::string_view bytes);

}  // namespace lethe
