#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lethe/config/contract.h"

namespace lethe {

/// A checkpoint tensor name taken apart. Independent of any configuration: the layer and expert may
/// be beyond those of a given model.
struct NameMatch {
  const ContractRow* row = nullptr;
  int64_t layer = -1;  // main layer or MTP block (row scope / in_mtp says which), -1 = root
  bool in_mtp = false;
  int64_t expert = -1;  // -1 = not an expert tensor, or the whole transformers stack
  int64_t part = 0;     // 0, or 1 for the up half of Packing::GateUp
  bool older = false;   // an older spelling, accepted on import only (6-checkpoints 1.3, 1.4)
};

/// Takes a name of the given dialect apart; nullopt when no row matches. Numbers must be canonical
/// ("07" matches nothing). The alphas of one site share a hub tensor: the match is their first row.
/// Megatron wrapper prefixes ("module.") are not part of a name: strip_wrappers() first.
[[nodiscard]] std::optional<NameMatch> match_name(Dialect dialect, std::string_view name);

/// The name in the given dialect. Tensors that this dialect merges give the merged name: the
/// experts' stack in Transformers, [w1; w3] in Internal.
[[nodiscard]] std::string make_name(Dialect dialect, const NameMatch& match);

/// The internal name of the stack that an expert tensor joins in memory: "...mlp.experts.fc1".
[[nodiscard]] std::string stacked_name(const NameMatch& match);

/// Removes leading "module." wrappers.
[[nodiscard]] std::string_view strip_wrappers(std::string_view name);

/// The current spelling of a superseded Megatron name (6-checkpoints 1.6); nullopt when it is none.
/// The packed alphas give a pattern, "...alpha_{pre,post,res}".
[[nodiscard]] std::optional<std::string> current_name(std::string_view name);

/// Names the current spelling of a superseded Megatron name, or says in which other public dialect
/// the name is at home and what to do with it: one sentence, never empty.
[[nodiscard]] std::string explain_unknown_name(std::string_view name);

}  // namespace lethe
