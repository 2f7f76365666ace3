#include "lethe/ops/embedding.h"

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/register.h"
#include "lethe/ops/scatter_rows.h"

namespace lethe::ops {
namespace {

void check(const at::Tensor& ids, const at::Tensor& weight) {
  LETHE_CHECK(ShapeError,
              ids.dim() == 1,
              "embedding: ids must be [T], got {}; flatten batch and sequence into tokens",
              shape_text(ids));
  LETHE_CHECK(DtypeError,
              ids.scalar_type() == at::kLong,
              "embedding: ids must be int64, got {}; cast them first",
              dtype_text(ids));
  LETHE_CHECK(
      ShapeError, weight.dim() == 2, "embedding: weight must be [V,D], got {}", shape_text(weight));
  LETHE_CHECK(DtypeError,
              weight.is_floating_point(),
              "embedding: weight must be floating, got {}; cast it first",
              dtype_text(weight));
}

// Reads the ids: on an accelerator that would stall the stream, there the gather asserts by itself.
void check_range(const at::Tensor& ids, int64_t rows) {
  if (!ids.device().is_cpu()) return;
  const at::Tensor flat = ids.contiguous();
  const int64_t* id = flat.const_data_ptr<int64_t>();
  for (int64_t t = 0; t < flat.numel(); ++t)
    LETHE_CHECK(DataError,
                id[t] >= 0 && id[t] < rows,
                "embedding: ids must lie in [0, {}), got {} at token {}; does the text belong to "
                "another vocabulary?",
                rows,
                id[t],
                t);
}

at::Tensor forward(const at::Tensor& ids, const at::Tensor& weight) {
  check(ids, weight);
  check_range(ids, weight.size(0));
  return reference::embedding(ids, weight);
}

at::Tensor meta(const at::Tensor& ids, const at::Tensor& weight) {
  check(ids, weight);
  return at::empty({ids.size(0), weight.size(1)}, weight.options().dtype(compute_dtype(weight)));
}

struct Table {
  int64_t rows, width;
};

Tensors backward(const BackwardInput& in, const Table& table) {
  if (!in.needed[1]) return {{}, {}};
  const at::Tensor dy = widen(in.grads[0]);
  at::Tensor d_weight = at::zeros({table.rows, table.width}, dy.options());
  add_rows(d_weight, in.saved[0], dy);
  return {{}, d_weight};
}

at::Tensor autograd(const at::Tensor& ids, const at::Tensor& weight) {
  at::Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    y = embedding(ids, weight);
  }
  const Table table{weight.size(0), weight.size(1)};
  record("lethe::embedding", {ids, weight}, {y}, {ids}, [table](const BackwardInput& in) {
    return backward(in, table);
  });
  return y;
}

LETHE_REGISTER_OP(
    embedding, "embedding(Tensor ids, Tensor weight) -> Tensor", forward, meta, autograd)

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight) {
  return LETHE_OP_HANDLE(embedding, at::Tensor(const at::Tensor&, const at::Tensor&))
      .call(ids, weight);
}

}  // namespace lethe::ops
