#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lethe {

/// Bound of the memory that one Muon update works in, unless a single matrix needs more.
inline constexpr int64_t kMuonWorkspaceBytes = int64_t{64} << 20;

/// Numbers of one Muon update.
struct MuonConstants {
  double lr = 0;
  double momentum = 0.95;    // mu
  double update_rms = 0.18;  // gamma
  double weight_decay = 0.1;
  double grad_scale = 1;
  int64_t workspace_bytes = kMuonWorkspaceBytes;
};

/// Hybrid Newton-Schulz (model spec 12), in place: each matrix x[i] of x [N,rows,cols] (float32 |
/// float64, contiguous) is divided by its Frobenius norm (summed in double in a fixed order), then
/// takes 8 steps of (3.4445, -4.7750, 2.0315) and 2 of (2, -1.5, 0.5):
///   X <- a X + b (X X^T) X + c (X X^T)^2 X
/// With more rows than columns the same polynomial is taken in X^T X, the smaller of the two.
/// `spare` has x's sizes and type; the result is in x. A zero matrix stays zero, exactly.
/// Deterministic for a fixed thread count and N; both move only the rounding of the products, which
/// are LibTorch's.
void hybrid_newton_schulz(at::Tensor& x, at::Tensor& spare);

/// One Muon update of a parameter [.., cols] that is a stack of matrices [rows, cols]:
///   G = grad_scale * grad,  M <- mu M + G,  U = HybridNS(mu M + G)
///   W <- W (1 - lr weight_decay) - lr gamma sqrt(max(rows, cols)) U
/// parameter, grad and momentum: contiguous, same sizes, all float32 or all float64; a zero
/// mu M + G gives a zero U. Works on as many matrices at once as fit into the workspace.
void muon_update(const MuonConstants& constants,
                 int64_t rows,
                 const at::Tensor& grad,
                 const at::Tensor& momentum,
                 const at::Tensor& parameter);

}  // namespace lethe
