#include "lethe/ops/indexer_kl.h"

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/core/node.h"
#include "lethe/ops/attention_keys.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/index_scores.h"
#include "lethe/ops/indexer_fused.h"
#include "lethe/ops/packed_row.h"
#include "lethe/ops/register.h"

namespace lethe::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using GradientsAndLoss = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

constexpr const char* kOp = "indexer_kl";

Fusable fusable(kOp);

const at::Tensor* pointer_to(const OptionalTensor& t) {
  return t ? &*t : nullptr;
}

void check_mass(const KlTeacher& teacher) {
  const AttentionInputs& attention = teacher.attention;
  const at::Tensor& mass = *teacher.slot_mass;
  LETHE_CHECK(ConfigError,
              teacher.joint && attention.indices,
              "indexer_kl: slot_mass must come with the joint teacher and indices, got {}; it is "
              "the mass of sparse_attention on its selected slots",
              shape_text(mass));
  check_same_dtype(kOp, "slot_mass", mass, attention.q);
  check_sizes(kOp, "slot_mass", "[T,K]", mass, attention.indices->sizes().vec());
}

Documents check(const KlTeacher& teacher, const IndexerInputs& index) {
  const AttentionInputs& attention = teacher.attention;
  LETHE_CHECK(ShapeError,
              teacher.rule.ratio >= 2,
              "indexer_kl: ratio must be >= 2, got {}; layers of ratio 0 have no indexer",
              teacher.rule.ratio);
  Documents documents = check_attention(kOp, attention, teacher.rule);
  check_indexer(kOp, index, attention.cu_seqlens, teacher.rule.ratio);
  check_same_dtype(kOp, "index q", index.q, attention.q);
  if (teacher.slot_mass != nullptr) check_mass(teacher);
  if (!teacher.lse) return documents;
  LETHE_CHECK(ConfigError,
              teacher.joint,
              "indexer_kl: lse must be absent for the conditional teacher, got {}; "
              "its denominator holds the slots alone",
              shape_text(*teacher.lse));
  check_same_dtype(kOp, "lse", *teacher.lse, attention.q);
  check_sizes(kOp, "lse", "[T,H]", *teacher.lse, {attention.q.size(0), attention.q.size(1)});
  return documents;
}

GradientsAndLoss forward(const at::Tensor& q,
                         const at::Tensor& kv,
                         const at::Tensor& slots,
                         const OptionalTensor& indices,
                         const at::Tensor& sink,
                         const at::Tensor& cu_seqlens,
                         const OptionalTensor& lse,
                         const at::Tensor& index_q,
                         const at::Tensor& index_k,
                         const at::Tensor& index_w,
                         int64_t window,
                         int64_t ratio,
                         double scale,
                         bool joint,
                         const OptionalTensor& slot_mass) {
  const OptionalTensor present(slots);
  const AttentionInputs attention{q, kv, present, indices, sink, cu_seqlens};
  const KlTeacher teacher{attention, lse, {window, ratio, scale}, joint, pointer_to(slot_mass)};
  const IndexerInputs index{index_q, index_k, index_w};
  const Documents documents = check(teacher, index);
  check_indices(kOp, attention, documents, ratio);
  if (fusable.runs(index_q)) return fused_indexer_kl(teacher, index, documents);
  return reference::indexer_kl(teacher, index);
}

GradientsAndLoss meta(const at::Tensor& q,
                      const at::Tensor& kv,
                      const at::Tensor& slots,
                      const OptionalTensor& indices,
                      const at::Tensor& sink,
                      const at::Tensor& cu_seqlens,
                      const OptionalTensor& lse,
                      const at::Tensor& index_q,
                      const at::Tensor& index_k,
                      const at::Tensor& index_w,
                      int64_t window,
                      int64_t ratio,
                      double scale,
                      bool joint,
                      const OptionalTensor& slot_mass) {
  const OptionalTensor present(slots);
  const AttentionInputs attention{q, kv, present, indices, sink, cu_seqlens};
  check({attention, lse, {window, ratio, scale}, joint, pointer_to(slot_mass)},
        {index_q, index_k, index_w});
  const auto like = [](const at::Tensor& t) { return at::empty(t.sizes(), t.options()); };
  return {like(index_q), like(index_k), like(index_w), at::empty({1}, index_q.options())};
}

void check_detached(const at::Tensor& t, const char* name) {
  LETHE_CHECK(ConfigError,
              !at::GradMode::is_enabled() || !t.requires_grad(),
              "indexer_kl: {} must be detached, got a tensor that requires a gradient; use "
              "attach_indexer_kl, or detach",
              name);
}

GradientsAndLoss autograd(const at::Tensor& q,
                          const at::Tensor& kv,
                          const at::Tensor& slots,
                          const OptionalTensor& indices,
                          const at::Tensor& sink,
                          const at::Tensor& cu_seqlens,
                          const OptionalTensor& lse,
                          const at::Tensor& index_q,
                          const at::Tensor& index_k,
                          const at::Tensor& index_w,
                          int64_t window,
                          int64_t ratio,
                          double scale,
                          bool joint,
                          const OptionalTensor& slot_mass) {
  check_detached(q, "query");
  check_detached(kv, "kv");
  check_detached(slots, "slots");
  check_detached(sink, "sink");
  check_detached(index_q, "index q");
  check_detached(index_k, "index k");
  check_detached(index_w, "index w");
  const OptionalTensor present(slots);
  const at::AutoDispatchBelowADInplaceOrView below;
  const AttentionInputs attention{q, kv, present, indices, sink, cu_seqlens};
  return indexer_kl({attention, lse, {window, ratio, scale}, joint, pointer_to(slot_mass)},
                    {index_q, index_k, index_w});
}

LETHE_REGISTER_OP(
    indexer_kl,
    "indexer_kl(Tensor q, Tensor kv, Tensor slots, Tensor? indices, Tensor sink, Tensor "
    "cu_seqlens, "
    "Tensor? lse, Tensor index_q, Tensor index_k, Tensor index_w, int window, int ratio, float "
    "scale, "
    "bool joint, Tensor? slot_mass=None) -> (Tensor d_index_q, Tensor d_index_k, Tensor d_index_w, "
    "Tensor loss)",
    forward,
    meta,
    autograd)

}  // namespace

GradientsAndLoss indexer_kl(const KlTeacher& teacher, const IndexerInputs& index) {
  using Signature = GradientsAndLoss(const at::Tensor&,
                                     const at::Tensor&,
                                     const at::Tensor&,
                                     const OptionalTensor&,
                                     const at::Tensor&,
                                     const at::Tensor&,
                                     const OptionalTensor&,
                                     const at::Tensor&,
                                     const at::Tensor&,
                                     const at::Tensor&,
                                     int64_t,
                                     int64_t,
                                     double,
                                     bool,
                                     const OptionalTensor&);
  const AttentionInputs& a = teacher.attention;
  LETHE_CHECK(ShapeError,
              a.slots.has_value(),
              "indexer_kl: slots must be given, got none; ratio-0 layers have no loss");
  return LETHE_OP_HANDLE(indexer_kl, Signature)
      .call(a.q,
            a.kv,
            *a.slots,
            a.indices,
            a.sink,
            a.cu_seqlens,
            teacher.lse,
            index.q,
            index.k,
            index.w,
            teacher.rule.window,
            teacher.rule.ratio,
            teacher.rule.scale,
            teacher.joint,
            teacher.slot_mass != nullptr ? OptionalTensor(*teacher.slot_mass) : std::nullopt);
}

}  // namespace lethe::ops
