#pragma once

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "lethe/ops/matmul.h"

// Inside lethe/ops only: the logits of some tokens at a time.
namespace lethe::ops {

/// Tokens [begin, begin + count).
struct LogitChunk {
  int64_t begin, count;

  [[nodiscard]] at::Tensor of(const at::Tensor& t) const { return t.narrow(0, begin, count); }
};

/// f(chunk, hidden[chunk] head^T), multiplied by `matmul`, for each chunk of the tokens in order;
/// the one buffer of logits is f's to overwrite.
template <class F>
void for_logit_chunks(const at::Tensor& hidden,
                      const at::Tensor& head,
                      int64_t chunk_tokens,
                      MatmulInto matmul,
                      F&& f) {
  const int64_t tokens = hidden.size(0);
  const at::Tensor buffer =
      at::empty({std::min(tokens, chunk_tokens), head.size(0)}, hidden.options());
  for (int64_t begin = 0; begin < tokens; begin += chunk_tokens) {
    const LogitChunk chunk{begin, std::min(chunk_tokens, tokens - begin)};
    at::Tensor logits = buffer.narrow(0, 0, chunk.count);
    matmul(logits, chunk.of(hidden), head.t(), /*add=*/false);
    f(chunk, logits);
  }
}

}  // namespace lethe::ops
