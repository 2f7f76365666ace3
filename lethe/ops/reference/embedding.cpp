#include "lethe/ops/embedding.h"

#include "lethe/ops/compute_dtype.h"

namespace lethe::ops::reference {

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight) {
  return widen(weight.index_select(0, ids));
}

}  // namespace lethe::ops::reference
