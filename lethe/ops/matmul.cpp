#include "lethe/ops/matmul.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "lethe/kernels/cpu/matmul.h"
#include "lethe/ops/fused.h"

namespace lethe::ops {
namespace {

// Of a matrix with adjacent rows or columns. A stride of 1 in a dimension of size 1 means nothing:
// the other one decides.
kernels::StridedMatrix strided(const at::Tensor& t) {
  const bool adjacent_columns = t.stride(1) == 1 || t.size(1) == 1;
  return {t.const_data_ptr<float>(),
          adjacent_columns ? t.stride(0) : 1,
          adjacent_columns ? 1 : t.stride(1)};
}

at::Tensor with_adjacent(const at::Tensor& t) {
  const bool adjacent = t.stride(0) == 1 || t.stride(1) == 1 || t.size(0) == 1 || t.size(1) == 1;
  return adjacent ? t : t.contiguous();
}

}  // namespace

void aten_matmul_into(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool add) {
  at::Tensor out = c;
  if (add)
    out.addmm_(a, b);
  else
    at::mm_out(out, a, b);
}

void fused_matmul_into(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, bool add) {
  const at::Tensor left = with_adjacent(a), right = with_adjacent(b);
  const int64_t rows = a.size(0), columns = b.size(1), depth = a.size(1);
  const kernels::Parallel pool = aten_pool();
  const at::Tensor floats = scratch(kernels::matmul_scratch({rows, columns, depth, pool.threads}));
  kernels::matmul({.parallel = pool,
                   .rows = rows,
                   .columns = columns,
                   .depth = depth,
                   .a = strided(left),
                   .b = strided(right),
                   .c = c.data_ptr<float>(),
                   .c_row = c.stride(0),
                   .add = add,
                   .scratch = floats.data_ptr<float>()});
}

at::Tensor aten_matmul(const at::Tensor& a, const at::Tensor& b) {
  return at::mm(a, b);
}

at::Tensor fused_matmul(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor c = at::empty({a.size(0), b.size(1)}, a.options());
  fused_matmul_into(c, a, b, /*add=*/false);
  return c;
}

}  // namespace lethe::ops
