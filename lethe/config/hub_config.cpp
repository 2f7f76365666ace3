#include "lethe/config/hub_config.h"

#include <algorithm>
#include <array>

#include "lethe/base/error.h"
#include "lethe/config/hub_parts_impl.h"

namespace lethe {
namespace {

/// A mandatory key: hub name, DeepSeek's ModelArgs name (or the hub name again), what it decides.
template <class T>
struct Field {
  const char* key;
  const char* other;
  T ModelConfig::*member;
  const char* decides;
};

constexpr std::array kCounts = {
    Field<int64_t>{
        "vocab_size", "vocab_size", &ModelConfig::vocab_size, "the rows of embedding and head"},
    Field<int64_t>{"hidden_size", "dim", &ModelConfig::hidden, "the width of the model"},
    Field<int64_t>{
        "num_hidden_layers", "n_layers", &ModelConfig::num_layers, "the number of main layers"},
    Field<int64_t>{
        "num_attention_heads", "n_heads", &ModelConfig::heads, "the number of query heads"},
    Field<int64_t>{"head_dim", "head_dim", &ModelConfig::head_dim, "the channels of a head"},
    Field<int64_t>{"q_lora_rank",
                   "q_lora_rank",
                   &ModelConfig::q_lora_rank,
                   "the rank of the query projection"},
    Field<int64_t>{
        "o_groups", "o_groups", &ModelConfig::o_groups, "the groups of the output projection"},
    Field<int64_t>{"o_lora_rank",
                   "o_lora_rank",
                   &ModelConfig::o_lora_rank,
                   "the rank of the output projection"},
    Field<int64_t>{"sliding_window",
                   "window_size",
                   &ModelConfig::window,
                   "the keys that a query sees uncompressed"},
    Field<int64_t>{
        "n_routed_experts", "n_routed_experts", &ModelConfig::num_experts, "the number of experts"},
    Field<int64_t>{"num_experts_per_tok",
                   "n_activated_experts",
                   &ModelConfig::experts_per_token,
                   "the experts that a token visits"},
    Field<int64_t>{"moe_intermediate_size",
                   "moe_inter_dim",
                   &ModelConfig::expert_width,
                   "the width of an expert"},
    Field<int64_t>{"num_nextn_predict_layers",
                   "n_mtp_layers",
                   &ModelConfig::num_mtp,
                   "the number of MTP blocks (0 for none)"},
    Field<int64_t>{
        "index_n_heads", "index_n_heads", &ModelConfig::index_heads, "the heads of the indexer"},
    Field<int64_t>{"index_head_dim",
                   "index_head_dim",
                   &ModelConfig::index_head_dim,
                   "the channels of an indexer head"},
    Field<int64_t>{
        "index_topk", "index_topk", &ModelConfig::index_topk, "the slots that a query keeps"},
    Field<int64_t>{"hc_mult", "hc_mult", &ModelConfig::streams, "the number of residual streams"},
    Field<int64_t>{"hc_sinkhorn_iters",
                   "hc_sinkhorn_iters",
                   &ModelConfig::sinkhorn_iterations,
                   "the Sinkhorn iterations of the stream mixing"},
};

constexpr std::array kReals = {
    Field<double>{"routed_scaling_factor",
                  "route_scale",
                  &ModelConfig::route_scale,
                  "the scale of routed experts"},
    Field<double>{"swiglu_limit",
                  "swiglu_limit",
                  &ModelConfig::swiglu_limit,
                  "the SwiGLU clamp (0 for none)"},
    Field<double>{"hc_eps", "hc_eps", &ModelConfig::hc_eps, "the epsilon of the stream mixing"},
    Field<double>{
        "rms_norm_eps", "norm_eps", &ModelConfig::norm_eps, "the epsilon of every RMSNorm"},
};

/// Keys that the specification names and that stay with the file: no line at load.
constexpr std::array kNamedKeys = {
    "bos_token_id", "eos_token_id", "expert_dtype", "quantization_config"};

void missing(JsonFields& fields, const char* key, const char* decides) {
  fields.problem(key, fmt::format("is missing: it decides {}; add it", decides));
}

void read_scalars(JsonFields& fields, ModelConfig& config) {
  for (const auto& field : kCounts) {
    const auto value = fields.count({field.key, field.other});
    if (value) config.*field.member = *value;
    if (!fields.find(field.key) && !fields.find(field.other))
      missing(fields, field.key, field.decides);
  }
  for (const auto& field : kReals) {
    const auto value = fields.real({field.key, field.other});
    if (value) config.*field.member = *value;
    if (!fields.find(field.key) && !fields.find(field.other))
      missing(fields, field.key, field.decides);
  }
  if (const auto score = fields.word({"scoring_func", "score_func"}))
    config.score_function = *score;
  if (!fields.find("scoring_func") && !fields.find("score_func")) {
    missing(fields, "scoring_func", "the scores of the router");
  }
  if (const auto norm = fields.flag("norm_topk_prob")) config.normalize_topk = *norm;
  if (!fields.find("norm_topk_prob"))
    missing(fields, "norm_topk_prob", "whether routing weights sum to 1");
  config.max_positions = fields.count({"max_position_embeddings"}).value_or(config.max_positions);
  config.init_range = fields.real({"initializer_range"}).value_or(config.init_range);
}

/// Keys that have one legal value in DeepSeek-V4, and keys that ask for another model.
void check_fixed(JsonFields& fields) {
  fields.fixed("model_type", "deepseek_v4", "this reads DeepSeek-V4 only");
  fields.fixed("num_key_value_heads", 1, "all query heads share one key-value head");
  fields.fixed("n_shared_experts", 1, "DeepSeek-V4 has exactly one shared expert");
  fields.fixed("topk_method", "noaux_tc", "DeepSeek-V4 balances by router bias");
  fields.fixed("n_group", 1, "DeepSeek-V4 has no expert groups");
  fields.fixed("topk_group", 1, "DeepSeek-V4 has no expert groups");
  fields.fixed("hidden_act", "silu", "experts are SwiGLU");
  fields.fixed("tie_word_embeddings", false, "embedding and head are two tensors");
  fields.fixed("attention_bias", false, "no linear layer has a bias");
  fields.fixed("mlp_bias", false, "no linear layer has a bias");
  fields.fixed("attention_dropout", 0.0, "DeepSeek-V4 has no dropout");
  fields.fixed(
      "rope_interleave", true, "channels 2p and 2p+1 rotate together; nothing may be permuted");
  if (fields.find("rotary_percent")) {
    fields.problem(
        "rotary_percent",
        "must be absent: it would rotate a part of the rotary channels; give qk_rope_head_dim");
  }
}

void read_own(JsonFields& fields, ModelConfig& config) {
  auto own = fields.object("lethe");
  if (!own) return;
  config.clamp_shared_expert =
      own->flag("clamp_shared_expert").value_or(config.clamp_shared_expert);
  config.indexer_hadamard = own->flag("indexer_hadamard").value_or(config.indexer_hadamard);
  config.init_alpha = own->real({"init_alpha"}).value_or(config.init_alpha);
  for (const std::string& key : own->unknown_keys())
    own->problem(key, "is not known here; remove it");
}

/// Lists are compared with the layer counts, and channels with head_dim: without those every list
/// would look wrong.
bool counts_are_readable(JsonFields& fields, const Json& json, const ModelConfig& config) {
  constexpr int64_t kMaxMtp = 1024;
  if (config.num_mtp > kMaxMtp) {
    fields.problem("num_nextn_predict_layers",
                   fmt::format("must be at most {}, got {}; correct it", kMaxMtp, config.num_mtp));
    return false;
  }
  std::vector<std::string> reported_before;
  JsonFields again(json, "", "", reported_before);
  return again.count({"num_hidden_layers", "n_layers"}) &&
         again.count({"num_nextn_predict_layers", "n_mtp_layers"}) && again.count({"head_dim"});
}

}  // namespace

HubConfig parse_hub_config(std::string_view text, std::string_view where) {
  const Json json = parse_json_object(text, where);
  std::vector<std::string> problems;
  JsonFields fields(json, std::string(where), "", problems);
  HubConfig result;
  read_scalars(fields, result.model);
  check_fixed(fields);
  read_own(fields, result.model);
  if (counts_are_readable(fields, json, result.model)) {
    read_ratios(fields, result.model, result.messages);
    read_hash_layers(fields, result.model);
    read_rope(fields, result.model, result.messages);
  }
  LETHE_CHECK(ConfigError, problems.empty(), "{}", fmt::join(problems, "\n"));

  Json kept = Json::object();
  for (const std::string& key : fields.unknown_keys()) {
    kept[key] = json[key];
    if (std::find(kNamedKeys.begin(), kNamedKeys.end(), key) == kNamedKeys.end())
      result.kept_keys.push_back(key);
  }
  result.kept = kept.dump();
  return result;
}

}  // namespace lethe
