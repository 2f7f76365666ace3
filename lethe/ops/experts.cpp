#include "lethe/ops/experts.h"

#include <ATen/ops/mm.h>

#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/ops/check_tensor.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/expert_rows.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/fused_experts.h"
#include "lethe/ops/register.h"
#include "lethe/ops/scatter_rows.h"
#include "lethe/ops/swiglu.h"

namespace lethe::ops {
namespace {

constexpr const char* kOp = "experts";

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

at::Tensor forward(const at::Tensor& x,
                   const at::Tensor& weights,
                   const at::Tensor& indices,
                   const at::Tensor& fc1,
                   const at::Tensor& fc2,
                   double limit) {
  check({x, weights, indices, fc1, fc2, limit});
  check_expert_ids(kOp, indices, fc1.size(0));
  if (fusable.runs(x)) return fused_experts({x, weights, indices, fc1, fc2, limit});
  return reference::experts(x, weights, indices, fc1, fc2, limit);
}

at::Tensor meta(const at::Tensor& x,
                const at::Tensor& weights,
                const at::Tensor& indices,
                const at::Tensor& fc1,
                const at::Tensor& fc2,
                double limit) {
  check({x, weights, indices, fc1, fc2, limit});
  return at::empty(x.sizes(), x.options());
}

// Gradients of all experts; rows are those of ExpertRows. Undefined = not needed.
struct Gradients {
  at::Tensor x, row_weight, fc1, fc2;
};

struct PermutedInput {
  const ExpertRows& rows;
  at::Tensor x, dy, weight;  // [T*k,D], [T*k,D], [T*k,1]
};

void write_product(at::Tensor out, const at::Tensor& a, const at::Tensor& b) {
  at::mm_out(out, a, b);
}

// With a = swiglu(x fc1^T) and z = weight * a:
//   dz = dy fc2,  d_weight = sum(dz * a),  da = weight * dz
void expert_backward(const PermutedInput& in,
                     int64_t e,
                     const at::Tensor& fc1,
                     const at::Tensor& fc2,
                     double limit,
                     Gradients& out) {
  const at::Tensor x = in.rows.of(in.x, e), dy = in.rows.of(in.dy, e),
                   weight = in.rows.of(in.weight, e);
  const at::Tensor projected = at::mm(x, fc1.t()), activated = swiglu(projected, limit);
  const at::Tensor dz = at::mm(dy, fc2);
  if (out.row_weight.defined())
    in.rows.of(out.row_weight, e).copy_((dz * activated).sum(-1, /*keepdim=*/true));
  if (out.fc2.defined()) write_product(out.fc2.select(0, e), dy.t(), activated * weight);
  if (!out.x.defined() && !out.fc1.defined()) return;
  const at::Tensor d_projected = swiglu_gradient(projected, dz * weight, limit);
  if (out.fc1.defined()) write_product(out.fc1.select(0, e), d_projected.t(), x);
  if (out.x.defined()) add_rows(out.x, in.rows.of(in.rows.tokens, e), at::mm(d_projected, fc1));
}

Tensors backward(const BackwardInput& in, double limit) {
  const at::Tensor &x = in.saved[0], &weights = in.saved[1], &fc1 = in.saved[3], &fc2 = in.saved[4];
  const ExpertRows rows = sort_by_expert(in.saved[2], fc1.size(0));
  const PermutedInput permuted{rows,
                               x.index_select(0, rows.tokens),
                               in.grads[0].index_select(0, rows.tokens),
                               weights.reshape({-1, 1}).index_select(0, rows.routes)};
  const auto zeros_if = [](bool needed, const at::Tensor& like) {
    return needed ? at::zeros(like.sizes(), like.options().dtype(compute_dtype(like)))
                  : at::Tensor();
  };
  Gradients out{zeros_if(in.needed[0], x),
                zeros_if(in.needed[1], permuted.weight),
                zeros_if(in.needed[3], fc1),
                zeros_if(in.needed[4], fc2)};
  for (int64_t e = 0; e < rows.experts(); ++e)
    if (rows.count(e) > 0)
      expert_backward(permuted, e, widen(fc1.select(0, e)), widen(fc2.select(0, e)), limit, out);
  at::Tensor d_weights;
  if (in.needed[1])
    d_weights = at::empty_like(permuted.weight)
                    .index_copy_(0, rows.routes, out.row_weight)
                    .view(weights.sizes());
  return {out.x, d_weights, at::Tensor(), out.fc1, out.fc2};
}

Tensors fused_backward(const BackwardInput& in, double limit) {
  const Tensors& saved = in.saved;
  const auto [d_x, d_weights, d_fc1, d_fc2] =
      fused_experts_backward({saved[0], saved[1], saved[2], saved[3], saved[4], limit},
                             in.grads[0],
                             {in.needed[0], in.needed[1], in.needed[3], in.needed[4]});
  return {d_x, d_weights, at::Tensor(), d_fc1, d_fc2};
}

at::Tensor autograd(const at::Tensor& x,
                    const at::Tensor& weights,
                    const at::Tensor& indices,
                    const at::Tensor& fc1,
                    const at::Tensor& fc2,
                    double limit) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = experts(x, weights, indices, fc1, fc2, limit);
  }
  const Tensors inputs{x, weights, indices, fc1, fc2};
  record("lethe::experts",
         inputs,
         {y},
         inputs,
         [limit, fused = fusable.would_run(x)](const BackwardInput& in) {
           return fused ? fused_backward(in, limit) : backward(in, limit);
         });
  return y;
}

LETHE_REGISTER_OP(experts,
                  "experts(Tensor x, Tensor weights, Tensor indices, Tensor fc1, Tensor fc2, float "
                  "limit) -> Tensor",
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
  using Signature = at::Tensor(const at::Tensor&,
                               const at::Tensor&,
                               const at::Tensor&,
                               const at::Tensor&,
                               const at::Tensor&,
                               double);
  return LETHE_OP_HANDLE(experts, Signature).call(x, weights, indices, fc1, fc2, limit);
}

}  // namespace lethe::ops
