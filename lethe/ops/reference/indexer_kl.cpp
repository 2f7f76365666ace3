#include "lethe/ops/indexer_kl.h"

#include <limits>

#include <ATen/ops/xlogy.h>

#include "lethe/ops/attention_keys.h"
#include "lethe/ops/index_scores.h"
#include "lethe/ops/packed_row.h"

namespace lethe::ops::reference {
namespace {

/// P from the attention's logits, as below.
at::Tensor computed_probabilities(const KlTeacher& teacher,
                                  const QueryBlock& block,
                                  const KeyPart& part) {
  const AttentionInputs& attention = teacher.attention;
  const at::Tensor q = block_rows(attention.q, block);
  const at::Tensor z = mask_hidden(inner(part, q) * teacher.rule.scale, part.hidden);
  at::Tensor mass;
  if (!teacher.joint) {
    mass = z.logsumexp(2);
  } else if (teacher.lse) {
    mass = block_rows(*teacher.lse, block);
  } else {
    mass = log_mass(AttentionKeys(attention, teacher.rule, block).logits(q, teacher.rule.scale),
                    attention.sink);
  }
  const at::Tensor share = mask_hidden(z - mass.unsqueeze(2), part.hidden);
  // P does not depend on a factor common to a row: dividing by the largest share keeps tiny shares
  // from underflow, and makes the row's sum at least 1 unless every slot is hidden.
  const at::Tensor largest = share.amax({1, 2}, /*keepdim=*/true);
  const at::Tensor none = largest == -std::numeric_limits<double>::infinity();
  const at::Tensor t = (share - largest.masked_fill(none, 0.0)).exp_().sum(1);
  return t / t.sum(1, /*keepdim=*/true).clamp_min(1.0);
}

/// P [size, m]: the teacher's probabilities of the slots of `part`; 0 where hidden, a row of 0 if
/// all are.
at::Tensor teacher_probabilities(const KlTeacher& teacher,
                                 const QueryBlock& block,
                                 const KeyPart& part) {
  if (teacher.slot_mass == nullptr) return computed_probabilities(teacher, block, part);
  constexpr double kLeastMass = 1e-30;  // below, shares may have lost digits to underflow
  const at::Tensor mass = block_rows(*teacher.slot_mass, block).masked_fill(part.hidden, 0.0);
  const at::Tensor sum = mass.sum(1, /*keepdim=*/true), enough = sum >= kLeastMass;
  const at::Tensor given = mass / sum.masked_fill(enough.logical_not(), 1.0);
  const at::Tensor open = part.hidden.logical_not().any(1, /*keepdim=*/true);
  if (!open.logical_and(enough.logical_not()).any().item<bool>()) return given;
  return at::where(enough, given, computed_probabilities(teacher, block, part));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> indexer_kl(const KlTeacher& teacher,
                                                                      const IndexerInputs& index) {
  const AttentionInputs& attention = teacher.attention;
  const Documents documents = documents_of("indexer_kl", attention.cu_seqlens, attention.q.size(0));
  const int64_t ratio = teacher.rule.ratio;
  IndexerGradients gradients(index);
  at::Tensor loss = at::zeros({1}, index.q.options());
  const int64_t block_size = std::min(index_block_size(documents, index, ratio),
                                      attention_block_size(documents, attention, teacher.rule));
  for (const QueryBlock& block : query_blocks(documents, teacher.rule.window, ratio, block_size)) {
    const KeyPart keys = slot_part(index.k, attention.indices, block, ratio);
    if (keys.hidden.size(1) == 0) continue;
    const KeyPart slots = slot_part(*attention.slots, attention.indices, block, ratio);
    const at::Tensor p = teacher_probabilities(teacher, block, slots);
    const at::Tensor log_q =
        block_scores(index, block, keys).log_softmax(1).masked_fill_(keys.hidden, 0.0);
    loss += (at::xlogy(p, p) - p * log_q).sum();
    gradients.add(index, block, keys, log_q.exp() - p);
  }
  return {gradients.q, gradients.k, gradients.w, loss};
}

}  // namespace lethe::ops::reference
