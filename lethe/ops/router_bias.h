#pragma once

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Moves the selection bias of every expert towards an even load, in place, after each step.
///   bias[e] += rate * sign(mean(counts) - counts[e]),  sign(0) = 0
/// The sign is decided in integers, so it is exact.
/// bias    [E] float32 without gradient, any strides; changed in place
/// counts  [E] int64: tokens per expert of the whole global batch; their sum and E times each
///         must stay below 2^63
/// rate    u of the model spec, 0.001 in the release
/// Throws ShapeError, DtypeError, ConfigError (a bias that requires a gradient).
/// Bitwise independent of the thread count. Source: model spec 9.3.
void update_router_bias(const at::Tensor& bias, const at::Tensor& counts, double rate);

namespace reference {
void update_router_bias(const at::Tensor& bias, const at::Tensor& counts, double rate);
}

}  // namespace lethe::ops
