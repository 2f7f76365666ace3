#include "lethe/model/layer.h"

#include "lethe/ops/rms_norm.h"

namespace lethe {

Layer::Layer(const ParamScope& scope,
             const ModelConfig& config,
             int64_t ratio,
             bool hash,
             at::Tensor inv_freq)
    : norm_eps_(config.norm_eps),
      attn_site_(scope.sub("self_attention_hyper_connection"), config, "attn"),
      mlp_site_(scope.sub("mlp_hyper_connection"), config, "ffn"),
      attn_norm_(scope.add("input_layernorm.weight", {config.hidden})),
      mlp_norm_(scope.add("pre_mlp_layernorm.weight", {config.hidden})),
      attention_(scope.sub("self_attention"), config, ratio, std::move(inv_freq)),
      moe_(scope.sub("mlp"), config, hash),
      program_(make_program()) {}

std::vector<Node> Layer::make_program() const {
  const auto norm = [this](LayerState& s, const at::Tensor& weight) {
    s.x = ops::rms_norm(s.x, weight, norm_eps_);
  };
  return {
      {Event::AttnPreEnd, [this](LayerState& s) { attn_site_.collapse(s); }},
      {Event::AttnNormEnd, [this, norm](LayerState& s) { norm(s, attn_norm_); }},
      {Event::AttnQEnd, [this](LayerState& s) { attention_.project(s); }},
      {Event::AttnIndexerEnd, [this](LayerState& s) { attention_.index(s); }},
      {Event::AttnCompressEnd, [this](LayerState& s) { attention_.compress(s); }},
      {Event::AttnSparseEnd, [this](LayerState& s) { attention_.attend(s); }},
      {Event::AttnOupEnd, [this](LayerState& s) { attention_.project_out(s); }},
      {Event::AttnBdaEnd,
       [](LayerState&) {}},  // V4 has neither bias nor dropout; the residual enters in post
      {Event::AttnPostEnd, [this](LayerState& s) { attn_site_.expand(s); }},
      {Event::MlpPreEnd, [this](LayerState& s) { mlp_site_.collapse(s); }},
      {Event::MlpNormEnd, [this, norm](LayerState& s) { norm(s, mlp_norm_); }},
      {Event::MlpRouterEnd, [this](LayerState& s) { moe_.route(s); }},
      {Event::MlpDispatchEnd, [this](LayerState& s) { moe_.dispatch(s); }},
      {Event::MlpExpertsEnd, [this](LayerState& s) { moe_.run_experts(s); }},
      {Event::MlpCombineEnd, [this](LayerState& s) { moe_.combine(s); }},
      {Event::MlpPostEnd, [this](LayerState& s) { mlp_site_.expand(s); }},
  };
}

void Layer::forward(LayerState& state) const {
  for (const Node& node : program_) node.run(state);
  state.observe("out", state.streams);
}

}  // namespace lethe
