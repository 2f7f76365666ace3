#include "lethe/model/attention.h"

#include <cmath>
#include <optional>

#include "lethe/core/node.h"
#include "lethe/ops/grouped_linear.h"
#include "lethe/ops/indexer_kl.h"
#include "lethe/ops/linear.h"
#include "lethe/ops/norm_rope.h"
#include "lethe/ops/rms_norm.h"
#include "lethe/ops/rope.h"
#include "lethe/ops/sparse_attention.h"
#include "lethe/recompute/kept_call.h"

namespace lethe {
namespace {

std::optional<at::Tensor> optional(const at::Tensor& t) {
  return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
}

}  // namespace

Attention::Attention(const ParamScope& scope,
                     const ModelConfig& c,
                     int64_t ratio,
                     at::Tensor inv_freq)
    : heads_(c.heads),
      head_dim_(c.head_dim),
      o_groups_(c.o_groups),
      window_(c.window),
      ratio_(ratio),
      eps_(c.norm_eps),
      scale_(1.0 / std::sqrt(static_cast<double>(c.head_dim))),
      inv_freq_(std::move(inv_freq)),
      q_down_(scope.add("linear_q_down_proj.weight", {c.q_lora_rank, c.hidden})),
      q_norm_(scope.add("q_layernorm.weight", {c.q_lora_rank})),
      q_up_(scope.add("linear_q_up_proj.weight", {c.heads * c.head_dim, c.q_lora_rank})),
      kv_proj_(scope.add("linear_kv_proj.weight", {c.head_dim, c.hidden})),
      kv_norm_(scope.add("kv_layernorm.weight", {c.head_dim})),
      o_group_(scope.add("linear_o_group_proj",
                         {c.o_groups * c.o_lora_rank, c.heads * c.head_dim / c.o_groups})),
      o_proj_(scope.add("linear_proj.weight", {c.hidden, c.o_groups * c.o_lora_rank})) {
  const ParamScope core = scope.sub("core_attention");
  sink_ = core.add("attn_sink", {c.heads});
  if (ratio_ > 0)
    compressor_ = std::make_unique<Compressor>(core.sub("compressor"), c, ratio_, c.head_dim);
  if (ratio_ == kCsaRatio) indexer_ = std::make_unique<Indexer>(core.sub("indexer"), c);
}

// The gradients of the attention input are added in this order: q, window kv, slot kv, slot gate.
void Attention::fork_input(LayerState& state, at::Tensor& x_q, at::Tensor& x_kv) const {
  if (indexer_) state.x_indexer = state.x.detach();
  if (!compressor_) {
    auto [q, kv] = forked<2>(state.x);
    x_q = q, x_kv = kv;
    return;
  }
  auto [q, kv, slot_kv, slot_gate] = forked<4>(state.x);
  x_q = q, x_kv = kv;
  state.x_slots_kv = slot_kv, state.x_slots_gate = slot_gate;
}

void Attention::project(LayerState& state) const {
  at::Tensor x_q, x_kv;
  fork_input(state, x_q, x_kv);
  drop(state.x);
  const at::Tensor qa = ops::rms_norm(ops::linear(x_q, q_down_), q_norm_, eps_);
  state.observe("attn.qa", qa);
  if (indexer_) state.qa = qa.detach();
  state.q = make_query(state, qa);
  state.kv = ops::norm_rope(
      ops::linear(x_kv, kv_proj_), kv_norm_, state.batch().positions, inv_freq_, eps_);
  state.observe("attn.q", state.q);
  state.observe("attn.kv", state.kv);
}

// Both steps as one sub-graph, or each as its own: the plan has at most one of these borders.
at::Tensor Attention::make_query(const LayerState& state, const at::Tensor& qa) const {
  const auto up = [this](const Tensors& in) -> Tensors {
    return {ops::linear(in[0], q_up_).view({-1, heads_, head_dim_})};
  };
  const auto norm = [this, pass = state.pass](const Tensors& in) -> Tensors {
    return {ops::norm_rope(in[0], std::nullopt, pass->batch.positions, inv_freq_, eps_)};
  };
  const auto both = [up, norm, tape = state.tape](const Tensors& in) {
    return tape.run(SubgraphId::QNorm, norm, tape.run(SubgraphId::QUp, up, {in[0]}));
  };
  return state.tape.run(SubgraphId::QUpNorm, both, {qa})[0];
}

void Attention::index(LayerState& state) const {
  if (indexer_) indexer_->forward(state, inv_freq_);
}

void Attention::compress(LayerState& state) const {
  if (!compressor_) return;
  state.slots =
      compressor_->forward(state.x_slots_kv, state.x_slots_gate, state.batch(), inv_freq_);
  drop(state.x_slots_kv, state.x_slots_gate);
  state.observe("attn.slots", state.slots);
}

ops::AttentionRule Attention::rule() const {
  return {.window = window_, .ratio = ratio_, .scale = scale_};
}

bool Attention::wants_loss(const LayerState& state) const {
  return indexer_ && state.factors().indexer_loss != IndexerLoss::Off &&
         state.index_q.requires_grad();
}

bool Attention::wants_slot_mass(const LayerState& state) const {
  const LossFactors& factors = state.factors();
  return wants_loss(state) && factors.indexer_loss == IndexerLoss::Sparse &&
         factors.csa_attention == CsaAttention::Sparse && factors.teacher == IndexerTeacher::Joint;
}

void Attention::attend(LayerState& state) const {
  const bool sparse = indexer_ && state.factors().csa_attention == CsaAttention::Sparse;
  const auto fn = [this, pass = state.pass, mass = wants_slot_mass(state)](const Tensors& in) {
    const auto slots = optional(in[2]), indices = optional(in[3]);
    auto [o, lse, slot_mass] = ops::sparse_attention(
        {.q = in[0],
         .kv = in[1],
         .slots = slots,
         .indices = indices,
         .sink = sink_,
         .cu_seqlens = pass->batch.cu_seqlens},
        rule(),
        {.positions = pass->batch.positions, .inv_freq = inv_freq_, .slot_mass = mass});
    Tensors out{std::move(o), std::move(lse)};
    if (mass) out.push_back(std::move(slot_mass));
    return out;
  };
  const auto region = [fn](const Tensors& in) {
    return op_call("lethe::sparse_attention", fn, in);
  };
  Tensors out =
      state.tape.run(SubgraphId::Sparse,
                     region,
                     {state.q, state.kv, state.slots, sparse ? state.topk : at::Tensor()});
  state.o = std::move(out[0]);
  state.lse = std::move(out[1]);
  if (out.size() > 2) state.slot_mass = std::move(out[2]);
  state.observe("attn.lse", state.lse);
  // The indexer's loss is the last reader of these.
  if (!wants_loss(state)) drop(state.q, state.kv, state.slots, state.topk);
  if (!wants_slot_mass(state)) drop(state.lse);
  if (!state.is_observed()) return;
  // The operator rotates o back by itself; who looks also wants to see it before that.
  off_record([&] {
    const at::NoGradGuard no_grad;
    state.observe("attn.o_rotated",
                  ops::rope(state.o, state.batch().positions, inv_freq_, /*inverse=*/false));
  });
}

void Attention::project_out(LayerState& state) const {
  state.observe("attn.o", state.o);
  const auto fn = [this](const Tensors& in) -> Tensors {
    const at::Tensor low =
        ops::grouped_linear(in[0].view({-1, heads_ * head_dim_}), o_group_, o_groups_);
    return {ops::linear(low, o_proj_)};
  };
  state.x = state.tape.run(SubgraphId::Oup, fn, {state.o})[0];
  state.observe("attn.out", state.x);
  if (wants_loss(state)) attach_indexer_loss(state);
  drop(state.q, state.kv, state.slots, state.o, state.lse, state.slot_mass, state.topk);
  drop(state.index_q, state.index_k, state.index_w);
}

void Attention::attach_indexer_loss(LayerState& state) const {
  const LossFactors& factors = state.factors();
  const bool sparse_set = factors.indexer_loss == IndexerLoss::Sparse;
  // The attention's own sums serve only where the loss looks at exactly the attended set.
  const bool reads_sums = wants_slot_mass(state);
  const at::Tensor q = state.q.detach(), kv = state.kv.detach(), sink = sink_.detach();
  const auto slots = optional(state.slots.detach());
  const auto indices = sparse_set ? optional(state.topk) : std::nullopt;
  const bool joint = factors.teacher == IndexerTeacher::Joint;
  const auto lse = reads_sums ? optional(state.lse) : std::nullopt;
  const ops::AttentionInputs inputs{.q = q,
                                    .kv = kv,
                                    .slots = slots,
                                    .indices = indices,
                                    .sink = sink,
                                    .cu_seqlens = state.batch().cu_seqlens};
  const ops::KlTeacher teacher{.attention = inputs,
                               .lse = lse,
                               .rule = rule(),
                               .joint = joint,
                               .slot_mass = reads_sums ? &state.slot_mass : nullptr};
  double* sum = &state.pass->tally.indexer_kl[static_cast<size_t>(state.layer)];
  state.x = ops::attach_indexer_kl(state.x,
                                   teacher,
                                   {.q = state.index_q, .k = state.index_k, .w = state.index_w},
                                   factors.indexer,
                                   [sum](const at::Tensor& loss) { *sum += loss.item<double>(); });
}

}  // namespace lethe
