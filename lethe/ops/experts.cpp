#include "lethe/ops/experts.h"

#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/ops/check_tensor.h"
#include "lethe/ops/expert_rows.h"
#include "lethe/ops/experts_grad.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/fused_experts.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

constexpr const char* kOp = "experts";

using Outputs = std::tuple<at::Tensor, at::Tensor>;  // y, projected

Fusable fusable(kOp);

struct Arguments {
  const at::Tensor &x, &weights, &indices, &fc1, &fc2;
  double limit;
};

void check(const Arguments& a) {
  check_sizes(kOp, "x", "[T,D]", a.x, {-1, -1}, "flatten batch and sequence to T");
  check_sizes(
      kOp, "indices", "[T,k]", a.indices, {a.x.size(0), -1}, "pass the indices of the same tokens");
  check_sizes(kOp, "weights", "[T,k]", a.weights, a.indices.sizes(), "pass one weight per index");
  check_sizes(
      kOp, "fc2", "[E,D,I]", a.fc2, {-1, a.x.size(1), -1}, "is it the weight of another layer?");
  check_sizes(kOp,
              "fc1",
              "[E,2I,D]",
              a.fc1,
              {a.fc2.size(0), 2 * a.fc2.size(2), a.x.size(1)},
              "its rows are [gate; up]");
  check_floating(kOp, "x", a.x);
  check_dtype(kOp, "weights", a.weights, a.x.scalar_type(), "it must be that of x");
  check_dtype(kOp, "indices", a.indices, at::kInt, "pass what gate or gate_lookup returned");
  check_weight_dtype(kOp, "fc1", a.fc1, a.x);
  check_weight_dtype(kOp, "fc2", a.fc2, a.x);
  check_limit(kOp, a.limit);
}

Outputs forward(const at::Tensor& x,
                const at::Tensor& weights,
                const at::Tensor& indices,
                const at::Tensor& fc1,
                const at::Tensor& fc2,
                double limit,
                bool keep_projected) {
  check({x, weights, indices, fc1, fc2, limit});
  check_expert_ids(kOp, indices, fc1.size(0));
  if (!fusable.runs(x))
    return reference::experts(x, weights, indices, fc1, fc2, limit, keep_projected);
  const auto [y, projected] = fused_experts({x, weights, indices, fc1, fc2, limit}, keep_projected);
  return {y, projected};
}

Outputs meta(const at::Tensor& x,
             const at::Tensor& weights,
             const at::Tensor& indices,
             const at::Tensor& fc1,
             const at::Tensor& fc2,
             double limit,
             bool keep_projected) {
  check({x, weights, indices, fc1, fc2, limit});
  return {at::empty(x.sizes(), x.options()),
          at::empty({keep_projected ? indices.numel() : 0, fc1.size(1)}, x.options())};
}

Outputs call(const at::Tensor& x,
             const at::Tensor& weights,
             const at::Tensor& indices,
             const at::Tensor& fc1,
             const at::Tensor& fc2,
             double limit,
             bool keep_projected) {
  using Signature = Outputs(const at::Tensor&,
                            const at::Tensor&,
                            const at::Tensor&,
                            const at::Tensor&,
                            const at::Tensor&,
                            double,
                            bool);
  return LETHE_OP_HANDLE(experts, Signature)
      .call(x, weights, indices, fc1, fc2, limit, keep_projected);
}

Tensors fused_backward(const BackwardInput& in, double limit) {
  const Tensors& saved = in.saved;
  const auto [d_x, d_weights, d_fc1, d_fc2] =
      fused_experts_backward({saved[0], saved[1], saved[2], saved[3], saved[4], limit},
                             saved[5],
                             in.grads[0],
                             {in.needed[0], in.needed[1], in.needed[3], in.needed[4]});
  return {d_x, d_weights, at::Tensor(), d_fc1, d_fc2};
}

Outputs autograd(const at::Tensor& x,
                 const at::Tensor& weights,
                 const at::Tensor& indices,
                 const at::Tensor& fc1,
                 const at::Tensor& fc2,
                 double limit,
                 bool keep_projected) {
  const Tensors inputs{x, weights, indices, fc1, fc2};
  Outputs out;
  {
    const bool keep = keep_projected || will_record(inputs);
    const at::AutoDispatchBelowADInplaceOrView below;
    out = call(x, weights, indices, fc1, fc2, limit, keep);
  }
  const auto& [y, projected] = out;
  Tensors saved = inputs;
  saved.push_back(projected);
  record("lethe::experts",
         inputs,
         {y},
         saved,
         [limit, fused = fusable.would_run(x)](const BackwardInput& in) {
           return fused ? fused_backward(in, limit) : experts_backward(in, limit);
         });
  return out;
}

LETHE_REGISTER_OP(experts,
                  "experts(Tensor x, Tensor weights, Tensor indices, Tensor fc1, Tensor fc2, float "
                  "limit, bool keep_projected=False) -> (Tensor y, Tensor projected)",
                  forward,
                  meta,
                  autograd)

}  // namespace

at::Tensor experts(const at::Tensor& x,
                   const at::Tensor& weights,
                   const at::Tensor& indices,
                   const at::Tensor& fc1,
                   const at::Tensor& fc2,
                   double limit) {
  return std::get<0>(call(x, weights, indices, fc1, fc2, limit, /*keep_projected=*/false));
}

}  // namespace lethe::ops
