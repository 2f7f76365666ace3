#pragma once

#include "lethe/data/corpus.h"

namespace lethe {

/// Entropy of a byte given the one before it in the same document, in nats per byte, over the text
/// itself: the loss of the best table of 256 x 256 frequencies, the line that a trivial model
/// reaches.
///   H = - sum_ab count(a,b) / N * ln(count(a,b) / count(a,.)),  N pairs
/// corpus: of ids below 256 (DataError). Throws DataError when no document has two bytes in
/// `within`.
double bigram_entropy(const Corpus& corpus, TokenRange within);

}  // namespace lethe
