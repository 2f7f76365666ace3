#include "lethe/ops/gate_grad.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "lethe/kernels/cpu/gate_grad.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/fused.h"

namespace lethe::ops {
namespace {

// With S = sum(p) + 1e-20 and w = scale p / S:  dp = scale (dw - sum(dw p) / S) / S. The ids of a
// row are distinct, so the scatter writes every element once.
at::Tensor through_weights(const at::Tensor& d_weights,
                           const at::Tensor& scores,
                           const at::Tensor& indices,
                           const GateRule& rule) {
  const at::Tensor ids = indices.to(at::kLong);
  at::Tensor dp = d_weights * rule.scale;
  if (rule.normalize) {
    const at::Tensor p = scores.gather(-1, ids), sum = p.sum(-1, /*keepdim=*/true) + kScoreSumFloor;
    dp = (dp - (dp * p).sum(-1, /*keepdim=*/true) / sum) / sum;
  }
  return at::zeros(scores.sizes(), scores.options()).scatter_(-1, ids, dp);
}

at::Tensor through_scores(const at::Tensor& ds, const at::Tensor& s, ScoreFunction f) {
  switch (f) {
    case ScoreFunction::Sigmoid:
      return ds * s * (1 - s);
    case ScoreFunction::Softmax:
      return s * (ds - (ds * s).sum(-1, /*keepdim=*/true));
    case ScoreFunction::SqrtSoftplus:
      break;
  }
  // softplus(l) = s^2, so sigmoid(l) = 1 - exp(-s^2): the logits need not be kept. Above l = 20
  // softplus is the identity with slope 1; where s^2 is small the slope tends to s / 2, 0 for s =
  // 0.
  const at::Tensor square = s.square();
  const at::Tensor softplus_slope =
      at::where(square > kSoftplusThreshold, at::ones({}, s.options()), -square.neg().expm1());
  return ds * at::where(square < 1e-16, s / 2, softplus_slope / (2 * s));
}

const float* data_or_null(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<float>() : nullptr;
}

float* data_or_null(at::Tensor& t) {
  return t.defined() ? t.data_ptr<float>() : nullptr;
}

at::Tensor contiguous(const at::Tensor& t) {
  return t.defined() ? t.contiguous() : t;
}

}  // namespace

kernels::GateShape gate_shape(const at::Tensor& x, const at::Tensor& weight, const GateRule& rule) {
  return {.tokens = x.size(0),
          .width = x.size(1),
          .experts = weight.size(0),
          .k = rule.k,
          .score = rule.score_function,
          .normalize = rule.normalize,
          .scale = static_cast<float>(rule.scale),
          .sum_floor = static_cast<float>(kScoreSumFloor)};
}

Tensors gate_backward(const BackwardInput& in, const GateRule& rule) {
  const at::Tensor &x = in.saved[0], &weight = in.saved[1], &scores = in.saved[2];
  at::Tensor ds = in.grads[1];
  if (in.grads[0].defined()) {
    const at::Tensor by_weights = through_weights(in.grads[0], scores, in.saved[3], rule);
    ds = ds.defined() ? by_weights + ds : by_weights;
  }
  const at::Tensor d_logits = through_scores(ds, scores, rule.score_function);
  at::Tensor dx, dw;
  if (in.needed[0]) dx = at::mm(d_logits, widen(weight)).to(x.scalar_type());
  if (in.needed[1]) dw = at::mm(d_logits.t(), widen(x));
  return {dx, dw};
}

Tensors gate_backward_fused(const BackwardInput& in, const GateRule& rule) {
  const at::Tensor x = widen(in.saved[0]).contiguous(), weight = widen(in.saved[1]).contiguous();
  const at::Tensor scores = in.saved[2].contiguous(), indices = in.saved[3].contiguous();
  const at::Tensor d_weights = contiguous(in.grads[0]), d_scores = contiguous(in.grads[1]);
  at::Tensor dx, dw;
  if (in.needed[0]) dx = at::empty(x.sizes(), x.options());
  if (in.needed[1]) dw = at::empty(weight.sizes(), weight.options());
  kernels::GateBackward a{.parallel = aten_pool(),
                          .shape = gate_shape(x, weight, rule),
                          .x = x.const_data_ptr<float>(),
                          .weight = weight.const_data_ptr<float>(),
                          .scores = scores.const_data_ptr<float>(),
                          .indices = indices.const_data_ptr<int32_t>(),
                          .d_weights = data_or_null(d_weights),
                          .d_scores = data_or_null(d_scores),
                          .d_x = data_or_null(dx),
                          .d_weight = data_or_null(dw),
                          .scratch = nullptr};
  const at::Tensor space = scratch(kernels::gate_backward_scratch(a));
  a.scratch = space.data_ptr<float>();
  kernels::gate_backward(a);
  return {dx.defined() ? dx.to(in.saved[0].scalar_type()) : dx, dw};
}

}  // namespace lethe::ops
