#include "lethe/ops/swiglu.h"

#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

namespace lethe::ops {
namespace {

struct GateAndUp {
  at::Tensor gate, up;
};

GateAndUp halves(const at::Tensor& projected) {
  const int64_t width = projected.size(-1) / 2;
  return {projected.narrow(-1, 0, width), projected.narrow(-1, width, width)};
}

GateAndUp clamped(const GateAndUp& raw, double limit) {
  if (limit == 0) return raw;
  return {raw.gate.clamp_max(limit), raw.up.clamp(-limit, limit)};
}

}  // namespace

at::Tensor swiglu(const at::Tensor& projected, double limit) {
  const auto [gate, up] = clamped(halves(projected), limit);
  return at::silu(gate).mul_(up);
}

// silu'(g) = sigmoid(g) * (1 + g * (1 - sigmoid(g)))
at::Tensor swiglu_gradient(const at::Tensor& projected, const at::Tensor& d_y, double limit) {
  const GateAndUp raw = halves(projected);
  const auto [gate, up] = clamped(raw, limit);
  const at::Tensor sigmoid = gate.sigmoid(), silu = gate * sigmoid;
  const at::Tensor d_projected = at::empty(projected.sizes(), projected.options());
  auto [d_gate, d_up] = halves(d_projected);
  d_gate.copy_((sigmoid + silu * (1 - sigmoid)).mul_(up).mul_(d_y));
  d_up.copy_(silu * d_y);
  if (limit == 0) return d_projected;
  d_gate.masked_fill_(raw.gate > limit, 0);
  d_up.masked_fill_(raw.up.abs() > limit, 0);
  return d_projected;
}

}  // namespace lethe::ops
