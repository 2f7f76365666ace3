#include "lethe/model/hyper_connection.h"

#include "lethe/core/live_blocks.h"
#include "lethe/core/node.h"
#include "lethe/ops/mhc_head.h"
#include "lethe/ops/mhc_post.h"
#include "lethe/ops/mhc_pre.h"
#include "lethe/recompute/kept_call.h"

namespace lethe {

HyperConnection::HyperConnection(const ParamScope& site_scope, const ModelConfig& config, Site site)
    : site_(site),
      iterations_(config.sinkhorn_iterations),
      norm_eps_(config.norm_eps),
      hc_eps_(config.hc_eps),
      fn_(site_scope.add("mapping_proj.weight",
                         {config.mhc_rows(), config.streams * config.hidden})),
      base_(site_scope.add("bias", {config.mhc_rows()})),
      alpha_pre_(site_scope.add("alpha_pre", {1})),
      alpha_post_(site_scope.add("alpha_post", {1})),
      alpha_res_(site_scope.add("alpha_res", {1})) {}

void HyperConnection::collapse(LayerState& state) const {
  auto [to_pre, to_post] = forked<2>(state.streams);
  drop(state.streams);
  state.residual = std::move(to_post);
  const auto pre = [this](const Tensors& in) -> Tensors {
    const at::Tensor scale = at::cat({alpha_pre_, alpha_post_, alpha_res_});
    auto [x, post, comb, weights] =
        ops::mhc_pre(in[0], fn_, base_, scale, iterations_, norm_eps_, hc_eps_);
    return {std::move(x), std::move(post), std::move(comb), std::move(weights)};
  };
  const auto region = [pre](const Tensors& in) { return op_call("lethe::mhc_pre", pre, in); };
  const bool attention = site_ == Site::Attention;
  Tensors out =
      state.tape.run(attention ? SubgraphId::AttnPre : SubgraphId::MlpPre, region, {to_pre});
  state.x = std::move(out[0]);
  state.post = std::move(out[1]);
  state.comb = std::move(out[2]);
  const std::string site = attention ? "hc_attn" : "hc_ffn";
  state.observe(site + ".pre", out[3]);
  state.observe(site + ".post", state.post);
  state.observe(site + ".comb", state.comb);
}

void HyperConnection::expand(LayerState& state) const {
  const auto post = [](const Tensors& in) -> Tensors {
    return {ops::mhc_post(in[0], in[1], in[2], in[3])};
  };
  const auto region = [post](const Tensors& in) { return op_call("lethe::mhc_post", post, in); };
  const SubgraphId id = site_ == Site::Attention ? SubgraphId::AttnPost : SubgraphId::MlpPost;
  state.streams = state.tape.run(id, region, {state.x, state.residual, state.post, state.comb})[0];
  drop(state.x, state.residual, state.post, state.comb);
}

StreamHead::StreamHead(const ParamScope& scope, const ModelConfig& config)
    : norm_eps_(config.norm_eps),
      hc_eps_(config.hc_eps),
      fn_(scope.add("hc_head_fn", {config.streams, config.streams * config.hidden})),
      base_(scope.add("hc_head_base", {config.streams})),
      scale_(scope.add("hc_head_scale", {1})) {}

at::Tensor StreamHead::forward(const at::Tensor& streams_TnD) const {
  const ProducerTag producer(node_name(Event::HcHeadEnd));
  return ops::mhc_head(streams_TnD, fn_, base_, scale_, norm_eps_, hc_eps_);
}

}  // namespace lethe
