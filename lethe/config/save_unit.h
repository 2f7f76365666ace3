#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lethe {

/// A named sub-structure that stays resident inside a recomputed layer (spec 3 6.1, R6.4).
enum class SaveUnit : uint8_t {
  Attn,         // "attn": sparse attention
  MoeGate,      // "moe_gate": the product of the router
  MoeDispatch,  // "moe_dispatch": tokens sent to experts
  Experts,      // "experts": routed and shared experts
  Mhc,          // "mhc": mHC pre and post
  Compressor,   // "compressor": pooled slots
};

/// Every unit, in the order of SaveUnit.
[[nodiscard]] std::span<const SaveUnit> save_units();

/// "attn" and so on, as settings, plan files and reports have it.
[[nodiscard]] std::string_view save_unit_name(SaveUnit unit);

/// The unit of this name; nothing for another text.
[[nodiscard]] std::optional<SaveUnit> find_save_unit(std::string_view name);

/// What a user wants kept inside recomputed layers. Nothing and All differ from a list: All is
/// whatever the model of this version declares, so a list is what pins the memory of a run (R6.2,
/// R6.3).
struct SaveSelection {
  enum class Kind : uint8_t { Nothing, All, Listed };
  Kind kind = Kind::Nothing;
  std::vector<SaveUnit> units;  // Listed: in the order given, each once
  bool operator==(const SaveSelection&) const = default;
};

/// Reads the words of save_units: none words, "none" or "false"; "all" or "true"; or names of
/// units. Throws ConfigError beginning with `where`: an unknown name (with the valid ones), a name
/// given twice, all or none beside others.
[[nodiscard]] SaveSelection read_save_units(const std::vector<std::string>& words,
                                            std::string_view where);

/// The words that read_save_units reads back.
[[nodiscard]] std::vector<std::string> save_unit_words(const SaveSelection& selection);

}  // namespace lethe
