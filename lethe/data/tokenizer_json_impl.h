#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lethe/data/added_tokens_impl.h"
#include "lethe/data/bpe_merge_impl.h"

namespace lethe::detail {

/// One Split of the pre-tokenizer.
struct SplitSpec {
  std::string expression;
  std::string where;  // "FILE: pre_tokenizer.pretokenizers[0]"
};

/// A hub tokenizer.json, checked and free of JSON.
struct TokenizerSpec {
  std::unordered_map<std::string, int32_t> vocab;  // as the file spells it
  std::vector<Merge> merges;
  bool ignore_merges = false;  // a piece that is a vocabulary entry is that token, merged or not
  std::vector<SplitSpec> splits;
  std::vector<AddedToken> added;
};

/// Largest id that a file may use; tables are as long as that.
inline constexpr int64_t kLargestTokenId = (int64_t{1} << 20) - 1;

/// Reads the JSON text of the file `path`. DataError "PATH: KEY [RULE]: ..." with the rules
///   E-TOK-JSON       the file is a JSON object
///   E-TOK-KEY        keys are known, present and of the right type; truncation, padding are null
///   E-TOK-NORMALIZER null or an empty Sequence
///   E-TOK-PRE        Split (Regex, Isolated) any number of times, then ByteLevel (no prefix space)
///   E-TOK-DECODER    null or ByteLevel
///   E-TOK-MODEL      type BPE without dropout, byte fallback, subword prefix or word suffix
///   E-TOK-ID         ids are distinct integers in [0, kLargestTokenId]
///   E-TOK-BYTES      every byte has an entry, so that no text needs an unknown token
///   E-TOK-MERGE      two entries whose concatenation is an entry, each pair once
///   E-TOK-ADDED      contents are distinct, not empty and agree with the vocabulary; no lstrip,
///                    rstrip, single_word
[[nodiscard]] TokenizerSpec parse_tokenizer_json(std::string_view text, const std::string& path);

}  // namespace lethe::detail
