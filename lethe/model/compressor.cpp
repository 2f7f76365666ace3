#include "lethe/model/compressor.h"

#include "lethe/ops/compressor.h"
#include "lethe/ops/linear.h"
#include "lethe/recompute/kept_call.h"

namespace lethe {
namespace {

int64_t halves(int64_t ratio) {
  return ratio == kCsaRatio ? 2 : 1;
}

}  // namespace

Compressor::Compressor(const ParamScope& scope,
                       const ModelConfig& config,
                       int64_t ratio,
                       int64_t width)
    : ratio_(ratio),
      eps_(config.norm_eps),
      ape_(scope.add("ape", {ratio, halves(ratio) * width})),
      wkv_(scope.add("linear_wkv.weight", {halves(ratio) * width, config.hidden})),
      wgate_(scope.add("linear_wgate.weight", {halves(ratio) * width, config.hidden})),
      norm_(scope.add("norm.weight", {width})) {}

at::Tensor Compressor::forward(const at::Tensor& x_for_kv,
                               const at::Tensor& x_for_gate,
                               const MicroBatch& batch,
                               const at::Tensor& inv_freq) const {
  const at::Tensor kv = ops::linear(x_for_kv, wkv_), gate = ops::linear(x_for_gate, wgate_);
  const auto pool = [&](const Tensors& in) -> Tensors {
    return {ops::compressor({.kv = in[0],
                             .gate = in[1],
                             .ape = ape_,
                             .norm_weight = norm_,
                             .slot_positions = batch.slot_positions.at(ratio_),
                             .inv_freq = inv_freq,
                             .cu_seqlens = batch.cu_seqlens},
                            {.ratio = ratio_, .eps = eps_})};
  };
  return op_call("lethe::compressor", pool, {kv, gate})[0];
}

}  // namespace lethe
