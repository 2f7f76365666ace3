#pragma once

#include <cstdint>
#include <string_view>

namespace lethe {

/// The points at which the nodes of a layer end, in the order of the layer program (spec 3 4.2).
/// Every execution mode emits the same events in the same order; release plans, traces and the
/// census name them.
enum class Event : uint8_t {
  Never,
  AttnPreEnd,
  AttnNormEnd,
  AttnQEnd,
  AttnIndexerEnd,
  AttnCompressEnd,
  AttnSparseEnd,
  AttnOupEnd,
  AttnBdaEnd,
  AttnPostEnd,
  MlpPreEnd,
  MlpNormEnd,
  MlpRouterEnd,
  MlpDispatchEnd,
  MlpExpertsEnd,
  MlpCombineEnd,
  MlpPostEnd,
};

/// "attn.pre.end" and so on; "never" for Never.
std::string_view event_name(Event event);

/// The node that ends in the event: event_name without ".end".
std::string_view node_name(Event event);

}  // namespace lethe
