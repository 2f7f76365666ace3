#include "lethe/config/contract_table.h"

#include "lethe/base/error.h"

namespace lethe {
namespace {

constexpr auto kRoot1 = Scope::RootFirst;
constexpr auto kLayer = Scope::Layer;
constexpr auto kRoot2 = Scope::RootLast;
constexpr auto kMtp1 = Scope::MtpFirst;
constexpr auto kMtp2 = Scope::MtpLast;
constexpr auto kAlways = When::Always;
constexpr auto kSlots = When::Compressed;
constexpr auto kCsa = When::Csa;
constexpr auto kRep = TpAxis::Replicated;

struct Names {
  std::string_view internal, hub, transformers, rollout;
};

/// A matrix is Muon's as a whole, a vector AdamW's (model spec 12); see adamw, split and per_head.
constexpr ContractRow whole(
    Scope scope, When when, QuantClass quant, TpAxis tp, std::array<Dim, 2> shape, Names n) {
  return {.scope = scope,
          .when = when,
          .packing = Packing::Whole,
          .kind = ParamKind::Param,
          .quant = quant,
          .tp = tp,
          .fp32_memory = quant == QuantClass::KF,
          .per_expert = false,
          .matrix_rows = shape[1] == Dim::None ? Dim::None : shape[0],
          .head_rows = Dim::None,
          .shape = shape,
          .internal = n.internal,
          .stacked = {},
          .hub = n.hub,
          .hub_up = {},
          .transformers = n.transformers,
          .transformers_up = {},
          .rollout = n.rollout,
          .rollout_up = {}};
}

/// RMSNorm weight: bf16 on disk, fp32 in memory.
constexpr ContractRow norm(Scope scope, When when, Dim dim, Names n) {
  ContractRow row = whole(scope, when, QuantClass::KB, kRep, {dim, Dim::None}, n);
  row.fp32_memory = true;
  return row;
}

constexpr ContractRow kept(Scope scope, When when, TpAxis tp, std::array<Dim, 2> shape, Names n) {
  return whole(scope, when, QuantClass::KF, tp, shape, n);
}

constexpr ContractRow buffer(When when, QuantClass quant, std::array<Dim, 2> shape, Names n) {
  ContractRow row = whole(kLayer, when, quant, kRep, shape, n);
  row.kind = ParamKind::Buffer;
  row.matrix_rows = Dim::None;
  return row;
}

/// A matrix that AdamW updates.
constexpr ContractRow adamw(ContractRow row) {
  row.matrix_rows = Dim::None;
  return row;
}

/// A stack of independent matrices of that many rows.
constexpr ContractRow split(ContractRow row, Dim matrix_rows) {
  row.matrix_rows = matrix_rows;
  return row;
}

/// One matrix, or on demand one per head.
constexpr ContractRow per_head(ContractRow row, Dim head_rows) {
  row.head_rows = head_rows;
  return row;
}

constexpr ContractRow alpha(Packing which, Names n) {
  ContractRow row = kept(kLayer, kAlways, kRep, {Dim::One, Dim::None}, n);
  row.packing = which;
  return row;
}

constexpr ContractRow expert(TpAxis tp,
                             std::array<Dim, 2> shape,
                             std::string_view stacked,
                             Names n) {
  ContractRow row = whole(kLayer, kAlways, QuantClass::Q4, tp, shape, n);
  row.per_expert = true;
  row.stacked = stacked;
  return row;
}

/// Adds the second half of a gate/up pair; the halves are independent matrices.
constexpr ContractRow gate_up(ContractRow row, Names up) {
  row.packing = Packing::GateUp;
  row.matrix_rows = Dim::Width;
  row.hub_up = up.hub;
  row.transformers_up = up.transformers;
  row.rollout_up = up.rollout;
  return row;
}

using enum QuantClass;

// clang-format off
constexpr std::array kTable = {
  // Root, before the layers (6-checkpoints 1.2).
  adamw(whole(kRoot1, kAlways, KB, TpAxis::Dim0, {Dim::Vocab, Dim::Hidden},
    {"embedding.word_embeddings.weight", "embed.weight", "model.embed_tokens.weight", "model.embed_tokens.weight"})),

  // Layers and the transformer part of MTP blocks (6-checkpoints 1.3).
  norm(kLayer, kAlways, Dim::Hidden,
    {"input_layernorm.weight", "attn_norm.weight", "input_layernorm.weight", "input_layernorm.weight"}),
  norm(kLayer, kAlways, Dim::Hidden,
    {"pre_mlp_layernorm.weight", "ffn_norm.weight", "post_attention_layernorm.weight", "post_attention_layernorm.weight"}),
  whole(kLayer, kAlways, Q8, kRep, {Dim::QRank, Dim::Hidden},
    {"self_attention.linear_q_down_proj.weight", "attn.wq_a.weight", "self_attn.q_a_proj.weight", "self_attn.wq_a.weight"}),
  norm(kLayer, kAlways, Dim::QRank,
    {"self_attention.q_layernorm.weight", "attn.q_norm.weight", "self_attn.q_a_norm.weight", "self_attn.q_norm.weight"}),
  per_head(whole(kLayer, kAlways, Q8, TpAxis::Dim0, {Dim::AllHeads, Dim::QRank},
    {"self_attention.linear_q_up_proj.weight", "attn.wq_b.weight", "self_attn.q_b_proj.weight", "self_attn.wq_b.weight"}), Dim::HeadDim),
  whole(kLayer, kAlways, Q8, kRep, {Dim::HeadDim, Dim::Hidden},
    {"self_attention.linear_kv_proj.weight", "attn.wkv.weight", "self_attn.kv_proj.weight", "self_attn.wkv.weight"}),
  norm(kLayer, kAlways, Dim::HeadDim,
    {"self_attention.kv_layernorm.weight", "attn.kv_norm.weight", "self_attn.kv_norm.weight", "self_attn.kv_norm.weight"}),
  split(whole(kLayer, kAlways, Q8, TpAxis::Dim0, {Dim::GroupRows, Dim::GroupColumns},
    {"self_attention.linear_o_group_proj", "attn.wo_a.weight", "self_attn.o_a_proj.weight", "self_attn.wo_a.weight"}), Dim::GroupRank),
  whole(kLayer, kAlways, Q8, TpAxis::Dim1, {Dim::Hidden, Dim::GroupRows},
    {"self_attention.linear_proj.weight", "attn.wo_b.weight", "self_attn.o_b_proj.weight", "self_attn.wo_b.weight"}),
  kept(kLayer, kAlways, TpAxis::Dim0, {Dim::Heads, Dim::None},
    {"self_attention.core_attention.attn_sink", "attn.attn_sink", "self_attn.sinks", "self_attn.attn_sink"}),

  adamw(kept(kLayer, kSlots, kRep, {Dim::Ratio, Dim::SlotWidth},
    {"self_attention.core_attention.compressor.ape", "attn.compressor.ape",
     "self_attn.compressor.position_bias", "self_attn.compressor.ape"})),
  split(whole(kLayer, kSlots, KB, kRep, {Dim::SlotWidth, Dim::Hidden},
    {"self_attention.core_attention.compressor.linear_wkv.weight", "attn.compressor.wkv.weight",
     "self_attn.compressor.kv_proj.weight", "self_attn.compressor.wkv.weight"}), Dim::HeadDim),
  split(whole(kLayer, kSlots, KB, kRep, {Dim::SlotWidth, Dim::Hidden},
    {"self_attention.core_attention.compressor.linear_wgate.weight", "attn.compressor.wgate.weight",
     "self_attn.compressor.gate_proj.weight", "self_attn.compressor.wgate.weight"}), Dim::HeadDim),
  norm(kLayer, kSlots, Dim::HeadDim,
    {"self_attention.core_attention.compressor.norm.weight", "attn.compressor.norm.weight",
     "self_attn.compressor.kv_norm.weight", "self_attn.compressor.norm.weight"}),

  per_head(whole(kLayer, kCsa, Q8, kRep, {Dim::IndexAllHeads, Dim::QRank},
    {"self_attention.core_attention.indexer.linear_wq_b.weight", "attn.indexer.wq_b.weight",
     "self_attn.compressor.indexer.q_b_proj.weight", "self_attn.indexer.wq_b.weight"}), Dim::IndexDim),
  whole(kLayer, kCsa, KB, kRep, {Dim::IndexHeads, Dim::Hidden},
    {"self_attention.core_attention.indexer.linear_weights_proj.weight", "attn.indexer.weights_proj.weight",
     "self_attn.compressor.indexer.scorer.weights_proj.weight", "self_attn.indexer.weights_proj.weight"}),
  adamw(kept(kLayer, kCsa, kRep, {Dim::Ratio, Dim::IndexSlotWidth},
    {"self_attention.core_attention.indexer.compressor.ape", "attn.indexer.compressor.ape",
     "self_attn.compressor.indexer.position_bias", "self_attn.indexer.compressor.ape"})),
  split(whole(kLayer, kCsa, KB, kRep, {Dim::IndexSlotWidth, Dim::Hidden},
    {"self_attention.core_attention.indexer.compressor.linear_wkv.weight", "attn.indexer.compressor.wkv.weight",
     "self_attn.compressor.indexer.kv_proj.weight", "self_attn.indexer.compressor.wkv.weight"}), Dim::IndexDim),
  split(whole(kLayer, kCsa, KB, kRep, {Dim::IndexSlotWidth, Dim::Hidden},
    {"self_attention.core_attention.indexer.compressor.linear_wgate.weight", "attn.indexer.compressor.wgate.weight",
     "self_attn.compressor.indexer.gate_proj.weight", "self_attn.indexer.compressor.wgate.weight"}), Dim::IndexDim),
  norm(kLayer, kCsa, Dim::IndexDim,
    {"self_attention.core_attention.indexer.compressor.norm.weight", "attn.indexer.compressor.norm.weight",
     "self_attn.compressor.indexer.kv_norm.weight", "self_attn.indexer.compressor.norm.weight"}),

  whole(kLayer, kAlways, KB, kRep, {Dim::Experts, Dim::Hidden},
    {"mlp.router.weight", "ffn.gate.weight", "mlp.gate.weight", "mlp.gate.weight"}),
  buffer(When::Scored, KF, {Dim::Experts, Dim::None},
    {"mlp.router.expert_bias", "ffn.gate.bias", "mlp.gate.e_score_correction_bias", "mlp.gate.e_score_correction_bias"}),
  buffer(When::Hash, KI, {Dim::Vocab, Dim::TopK},
    {"mlp.router.tid2eid", "ffn.gate.tid2eid", "mlp.gate.tid2eid", "mlp.topk.tid2eid"}),
  gate_up(expert(TpAxis::GateUp, {Dim::TwoWidths, Dim::Hidden}, "mlp.experts.fc1",
      {"mlp.experts.linear_fc1.weight{e}", "ffn.experts.{e}.w1.weight",
       "mlp.experts.gate_up_proj", "mlp.experts.{e}.gate_proj.weight"}),
    {"", "ffn.experts.{e}.w3.weight", "", "mlp.experts.{e}.up_proj.weight"}),
  expert(TpAxis::Dim1, {Dim::Hidden, Dim::Width}, "mlp.experts.fc2",
    {"mlp.experts.linear_fc2.weight{e}", "ffn.experts.{e}.w2.weight",
     "mlp.experts.down_proj", "mlp.experts.{e}.down_proj.weight"}),
  gate_up(whole(kLayer, kAlways, Q8, TpAxis::GateUp, {Dim::TwoWidths, Dim::Hidden},
      {"mlp.shared_experts.linear_fc1.weight", "ffn.shared_experts.w1.weight",
       "mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.gate_proj.weight"}),
    {"", "ffn.shared_experts.w3.weight", "mlp.shared_experts.up_proj.weight", "mlp.shared_experts.up_proj.weight"}),
  whole(kLayer, kAlways, Q8, TpAxis::Dim1, {Dim::Hidden, Dim::Width},
    {"mlp.shared_experts.linear_fc2.weight", "ffn.shared_experts.w2.weight",
     "mlp.shared_experts.down_proj.weight", "mlp.shared_experts.down_proj.weight"}),

  kept(kLayer, kAlways, kRep, {Dim::MhcRows, Dim::StreamsHidden},
    {"self_attention_hyper_connection.mapping_proj.weight", "hc_attn_fn", "attn_hc.fn", "hc_attn_fn"}),
  kept(kLayer, kAlways, kRep, {Dim::MhcRows, Dim::None},
    {"self_attention_hyper_connection.bias", "hc_attn_base", "attn_hc.base", "hc_attn_base"}),
  alpha(Packing::AlphaPre,
    {"self_attention_hyper_connection.alpha_pre", "hc_attn_scale", "attn_hc.scale", "hc_attn_scale"}),
  alpha(Packing::AlphaPost,
    {"self_attention_hyper_connection.alpha_post", "hc_attn_scale", "attn_hc.scale", "hc_attn_scale"}),
  alpha(Packing::AlphaRes,
    {"self_attention_hyper_connection.alpha_res", "hc_attn_scale", "attn_hc.scale", "hc_attn_scale"}),
  kept(kLayer, kAlways, kRep, {Dim::MhcRows, Dim::StreamsHidden},
    {"mlp_hyper_connection.mapping_proj.weight", "hc_ffn_fn", "ffn_hc.fn", "hc_ffn_fn"}),
  kept(kLayer, kAlways, kRep, {Dim::MhcRows, Dim::None},
    {"mlp_hyper_connection.bias", "hc_ffn_base", "ffn_hc.base", "hc_ffn_base"}),
  alpha(Packing::AlphaPre, {"mlp_hyper_connection.alpha_pre", "hc_ffn_scale", "ffn_hc.scale", "hc_ffn_scale"}),
  alpha(Packing::AlphaPost, {"mlp_hyper_connection.alpha_post", "hc_ffn_scale", "ffn_hc.scale", "hc_ffn_scale"}),
  alpha(Packing::AlphaRes, {"mlp_hyper_connection.alpha_res", "hc_ffn_scale", "ffn_hc.scale", "hc_ffn_scale"}),

  // Root, after the layers.
  norm(kRoot2, kAlways, Dim::Hidden,
    {"decoder.final_layernorm.weight", "norm.weight", "model.norm.weight", "model.norm.weight"}),
  kept(kRoot2, kAlways, kRep, {Dim::Streams, Dim::StreamsHidden},
    {"decoder.hc_head_fn", "hc_head_fn", "model.hc_head.hc_fn", "model.hc_head_fn"}),
  kept(kRoot2, kAlways, kRep, {Dim::Streams, Dim::None},
    {"decoder.hc_head_base", "hc_head_base", "model.hc_head.hc_base", "model.hc_head_base"}),
  kept(kRoot2, kAlways, kRep, {Dim::One, Dim::None},
    {"decoder.hc_head_scale", "hc_head_scale", "model.hc_head.hc_scale", "model.hc_head_scale"}),
  adamw(whole(kRoot2, kAlways, KB, TpAxis::Dim0, {Dim::Vocab, Dim::Hidden},
    {"output_layer.weight", "head.weight", "lm_head.weight", "lm_head.weight"})),

  // MTP blocks, what a layer does not have (6-checkpoints 1.4).
  whole(kMtp1, kAlways, Q8, TpAxis::Dim0, {Dim::Hidden, Dim::Hidden},
    {"e_proj.weight", "e_proj.weight", "e_proj.weight", "e_proj.weight"}),
  whole(kMtp1, kAlways, Q8, TpAxis::Dim0, {Dim::Hidden, Dim::Hidden},
    {"h_proj.weight", "h_proj.weight", "h_proj.weight", "h_proj.weight"}),
  norm(kMtp1, kAlways, Dim::Hidden, {"enorm.weight", "enorm.weight", "enorm.weight", "enorm.weight"}),
  norm(kMtp1, kAlways, Dim::Hidden, {"hnorm.weight", "hnorm.weight", "hnorm.weight", "hnorm.weight"}),
  norm(kMtp2, kAlways, Dim::Hidden, {"final_layernorm.weight", "norm.weight", "norm.weight", "norm.weight"}),
  kept(kMtp2, kAlways, kRep, {Dim::Streams, Dim::StreamsHidden},
    {"hc_head_fn", "hc_head_fn", "hc_head_fn", "hc_head_fn"}),
  kept(kMtp2, kAlways, kRep, {Dim::Streams, Dim::None},
    {"hc_head_base", "hc_head_base", "hc_head_base", "hc_head_base"}),
  kept(kMtp2, kAlways, kRep, {Dim::One, Dim::None},
    {"hc_head_scale", "hc_head_scale", "hc_head_scale", "hc_head_scale"}),
};
// clang-format on

}  // namespace

std::span<const ContractRow> contract_table() {
  return kTable;
}

int64_t dim_size(Dim dim, const ModelConfig& c, int64_t ratio) {
  switch (dim) {
    case Dim::None:
      return 0;
    case Dim::One:
      return 1;
    case Dim::Vocab:
      return c.vocab_size;
    case Dim::Hidden:
      return c.hidden;
    case Dim::Streams:
      return c.streams;
    case Dim::StreamsHidden:
      return c.streams * c.hidden;
    case Dim::MhcRows:
      return c.mhc_rows();
    case Dim::QRank:
      return c.q_lora_rank;
    case Dim::AllHeads:
      return c.heads * c.head_dim;
    case Dim::HeadDim:
      return c.head_dim;
    case Dim::Heads:
      return c.heads;
    case Dim::GroupRank:
      return c.o_lora_rank;
    case Dim::GroupRows:
      return c.o_groups * c.o_lora_rank;
    case Dim::GroupColumns:
      return c.heads * c.head_dim / c.o_groups;
    case Dim::Ratio:
      return ratio;
    case Dim::SlotWidth:
      return (ratio == kCsaRatio ? 2 : 1) * c.head_dim;
    case Dim::IndexHeads:
      return c.index_heads;
    case Dim::IndexAllHeads:
      return c.index_heads * c.index_head_dim;
    case Dim::IndexDim:
      return c.index_head_dim;
    case Dim::IndexSlotWidth:
      return 2 * c.index_head_dim;
    case Dim::Experts:
      return c.num_experts;
    case Dim::TopK:
      return c.experts_per_token;
    case Dim::Width:
      return c.expert_width;
    case Dim::TwoWidths:
      return 2 * c.expert_width;
  }
  fail_internal("contract table: unknown dimension");
}

bool applies(When when, int64_t ratio, bool hash_layer) {
  switch (when) {
    case When::Always:
      return true;
    case When::Compressed:
      return ratio > 0;
    case When::Csa:
      return ratio == lethe::kCsaRatio;
    case When::Hash:
      return hash_layer;
    case When::Scored:
      return !hash_layer;
  }
  fail_internal("contract table: unknown condition");
}

}  // namespace lethe
