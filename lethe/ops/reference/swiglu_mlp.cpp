#include "lethe/ops/swiglu_mlp.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/swiglu.h"

namespace lethe::ops::reference {

std::tuple<at::Tensor, at::Tensor> swiglu_mlp(const at::Tensor& x,
                                              const at::Tensor& fc1,
                                              const at::Tensor& fc2,
                                              double limit,
                                              bool keep_projected) {
  const at::Tensor projected = at::mm(x, widen(fc1).t());
  const at::Tensor y = at::mm(swiglu(projected, limit), widen(fc2).t());
  return {y, keep_projected ? projected : at::empty({0, fc1.size(0)}, x.options())};
}

}  // namespace lethe::ops::reference
