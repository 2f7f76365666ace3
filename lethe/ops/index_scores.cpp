#include "lethe/ops/index_scores.h"

#include "lethe/base/error.h"
#include "lethe/ops/packed_row.h"

namespace lethe::ops {

Documents check_indexer(const char* op,
                        const IndexerInputs& inputs,
                        const at::Tensor& cu_seqlens,
                        int64_t ratio) {
  const auto& [q, k, w] = inputs;
  LETHE_CHECK(ShapeError,
              ratio >= 2,
              "{}: ratio must be >= 2, got {}; layers of ratio 0 have no indexer",
              op,
              ratio);
  check_real(op, "q", q);
  check_dims(op, "q", "[T,nI,dI]", q, 3);
  check_same_dtype(op, "k", k, q);
  check_same_dtype(op, "w", w, q);
  Documents documents = documents_of(op, cu_seqlens, q.size(0));
  check_sizes(op, "k", "[C,dI]", k, {total_slots(documents, ratio), q.size(2)});
  check_sizes(op, "w", "[T,nI]", w, {q.size(0), q.size(1)});
  return documents;
}

int64_t index_block_size(const Documents& documents, const IndexerInputs& inputs, int64_t ratio) {
  return queries_per_block(inputs.q.size(1) * most_slots(documents, ratio), 256);
}

std::vector<QueryBlock> index_blocks(const Documents& documents,
                                     const IndexerInputs& inputs,
                                     int64_t ratio) {
  return query_blocks(documents, /*window=*/1, ratio, index_block_size(documents, inputs, ratio));
}

at::Tensor block_scores(const IndexerInputs& inputs, const QueryBlock& block, const KeyPart& part) {
  const at::Tensor dots = inner(part, block_rows(inputs.q, block)).relu_();
  const at::Tensor w = block_rows(inputs.w, block).unsqueeze(1);
  return mask_hidden(at::matmul(w, dots).squeeze(1), part.hidden);
}

IndexerGradients::IndexerGradients(const IndexerInputs& inputs)
    : q(at::zeros(inputs.q.sizes(), inputs.q.options())),
      k(at::zeros(inputs.k.sizes(), inputs.k.options())),
      w(at::zeros(inputs.w.sizes(), inputs.w.options())) {}

// With S = <q, k>:  dw = sum_j dI*relu(S),  dq = sum_j dI*w*[S>0]*k,  dk = sum_{t,h} dI*w*[S>0]*q.
void IndexerGradients::add(const IndexerInputs& inputs,
                           const QueryBlock& block,
                           const KeyPart& part,
                           const at::Tensor& d_scores) {
  const at::Tensor d = d_scores.masked_fill(part.hidden, 0.0);
  const at::Tensor q_rows = block_rows(inputs.q, block), w_rows = block_rows(inputs.w, block);
  const at::Tensor dots = inner(part, q_rows);
  const at::Tensor d_dots = (d.unsqueeze(1) * w_rows.unsqueeze(2)).masked_fill_(dots <= 0, 0.0);
  block_rows(q, block).copy_(weighted_keys(part, d_dots));
  block_rows(w, block).copy_(at::matmul(dots.relu(), d.unsqueeze(2)).squeeze(2));
  add_to_keys(part, d_dots, q_rows, k);
}

}  // namespace lethe::ops
