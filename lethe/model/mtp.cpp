#include "lethe/model/mtp.h"

#include "lethe/core/live_blocks.h"
#include "lethe/core/node.h"
#include "lethe/ops/linear.h"
#include "lethe/ops/rms_norm.h"

namespace lethe {

MtpBlock::MtpBlock(const ParamScope& scope, const ModelConfig& c, at::Tensor inv_freq)
    : norm_eps_(c.norm_eps),
      e_proj_(scope.add("e_proj.weight", {c.hidden, c.hidden})),
      h_proj_(scope.add("h_proj.weight", {c.hidden, c.hidden})),
      e_norm_(scope.add("enorm.weight", {c.hidden})),
      h_norm_(scope.add("hnorm.weight", {c.hidden})),
      final_norm_(scope.add("final_layernorm.weight", {c.hidden})),
      layer_(scope.sub("mtp_model_layer"), c, /*ratio=*/0, /*hash=*/false, std::move(inv_freq)),
      head_(scope, c) {}

// The two terms die here: the layer that follows needs their sum alone.
at::Tensor MtpBlock::join(const at::Tensor& embedded, const at::Tensor& streams) const {
  const at::Tensor e = ops::linear(ops::rms_norm(embedded, e_norm_, norm_eps_), e_proj_);
  const at::Tensor h = ops::linear(ops::rms_norm(streams, h_norm_, norm_eps_), h_proj_);
  return e.unsqueeze(1) + h;
}

at::Tensor MtpBlock::forward(LayerState& state,
                             const at::Tensor& embedded,
                             bool streams_read_again) const {
  state.streams = join(embedded, state.streams);
  layer_.forward(state);
  at::Tensor to_head = state.streams;
  if (streams_read_again) {
    auto [head, next] = forked<2>(state.streams);
    to_head = head;
    state.streams = next;
  }
  const ProducerTag producer(node_name(Event::MtpNormEnd));
  const at::Tensor hidden = ops::rms_norm(head_.forward(to_head), final_norm_, norm_eps_);
  state.observe("hidden", hidden);
  return hidden;
}

}  // namespace lethe
