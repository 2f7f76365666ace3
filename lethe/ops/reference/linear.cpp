#include "lethe/ops/linear.h"

#include <ATen/ops/mm.h>

#include "lethe/ops/compute_dtype.h"

namespace lethe::ops::reference {

at::Tensor linear(const at::Tensor& x, const at::Tensor& w) {
  const int64_t in = w.size(1), rows = x.numel() / in;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = w.size(0);
  return at::mm(widen(x).reshape({rows, in}), widen(w).t()).reshape(shape).to(x.scalar_type());
}

}  // namespace lethe::ops::reference
