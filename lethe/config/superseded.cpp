// Names of outdated and foreign checkpoints, recognised only to say what they are
// (6-checkpoints 1.6).
#include <array>

#include "lethe/base/error.h"
#include "lethe/config/contract_names.h"

namespace lethe {
namespace {

struct Renamed {
  std::string_view old, current;
};

// Layer suffixes; a trailing dot renames a subtree whose leaves kLeaves rename further.
constexpr std::array kRenamed = {
    Renamed{"self_attention.wq_a.weight", "self_attention.linear_q_down_proj.weight"},
    Renamed{"self_attention.q_norm.weight", "self_attention.q_layernorm.weight"},
    Renamed{"self_attention.wq_b.weight", "self_attention.linear_q_up_proj.weight"},
    Renamed{"self_attention.wkv.weight", "self_attention.linear_kv_proj.weight"},
    Renamed{"self_attention.kv_norm.weight", "self_attention.kv_layernorm.weight"},
    Renamed{"self_attention.wo_a.weight", "self_attention.linear_o_group_proj"},
    Renamed{"self_attention.wo_b.weight", "self_attention.linear_proj.weight"},
    Renamed{"self_attention.attn_sink", "self_attention.core_attention.attn_sink"},
    Renamed{"self_attention.compressor.", "self_attention.core_attention.compressor."},
    Renamed{"self_attention.indexer.", "self_attention.core_attention.indexer."},
    Renamed{"hc_attn_fn", "self_attention_hyper_connection.mapping_proj.weight"},
    Renamed{"hc_attn_base", "self_attention_hyper_connection.bias"},
    Renamed{"hc_attn_scale", "self_attention_hyper_connection.alpha_{pre,post,res}"},
    Renamed{"hc_ffn_fn", "mlp_hyper_connection.mapping_proj.weight"},
    Renamed{"hc_ffn_base", "mlp_hyper_connection.bias"},
    Renamed{"hc_ffn_scale", "mlp_hyper_connection.alpha_{pre,post,res}"},
};

constexpr std::array kLeaves = {
    Renamed{"compressor.wkv.weight", "compressor.linear_wkv.weight"},
    Renamed{"compressor.wgate.weight", "compressor.linear_wgate.weight"},
    Renamed{"indexer.wq_b.weight", "indexer.linear_wq_b.weight"},
    Renamed{"indexer.weights_proj.weight", "indexer.linear_weights_proj.weight"},
};

constexpr std::string_view kOldHead = "decoder.hc_head_params.";

struct Foreign {
  std::string_view part, home;
};

constexpr std::array kForeign = {
    Foreign{"self_attn.sinks_param.weight", "Automodel"},
    Foreign{"compressor.ape_param.weight", "Automodel"},
    Foreign{"mlp.experts.gate_and_up_projs", "Automodel"},
    Foreign{"self_attention.linear_q.", "MindSpeed-LLM"},
    Foreign{"self_attention.linear_kv.", "MindSpeed-LLM"},
    Foreign{"linear_o_down_proj", "MindSpeed-LLM"},
    Foreign{"linear_o_up_proj", "MindSpeed-LLM"},
    Foreign{"indexer.kv_compressor.", "MindSpeed-LLM"},
    Foreign{"attn_mhc.", "MindSpeed-LLM"},
    Foreign{"mlp_mhc.", "MindSpeed-LLM"},
    Foreign{"mlp.experts.weight1", "MindSpeed-LLM"},
    Foreign{"mlp.experts.weight2", "MindSpeed-LLM"},
    Foreign{"hc_head.hc_fn.weight", "MindSpeed-LLM"},
    Foreign{"eh_proj", "MindSpeed-LLM"},
};

/// Length of "decoder.layers.7." or "mtp.layers.0.<part>.", 0 when the name has another shape.
size_t layer_prefix(std::string_view name) {
  for (const std::string_view root : {"decoder.layers.", "mtp.layers."}) {
    if (!name.starts_with(root)) continue;
    const size_t end = name.find_first_not_of("0123456789", root.size());
    if (end == std::string_view::npos || end == root.size() || name[end] != '.') return 0;
    for (const std::string_view part : {".mtp_model_layer.", ".transformer_layer."}) {
      if (name.substr(end).starts_with(part)) return end + part.size();
    }
    return end + 1;
  }
  return 0;
}

std::string rename_leaf(std::string suffix) {
  for (const Renamed& leaf : kLeaves) {
    if (!suffix.ends_with(leaf.old)) continue;
    suffix.replace(suffix.size() - leaf.old.size(), leaf.old.size(), leaf.current);
    break;
  }
  return suffix;
}

}  // namespace

std::optional<std::string> current_name(std::string_view name) {
  if (name.starts_with(kOldHead)) return "decoder." + std::string(name.substr(kOldHead.size()));
  const size_t length = layer_prefix(name);
  if (length == 0) return std::nullopt;
  const std::string prefix(name.substr(0, length));
  const std::string_view suffix = name.substr(length);
  for (const Renamed& entry : kRenamed) {
    if (entry.old.back() != '.') {
      if (suffix == entry.old) return prefix + std::string(entry.current);
    } else if (suffix.starts_with(entry.old)) {
      return prefix +
             rename_leaf(std::string(entry.current) + std::string(suffix.substr(entry.old.size())));
    }
  }
  return std::nullopt;
}

std::string explain_unknown_name(std::string_view wrapped) {
  const std::string_view name = strip_wrappers(wrapped);
  if (const auto current = current_name(name)) {
    return fmt::format(
        "'{}' is a superseded name of contract '{}'; loading it as it stands would leave that "
        "tensor uninitialised: convert the checkpoint from its hub form",
        name,
        *current);
  }
  if (match_name(Dialect::Internal, name)) {
    return fmt::format(
        "'{}' is a contract name, but this model has no such tensor; compare the number of layers, "
        "the ratios and the hash layers of config and checkpoint",
        name);
  }

  struct Home {
    Dialect dialect;
    std::string_view text;
  };

  constexpr std::array kHomes = {Home{Dialect::Hub, "hub"},
                                 Home{Dialect::Transformers, "transformers"},
                                 Home{Dialect::Rollout, "rollout-engine"}};
  for (const Home& home : kHomes) {
    if (const auto match = match_name(home.dialect, name)) {
      return fmt::format(
          "'{}' is a {} name, in the contract it is part of '{}'; this model has no such tensor, "
          "or "
          "the checkpoint is in another name space than was asked for",
          name,
          home.text,
          make_name(Dialect::Internal, *match));
    }
  }
  for (const Foreign& foreign : kForeign) {
    if (name.find(foreign.part) != std::string_view::npos) {
      return fmt::format("'{}' is a {} name; export the checkpoint under hub names there first",
                         name,
                         foreign.home);
    }
  }
  return fmt::format(
      "'{}' is in none of the name spaces of contract version {}; remove it or correct the name",
      name,
      kContractVersion);
}

}  // namespace lethe
