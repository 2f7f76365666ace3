#include "lethe/plan/layer_flow.h"

// How the nodes of a layer follow each other.
namespace lethe {
namespace {

using E = Event;

/// Nodes whose outputs the node of `event` reads.
EventSet direct_inputs(Event event) {
  switch (event) {
    case E::AttnNormEnd:
      return {E::AttnPreEnd};
    case E::AttnQEnd:
    case E::AttnCompressEnd:
      return {E::AttnNormEnd};
    case E::AttnSparseEnd:
      return {E::AttnQEnd, E::AttnCompressEnd};
    case E::AttnOupEnd:
      return {E::AttnSparseEnd, E::AttnIndexerEnd};  // the latter through the indexer's loss
    case E::AttnBdaEnd:
      return {E::AttnOupEnd};
    case E::AttnPostEnd:
      return {E::AttnBdaEnd, E::AttnPreEnd};
    case E::MlpPreEnd:
      return {E::AttnPostEnd};
    case E::MlpNormEnd:
      return {E::MlpPreEnd};
    case E::MlpRouterEnd:
      return {E::MlpNormEnd};
    case E::MlpDispatchEnd:
      return {E::MlpRouterEnd};
    case E::MlpExpertsEnd:
      return {E::MlpDispatchEnd};
    case E::MlpCombineEnd:
      return {E::MlpExpertsEnd};
    case E::MlpPostEnd:
      return {E::MlpCombineEnd, E::AttnPostEnd};
    default:
      return {};
  }
}

}  // namespace

Event EventSet::last() const {
  const std::vector<Event> all = events();
  return all.empty() ? Event::Never : all.back();
}

std::vector<Event> EventSet::events() const {
  std::vector<Event> all;
  for (int i = 0; i < kNumEvents; ++i)
    if (has(static_cast<Event>(i))) all.push_back(static_cast<Event>(i));
  return all;
}

EventSet nodes_before(Event event) {
  EventSet reached{event};
  // Inputs stand before their readers, so one pass from the end finds them all.
  for (int i = static_cast<int>(event); i > 0; --i) {
    if (!reached.has(static_cast<Event>(i))) continue;
    for (const Event input : direct_inputs(static_cast<Event>(i)).events()) reached.add(input);
  }
  return reached;
}

std::string_view cut_group(Event event) {
  if (event <= E::AttnPostEnd) return "attn";
  if (event <= E::MlpRouterEnd) return "premlp";
  switch (event) {
    case E::MlpDispatchEnd:
      return "dispatch";
    case E::MlpExpertsEnd:
      return "experts";
    case E::MlpCombineEnd:
      return "combine";
    default:
      return "post";
  }
}

}  // namespace lethe
