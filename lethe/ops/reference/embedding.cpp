#include "lethe/ops/embedding.h"

namespace lethe::ops::reference {

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight) {
  return weight.index_select(0, ids);
}

}  // namespace lethe::ops::reference
