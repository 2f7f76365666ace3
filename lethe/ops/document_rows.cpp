#include "lethe/ops/document_rows.h"

#include <ATen/ops/repeat_interleave.h>

namespace lethe::ops {

DocumentRows document_rows(const at::Tensor& cu_seqlens, const at::Tensor& like) {
  const int64_t count = cu_seqlens.size(0) - 1;
  const at::Tensor lengths = cu_seqlens.narrow(0, 1, count) - cu_seqlens.narrow(0, 0, count);
  return {at::repeat_interleave(lengths.to(at::kLong)).to(like.device()),
          lengths.to(like.options()).unsqueeze(1)};
}

}  // namespace lethe::ops
