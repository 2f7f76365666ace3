#include "lethe/ops/swiglu_mlp.h"

#include <ATen/ops/mm.h>

#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/ops/check_tensor.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/fused_experts.h"
#include "lethe/ops/register.h"
#include "lethe/ops/swiglu.h"

namespace lethe::ops {
namespace {

using Outputs = std::tuple<at::Tensor, at::Tensor>;  // y, projected

Fusable fusable("swiglu_mlp");

// The arguments as those of one expert that every token passes.
ExpertInput one_expert(const at::Tensor& x,
                       const at::Tensor& fc1,
                       const at::Tensor& fc2,
                       double limit) {
  return {.x = x, .weights = {}, .indices = {}, .fc1 = fc1, .fc2 = fc2, .limit = limit};
}

void check(const at::Tensor& x, const at::Tensor& fc1, const at::Tensor& fc2, double limit) {
  check_sizes("swiglu_mlp", "x", "[T,D]", x, {-1, -1}, "flatten batch and sequence to T");
  check_sizes(
      "swiglu_mlp", "fc2", "[D,I]", fc2, {x.size(1), -1}, "is it the weight of another layer?");
  check_sizes(
      "swiglu_mlp", "fc1", "[2I,D]", fc1, {2 * fc2.size(1), x.size(1)}, "its rows are [gate; up]");
  check_floating("swiglu_mlp", "x", x);
  check_weight_dtype("swiglu_mlp", "fc1", fc1, x);
  check_weight_dtype("swiglu_mlp", "fc2", fc2, x);
  check_limit("swiglu_mlp", limit);
}

Outputs forward(const at::Tensor& x,
                const at::Tensor& fc1,
                const at::Tensor& fc2,
                double limit,
                bool keep_projected) {
  check(x, fc1, fc2, limit);
  if (!fusable.runs(x)) return reference::swiglu_mlp(x, fc1, fc2, limit, keep_projected);
  const auto [y, projected] = fused_experts(one_expert(x, fc1, fc2, limit), keep_projected);
  return {y, projected};
}

Outputs meta(const at::Tensor& x,
             const at::Tensor& fc1,
             const at::Tensor& fc2,
             double limit,
             bool keep_projected) {
  check(x, fc1, fc2, limit);
  return {at::empty(x.sizes(), x.options()),
          at::empty({keep_projected ? x.size(0) : 0, fc1.size(0)}, x.options())};
}

Outputs call(const at::Tensor& x,
             const at::Tensor& fc1,
             const at::Tensor& fc2,
             double limit,
             bool keep_projected) {
  using Signature = Outputs(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, bool);
  return LETHE_OP_HANDLE(swiglu_mlp, Signature).call(x, fc1, fc2, limit, keep_projected);
}

Tensors backward(const BackwardInput& in, double limit) {
  const at::Tensor &dy = in.grads[0], &x = in.saved[0];
  const at::Tensor fc1 = widen(in.saved[1]), fc2 = widen(in.saved[2]);
  const at::Tensor& projected = in.saved[3];
  at::Tensor dx, d_fc1, d_fc2;
  if (in.needed[2]) d_fc2 = at::mm(dy.t(), swiglu(projected, limit));
  if (in.needed[0] || in.needed[1]) {
    const at::Tensor d_projected = swiglu_gradient(projected, at::mm(dy, fc2), limit);
    if (in.needed[0]) dx = at::mm(d_projected, fc1);
    if (in.needed[1]) d_fc1 = at::mm(d_projected.t(), x);
  }
  return {dx, d_fc1, d_fc2};
}

Tensors fused_backward(const BackwardInput& in, double limit) {
  const auto [d_x, d_weights, d_fc1, d_fc2] = fused_experts_backward(
      one_expert(in.saved[0], in.saved[1], in.saved[2], limit),
      in.saved[3],
      in.grads[0],
      {.x = in.needed[0], .weights = false, .fc1 = in.needed[1], .fc2 = in.needed[2]});
  return {d_x, d_fc1, d_fc2};
}

Outputs autograd(const at::Tensor& x,
                 const at::Tensor& fc1,
                 const at::Tensor& fc2,
                 double limit,
                 bool keep_projected) {
  const Tensors inputs{x, fc1, fc2};
  Outputs out;
  {
    const bool keep = keep_projected || will_record(inputs);
    const at::AutoDispatchBelowADInplaceOrView below;
    out = call(x, fc1, fc2, limit, keep);
  }
  const auto& [y, projected] = out;
  record("lethe::swiglu_mlp",
         inputs,
         {y},
         {x, fc1, fc2, projected},
         [limit, fused = fusable.would_run(x)](const BackwardInput& in) {
           return fused ? fused_backward(in, limit) : backward(in, limit);
         });
  return out;
}

LETHE_REGISTER_OP(swiglu_mlp,
                  "swiglu_mlp(Tensor x, Tensor fc1, Tensor fc2, float limit, bool "
                  "keep_projected=False) -> (Tensor y, Tensor projected)",
                  forward,
                  meta,
                  autograd)

}  // namespace

at::Tensor swiglu_mlp(const at::Tensor& x,
                      const at::Tensor& fc1,
                      const at::Tensor& fc2,
                      double limit) {
  return std::get<0>(call(x, fc1, fc2, limit, /*keep_projected=*/false));
}

}  // namespace lethe::ops
