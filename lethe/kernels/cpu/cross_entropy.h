#pragma once

#include <cstdint>

#include "lethe/kernels/cpu/parallel.h"

// The rows of a chunk of logits; formulas in lethe/ops/cross_entropy.h. Bits depend on neither the
// thread count nor on the other rows.
namespace lethe::kernels {

/// token_loss[r] = lse[r] - logits[r, labels[r]], 0 where labels[r] is `ignored`.
struct CrossEntropyForward {
  Parallel parallel;
  int64_t rows, vocab, ignored;
  const float* logits;    // [rows, vocab]
  const int64_t* labels;  // [rows], each `ignored` or in [0, vocab)
  float* token_loss;      // [rows]
  float* lse;             // [rows], log(sum(exp(logits))), of uncounted rows too
};

void cross_entropy_forward(const CrossEntropyForward& a);

/// logits := (exp(logits - lse) - onehot(label)) * d_loss in place; rows that are not counted
/// become 0 whatever they hold.
struct CrossEntropyBackward {
  Parallel parallel;
  int64_t rows, vocab, ignored;
  float d_loss;
  const int64_t* labels;
  const float* lse;
  float* logits;
};

void cross_entropy_backward(const CrossEntropyBackward& a);

}  // namespace lethe::kernels
