#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lethe {

/// The points at which nodes end (spec 3 4.2): those of a layer first, in the order of the layer
/// program, then those around the layers. Every execution mode emits the same events in the same
/// order; release plans, traces and the census name them.
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
  EmbedEnd,
  HcHeadEnd,
  FinalNormEnd,
  HeadLossEnd,
  MtpEntryEnd,  // of an MTP block; the events of its layer follow
  MtpHcHeadEnd,
  MtpNormEnd,
  MtpHeadLossEnd,
  OptimStepEnd,
};

inline constexpr int kNumEvents = static_cast<int>(Event::OptimStepEnd) + 1;

/// "attn.pre.end" and so on; "never" for Never.
std::string_view event_name(Event event);

/// The node that ends in the event: event_name without ".end".
std::string_view node_name(Event event);

/// The event of this name, "never" included; nothing for another text.
std::optional<Event> find_event(std::string_view name);

/// True for the events of a layer program.
constexpr bool is_layer_event(Event event) {
  return event >= Event::AttnPreEnd && event <= Event::MlpPostEnd;
}

}  // namespace lethe
