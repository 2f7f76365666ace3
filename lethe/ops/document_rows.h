#pragma once

#include <ATen/core/Tensor.h>

// Inside lethe/ops only.
namespace lethe::ops {

/// Documents of a packed row as tensors on the device of the operator's input.
struct DocumentRows {
  at::Tensor of_token;  // int64 [T]: document of every token
  at::Tensor lengths;   // [N,1] in the dtype of the input
};

/// cu_seqlens: int32 [N+1] on CPU, checked to end with the tokens of `like`.
DocumentRows document_rows(const at::Tensor& cu_seqlens, const at::Tensor& like);

}  // namespace lethe::ops
