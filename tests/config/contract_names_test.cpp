#include "lethe/config/contract_names.h"

#include <array>
#include <random>
#include <set>

#include "config/models.h"
#include <gtest/gtest.h>

namespace lethe {
namespace {

constexpr std::array kDialects = {
    Dialect::Internal, Dialect::Hub, Dialect::Transformers, Dialect::Rollout};

ModelConfig with_mtp(int64_t blocks) {
  ModelConfig c = recipe("tiny");
  c.num_mtp = blocks;
  c.ratios.resize(static_cast<size_t>(c.num_layers + blocks), 0);
  return c;
}

TEST(ContractNames, EveryNameOfEveryDialectComesBackFromItsMatch) {
  for (const int64_t blocks : {0, 1, 2}) {
    const std::vector<ParamSpec> params = contract(with_mtp(blocks));
    for (const Dialect d : kDialects) {
      for (const DiskTensor& t : disk_tensors(params, d)) {
        const auto match = match_name(d, t.name);
        ASSERT_TRUE(match) << t.name;
        EXPECT_EQ(make_name(d, *match), t.name);
        EXPECT_FALSE(match->older) << t.name;
      }
    }
  }
}

TEST(ContractNames, HubNamesRoundTripThroughTheOtherDialectsThatDoNotMergeThem) {
  for (const DiskTensor& t : hub_tensors(with_mtp(1))) {
    const auto match = match_name(Dialect::Hub, t.name);
    ASSERT_TRUE(match);
    const auto back = match_name(Dialect::Rollout, make_name(Dialect::Rollout, *match));
    ASSERT_TRUE(back) << t.name;
    EXPECT_EQ(make_name(Dialect::Hub, *back), t.name);
  }
}

TEST(ContractNames, TranslationsAreThoseOfTheSpecification) {
  const auto to = [](Dialect from, const char* name, Dialect dialect) {
    const auto match = match_name(from, name);
    return match ? make_name(dialect, *match) : std::string("no match");
  };
  EXPECT_EQ(to(Dialect::Hub, "layers.7.attn.wo_a.weight", Dialect::Internal),
            "decoder.layers.7.self_attention.linear_o_group_proj");
  EXPECT_EQ(to(Dialect::Hub, "layers.7.ffn.experts.12.w3.weight", Dialect::Rollout),
            "model.layers.7.mlp.experts.12.up_proj.weight");
  EXPECT_EQ(to(Dialect::Hub, "layers.7.ffn.experts.12.w3.weight", Dialect::Transformers),
            "model.layers.7.mlp.experts.gate_up_proj");
  EXPECT_EQ(to(Dialect::Hub, "mtp.1.attn.wkv.weight", Dialect::Internal),
            "mtp.layers.1.mtp_model_layer.self_attention.linear_kv_proj.weight");
  EXPECT_EQ(to(Dialect::Hub, "mtp.1.norm.weight", Dialect::Internal),
            "mtp.layers.1.final_layernorm.weight");
  EXPECT_EQ(to(Dialect::Transformers, "model.layers.2.self_attn.sinks", Dialect::Hub),
            "layers.2.attn.attn_sink");
  EXPECT_EQ(to(Dialect::Rollout, "model.layers.0.mlp.topk.tid2eid", Dialect::Hub),
            "layers.0.ffn.gate.tid2eid");
}

TEST(ContractNames, OlderSpellingsAreReadAndMarked) {
  const std::array<std::pair<Dialect, const char*>, 4> older = {{
      {Dialect::Transformers, "model.layers.2.self_attn.q_norm.weight"},
      {Dialect::Transformers, "model.layers.2.self_attn.compressor.indexer.weights_proj.weight"},
      {Dialect::Hub, "layers.2.attn.indexer.scorer.weights_proj.weight"},
      {Dialect::Internal, "mtp.layers.0.transformer_layer.self_attention.linear_kv_proj.weight"},
  }};
  for (const auto& [dialect, name] : older) {
    const auto match = match_name(dialect, name);
    ASSERT_TRUE(match) << name;
    EXPECT_TRUE(match->older);
    EXPECT_NE(make_name(dialect, *match), name);
  }
}

TEST(ContractNames, NamesThatAreAlmostRightMatchNothing) {
  for (const char* name : {"layers.07.attn.wkv.weight",
                           "layers..attn.wkv.weight",
                           "layers.-1.attn.wkv.weight",
                           "layers.1.attn.wkv",
                           "layers.1.ffn.experts.01.w1.weight",
                           "layers.1.ffn.experts.w1.weight",
                           "mtp.0.attn.compressor.ape",
                           "mtp.0.ffn.gate.tid2eid",
                           "layers.1.e_proj.weight",
                           "layers.99999999999999999999.attn.wkv.weight",
                           "model.embed.weight",
                           ""}) {
    EXPECT_FALSE(match_name(Dialect::Hub, name)) << name;
  }
}

TEST(ContractNames, TenThousandMutatedNamesMatchOnlyWhenTheyAreNamesAgain) {
  const std::vector<DiskTensor> tensors = hub_tensors(recipe("tiny"));
  std::mt19937 random(7);
  int matched = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string name = tensors[random() % tensors.size()].name;
    const size_t at = random() % name.size();
    switch (random() % 3) {
      case 0:
        name[at] = static_cast<char>('a' + random() % 26);
        break;
      case 1:
        name.erase(at, 1);
        break;
      default:
        name.insert(at, 1, static_cast<char>('a' + random() % 26));
        break;
    }
    const auto match = match_name(Dialect::Hub, name);
    matched += match ? 1 : 0;
    if (match) {
      EXPECT_EQ(make_name(Dialect::Hub, *match), name);
    }
  }
  EXPECT_LT(matched, 1000);
}

TEST(ContractNames, EverySupersededNameIsMappedToARowOfTheTable) {
  const std::array<std::pair<const char*, const char*>, 22> renamed = {{
      {"self_attention.wq_a.weight", "self_attention.linear_q_down_proj.weight"},
      {"self_attention.q_norm.weight", "self_attention.q_layernorm.weight"},
      {"self_attention.wq_b.weight", "self_attention.linear_q_up_proj.weight"},
      {"self_attention.wkv.weight", "self_attention.linear_kv_proj.weight"},
      {"self_attention.kv_norm.weight", "self_attention.kv_layernorm.weight"},
      {"self_attention.wo_a.weight", "self_attention.linear_o_group_proj"},
      {"self_attention.wo_b.weight", "self_attention.linear_proj.weight"},
      {"self_attention.attn_sink", "self_attention.core_attention.attn_sink"},
      {"self_attention.compressor.ape", "self_attention.core_attention.compressor.ape"},
      {"self_attention.compressor.wkv.weight",
       "self_attention.core_attention.compressor.linear_wkv.weight"},
      {"self_attention.compressor.wgate.weight",
       "self_attention.core_attention.compressor.linear_wgate.weight"},
      {"self_attention.compressor.norm.weight",
       "self_attention.core_attention.compressor.norm.weight"},
      {"self_attention.indexer.wq_b.weight",
       "self_attention.core_attention.indexer.linear_wq_b.weight"},
      {"self_attention.indexer.linear_wq_b.weight",
       "self_attention.core_attention.indexer.linear_wq_b.weight"},
      {"self_attention.indexer.weights_proj.weight",
       "self_attention.core_attention.indexer.linear_weights_proj.weight"},
      {"self_attention.indexer.compressor.ape",
       "self_attention.core_attention.indexer.compressor.ape"},
      {"self_attention.indexer.compressor.wkv.weight",
       "self_attention.core_attention.indexer.compressor.linear_wkv.weight"},
      {"self_attention.indexer.compressor.wgate.weight",
       "self_attention.core_attention.indexer.compressor.linear_wgate.weight"},
      {"self_attention.indexer.compressor.norm.weight",
       "self_attention.core_attention.indexer.compressor.norm.weight"},
      {"hc_attn_fn", "self_attention_hyper_connection.mapping_proj.weight"},
      {"hc_ffn_fn", "mlp_hyper_connection.mapping_proj.weight"},
      {"hc_ffn_base", "mlp_hyper_connection.bias"},
  }};
  for (const auto& [old, current] : renamed) {
    const std::string prefix = "decoder.layers.3.";
    EXPECT_FALSE(match_name(Dialect::Internal, prefix + old)) << old;
    EXPECT_EQ(current_name(prefix + old), prefix + current);
    EXPECT_TRUE(match_name(Dialect::Internal, prefix + current)) << current;
  }
  EXPECT_EQ(current_name("decoder.hc_head_params.hc_head_fn"), "decoder.hc_head_fn");
  EXPECT_EQ(current_name("decoder.layers.0.hc_attn_scale"),
            "decoder.layers.0.self_attention_hyper_connection.alpha_{pre,post,res}");
}

TEST(ContractNames, NoCurrentNameIsTakenForASupersededOne) {
  for (const DiskTensor& t : disk_tensors(contract(with_mtp(1)), Dialect::Internal)) {
    EXPECT_FALSE(current_name(t.name)) << t.name;
  }
}

TEST(ContractNames, ExplanationsNameTheOriginAndTheWayOut) {
  const auto has = [](const char* name, const char* phrase) {
    return explain_unknown_name(name).find(phrase) != std::string::npos;
  };
  EXPECT_TRUE(has(
      "module.module.decoder.layers.0.self_attention.wq_a.weight",
      "superseded name of contract 'decoder.layers.0.self_attention.linear_q_down_proj.weight'"));
  EXPECT_TRUE(has("model.layers.0.self_attn.q_a_proj.weight", "transformers name"));
  EXPECT_TRUE(has("model.layers.0.self_attn.wq_a.weight", "rollout-engine name"));
  EXPECT_TRUE(has("layers.90.attn.wkv.weight", "hub name"));
  EXPECT_TRUE(has("decoder.layers.90.input_layernorm.weight", "no such tensor"));
  EXPECT_TRUE(has("model.layers.0.self_attn.sinks_param.weight", "Automodel"));
  EXPECT_TRUE(has("decoder.layers.0.attn_mhc.hc_fn.weight", "MindSpeed-LLM"));
  EXPECT_TRUE(has("nonsense", "none of the name spaces"));
}

}  // namespace
}  // namespace lethe
