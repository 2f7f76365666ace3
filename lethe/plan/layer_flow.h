#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lethe/plan/event.h"
#include "lethe/plan/subgraph.h"

// What a layer does with its activations, whatever a plan decides (spec 3 4.1, 4.6): who makes
// them, which nodes read them in forward, which save them for backward. Plans are made from it and
// checked against it. Values, safe on every thread.
namespace lethe {

/// An activation: output `out` of a sub-graph.
struct ActId {
  SubgraphId subgraph{};
  uint8_t out = 0;
  auto operator<=>(const ActId&) const = default;
};

/// Who holds the bytes besides the saved tensors of autograd.
enum class Owner : uint8_t {
  Ad,     // nobody
  Tape,   // the layer's record: boundaries
  Local,  // a variable of the layer's code
  Swap,   // a swap entry
  Comm,   // a buffer of a collective
  Param,  // a parameter
};

/// Layer events as a set.
class EventSet {
 public:
  constexpr EventSet() = default;

  constexpr EventSet(std::initializer_list<Event> events) {
    for (const Event event : events) add(event);
  }

  constexpr void add(Event event) { bits_ |= 1U << static_cast<unsigned>(event); }

  [[nodiscard]] constexpr bool has(Event event) const {
    return (bits_ >> static_cast<unsigned>(event) & 1U) != 0;
  }

  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }

  /// The latest event in program order; Never for the empty set.
  [[nodiscard]] Event last() const;

  /// The members in program order.
  [[nodiscard]] std::vector<Event> events() const;

  auto operator<=>(const EventSet&) const = default;

 private:
  uint32_t bits_ = 0;
};

/// What distinguishes layers of one model.
struct LayerKind {
  int64_t ratio = 0;  // tokens per slot; 0 = window only
  bool hash = false;  // routes by token id
  bool mtp = false;
  auto operator<=>(const LayerKind&) const = default;

  [[nodiscard]] bool has_indexer() const;
};

/// "main/ratio4", "main/window/hash", "mtp/window": how errors and reports name a kind.
[[nodiscard]] std::string kind_name(const LayerKind& kind);

/// Which operators run, where it moves the border of a sub-graph or the readers of an activation
/// (spec 3 3.2, last details; 3.5). The defaults are Lethe's own operators.
struct OperatorFacts {
  bool rotates_in_sparse = true;     // attention rotates o back itself: not a part of G6
  bool q_norm_saves_output = false;  // head norm keeps its output, not q_up: G1 frees nothing
  bool compressor_casts = false;     // the compressor's input is cast to fp32 in a tensor (G4)
  bool fp32_activations = true;      // that cast would return its own input
  bool fp8_compressor = false;       // no G4
  bool varlen_compressor = false;    // no G4
  bool attention_bias = false;       // G7 exists; without it and without dropout BDA is its input
  bool hidden_dropout = false;       // G7 exists and draws random numbers
  bool indexer_loss = true;          // its node, behind o-up, saves what attention read
  bool loss_reads_mass = true;       // and what attention summed up: the loss over its own set
  bool expert_parallel = false;      // dispatched tokens arrive by a collective
  bool operator==(const OperatorFacts&) const = default;
};

/// An activation and its readers over every execution path (plain and overlap run the same nodes).
struct Activation {
  std::string_view name;  // "q", unique in a layer
  ActId id{};
  Owner owner = Owner::Ad;
  Event made = Event::Never;  // the node that makes it; Never: before the layer
  EventSet forward_readers;   // nodes that read its bytes in forward
  EventSet backward_readers;  // nodes that save it
  uint8_t alias_group = 0;    // equal and not 0: may share one storage
  bool is_choice = false;     // top-k or routing: recorded in every plan (spec 3 R6.25)

  /// Of the forward readers; the maker where there is none.
  [[nodiscard]] Event last_read() const;
};

/// What a sub-graph reads and makes when it is a region.
struct RegionShape {
  SubgraphId subgraph{};
  std::vector<ActId> inputs, outputs;
  bool has_collective = false, has_rng = false;
};

/// A sub-graph that the table has and this layer does not, and why (SC11).
struct Exclusion {
  SubgraphId subgraph{};
  std::string reason;
  bool operator==(const Exclusion&) const = default;
};

struct LayerFlow {
  std::vector<Activation> acts;      // in the order of their making
  std::vector<RegionShape> regions;  // the sub-graphs that exist, in restore order
  std::vector<Exclusion> exclusions;

  /// nullptr where the layer has none.
  [[nodiscard]] const Activation* find(ActId id) const;
  [[nodiscard]] const RegionShape* find(SubgraphId id) const;
};

/// The flow of one DeepSeek-V4 layer.
[[nodiscard]] LayerFlow layer_flow(const LayerKind& kind, const OperatorFacts& facts);

/// Nodes whose outputs reach the output of `event` or are it: a gradient hook on that output runs
/// before the backward of exactly these (spec 3 HC2).
[[nodiscard]] EventSet nodes_before(Event event);

/// The part of the overlap path that a node belongs to (spec 5 1.3): "attn", "premlp", "dispatch",
/// "experts", "combine", "post". Each has a graph of its own.
[[nodiscard]] std::string_view cut_group(Event event);

}  // namespace lethe
