#include "lethe/plan/kept_bytes.h"

#include <string_view>

#include "lethe/base/error.h"
#include "lethe/plan/save_targets.h"

namespace lethe {
namespace {

using Id = SubgraphId;

constexpr int64_t kComputingBytes = 4;  // float32 and int32

/// The calls of one layer.
class LayerCalls {
 public:
  LayerCalls(const ModelConfig& model,
             const ActivationSizes& sizes,
             const OperatorFacts& facts,
             const LayerKind& kind)
      : m_(model), s_(sizes), facts_(facts), kind_(kind), flow_(layer_flow(kind, facts)) {}

  [[nodiscard]] KeptBytes of(const std::string& call) const {
    KeptBytes kept = parts_of(call);
    kept.call = call;
    return kept;
  }

 private:
  [[nodiscard]] int64_t act(Id id, uint8_t out = 0) const { return act_bytes(m_, s_, {id, out}); }

  [[nodiscard]] KeptBytes parts_of(std::string_view call) const {
    if (call == "lethe::sparse_attention") return attention();
    if (call == "lethe::gate") return gate();
    if (call == "lethe::experts") return experts(m_.experts_per_token);
    if (call == "lethe::swiglu_mlp") return experts(1);
    if (call == "lethe::mhc_pre") return mhc_pre();
    if (call == "lethe::mhc_post") return mhc_post();
    if (call == "lethe::compressor") return compressor();
    fail_internal("kept bytes: must be predicted for every call that a save unit names, got " +
                  std::string(call));
  }

  [[nodiscard]] static KeptBytes sum(int64_t inside, int64_t added) {
    return {.bytes = inside + added, .inside = inside, .added = added};
  }

  [[nodiscard]] KeptBytes attention() const {
    int64_t bytes = 0;
    for (const ActId out : flow_.find(Id::Sparse)->outputs) bytes += act_bytes(m_, s_, out);
    return sum(bytes, 0);
  }

  // Weights, ids, scores. Ids by score are recorded, kept or not.
  [[nodiscard]] KeptBytes gate() const {
    const int64_t bytes = act(Id::Router);
    const int64_t ids = s_.tokens * m_.experts_per_token * kComputingBytes;
    return {.bytes = bytes, .inside = kind_.hash ? bytes : bytes - ids};
  }

  // Nobody saves what the experts return: routed and shared are only added.
  [[nodiscard]] KeptBytes experts(int64_t count) const {
    return sum(expert_product_bytes(m_, s_, count), act(Id::Moe));
  }

  // Of both sites. The weights of the collapse, [T, n], are a result that nobody saves.
  [[nodiscard]] KeptBytes mhc_pre() const {
    int64_t inside = 0;
    for (const Id site : {Id::AttnPre, Id::MlpPre})
      inside +=
          inside_bytes(m_, s_, facts_, kind_, site) + act(site, 0) + act(site, 1) + act(site, 2);
    return sum(inside, 2 * s_.tokens * m_.streams * kComputingBytes);
  }

  [[nodiscard]] KeptBytes mhc_post() const {
    const int64_t mid = act(Id::AttnPost), out = act(Id::MlpPost);
    return {.bytes = mid + out, .inside = mid, .output = out};
  }

  // The layer's own and, of as many slots, the indexer's, whose keys are saved behind the Hadamard
  // transform where there is one. Without its loss the latter is a part of the recorded choice.
  [[nodiscard]] KeptBytes compressor() const {
    const int64_t slots = act(Id::Compressor);
    const bool has_loss = kind_.has_indexer() && facts_.indexer_loss;
    const int64_t keys = has_loss ? act(Id::Indexer, 2) : 0;
    return m_.indexer_hadamard ? sum(slots, keys) : sum(slots + keys, 0);
  }

  const ModelConfig& m_;
  const ActivationSizes& s_;
  const OperatorFacts& facts_;
  const LayerKind& kind_;
  LayerFlow flow_;
};

}  // namespace

int64_t UnitBytes::bytes() const {
  int64_t sum = 0;
  for (const KeptBytes& kept : calls) sum += kept.bytes;
  return sum;
}

std::vector<UnitBytes> unit_bytes(const ModelConfig& model,
                                  const ActivationSizes& sizes,
                                  const OperatorFacts& facts,
                                  const LayerPlan& layer) {
  std::vector<UnitBytes> rows;
  const LayerCalls calls(model, sizes, facts, layer.kind);
  for (const SaveTarget& target : targets_of(deepseek_v4_save_targets(), layer.save_units)) {
    if (target.needs_slots && layer.kind.ratio == 0) continue;
    UnitBytes& row = rows.emplace_back();
    row.unit = save_unit_name(target.unit);
    for (const std::string& call : target.names) row.calls.push_back(calls.of(call));
  }
  return rows;
}

}  // namespace lethe
