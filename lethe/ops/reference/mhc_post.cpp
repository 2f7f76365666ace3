#include "lethe/ops/mhc_post.h"

#include <ATen/ops/bmm.h>

#include "lethe/ops/compute_dtype.h"

namespace lethe::ops::reference {

at::Tensor mhc_post(const at::Tensor& y,
                    const at::Tensor& streams,
                    const at::Tensor& post,
                    const at::Tensor& comb) {
  const at::Tensor mixed = at::bmm(comb.transpose(1, 2), widen(streams));
  return mixed.addcmul_(post.unsqueeze(-1), widen(y).unsqueeze(1)).to(streams.scalar_type());
}

}  // namespace lethe::ops::reference
