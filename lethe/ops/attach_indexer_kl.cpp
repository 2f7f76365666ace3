#include "lethe/base/error.h"
#include "lethe/core/node.h"
#include "lethe/ops/indexer_kl.h"

namespace lethe::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

struct KlRule {
  AttentionRule attention;
  bool joint;
  double scale_factor;
};

OptionalTensor if_defined(const at::Tensor& t) {
  return t.defined() ? OptionalTensor(t) : std::nullopt;
}

at::Tensor detached(const OptionalTensor& t) {
  return t ? t->detach() : at::Tensor();
}

/// saved: index q, k, w; then the teacher's q, kv, slots, indices, sink, cu_seqlens, lse,
/// slot_mass.
Tensors backward(const BackwardInput& in, const KlRule& rule, const ReportLoss& report) {
  const auto& s = in.saved;
  const OptionalTensor slots = if_defined(s[5]), indices = if_defined(s[6]), lse = if_defined(s[9]);
  const AttentionInputs attention{s[3], s[4], slots, indices, s[7], s[8]};
  const at::Tensor* slot_mass = s[10].defined() ? &s[10] : nullptr;
  const auto [d_q, d_k, d_w, loss] =
      indexer_kl({attention, lse, rule.attention, rule.joint, slot_mass}, {s[0], s[1], s[2]});
  report(loss);
  for (const at::Tensor& d : {d_q, d_k, d_w}) d.mul_(rule.scale_factor);
  return {in.grads[0], d_q, d_k, d_w};
}

}  // namespace

at::Tensor attach_indexer_kl(const at::Tensor& out,
                             const KlTeacher& teacher,
                             const IndexerInputs& index,
                             double scale_factor,
                             ReportLoss report) {
  const Tensors inputs{out, index.q, index.k, index.w};
  bool differentiable = false;
  for (const at::Tensor& t : inputs) differentiable = differentiable || t.requires_grad();
  if (!at::GradMode::is_enabled() || !differentiable) return out;
  LETHE_CHECK(ConfigError,
              report != nullptr,
              "attach_indexer_kl: report must be callable, got none; pass the tracker");
  const AttentionInputs& a = teacher.attention;
  const at::Tensor attached = out.detach();
  record("lethe::attach_indexer_kl",
         inputs,
         {attached},
         {index.q,
          index.k,
          index.w,
          a.q.detach(),
          a.kv.detach(),
          detached(a.slots),
          detached(a.indices),
          a.sink.detach(),
          a.cu_seqlens,
          detached(teacher.lse),
          teacher.slot_mass != nullptr ? teacher.slot_mass->detach() : at::Tensor()},
         [rule = KlRule{teacher.rule, teacher.joint, scale_factor}, report = std::move(report)](
             const BackwardInput& in) { return backward(in, rule, report); });
  return attached;
}

}  // namespace lethe::ops
