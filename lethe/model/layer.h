#pragma once

#include <functional>
#include <vector>

#include "lethe/config/model_config.h"
#include "lethe/core/param_store.h"
#include "lethe/model/attention.h"
#include "lethe/model/hyper_connection.h"
#include "lethe/model/layer_state.h"
#include "lethe/model/moe.h"
#include "lethe/plan/event.h"

namespace lethe {

/// One step of a layer: what it computes, and the event in which it ends.
struct Node {
  Event event = Event::Never;
  std::function<void(LayerState&)> run;
};

/// One block = the list of its nodes (spec 5 1.3). The plain forward runs the list in order, in one
/// autograd graph; other execution modes interleave or repeat the same nodes.
class Layer final {
 public:
  /// scope: "decoder.layers.<i>." or "mtp.layers.<j>.mtp_model_layer."
  Layer(const ParamScope& scope,
        const ModelConfig& config,
        int64_t ratio,
        bool hash,
        at::Tensor inv_freq);
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  /// The layer program, one node per event, in order.
  [[nodiscard]] const std::vector<Node>& program() const { return program_; }

  /// Runs the program, recomputing what state.tape says: streams in, streams out.
  void forward(LayerState& state) const;

 private:
  [[nodiscard]] std::vector<Node> make_program() const;
  /// The nodes of a sub-graph that spans several: as one region where the plan has it.
  void run_span(LayerState& state, SubgraphId span) const;
  void run_nodes(LayerState& state, SubgraphId span) const;

  double norm_eps_;
  HyperConnection attn_site_, mlp_site_;
  at::Tensor attn_norm_, mlp_norm_;
  Attention attention_;
  Moe moe_;
  std::vector<Node> program_;
};

}  // namespace lethe
