#include "lethe/ops/index_scores.h"

#include <span>

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
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
  LETHE_CHECK(ShapeError,
              q.size(1) >= 1 && q.size(2) >= 1,
              "{}: q must have heads and channels, got {}; check index_n_heads and index_head_dim",
              op,
              shape_text(q));
  check_same_dtype(op, "k", k, q);
  check_same_dtype(op, "w", w, q);
  Documents documents = documents_of(op, cu_seqlens, q.size(0));
  check_sizes(op, "k", "[C,dI]", k, {total_slots(documents, ratio), q.size(2)});
  check_sizes(op, "w", "[T,nI]", w, {q.size(0), q.size(1)});
  return documents;
}

void check_given_shape(const at::Tensor& given, int64_t tokens) {
  LETHE_CHECK(DtypeError,
              given.scalar_type() == at::kInt,
              "lightning_indexer: given must be int32, got {}; pass the indices it returned",
              dtype_text(given));
  LETHE_CHECK(ShapeError,
              given.dim() == 2 && given.size(0) == tokens,
              "lightning_indexer: given must be [T,K] with T = {}, got {}; pass those of this row",
              tokens,
              shape_text(given));
}

namespace {

/// The first column that is out of order or outside [begin, end); the width if there is none.
int64_t first_bad(std::span<const int32_t> row, int64_t begin, int64_t end) {
  size_t j = 0;
  for (int64_t least = begin; j < row.size() && row[j] >= least && row[j] < end; ++j)
    least = row[j] + 1;
  while (j < row.size() && row[j] == -1) ++j;
  return static_cast<int64_t>(j);
}

}  // namespace

void check_given(const at::Tensor& given, const Documents& documents, int64_t ratio) {
  const at::Tensor ids = given.cpu().contiguous();
  const int64_t width = ids.size(1);
  const int32_t* rows = ids.const_data_ptr<int32_t>();
  const std::vector<int32_t> cu_slots = documents.cu_slots(ratio);
  for (int64_t d = 0; d < documents.count(); ++d)
    for (int64_t token = documents.begin(d); token < documents.end(d); ++token) {
      const int64_t begin = cu_slots[static_cast<size_t>(d)];
      const int64_t end = begin + (token - documents.begin(d) + 1) / ratio;
      const int32_t* row = rows + token * width;
      const int64_t bad = first_bad({row, static_cast<size_t>(width)}, begin, end);
      LETHE_CHECK(
          ShapeError,
          bad == width,
          "lightning_indexer: given[{},{}] must continue an ascending list of slots visible "
          "to its query, in [{},{}), or be -1 behind it, got {}; replay the indices of the "
          "same row, cu_seqlens and ratio",
          token,
          bad,
          begin,
          end,
          row[bad]);
    }
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
