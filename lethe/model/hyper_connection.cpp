#include "lethe/model/hyper_connection.h"

#include "lethe/core/node.h"
#include "lethe/ops/mhc_head.h"
#include "lethe/ops/mhc_post.h"
#include "lethe/ops/mhc_pre.h"

namespace lethe {

HyperConnection::HyperConnection(const ParamScope& site_scope,
                                 const ModelConfig& config,
                                 std::string_view site)
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
  const at::Tensor scale = at::cat({alpha_pre_, alpha_post_, alpha_res_});
  at::Tensor pre;
  std::tie(state.x, state.post, state.comb, pre) =
      ops::mhc_pre(to_pre, fn_, base_, scale, iterations_, norm_eps_, hc_eps_);
  const std::string site = "hc_" + std::string(site_);
  state.observe(site + ".pre", pre);
  state.observe(site + ".post", state.post);
  state.observe(site + ".comb", state.comb);
}

void HyperConnection::expand(LayerState& state) const {
  state.streams = ops::mhc_post(state.x, state.residual, state.post, state.comb);
  drop(state.x, state.residual, state.post, state.comb);
}

StreamHead::StreamHead(const ParamScope& scope, const ModelConfig& config)
    : norm_eps_(config.norm_eps),
      hc_eps_(config.hc_eps),
      fn_(scope.add("hc_head_fn", {config.streams, config.streams * config.hidden})),
      base_(scope.add("hc_head_base", {config.streams})),
      scale_(scope.add("hc_head_scale", {1})) {}

at::Tensor StreamHead::forward(const at::Tensor& streams_TnD) const {
  return ops::mhc_head(streams_TnD, fn_, base_, scale_, norm_eps_, hc_eps_);
}

}  // namespace lethe
