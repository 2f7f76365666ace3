#pragma once

#include <cstdint>
#include <vector>

#include "lethe/base/documents.h"

namespace at {
class Tensor;
}

// Inside lethe/ops only: what every operator on a packed row checks first.
namespace lethe::ops {

/// cu_seqlens as Documents; must be int32 [N+1] on the CPU and describe `tokens` tokens.
Documents documents_of(const char* op, const at::Tensor& cu_seqlens, int64_t tokens);

/// Slots of the whole row, C.
int64_t total_slots(const Documents& documents, int64_t ratio);

/// Most slots of any document, Cmax.
inline int64_t most_slots(const Documents& documents, int64_t ratio) {
  return documents.longest() / ratio;
}

/// `t` has these sizes. `layout` names them in the error, e.g. "[T,H,c]".
void check_sizes(const char* op,
                 const char* name,
                 const char* layout,
                 const at::Tensor& t,
                 const std::vector<int64_t>& sizes);

/// `t` has `dims` dimensions; the layout names them.
void check_dims(
    const char* op, const char* name, const char* layout, const at::Tensor& t, int64_t dims);

/// `t` is float32 or float64.
void check_real(const char* op, const char* name, const at::Tensor& t);

/// `t` has the dtype of `like`.
void check_same_dtype(const char* op,
                      const char* name,
                      const at::Tensor& t,
                      const at::Tensor& like);

}  // namespace lethe::ops
