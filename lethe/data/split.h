#pragma once

#include <cstdint>
#include <vector>

#include "lethe/data/byte_text.h"

namespace lethe {

/// Documents (or the two parts of a cut one) of the training and of the validation text, in order.
struct TextSplit {
  std::vector<TextRange> train;
  std::vector<TextRange> valid;
};

/// Cuts the text, in the order of its documents, into a front for training and an end of about
/// valid_fraction of all bytes for validation.
/// Rule: let w = round(valid_fraction * bytes). The cut is the document boundary whose validation
/// part is nearest to w bytes (of two equally near ones the smaller part), provided that this part
/// has w/2 to 3w/2 bytes and that either part holds a sequence. Else the last w bytes exactly: the
/// document there is cut in two, and its parts count as two documents.
///   valid_fraction  in [0, 1) (ConfigError); 0 = no validation text
///   seq_length      >= 1, tokens of one sequence; it needs seq_length + 1 bytes
/// Throws DataError when a part that is asked for has fewer than seq_length + 1 bytes.
TextSplit split_text(const ByteText& text, double valid_fraction, int64_t seq_length);

}  // namespace lethe
