#pragma once

#include <ATen/core/Tensor.h>

#include "lethe/kernels/cpu/rotary.h"

// Inside lethe/ops only: what the operators that rotate share.
namespace lethe::ops {

/// Which operator rotates what, for the checks.
struct RotatedRows {
  const char* op;
  const char* positions;  // the argument's name
  int64_t rows, width;
};

/// positions int64 [rows], inv_freq float32 [rd/2] with rd <= width. Throws ShapeError, DtypeError.
void check_rotation(const RotatedRows& rows,
                    const at::Tensor& positions,
                    const at::Tensor& inv_freq);

/// x is floating [T,d] or [T,H,d] with one position per token. Throws ShapeError, DtypeError.
void check_rotated_heads(const char* op,
                         const at::Tensor& x,
                         const at::Tensor& positions,
                         const at::Tensor& inv_freq);

/// Heads of x [T,H,d], 1 of [T,d].
inline int64_t heads_of(const at::Tensor& x) {
  return x.dim() == 3 ? x.size(1) : 1;
}

/// What a kernel rotates by, kept alive for its call.
class Rotation {
 public:
  Rotation(const at::Tensor& positions, const at::Tensor& inv_freq);

  [[nodiscard]] kernels::Rotary rotary() const;

 private:
  at::Tensor positions_, inv_freq_, tables_;
};

}  // namespace lethe::ops
