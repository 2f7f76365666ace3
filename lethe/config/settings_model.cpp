#include <set>

#include <fmt/ranges.h>

#include "lethe/config/recipes.h"
#include "lethe/config/settings_table_impl.h"

// Flags of the model's shape: command-line spec 7.1.
namespace lethe::detail {
namespace {

constexpr auto kModel = &RunConfig::model;
using M = ModelConfig;

std::string refine_ratios(SettingValue& value, std::vector<std::string>& notes) {
  std::set<int64_t> hca;
  for (int64_t& ratio : std::get<std::vector<int64_t>>(value)) {
    if (ratio < 0) return "every entry must be 0, 4 or one HCA ratio >= 2";
    if (ratio == 1) {
      ratio = 0;
      notes.push_back("--csa-compress-ratios: an entry 1 means no compression and is read as 0");
    }
    if (ratio != 0 && ratio != kCsaRatio) hca.insert(ratio);
  }
  return hca.size() > 1 ? "at most one HCA ratio (neither 0 nor 4) may be used in one model" : "";
}

/// A member of the optional YaRN parameters.
template <class T>
SettingRow yarn(SettingTable& t, const char* flag, T YarnScaling::*field, const char* help) {
  SettingRow added = t.row(flag, type_of<T>(), SettingStatus::Active, help);
  Setting& s = t.rows().back();
  s.get = [field](const RunConfig& c) -> std::optional<SettingValue> {
    if (!c.model.yarn) return std::nullopt;
    return SettingValue((*c.model.yarn).*field);
  };
  s.set = [field](RunConfig& c, const SettingValue& value) {
    if (c.model.yarn) (*c.model.yarn).*field = std::get<T>(value);
  };
  return added.from_hub();
}

void add_yarn(SettingTable& t) {
  yarn(t,
       "rotary-scaling-factor",
       &YarnScaling::factor,
       "YaRN length factor of the layers with a ratio > 0.")
      .alias({"rope-factor", "rope-scaling-factor"})
      .note(">= 1, or 0 for no YaRN");
  Setting& factor = t.rows().back();
  factor.refine = [](SettingValue& value, std::vector<std::string>&) -> std::string {
    const double number = std::get<double>(value);
    return number == 0 || number >= 1 ? "" : ">= 1, or 0 for no YaRN";
  };
  factor.get = [](const RunConfig& c) -> std::optional<SettingValue> {
    return SettingValue(c.model.yarn ? c.model.yarn->factor : 0.0);
  };
  factor.set = [](RunConfig& c, const SettingValue& value) {
    const double number = std::get<double>(value);
    if (number == 0) {
      c.model.yarn.reset();
    } else {
      if (!c.model.yarn) c.model.yarn.emplace();
      c.model.yarn->factor = number;
    }
  };
  yarn(t,
       "original-max-position-embeddings",
       &YarnScaling::original_max_positions,
       "Positions before the YaRN extension.")
      .alias({"original-seq-len"})
      .at_least(1);
  yarn(t,
       "beta-fast",
       &YarnScaling::beta_fast,
       "YaRN: rotations above which a channel is not scaled.")
      .above(0);
  yarn(t,
       "beta-slow",
       &YarnScaling::beta_slow,
       "YaRN: rotations below which a channel is fully scaled.")
      .above(0);
}

void add_sizes(SettingTable& t) {
  t.section("model", "Model: sizes", command::kShape);
  t.constant(
       "model", std::string("dsv4"), "Model family.", "DeepSeek-V4 is the one family of Lethe")
      .note("dsv4");
  t.bind("num-layers", kModel, &M::num_layers, "Main layers; MTP blocks not counted.")
      .required()
      .from_hub()
      .at_least(1);
  t.bind("hidden-size", kModel, &M::hidden, "Width of a residual stream.")
      .required()
      .from_hub()
      .at_least(1);
  t.bind("vocab-size", kModel, &M::vocab_size, "Token ids; 256 for bytes.")
      .required()
      .from_hub()
      .at_least(1);
  t.constant("make-vocab-size-divisible-by",
             int64_t{1},
             "Padding of the vocabulary.",
             "the vocabulary is never padded; give the padded size as --vocab-size");
  t.bind("max-position-embeddings", kModel, &M::max_positions, "Longest document, in tokens.")
      .from_hub()
      .at_least(1);
  t.bind("norm-epsilon", kModel, &M::norm_eps, "Epsilon of every RMSNorm.").from_hub().above(0);
  t.bind("init-method-std", kModel, &M::init_range, "Standard deviation of initial weights.")
      .from_hub()
      .above(0);
  t.constant("untie-embeddings-and-output-weights",
             true,
             "Embedding and output weights are two tensors.",
             "DeepSeek-V4 requires it");
  t.constant("disable-bias-linear", true, "Linear layers have no bias.", "DeepSeek-V4 requires it");
}

void add_attention(SettingTable& t) {
  t.section("model", "Model: attention", command::kShape);
  t.bind("num-attention-heads", kModel, &M::heads, "Query heads.")
      .required()
      .from_hub()
      .at_least(1);
  t.bind("v-head-dim", kModel, &M::head_dim, "Width of a head, keys and values alike.")
      .alias({"head-dim"})
      .from_hub()
      .at_least(2)
      .note("even");
  t.mirror("kv-lora-rank",
           kModel,
           &M::head_dim,
           "Kept for compatibility.",
           "V4 keeps keys and values in one vector of --v-head-dim channels; leave this flag out")
      .note("equals v_head_dim")
      .default_note("v_head_dim");
  t.mirror("qk-head-dim",
           kModel,
           &M::head_dim,
           "Kept for compatibility.",
           "V4 heads have --v-head-dim channels; leave this flag out")
      .note("equals v_head_dim")
      .default_note("v_head_dim");
  t.bind("qk-pos-emb-head-dim", kModel, &M::rope_dims, "Rotated channels, at the end of a head.")
      .from_hub()
      .at_least(2)
      .note("even; <= v_head_dim and dsa_indexer_head_dim");
  t.bind("q-lora-rank", kModel, &M::q_lora_rank, "Rank of the query projection.")
      .from_hub()
      .at_least(1);
  t.bind("o-groups", kModel, &M::o_groups, "Groups of the output projection.")
      .alias({"dsv4-o-groups"})
      .from_hub()
      .at_least(1)
      .note("divides num_attention_heads");
  t.bind("o-lora-rank", kModel, &M::o_lora_rank, "Rank of one group of the output projection.")
      .alias({"dsv4-o-lora-rank"})
      .from_hub()
      .at_least(1);
  t.bind("csa-window-size",
         kModel,
         &M::window,
         "Last tokens that every layer reads, the query's own included.")
      .alias({"dsv4-window-size", "sliding-window-size"})
      .from_hub()
      .at_least(1);
  t.bind("csa-compress-ratios",
         kModel,
         &M::ratios,
         "Tokens per slot, one entry per layer and MTP block; 0 = window only.")
      .alias({"dsv4-compress-ratios", "compress-ratios"})
      .required()
      .from_hub()
      .refine(refine_ratios)
      .note(
          "0, 4 or one HCA ratio >= 2; num_layers + mtp_num_layers entries (num_layers: MTP gets "
          "0)");
  t.constant("multi-latent-attention", true, "Latent attention.", "DeepSeek-V4 requires it");
  t.constant("qk-layernorm", true, "RMSNorm on queries and keys.", "DeepSeek-V4 requires it");
}

void add_positions(SettingTable& t) {
  t.section("model", "Model: positions", command::kShape);
  t.constant("position-embedding-type",
             std::string("rope"),
             "Position embedding.",
             "DeepSeek-V4 uses rotary embeddings")
      .note("rope; deepseek4 is read as rope")
      .accepts([](const RunConfig&, const SettingValue& value) {
        const std::string& text = std::get<std::string>(value);
        return text == "rope" || text == "deepseek4";
      });
  t.bind("rotary-base", kModel, &M::rope_theta, "RoPE base of the layers with ratio 0.")
      .alias({"rope-theta"})
      .from_hub()
      .above(0);
  t.bind("csa-compress-rotary-base",
         kModel,
         &M::compress_rope_theta,
         "RoPE base of the layers with a ratio > 0.")
      .alias({"dsv4-compress-rope-theta", "compress-rope-theta"})
      .from_hub()
      .above(0);
  add_yarn(t);
}

}  // namespace

void add_source_settings(SettingTable& t) {
  t.section("model", "Where values come from", command::kShape);
  t.row("recipe",
        SettingType::String,
        SettingStatus::Source,
        "Named starting point; tiny is the byte-level demo model.")
      .note(fmt::format("one of {}", fmt::join(recipe_names(), ", ")))
      .default_note("none");
  t.row("hf-config",
        SettingType::String,
        SettingStatus::Source,
        "Folder whose config.json gives the shape; a value given beside it must agree.")
      .note("a folder with config.json")
      .default_note("none");
}

void add_model_settings(SettingTable& t) {
  add_sizes(t);
  add_attention(t);
  add_positions(t);
  add_model_part_settings(t);
  t.section("model", "Model: multi-token prediction", command::kShape);
  t.bind("mtp-num-layers", kModel, &M::num_mtp, "MTP blocks after the main layers.")
      .from_hub()
      .at_least(0);
}

}  // namespace lethe::detail
