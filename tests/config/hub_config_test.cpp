#include "lethe/config/hub_config.h"

#include <array>
#include <functional>

#include "config/models.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lethe/base/error.h"
#include "lethe/config/validate.h"

namespace lethe {
namespace {

using Json = nlohmann::ordered_json;
using testing::read_text;
using testing::tiny_a;

Json golden_json() {
  return Json::parse(read_text(std::string(LETHE_GOLDEN_DIR) + "/T/config.json"));
}

ModelConfig parsed(const Json& json) {
  return parse_hub_config(json.dump(), "config.json").model;
}

/// The error text of a changed golden configuration, "" when it is accepted.
std::string error_of(const std::function<void(Json&)>& change) {
  Json json = golden_json();
  change(json);
  try {
    (void)parse_hub_config(json.dump(), "config.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

bool mentions(const std::string& text, const std::string& phrase) {
  return text.find(phrase) != std::string::npos;
}

TEST(HubConfig, TheGoldenConfigurationIsReadFieldByField) {
  for (const char* set : {"T", "V"}) {
    const std::string path = std::string(LETHE_GOLDEN_DIR) + "/" + set + "/config.json";
    const HubConfig hub = parse_hub_config(read_text(path), path);
    const ModelConfig& c = hub.model;
    EXPECT_EQ(c.vocab_size, 256);
    EXPECT_EQ(c.hidden, 64);
    EXPECT_EQ(c.rope_dims, 16);
    EXPECT_EQ(c.ratios, (std::vector<int64_t>{0, 4, 128, 4, 0}));
    EXPECT_EQ(c.num_hash_layers, 2);
    EXPECT_EQ(c.num_mtp, 1);
    EXPECT_EQ(c.swiglu_limit, 1.5);
    EXPECT_EQ(c.hc_eps, 1e-6);
    EXPECT_EQ(c.compress_rope_theta, 160000);
    EXPECT_EQ(c.yarn, (YarnScaling{16, 64, 32, 1}));
    EXPECT_EQ(hub.kept_keys, (std::vector<std::string>{"architectures", "torch_dtype"}));
    EXPECT_TRUE(hub.messages.empty());
    EXPECT_NO_THROW(validate(c));
  }
}

/// What transformers 5.23 saves after loading the golden configuration.
Json saved_by_transformers() {
  Json json = golden_json();
  for (const char* key :
       {"compress_ratios", "num_hash_layers", "rope_scaling", "torch_dtype", "architectures"}) {
    json.erase(key);
  }
  json["layer_types"] = {"sliding_attention",
                         "compressed_sparse_attention",
                         "heavily_compressed_attention",
                         "compressed_sparse_attention"};
  json["compress_rates"] = {{"compressed_sparse_attention", 4},
                            {"heavily_compressed_attention", 128}};
  json["mlp_layer_types"] = {"hash_moe", "hash_moe", "moe", "moe"};
  json["partial_rotary_factor"] = 0.5;
  json["mlp_bias"] = false;
  json["pad_token_id"] = nullptr;
  json["rope_parameters"]["main"] = {
      {"rope_type", "default"}, {"rope_theta", 10000}, {"partial_rotary_factor", 0.5}};
  json["rope_parameters"]["compress"] = {{"type", "yarn"},
                                         {"rope_type", "yarn"},
                                         {"factor", 16},
                                         {"original_max_position_embeddings", 64},
                                         {"beta_fast", 32},
                                         {"beta_slow", 1},
                                         {"rope_theta", 160000},
                                         {"partial_rotary_factor", 0.5},
                                         {"attention_factor", 1.0}};
  return json;
}

TEST(HubConfig, WhatTransformersSavesIsTheSameModel) {
  EXPECT_EQ(parsed(saved_by_transformers()), parsed(golden_json()));
  Json only_factor = saved_by_transformers();
  only_factor.erase("qk_rope_head_dim");
  only_factor.erase("rope_theta");
  only_factor.erase("compress_rope_theta");
  EXPECT_EQ(parsed(only_factor), parsed(golden_json()));
}

TEST(HubConfig, FlatRopeParametersMeanRopeScaling) {
  Json json = golden_json();
  json["rope_parameters"] = json["rope_scaling"];
  json.erase("rope_scaling");
  EXPECT_EQ(parsed(json), parsed(golden_json()));
}

TEST(HubConfig, BothSpellingsAtOnceMustAgree) {
  const Json saved = saved_by_transformers();
  EXPECT_EQ(error_of([&](Json& j) { j.update(saved); }), "");
  EXPECT_TRUE(mentions(
      error_of([&](Json& j) {
        j.update(saved);
        j["layer_types"][2] = "sliding_attention";
      }),
      "'layer_types' must agree with compress_ratios, got ratio 0 against 128 in layer 2"));
  EXPECT_TRUE(mentions(error_of([&](Json& j) {
                         j.update(saved);
                         j["compress_rates"]["heavily_compressed_attention"] = 64;
                       }),
                       "got ratio 64 against 128"));
  EXPECT_TRUE(mentions(error_of([&](Json& j) {
                         j["mlp_layer_types"] = {"hash_moe", "moe", "moe", "moe"};
                       }),
                       "must agree with num_hash_layers = 2, got 1"));
  EXPECT_TRUE(mentions(error_of([&](Json& j) {
                         j["mlp_layer_types"] = {"moe", "hash_moe", "moe", "moe"};
                       }),
                       "'hash_moe' first"));
  EXPECT_TRUE(
      mentions(error_of([&](Json& j) { j["partial_rotary_factor"] = 0.25; }), "must agree"));
  EXPECT_TRUE(mentions(error_of([&](Json& j) { j["partial_rotary_factor"] = 0.51; }),
                       "head_dim = 32, got 0.51"));
  EXPECT_TRUE(
      mentions(error_of([&](Json& j) { j["window_size"] = 8; }), "'window_size' must agree"));
  EXPECT_TRUE(
      mentions(error_of([&](Json& j) { j["rope_scaling"]["rope_theta"] = 160000; }), "must agree"));
  EXPECT_TRUE(mentions(error_of([&](Json& j) { j["rope_scaling"]["rope_type"] = "default"; }),
                       "must agree"));
  EXPECT_TRUE(mentions(error_of([&](Json& j) {
                         j["rope_parameters"] = j["rope_scaling"];
                         j["rope_parameters"]["factor"] = 4;
                       }),
                       "must agree with 'rope_scaling'"));
}

TEST(HubConfig, ModelArgsNamesOfDeepSeekAreAccepted) {
  const std::array<std::pair<const char*, const char*>, 14> names = {
      {{"hidden_size", "dim"},
       {"num_hidden_layers", "n_layers"},
       {"num_attention_heads", "n_heads"},
       {"qk_rope_head_dim", "rope_head_dim"},
       {"sliding_window", "window_size"},
       {"num_experts_per_tok", "n_activated_experts"},
       {"moe_intermediate_size", "moe_inter_dim"},
       {"scoring_func", "score_func"},
       {"routed_scaling_factor", "route_scale"},
       {"num_hash_layers", "n_hash_layers"},
       {"num_nextn_predict_layers", "n_mtp_layers"},
       {"rms_norm_eps", "norm_eps"},
       {"o_groups", "o_groups"},
       {"head_dim", "head_dim"}}};
  Json json = golden_json();
  for (const auto& [hub, other] : names) {
    const Json value = json[hub];
    json.erase(hub);
    json[other] = value;
  }
  EXPECT_EQ(parsed(json), parsed(golden_json()));
}

TEST(HubConfig, EveryMandatoryKeyIsMissedByNameAndByWhatItDecides) {
  for (const char* key : {"vocab_size",
                          "hidden_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "head_dim",
                          "qk_rope_head_dim",
                          "q_lora_rank",
                          "o_groups",
                          "o_lora_rank",
                          "sliding_window",
                          "compress_ratios",
                          "n_routed_experts",
                          "num_experts_per_tok",
                          "moe_intermediate_size",
                          "scoring_func",
                          "norm_topk_prob",
                          "routed_scaling_factor",
                          "swiglu_limit",
                          "num_hash_layers",
                          "num_nextn_predict_layers",
                          "index_n_heads",
                          "index_head_dim",
                          "index_topk",
                          "hc_mult",
                          "hc_sinkhorn_iters",
                          "hc_eps",
                          "rms_norm_eps",
                          "compress_rope_theta"}) {
    for (const bool null : {false, true}) {
      const std::string text = error_of([&](Json& j) {
        if (null)
          j[key] = nullptr;
        else
          j.erase(key);
      });
      EXPECT_TRUE(mentions(text, std::string("config.json: '") + key + "'")) << key << ": " << text;
      EXPECT_TRUE(mentions(text, "it decides")) << text;
    }
  }
  EXPECT_TRUE(
      mentions(error_of([](Json& j) { j.erase("rope_scaling"); }), "'rope_scaling' is missing"));
  EXPECT_TRUE(mentions(error_of([](Json& j) {
                         j.erase("rope_theta");
                         j["rope_scaling"].erase("rope_theta");
                       }),
                       "'rope_theta' is missing"));
  for (const char* key : {"factor", "original_max_position_embeddings"}) {
    EXPECT_TRUE(mentions(error_of([&](Json& j) { j["rope_scaling"].erase(key); }),
                         std::string("'rope_scaling.") + key + "' is missing"));
  }
}

TEST(HubConfig, CompressKeysAreNotNeededWithoutCompressedLayers) {
  const std::string text = error_of([](Json& j) {
    j["compress_ratios"] = {0, 0, 0, 0, 0};
    j.erase("compress_rope_theta");
    j.erase("rope_scaling");
  });
  EXPECT_EQ(text, "");
}

TEST(HubConfig, RopeScalingNullMeansNoYarnAndIsSaid) {
  Json json = golden_json();
  json["rope_scaling"] = nullptr;
  const HubConfig hub = parse_hub_config(json.dump(), "config.json");
  EXPECT_FALSE(hub.model.yarn);
  ASSERT_EQ(hub.messages.size(), 1U);
  EXPECT_TRUE(mentions(hub.messages[0], "no YaRN"));
}

TEST(HubConfig, CompressRatiosMayHaveThreeLengths) {
  const auto with = [](std::vector<int64_t> list) {
    return [list](Json& j) { j["compress_ratios"] = list; };
  };
  EXPECT_EQ(error_of(with({0, 4, 128, 4})), "");
  EXPECT_EQ(error_of(with({0, 4, 128, 4, 0, 0, 0})), "");
  for (const std::vector<int64_t>& bad : {std::vector<int64_t>{0, 4, 128},
                                          {0, 4, 128, 4, 0, 0},
                                          {0, 4, 128, 4, 0, 0, 4},
                                          {0, 4, 128, 4, 0, 0, 0, 0}}) {
    EXPECT_TRUE(mentions(error_of(with(bad)), "'compress_ratios' must have")) << bad.size();
  }
  Json json = golden_json();
  json["compress_ratios"] = {1, 4, 128, 4};
  const HubConfig hub = parse_hub_config(json.dump(), "config.json");
  EXPECT_EQ(hub.model.ratios, (std::vector<int64_t>{0, 4, 128, 4, 0}));
  EXPECT_EQ(hub.messages.size(), 2U);
}

TEST(HubConfig, AbsurdLayerCountsAllocateNothing) {
  EXPECT_TRUE(mentions(error_of([](Json& j) {
                         j["compress_ratios"] = {0, 4, 128, 4};
                         j["num_nextn_predict_layers"] = 1000000000000000000;
                       }),
                       "'num_nextn_predict_layers' must be at most 1024"));
  EXPECT_TRUE(mentions(error_of([](Json& j) { j["num_hidden_layers"] = 1000000000000000000; }),
                       "'compress_ratios' must have"));
}

TEST(HubConfig, ValuesOfTheWrongKindAreNamedWithKeyAndValue) {
  const std::array<std::pair<const char*, Json>, 11> bad = {
      {{"hidden_size", "64"},
       {"hidden_size", 64.5},
       {"hidden_size", -64},
       {"hidden_size", 18446744073709551615ULL},
       {"hc_eps", "1e-6"},
       {"hc_eps", -1e-6},
       {"rms_norm_eps", true},
       {"norm_topk_prob", 1},
       {"scoring_func", 3},
       {"compress_ratios", Json::array({0, 4, 128, 4.5, 0})},
       {"rope_scaling", "yarn"}}};
  for (const auto& [key, value] : bad) {
    const std::string text = error_of([&](Json& j) { j[key] = value; });
    EXPECT_TRUE(mentions(text, std::string("'") + key)) << text;
    EXPECT_TRUE(mentions(text, key == std::string("compress_ratios") ? "4.5" : value.dump()))
        << text;
  }
}

std::string error_of_text(const std::string& text) {
  try {
    (void)parse_hub_config(text, "config.json");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(HubConfig, NumbersMayHaveAnyJsonSpelling) {
  std::string text = golden_json().dump();
  const std::string eps = "\"hc_eps\":1e-06";
  const size_t at = text.find(eps);
  ASSERT_NE(at, std::string::npos);
  for (const char* spelling : {"1e-20", "1E-20", "0.00000000000000000001"}) {
    std::string other = text;
    other.replace(at, eps.size(), std::string("\"hc_eps\":") + spelling);
    EXPECT_EQ(parse_hub_config(other, "config.json").model.hc_eps, 1e-20);
  }
  for (const char* spelling : {"NaN", "Infinity", "1e999"}) {
    std::string other = text;
    other.replace(at, eps.size(), std::string("\"hc_eps\":") + spelling);
    EXPECT_TRUE(mentions(error_of_text(other), "config.json: must be JSON")) << spelling;
  }
}

TEST(HubConfig, TextThatIsNoConfigurationIsRefused) {
  EXPECT_TRUE(mentions(error_of_text(""), "must be JSON"));
  EXPECT_TRUE(mentions(error_of_text("[1]"), "must be a JSON object, got array"));
  EXPECT_TRUE(
      mentions(error_of_text(R"({"vocab_size": 1, "vocab_size": 2})"), "'vocab_size' twice"));
  EXPECT_TRUE(mentions(error_of_text("{}"), "'vocab_size' is missing"));
}

TEST(HubConfig, AllProblemsAreReportedTogether) {
  const std::string text = error_of([](Json& j) {
    j["hidden_size"] = -1;
    j.erase("hc_mult");
    j["hidden_act"] = "gelu";
    j.erase("compress_rope_theta");
  });
  EXPECT_TRUE(mentions(text, "compress_rope_theta"));
  EXPECT_TRUE(mentions(text, "hidden_size"));
  EXPECT_TRUE(mentions(text, "hc_mult"));
  EXPECT_TRUE(mentions(text, "hidden_act"));
}

TEST(HubConfig, FixedFieldsAdmitOneValue) {
  const std::array<std::pair<const char*, Json>, 12> bad = {{{"model_type", "deepseek_v3"},
                                                             {"num_key_value_heads", 2},
                                                             {"n_shared_experts", 2},
                                                             {"topk_method", "greedy"},
                                                             {"n_group", 8},
                                                             {"hidden_act", "gelu"},
                                                             {"tie_word_embeddings", true},
                                                             {"attention_bias", true},
                                                             {"attention_dropout", 0.1},
                                                             {"rope_interleave", false},
                                                             {"rotary_percent", 0.125},
                                                             {"mlp_bias", true}}};
  for (const auto& [key, value] : bad) {
    EXPECT_TRUE(
        mentions(error_of([&](Json& j) { j[key] = value; }), std::string("'") + key + "' must be"))
        << key;
  }
  EXPECT_TRUE(mentions(error_of([](Json& j) { j["rope_scaling"]["mscale"] = 1; }),
                       "'rope_scaling.mscale'"));
  EXPECT_TRUE(mentions(error_of([](Json& j) { j["rope_scaling"]["attention_factor"] = 1.2; }),
                       "must be 1.0, got 1.2"));
  EXPECT_TRUE(
      mentions(error_of([](Json& j) { j["rope_scaling"]["type"] = "linear"; }), "must agree"));
}

TEST(HubConfig, LayerTypesNeedTheRateTheyUse) {
  EXPECT_TRUE(mentions(error_of([](Json& j) {
                         j = saved_by_transformers();
                         j.erase("compress_rates");
                       }),
                       "'compress_rates' is missing"));
  EXPECT_TRUE(mentions(error_of([](Json& j) {
                         j = saved_by_transformers();
                         j["compress_rates"]["compressed_sparse_attention"] = 8;
                       }),
                       "must give 4 for compressed_sparse_attention, got 8"));
  EXPECT_TRUE(mentions(error_of([](Json& j) {
                         j = saved_by_transformers();
                         j["layer_types"][0] = "full_attention";
                       }),
                       "'full_attention'"));
}

TEST(HubConfig, WritingAndReadingGivesTheSameModel) {
  ModelConfig odd = tiny_a();
  odd.clamp_shared_expert = false;
  odd.indexer_hadamard = false;
  odd.init_alpha = 0.5;
  odd.head_dim = 44;  // 44 * (30 / 44) < 30 in double
  odd.rope_dims = 30;
  odd.normalize_topk = false;
  odd.score_function = "sigmoid";
  ModelConfig several = tiny_a();
  several.ratios = {2, 16, 8, 4, 0};
  ModelConfig plain = tiny_a();
  plain.yarn.reset();
  for (const ModelConfig& c : {recipe("flash"),
                               recipe("pro"),
                               recipe("tiny"),
                               recipe("flash-4layer"),
                               tiny_a(),
                               odd,
                               several,
                               plain}) {
    EXPECT_EQ(parse_hub_config(write_hub_config(c), "written").model, c);
  }
}

TEST(HubConfig, LayerTypesAreWrittenWhereTransformersNeedsThem) {
  const Json release = Json::parse(write_hub_config(recipe("flash-4layer")));
  EXPECT_FALSE(release.contains("layer_types"));
  EXPECT_EQ(release["compress_ratios"], Json::array({0, 0, 4, 128}));
  const Json tiny = Json::parse(write_hub_config(recipe("tiny")));
  EXPECT_EQ(tiny["layer_types"][2], "heavily_compressed_attention");
  EXPECT_EQ(tiny["layer_types"].size(), 4U);
  EXPECT_EQ(tiny["compress_rates"]["heavily_compressed_attention"], 8);
  ModelConfig odd = tiny_a();
  odd.head_dim = 44;
  odd.rope_dims = 30;
  const auto factor = Json::parse(write_hub_config(odd))["partial_rotary_factor"].get<double>();
  EXPECT_EQ(static_cast<int>(44 * factor), 30);
}

TEST(HubConfig, UnknownKeysAreListedAndKeptVerbatimExceptForStorage) {
  Json json = golden_json();
  json["my_key"] = {{"b", 1}, {"a", Json::array({1.5, "x"})}};
  json["quantization_config"] = {{"quant_method", "fp8"}};
  json["torch_dtype"] = "bfloat16";
  json["bos_token_id"] = 7;
  const HubConfig hub = parse_hub_config(json.dump(), "config.json");
  EXPECT_EQ(hub.kept_keys, (std::vector<std::string>{"architectures", "torch_dtype", "my_key"}));
  const Json written = Json::parse(write_hub_config(hub.model, hub.kept));
  EXPECT_EQ(written["my_key"].dump(), json["my_key"].dump());
  EXPECT_EQ(written["bos_token_id"], 7);
  EXPECT_EQ(written["torch_dtype"], "float32");
  EXPECT_FALSE(written.contains("quantization_config"));
}

}  // namespace
}  // namespace lethe
