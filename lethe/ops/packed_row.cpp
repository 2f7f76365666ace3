#include "lethe/ops/packed_row.h"

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"

namespace lethe::ops {

Documents documents_of(const char* op, const at::Tensor& cu_seqlens, int64_t tokens) {
  LETHE_CHECK(DtypeError,
              cu_seqlens.scalar_type() == at::kInt && cu_seqlens.device().is_cpu(),
              "{}: cu_seqlens must be int32 on the CPU, got {} on {}; it is read on the host",
              op,
              dtype_text(cu_seqlens),
              cu_seqlens.device().str());
  LETHE_CHECK(ShapeError,
              cu_seqlens.dim() == 1,
              "{}: cu_seqlens must be [N+1], got {}; flatten it",
              op,
              shape_text(cu_seqlens));
  const at::Tensor starts = cu_seqlens.contiguous();
  Documents documents({starts.const_data_ptr<int32_t>(), static_cast<size_t>(starts.numel())});
  LETHE_CHECK(
      ShapeError,
      documents.tokens() == tokens,
      "{}: cu_seqlens must end with the {} tokens of the row, got {}; pass the row it describes",
      op,
      tokens,
      documents.tokens());
  return documents;
}

int64_t total_slots(const Documents& documents, int64_t ratio) {
  return documents.cu_slots(ratio).back();
}

void check_sizes(const char* op,
                 const char* name,
                 const char* layout,
                 const at::Tensor& t,
                 const std::vector<int64_t>& sizes) {
  LETHE_CHECK(ShapeError,
              t.sizes() == at::IntArrayRef(sizes),
              "{}: {} must be {} = [{}], got {}; check the configuration that made it",
              op,
              name,
              layout,
              fmt::join(sizes, ","),
              shape_text(t));
}

void check_dims(
    const char* op, const char* name, const char* layout, const at::Tensor& t, int64_t dims) {
  LETHE_CHECK(ShapeError,
              t.dim() == dims,
              "{}: {} must be {}, got {}; flatten batch and documents into one row",
              op,
              name,
              layout,
              shape_text(t));
}

void check_real(const char* op, const char* name, const at::Tensor& t) {
  LETHE_CHECK(DtypeError,
              t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble,
              "{}: {} must be float32 or float64, got {}; cast it first",
              op,
              name,
              dtype_text(t));
}

void check_same_dtype(const char* op,
                      const char* name,
                      const at::Tensor& t,
                      const at::Tensor& like) {
  LETHE_CHECK(DtypeError,
              t.scalar_type() == like.scalar_type(),
              "{}: {} must be {} like the first tensor, got {}; cast it first",
              op,
              name,
              dtype_text(like),
              dtype_text(t));
}

}  // namespace lethe::ops
