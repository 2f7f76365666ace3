#pragma once

#include "lethe/data/corpus.h"

namespace lethe {

/// The two ends of a corpus. A document at the cut counts as two.
struct CorpusSplit {
  TokenRange train;
  TokenRange valid;
};

/// Cuts the corpus, in the order of its documents, into a front for training and an end of about
/// valid_fraction of all tokens for validation.
/// Rule: let w = round(valid_fraction * tokens). The cut is the document boundary whose validation
/// part is nearest to w tokens (of two equally near ones the smaller part), provided that this part
/// has w/2 to 3w/2 tokens and that either part holds a sequence. Else the last w tokens exactly:
/// the document there is cut in two, and its parts count as two documents.
///   valid_fraction  in [0, 1) (ConfigError); 0 = no validation text
///   seq_length      >= 1, tokens of one sequence; it needs seq_length + 1 of the corpus
/// Throws DataError when a part that is asked for has fewer than seq_length + 1 tokens.
CorpusSplit split_corpus(const Corpus& corpus, double valid_fraction, int64_t seq_length);

}  // namespace lethe
