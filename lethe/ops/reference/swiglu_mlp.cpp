#include "lethe/ops/swiglu_mlp.h"

#include <ATen/ops/mm.h>

#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/swiglu.h"

namespace lethe::ops::reference {

at::Tensor swiglu_mlp(const at::Tensor& x,
                      const at::Tensor& fc1,
                      const at::Tensor& fc2,
                      double limit) {
  return at::mm(swiglu(at::mm(x, widen(fc1).t()), limit), widen(fc2).t());
}

}  // namespace lethe::ops::reference
