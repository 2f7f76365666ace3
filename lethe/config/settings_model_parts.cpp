#include <set>

#include "lethe/config/settings_table_impl.h"

// Flags of the parts of a layer beside attention: command-line spec 7.1.
namespace lethe::detail {
namespace {

constexpr auto kModel = &RunConfig::model;
using M = ModelConfig;

void add_indexer(SettingTable& t) {
  t.section("model", "Model: indexer", command::kShape);
  t.bind("dsa-indexer-n-heads", kModel, &M::index_heads, "Heads of the indexer.")
      .alias({"index-n-heads"})
      .from_hub()
      .at_least(1);
  t.bind("dsa-indexer-head-dim", kModel, &M::index_head_dim, "Width of an indexer head.")
      .alias({"index-head-dim"})
      .from_hub()
      .at_least(1)
      .note("a power of two");
  t.bind("dsa-indexer-topk", kModel, &M::index_topk, "Slots that a query of a ratio-4 layer reads.")
      .alias({"index-topk"})
      .from_hub()
      .at_least(1);
  t.bind("dsa-indexer-hadamard",
         kModel,
         &M::indexer_hadamard,
         "Hadamard transform of the indexer's queries and keys.");
}

void add_hyper_connections(SettingTable& t) {
  t.section("model", "Model: hyper-connections", command::kShape);
  t.bind("num-residual-streams", kModel, &M::streams, "Residual streams.")
      .alias({"dsv4-hc-mult", "hc-mult", "mhc-num-residual-streams"})
      .from_hub()
      .at_least(1);
  t.bind("mhc-sinkhorn-iterations",
         kModel,
         &M::sinkhorn_iterations,
         "Iterations of the Sinkhorn projection.")
      .alias({"dsv4-hc-sinkhorn-iters", "hc-sinkhorn-iters"})
      .from_hub()
      .at_least(1);
  t.bind("mhc-eps", kModel, &M::hc_eps, "Epsilon of the mixing weights.")
      .alias({"hc-eps"})
      .from_hub()
      .above(0);
  t.bind("mhc-init-gating-factor",
         kModel,
         &M::init_alpha,
         "Initial alphas, in training from scratch.")
      .at_least(0);
  t.constant("enable-mhc", true, "Hyper-connections are on.", "DeepSeek-V4 requires them")
      .alias({"enable-hyper-connections", "enable-mhc-connections"});
}

void add_experts(SettingTable& t) {
  t.section("model", "Model: experts", command::kShape);
  t.bind("num-experts", kModel, &M::num_experts, "Routed experts of a layer.")
      .from_hub()
      .at_least(1);
  t.bind("moe-router-topk", kModel, &M::experts_per_token, "Routed experts per token.")
      .from_hub()
      .at_least(1)
      .note("<= num_experts");
  t.bind("moe-ffn-hidden-size", kModel, &M::expert_width, "Width of an expert.")
      .from_hub()
      .at_least(1);
  t.mirror("ffn-hidden-size",
           kModel,
           &M::expert_width,
           "Kept for compatibility.",
           "V4 has no dense layer; leave this flag out")
      .note("equals moe_ffn_hidden_size")
      .default_note("moe_ffn_hidden_size");
  t.mirror("moe-shared-expert-intermediate-size",
           kModel,
           &M::expert_width,
           "Width of the shared expert.",
           "V4's one shared expert is as wide as a routed one; leave this flag out")
      .note("equals moe_ffn_hidden_size")
      .default_note("moe_ffn_hidden_size");
  t.bind("moe-router-score-function", kModel, &M::score_function, "From router logits to scores.")
      .choices({"sqrtsoftplus", "sigmoid", "softmax"})
      .from_hub();
  t.bind("moe-router-norm-topk-prob",
         kModel,
         &M::normalize_topk,
         "The weights of a token's experts sum to one, before scaling.")
      .alias({"norm-topk-prob"})
      .from_hub();
  t.bind("moe-router-topk-scaling-factor",
         kModel,
         &M::route_scale,
         "Factor on the weights of a token's experts.")
      .from_hub()
      .above(0);
  t.bind("moe-n-hash-layers", kModel, &M::num_hash_layers, "First layers, which route by token id.")
      .alias({"dsv4-n-hash-layers", "n-hash-layers"})
      .from_hub()
      .at_least(0)
      .note("<= num_layers");
  t.bind("activation-func-clamp-value",
         kModel,
         &M::swiglu_limit,
         "Bound of the experts' activations; 0 = off.")
      .alias({"swiglu-limit"})
      .from_hub()
      .at_least(0);
  t.bind("activation-func-clamp-shared-expert",
         kModel,
         &M::clamp_shared_expert,
         "The bound holds for the shared expert too.");
  t.constant("moe-router-enable-expert-bias",
             true,
             "Selection adds a bias that balances the experts.",
             "DeepSeek-V4 requires it");
  t.constant("moe-layer-freq",
             std::vector<int64_t>{1},
             "Every layer has experts.",
             "DeepSeek-V4 has no dense layer")
      .note("all ones")
      .accepts([](const RunConfig&, const SettingValue& value) {
        const auto& list = std::get<std::vector<int64_t>>(value);
        return std::set<int64_t>(list.begin(), list.end()) == std::set<int64_t>{1};
      });
}

}  // namespace

void add_model_part_settings(SettingTable& t) {
  add_indexer(t);
  add_hyper_connections(t);
  add_experts(t);
}

}  // namespace lethe::detail
