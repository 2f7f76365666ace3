#include "lethe/model/layer.h"

#include "lethe/core/live_blocks.h"
#include "lethe/ops/rms_norm.h"

namespace lethe {
namespace {

// What the next node reads of this one: its gradient says that the backward of the nodes before
// begins.
const at::Tensor& output_of(const LayerState& state, Event event) {
  switch (event) {
    case Event::AttnQEnd:
      return state.q;
    case Event::AttnCompressEnd:
      return state.slots;
    case Event::AttnSparseEnd:
      return state.o;
    case Event::AttnPostEnd:
    case Event::MlpPostEnd:
      return state.streams;
    default:
      return state.x;
  }
}

// The tensor that enters and leaves a span of nodes.
at::Tensor& through(LayerState& state, SubgraphId span) {
  return span == SubgraphId::Layer ? state.streams : state.x;
}

}  // namespace

Layer::Layer(const ParamScope& scope,
             const ModelConfig& config,
             int64_t ratio,
             bool hash,
             at::Tensor inv_freq)
    : norm_eps_(config.norm_eps),
      attn_site_(
          scope.sub("self_attention_hyper_connection"), config, HyperConnection::Site::Attention),
      mlp_site_(scope.sub("mlp_hyper_connection"), config, HyperConnection::Site::Mlp),
      attn_norm_(scope.add("input_layernorm.weight", {config.hidden})),
      mlp_norm_(scope.add("pre_mlp_layernorm.weight", {config.hidden})),
      attention_(scope.sub("self_attention"), config, ratio, std::move(inv_freq)),
      moe_(scope.sub("mlp"), config, hash),
      program_(make_program()) {}

std::vector<Node> Layer::make_program() const {
  const auto norm = [this](LayerState& s, SubgraphId id, const at::Tensor& weight) {
    const auto fn = [weight, eps = norm_eps_](const Tensors& in) -> Tensors {
      return {ops::rms_norm(in[0], weight, eps)};
    };
    s.x = s.tape.run(id, fn, {s.x})[0];
  };
  return {
      {Event::AttnPreEnd, [this](LayerState& s) { attn_site_.collapse(s); }},
      {Event::AttnNormEnd,
       [this, norm](LayerState& s) { norm(s, SubgraphId::AttnNorm, attn_norm_); }},
      {Event::AttnQEnd, [this](LayerState& s) { attention_.project(s); }},
      {Event::AttnIndexerEnd, [this](LayerState& s) { attention_.index(s); }},
      {Event::AttnCompressEnd, [this](LayerState& s) { attention_.compress(s); }},
      {Event::AttnSparseEnd, [this](LayerState& s) { attention_.attend(s); }},
      {Event::AttnOupEnd, [this](LayerState& s) { attention_.project_out(s); }},
      {Event::AttnBdaEnd,
       [](LayerState&) {}},  // V4 has neither bias nor dropout; the residual enters in post
      {Event::AttnPostEnd, [this](LayerState& s) { attn_site_.expand(s); }},
      {Event::MlpPreEnd, [this](LayerState& s) { mlp_site_.collapse(s); }},
      {Event::MlpNormEnd, [this, norm](LayerState& s) { norm(s, SubgraphId::MlpNorm, mlp_norm_); }},
      {Event::MlpRouterEnd, [this](LayerState& s) { moe_.route(s); }},
      {Event::MlpDispatchEnd, [this](LayerState& s) { moe_.dispatch(s); }},
      {Event::MlpExpertsEnd, [this](LayerState& s) { moe_.run_experts(s); }},
      {Event::MlpCombineEnd, [this](LayerState& s) { moe_.combine(s); }},
      {Event::MlpPostEnd, [this](LayerState& s) { mlp_site_.expand(s); }},
  };
}

void Layer::run_nodes(LayerState& state, SubgraphId span) const {
  const SubgraphInfo &all = subgraph_info(span), &moe = subgraph_info(SubgraphId::Moe);
  const bool moe_apart = span != SubgraphId::Moe && state.tape.has(SubgraphId::Moe);
  ProducerTag producer(state.tape.label(), {});
  for (const Node& node : program_) {
    if (node.event < all.first || node.event > all.last) continue;
    producer.set_node(node_name(node.event));
    if (!moe_apart || node.event < moe.first || node.event > moe.last)
      node.run(state);
    else if (node.event == moe.first)
      run_span(state, SubgraphId::Moe);
    // Until a region has ended its input is held by whoever called it.
    if (span != SubgraphId::Moe) state.tape.event(node.event, output_of(state, node.event));
  }
}

void Layer::run_span(LayerState& state, SubgraphId span) const {
  if (!state.tape.has(span)) return run_nodes(state, span);
  const auto fn = [this, span, fixed = state.without_tensors()](const Tensors& in) {
    LayerState inner = fixed;
    through(inner, span) = in[0];
    run_nodes(inner, span);
    Tensors out{std::move(through(inner, span))};
    if (inner.balance.defined()) out.push_back(std::move(inner.balance));
    return out;
  };
  Tensors out = state.tape.run(span, fn, {through(state, span)});
  through(state, span) = std::move(out[0]);
  if (out.size() > 1) state.balance = std::move(out[1]);
}

void Layer::forward(LayerState& state) const {
  // Held only where it is swapped: what a chain of layers gives back must be free to go.
  const at::Tensor input = state.tape.swaps_input() ? state.streams : at::Tensor();
  run_span(state, SubgraphId::Layer);
  state.tape.end_layer(input, state.streams);
  state.observe("out", state.streams);
}

}  // namespace lethe
