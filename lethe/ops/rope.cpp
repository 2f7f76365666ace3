#include "lethe/ops/rope.h"

#include <algorithm>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

void check(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& inv_freq) {
  LETHE_CHECK(ShapeError,
              x.dim() == 2 || x.dim() == 3,
              "rope: x must be [T,d] or [T,H,d], got {}; flatten batch and sequence into tokens",
              shape_text(x));
  LETHE_CHECK(DtypeError,
              x.is_floating_point(),
              "rope: x must be floating, got {}; cast it first",
              dtype_text(x));
  LETHE_CHECK(
      ShapeError,
      positions.dim() == 1 && positions.size(0) == x.size(0),
      "rope: positions must be [T] = [{}], got {}; one position per token, shared by the heads",
      x.size(0),
      shape_text(positions));
  LETHE_CHECK(DtypeError,
              positions.scalar_type() == at::kLong,
              "rope: positions must be int64, got {}; cast them first",
              dtype_text(positions));
  LETHE_CHECK(
      ShapeError,
      inv_freq.dim() == 1 && 2 * inv_freq.numel() <= x.size(-1),
      "rope: inv_freq must be [rd/2] with rd <= d = {}, got {}; it has one entry per rotated pair",
      x.size(-1),
      shape_text(inv_freq));
  LETHE_CHECK(
      DtypeError,
      inv_freq.scalar_type() == at::kFloat,
      "rope: inv_freq must be float32, got {}; the table keeps float32 when a model is cast",
      dtype_text(inv_freq));
}

at::Tensor forward(const at::Tensor& x,
                   const at::Tensor& positions,
                   const at::Tensor& inv_freq,
                   bool inverse) {
  check(x, positions, inv_freq);
  return reference::rope(x, positions, inv_freq, inverse);
}

at::Tensor meta(const at::Tensor& x,
                const at::Tensor& positions,
                const at::Tensor& inv_freq,
                bool) {
  check(x, positions, inv_freq);
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
         [inverse](const BackwardInput& in) {
           return Tensors{reference::rope(in.grads[0], in.saved[0], in.saved[1], !inverse), {}, {}};
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
