#include "lethe/config/contract_names.h"

#include <array>
#include <charconv>

#include "lethe/base/error.h"

namespace lethe {
namespace {

constexpr std::string_view kExpert = "{e}";

/// A prefix with a number in it: "decoder.layers." 7 ".".
struct Prefix {
  Dialect dialect;
  bool in_mtp;
  Scope scope;  // Layer: the transformer part; MtpFirst: the MTP block's own tensors
  std::string_view before, after;
  bool older = false;
};

constexpr std::array kPrefixes = {
    Prefix{Dialect::Internal, false, Scope::Layer, "decoder.layers.", "."},
    Prefix{Dialect::Internal, true, Scope::Layer, "mtp.layers.", ".mtp_model_layer."},
    Prefix{Dialect::Internal, true, Scope::MtpFirst, "mtp.layers.", "."},
    Prefix{Dialect::Internal, true, Scope::Layer, "mtp.layers.", ".transformer_layer.", true},
    Prefix{Dialect::Hub, false, Scope::Layer, "layers.", "."},
    Prefix{Dialect::Hub, true, Scope::Layer, "mtp.", "."},
    Prefix{Dialect::Hub, true, Scope::MtpFirst, "mtp.", "."},
    Prefix{Dialect::Transformers, false, Scope::Layer, "model.layers.", "."},
    Prefix{Dialect::Transformers, true, Scope::Layer, "mtp.", "."},
    Prefix{Dialect::Transformers, true, Scope::MtpFirst, "mtp.", "."},
    Prefix{Dialect::Rollout, false, Scope::Layer, "model.layers.", "."},
    Prefix{Dialect::Rollout, true, Scope::Layer, "mtp.", "."},
    Prefix{Dialect::Rollout, true, Scope::MtpFirst, "mtp.", "."},
};

/// Older leaf spellings that are read but never written (6-checkpoints 1.3, model spec 13.2).
struct Older {
  Dialect dialect;
  std::string_view older, current;
};

constexpr std::array kOlder = {
    Older{Dialect::Transformers, "self_attn.q_norm.weight", "self_attn.q_a_norm.weight"},
    Older{Dialect::Transformers,
          "self_attn.compressor.indexer.weights_proj.weight",
          "self_attn.compressor.indexer.scorer.weights_proj.weight"},
    Older{Dialect::Hub,
          "attn.indexer.scorer.weights_proj.weight",
          "attn.indexer.weights_proj.weight"},
};

struct Columns {
  std::string_view first, up;
};

Columns columns(const ContractRow& row, Dialect dialect, bool in_mtp) {
  if (dialect == Dialect::Internal) return {row.internal, {}};
  if (dialect == Dialect::Hub || in_mtp) return {row.hub, row.hub_up};
  if (dialect == Dialect::Transformers) return {row.transformers, row.transformers_up};
  return {row.rollout, row.rollout_up};
}

/// Takes a canonical number off the front of `text`.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto length = static_cast<size_t>(end - text.data());
  if (error != std::errc() || length == 0 || text[0] == '-') return std::nullopt;
  if (text[0] == '0' && length > 1) return std::nullopt;
  text.remove_prefix(length);
  return value;
}

/// The number in place of {e}, -1 for a pattern without one; nullopt when the text is another.
std::optional<int64_t> match_pattern(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return std::nullopt;
  const size_t at = pattern.find(kExpert);
  if (at == std::string_view::npos)
    return pattern == text ? std::optional<int64_t>(-1) : std::nullopt;
  if (!text.starts_with(pattern.substr(0, at))) return std::nullopt;
  text.remove_prefix(at);
  const std::optional<int64_t> expert = take_number(text);
  return expert && text == pattern.substr(at + kExpert.size()) ? expert : std::nullopt;
}

bool in_scope(const ContractRow& row, Scope scope, bool in_mtp) {
  if (scope == Scope::Layer) {
    // The transformer part of an MTP block has ratio 0 and a scored router.
    return row.scope == scope && (!in_mtp || applies(row.when, 0, false));
  }
  if (scope == Scope::MtpFirst) return row.scope == Scope::MtpFirst || row.scope == Scope::MtpLast;
  return row.scope == Scope::RootFirst || row.scope == Scope::RootLast;
}

std::optional<NameMatch> match_leaf(Dialect dialect,
                                    Scope scope,
                                    bool in_mtp,
                                    std::string_view leaf) {
  for (const ContractRow& row : contract_table()) {
    if (!in_scope(row, scope, in_mtp)) continue;
    const Columns names = columns(row, dialect, in_mtp);
    NameMatch match{.row = &row, .layer = -1, .in_mtp = in_mtp};
    for (const std::string_view pattern : {names.first, names.up}) {
      if (const auto expert = match_pattern(pattern, leaf)) {
        match.expert = *expert;
        return match;
      }
      ++match.part;
    }
  }
  return std::nullopt;
}

std::optional<NameMatch> match_leaf_or_older(const Prefix& prefix, std::string_view leaf) {
  if (auto match = match_leaf(prefix.dialect, prefix.scope, prefix.in_mtp, leaf)) return match;
  const Dialect leaf_dialect =
      prefix.in_mtp && prefix.dialect != Dialect::Internal ? Dialect::Hub : prefix.dialect;
  for (const Older& entry : kOlder) {
    if (entry.dialect != leaf_dialect || entry.older != leaf) continue;
    auto match = match_leaf(prefix.dialect, prefix.scope, prefix.in_mtp, entry.current);
    if (match) match->older = true;
    return match;
  }
  return std::nullopt;
}

std::string prefix_text(Dialect dialect, const NameMatch& match) {
  if (match.layer < 0) return {};
  const Scope scope = match.row->scope == Scope::Layer ? Scope::Layer : Scope::MtpFirst;
  for (const Prefix& prefix : kPrefixes) {
    if (prefix.dialect == dialect && prefix.in_mtp == match.in_mtp && prefix.scope == scope) {
      return fmt::format("{}{}{}", prefix.before, match.layer, prefix.after);
    }
  }
  fail_internal(fmt::format("contract names: no prefix for '{}'", match.row->internal));
}

}  // namespace

std::optional<NameMatch> match_name(Dialect dialect, std::string_view name) {
  for (const Prefix& prefix : kPrefixes) {
    if (prefix.dialect != dialect || !name.starts_with(prefix.before)) continue;
    std::string_view rest = name.substr(prefix.before.size());
    const std::optional<int64_t> layer = take_number(rest);
    if (!layer || !rest.starts_with(prefix.after)) continue;
    auto match = match_leaf_or_older(prefix, rest.substr(prefix.after.size()));
    if (!match) continue;
    match->layer = *layer;
    match->older = match->older || prefix.older;
    return match;
  }
  return match_leaf(dialect, Scope::RootFirst, false, name);
}

std::string stacked_name(const NameMatch& match) {
  return prefix_text(Dialect::Internal, match).append(match.row->stacked);
}

std::string make_name(Dialect dialect, const NameMatch& match) {
  const Columns names = columns(*match.row, dialect, match.in_mtp);
  const std::string_view leaf = match.part == 1 && !names.up.empty() ? names.up : names.first;
  std::string text = prefix_text(dialect, match);
  const size_t at = leaf.find(kExpert);
  if (at == std::string_view::npos) return text.append(leaf);
  text.append(leaf.substr(0, at)).append(std::to_string(match.expert));
  return text.append(leaf.substr(at + kExpert.size()));
}

std::string_view strip_wrappers(std::string_view name) {
  constexpr std::string_view kWrapper = "module.";
  while (name.starts_with(kWrapper)) name.remove_prefix(kWrapper.size());
  return name;
}

}  // namespace lethe
