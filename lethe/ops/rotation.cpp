#include "lethe/ops/rotation.h"

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/ops/fused.h"

namespace lethe::ops {

void check_rotation(const RotatedRows& rows,
                    const at::Tensor& positions,
                    const at::Tensor& inv_freq) {
  LETHE_CHECK(ShapeError,
              positions.dim() == 1 && positions.size(0) == rows.rows,
              "{}: {} must be [{}], got {}; one position per row, shared by its heads",
              rows.op,
              rows.positions,
              rows.rows,
              shape_text(positions));
  LETHE_CHECK(DtypeError,
              positions.scalar_type() == at::kLong,
              "{}: {} must be int64, got {}; cast them first",
              rows.op,
              rows.positions,
              dtype_text(positions));
  LETHE_CHECK(
      ShapeError,
      inv_freq.dim() == 1 && 2 * inv_freq.numel() <= rows.width,
      "{}: inv_freq must be [rd/2] with rd <= d = {}, got {}; it has one entry per rotated pair",
      rows.op,
      rows.width,
      shape_text(inv_freq));
  LETHE_CHECK(DtypeError,
              inv_freq.scalar_type() == at::kFloat,
              "{}: inv_freq must be float32, got {}; the table keeps float32 when a model is cast",
              rows.op,
              dtype_text(inv_freq));
}

void check_rotated_heads(const char* op,
                         const at::Tensor& x,
                         const at::Tensor& positions,
                         const at::Tensor& inv_freq) {
  LETHE_CHECK(ShapeError,
              x.dim() == 2 || x.dim() == 3,
              "{}: x must be [T,d] or [T,H,d], got {}; flatten batch and sequence into tokens",
              op,
              shape_text(x));
  LETHE_CHECK(DtypeError,
              x.is_floating_point(),
              "{}: x must be floating, got {}; cast it first",
              op,
              dtype_text(x));
  check_rotation({.op = op, .positions = "positions", .rows = x.size(0), .width = x.size(-1)},
                 positions,
                 inv_freq);
}

Rotation::Rotation(const at::Tensor& positions, const at::Tensor& inv_freq)
    : positions_(positions.contiguous()),
      inv_freq_(inv_freq.contiguous()),
      tables_(scratch(kernels::rotary_scratch_floats(inv_freq.numel(), aten_pool().threads))) {}

kernels::Rotary Rotation::rotary() const {
  return {.positions = positions_.const_data_ptr<int64_t>(),
          .inv_freq = inv_freq_.const_data_ptr<float>(),
          .pairs = inv_freq_.numel(),
          .tables = tables_.data_ptr<float>()};
}

}  // namespace lethe::ops
