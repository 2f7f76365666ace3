#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "lethe/config/hub_config.h"
#include "lethe/config/hub_parts_impl.h"

namespace lethe {
namespace {

/// Keys that describe how the weights that were read are stored.
constexpr std::array kStorageKeys = {"torch_dtype", "dtype", "quantization_config", "expert_dtype"};

void write_sizes(Json& json, const ModelConfig& c) {
  json["vocab_size"] = c.vocab_size;
  json["hidden_size"] = c.hidden;
  json["num_hidden_layers"] = c.num_layers;
  json["num_attention_heads"] = c.heads;
  json["num_key_value_heads"] = 1;
  json["head_dim"] = c.head_dim;
  json["qk_rope_head_dim"] = c.rope_dims;
  json["q_lora_rank"] = c.q_lora_rank;
  json["o_groups"] = c.o_groups;
  json["o_lora_rank"] = c.o_lora_rank;
  json["sliding_window"] = c.window;
  // transformers computes int(head_dim * (qk_rope_head_dim / head_dim)), which may fall one short.
  const auto whole = static_cast<double>(c.head_dim);
  double factor = static_cast<double>(c.rope_dims) / whole;
  if (static_cast<int64_t>(whole * factor) != c.rope_dims) {
    factor = std::nextafter(factor, 1.0);
    json["partial_rotary_factor"] = factor;
  }
}

/// transformers knows compress_ratios of 0, 4 and 128 only; another single HCA ratio needs its own
/// spelling, and several of them have none there.
void write_ratios(Json& json, const ModelConfig& c) {
  json["compress_ratios"] = c.ratios;
  std::set<int64_t> hca;
  for (const int64_t ratio : c.ratios) {
    if (ratio > 0 && ratio != kCsaRatio) hca.insert(ratio);
  }
  if (hca.size() != 1 || *hca.begin() == kReleaseHcaRatio) return;
  Json kinds = Json::array();
  for (int64_t i = 0; i < c.num_layers; ++i) {
    kinds.push_back(c.ratio(i) == 0 ? kSlidingName : c.ratio(i) == kCsaRatio ? kCsaName : kHcaName);
  }
  json["layer_types"] = std::move(kinds);
  json["compress_rates"] = Json{{kCsaName, kCsaRatio}, {kHcaName, *hca.begin()}};
}

void write_experts(Json& json, const ModelConfig& c) {
  json["n_routed_experts"] = c.num_experts;
  json["n_shared_experts"] = 1;
  json["num_experts_per_tok"] = c.experts_per_token;
  json["moe_intermediate_size"] = c.expert_width;
  json["scoring_func"] = c.score_function;
  json["topk_method"] = "noaux_tc";
  json["norm_topk_prob"] = c.normalize_topk;
  json["routed_scaling_factor"] = c.route_scale;
  json["swiglu_limit"] = c.swiglu_limit;
  json["num_hash_layers"] = c.num_hash_layers;
  json["num_nextn_predict_layers"] = c.num_mtp;
  json["index_n_heads"] = c.index_heads;
  json["index_head_dim"] = c.index_head_dim;
  json["index_topk"] = c.index_topk;
  json["hc_mult"] = c.streams;
  json["hc_sinkhorn_iters"] = c.sinkhorn_iterations;
  json["hc_eps"] = c.hc_eps;
}

void write_positions(Json& json, const ModelConfig& c) {
  json["rms_norm_eps"] = c.norm_eps;
  json["rope_theta"] = c.rope_theta;
  json["compress_rope_theta"] = c.compress_rope_theta;
  json["rope_scaling"] = nullptr;
  if (c.yarn) {
    json["rope_scaling"] =
        Json{{"type", "yarn"},
             {"rope_type", "yarn"},
             {"factor", c.yarn->factor},
             {"original_max_position_embeddings", c.yarn->original_max_positions},
             {"beta_fast", c.yarn->beta_fast},
             {"beta_slow", c.yarn->beta_slow},
             {"rope_theta", c.rope_theta}};
  }
  json["max_position_embeddings"] = c.max_positions;
}

void write_rest(Json& json, const ModelConfig& c) {
  json["hidden_act"] = "silu";
  json["tie_word_embeddings"] = false;
  json["initializer_range"] = c.init_range;
  json["attention_bias"] = false;
  json["attention_dropout"] = 0.0;
  const ModelConfig plain;
  Json own = Json::object();
  if (c.clamp_shared_expert != plain.clamp_shared_expert)
    own["clamp_shared_expert"] = c.clamp_shared_expert;
  if (c.indexer_hadamard != plain.indexer_hadamard) own["indexer_hadamard"] = c.indexer_hadamard;
  if (c.init_alpha != plain.init_alpha) own["init_alpha"] = c.init_alpha;
  if (!own.empty()) json["lethe"] = std::move(own);
}

}  // namespace

std::string write_hub_config(const ModelConfig& config,
                             std::string_view kept,
                             std::string_view storage_dtype) {
  const Json others = parse_json_object(kept, "kept configuration keys");
  Json json;
  json["architectures"] = others.value("architectures", Json::array({"DeepseekV4ForCausalLM"}));
  json["model_type"] = "deepseek_v4";
  json["torch_dtype"] = storage_dtype;
  write_sizes(json, config);
  write_ratios(json, config);
  write_experts(json, config);
  write_positions(json, config);
  write_rest(json, config);
  for (const auto& item : others.items()) {
    const bool storage =
        std::find(kStorageKeys.begin(), kStorageKeys.end(), item.key()) != kStorageKeys.end();
    if (!storage && !json.contains(item.key())) json[item.key()] = item.value();
  }
  return json.dump(1) + "\n";
}

}  // namespace lethe
