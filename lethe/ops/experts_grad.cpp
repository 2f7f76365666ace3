#include "lethe/ops/experts_grad.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/expert_rows.h"
#include "lethe/ops/scatter_rows.h"
#include "lethe/ops/swiglu.h"

namespace lethe::ops {
namespace {

// Gradients of all experts; rows are those of ExpertRows. Undefined = not needed.
struct Gradients {
  at::Tensor x, row_weight, fc1, fc2;
};

struct PermutedInput {
  const ExpertRows& rows;
  at::Tensor x, projected, dy, weight;  // [T*k,D], [T*k,2I], [T*k,D], [T*k,1]
};

void write_product(at::Tensor out, const at::Tensor& a, const at::Tensor& b) {
  at::mm_out(out, a, b);
}

// With p = x fc1^T, a = swiglu(p) and z = weight * a:
//   dz = dy fc2,  d_weight = sum(dz * a),  da = weight * dz
void expert_backward(const PermutedInput& in,
                     int64_t e,
                     const at::Tensor& fc1,
                     const at::Tensor& fc2,
                     double limit,
                     Gradients& out) {
  const at::Tensor x = in.rows.of(in.x, e), dy = in.rows.of(in.dy, e),
                   weight = in.rows.of(in.weight, e);
  const at::Tensor projected = in.rows.of(in.projected, e), activated = swiglu(projected, limit);
  const at::Tensor dz = at::mm(dy, fc2);
  if (out.row_weight.defined())
    in.rows.of(out.row_weight, e).copy_((dz * activated).sum(-1, /*keepdim=*/true));
  if (out.fc2.defined()) write_product(out.fc2.select(0, e), dy.t(), activated * weight);
  if (!out.x.defined() && !out.fc1.defined()) return;
  const at::Tensor d_projected = swiglu_gradient(projected, dz * weight, limit);
  if (out.fc1.defined()) write_product(out.fc1.select(0, e), d_projected.t(), x);
  if (out.x.defined()) add_rows(out.x, in.rows.of(in.rows.tokens, e), at::mm(d_projected, fc1));
}

}  // namespace

Tensors experts_backward(const BackwardInput& in, double limit) {
  const at::Tensor &x = in.saved[0], &weights = in.saved[1], &fc1 = in.saved[3], &fc2 = in.saved[4];
  const ExpertRows rows = sort_by_expert(in.saved[2], fc1.size(0));
  const PermutedInput permuted{rows,
                               x.index_select(0, rows.tokens),
                               in.saved[5],
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

}  // namespace lethe::ops
