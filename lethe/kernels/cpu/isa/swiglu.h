#pragma once

#include "lethe/kernels/cpu/isa/vec_math.h"

// Inside cpu/isa/ only: the clamped SwiGLU (spec 1 9.2). NaN passes through the clamps.
namespace lethe::kernels::LETHE_ISA {

/// The bound that stands for `limit`: 0 means none.
LETHE_INLINE Vec swiglu_bound(float limit) {
  return broadcast(limit > 0 ? limit : __builtin_inff());
}

LETHE_INLINE Vec clamp_gate(Vec gate, Vec bound) {
  return min(bound, gate);
}

LETHE_INLINE Vec clamp_up(Vec up, Vec bound) {
  return max(-bound, min(bound, up));
}

/// silu(min(gate, bound)) * clamp(up, -bound, bound).
LETHE_INLINE Vec swiglu(Vec gate, Vec up, Vec bound) {
  const Vec g = clamp_gate(gate, bound);
  return g * sigmoid(g) * clamp_up(up, bound);
}

struct SwigluGradient {
  Vec value, d_gate, d_up;
};

/// swiglu and its gradients for the gradient d of its value: 0 beyond the bound, passed at it.
/// silu'(g) = sigmoid(g) * (1 + g * (1 - sigmoid(g))).
LETHE_INLINE SwigluGradient swiglu_gradient(Vec gate, Vec up, Vec d, Vec bound) {
  const Vec g = clamp_gate(gate, bound), u = clamp_up(up, bound);
  const Vec s = sigmoid(g), silu = g * s;
  const Vec d_gate = fma(silu, 1.0F - s, s) * u * d, d_up = silu * d;
  return {.value = silu * u,
          .d_gate = select(gate > bound, Vec{}, d_gate),
          .d_up = select((up > bound) | (up < -bound), Vec{}, d_up)};
}

}  // namespace lethe::kernels::LETHE_ISA
