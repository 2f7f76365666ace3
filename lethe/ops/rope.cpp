#include "lethe/ops/rope.h"

#include <algorithm>

#include "lethe/core/node.h"
#include "lethe/kernels/cpu/rope.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/register.h"
#include "lethe/ops/rotation.h"

namespace lethe::ops {
namespace {

constexpr const char* kOp = "rope";

Fusable fusable(kOp);

at::Tensor fused_rope(const at::Tensor& x, const Rotation& rotation, bool inverse) {
  const at::Tensor wide = widen(x).contiguous();
  at::Tensor y = at::empty(x.sizes(), wide.options());
  kernels::rope({.parallel = aten_pool(),
                 .tokens = x.size(0),
                 .heads = heads_of(x),
                 .width = x.size(-1),
                 .rotary = rotation.rotary(),
                 .inverse = inverse,
                 .x = wide.const_data_ptr<float>(),
                 .y = y.data_ptr<float>()});
  return y.to(x.scalar_type());
}

at::Tensor forward(const at::Tensor& x,
                   const at::Tensor& positions,
                   const at::Tensor& inv_freq,
                   bool inverse) {
  check_rotated_heads(kOp, x, positions, inv_freq);
  if (fusable.runs(x)) return fused_rope(x, {positions, inv_freq}, inverse);
  return reference::rope(x, positions, inv_freq, inverse);
}

at::Tensor meta(const at::Tensor& x,
                const at::Tensor& positions,
                const at::Tensor& inv_freq,
                bool) {
  check_rotated_heads(kOp, x, positions, inv_freq);
  return at::empty(x.sizes(), x.options());
}

at::Tensor autograd(const at::Tensor& x,
                    const at::Tensor& positions,
                    const at::Tensor& inv_freq,
                    bool inverse) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = rope(x, positions, inv_freq, inverse);
  }
  record("lethe::rope",
         {x, positions, inv_freq},
         {y},
         {positions, inv_freq},
         [inverse, fused = fusable.would_run(x)](const BackwardInput& in) {
           const at::Tensor &d_y = in.grads[0], &tokens = in.saved[0], &freq = in.saved[1];
           return Tensors{fused ? fused_rope(d_y, {tokens, freq}, !inverse)
                                : reference::rope(d_y, tokens, freq, !inverse),
                          {},
                          {}};
         });
  return y;
}

LETHE_REGISTER_OP(rope,
                  "rope(Tensor x, Tensor positions, Tensor inv_freq, bool inverse) -> Tensor",
                  forward,
                  meta,
                  autograd)

}  // namespace

at::Tensor rope_inv_freq(int64_t rope_dims, double theta, const std::optional<RopeYarn>& yarn) {
  const std::vector<float> table = kernels::rope_inv_freq(rope_dims, theta, yarn);
  at::Tensor t = at::empty({static_cast<int64_t>(table.size())}, at::kFloat);
  std::copy(table.begin(), table.end(), t.data_ptr<float>());
  return t;
}

at::Tensor rope(const at::Tensor& x,
                const at::Tensor& positions,
                const at::Tensor& inv_freq,
                bool inverse) {
  return LETHE_OP_HANDLE(rope,
                         at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool))
      .call(x, positions, inv_freq, inverse);
}

}  // namespace lethe::ops
