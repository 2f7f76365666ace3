#include "lethe/base/error.h"
#include "lethe/ops/check_tensor.h"
#include "lethe/ops/expert_rows.h"
#include "lethe/ops/gate.h"
#include "lethe/ops/register.h"

// Expert ids of hash layers, and their counts: nothing here has a gradient.
namespace lethe::ops {
namespace {

at::Tensor empty_ids(int64_t tokens, int64_t k, const at::Tensor& like) {
  return at::empty({tokens, k}, like.options().dtype(at::kInt));
}

void check_lookup(const at::Tensor& token_ids, const at::Tensor& table) {
  check_sizes(
      "gate_lookup", "token_ids", "[T]", token_ids, {-1}, "flatten batch and sequence to T");
  check_dtype("gate_lookup",
              "token_ids",
              token_ids,
              at::kLong,
              "hash layers need the token ids, not embeddings");
  check_sizes("gate_lookup", "table", "[V,k]", table, {-1, -1}, "pass the layer's tid2eid");
  check_dtype("gate_lookup", "table", table, at::kInt, "convert tid2eid on import");
}

at::Tensor lookup_forward(const at::Tensor& token_ids, const at::Tensor& table) {
  check_lookup(token_ids, table);
  const at::Tensor bad = (token_ids < 0) | (token_ids >= table.size(0));
  if (bad.any().item<bool>()) {
    const int64_t token = bad.to(at::kInt).argmax().item<int64_t>();
    fail<DataError>(
        "gate_lookup [token ids]: must lie in [0, {}), the rows of the table, got {} at token {}; "
        "was the text "
        "tokenized for another vocabulary?",
        table.size(0),
        token_ids[token].item<int64_t>(),
        token);
  }
  return reference::gate_lookup(token_ids, table);
}

at::Tensor lookup_meta(const at::Tensor& token_ids, const at::Tensor& table) {
  check_lookup(token_ids, table);
  return empty_ids(token_ids.size(0), table.size(1), table);
}

at::Tensor lookup_autograd(const at::Tensor& token_ids, const at::Tensor& table) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return gate_lookup(token_ids, table);
}

void check_counts(const at::Tensor& indices, int64_t num_experts) {
  check_sizes(
      "expert_counts", "indices", "[T,k]", indices, {-1, -1}, "flatten batch and sequence to T");
  check_dtype(
      "expert_counts", "indices", indices, at::kInt, "pass what gate or gate_lookup returned");
  LETHE_CHECK(ShapeError,
              num_experts >= 1,
              "expert_counts [num_experts]: must be >= 1, got {}; correct num_experts",
              num_experts);
}

at::Tensor counts_forward(const at::Tensor& indices, int64_t num_experts) {
  check_counts(indices, num_experts);
  check_expert_ids("expert_counts", indices, num_experts);
  return reference::expert_counts(indices, num_experts);
}

at::Tensor counts_meta(const at::Tensor& indices, int64_t num_experts) {
  check_counts(indices, num_experts);
  return at::empty({num_experts}, indices.options().dtype(at::kLong));
}

at::Tensor counts_autograd(const at::Tensor& indices, int64_t num_experts) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return expert_counts(indices, num_experts);
}

LETHE_REGISTER_OP(gate_lookup,
                  "gate_lookup(Tensor token_ids, Tensor table) -> Tensor",
                  lookup_forward,
                  lookup_meta,
                  lookup_autograd)
LETHE_REGISTER_OP(expert_counts,
                  "expert_counts(Tensor indices, int num_experts) -> Tensor",
                  counts_forward,
                  counts_meta,
                  counts_autograd)

}  // namespace

at::Tensor gate_lookup(const at::Tensor& token_ids, const at::Tensor& table) {
  return LETHE_OP_HANDLE(gate_lookup, at::Tensor(const at::Tensor&, const at::Tensor&))
      .call(token_ids, table);
}

at::Tensor expert_counts(const at::Tensor& indices, int64_t num_experts) {
  return LETHE_OP_HANDLE(expert_counts, at::Tensor(const at::Tensor&, int64_t))
      .call(indices, num_experts);
}

}  // namespace lethe::ops
