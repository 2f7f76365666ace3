#include "lethe/plan/make_plan.h"

#include <algorithm>
#include <iterator>

#include <fmt/ranges.h>

#include "lethe/base/error.h"

namespace lethe {
namespace {

/// A setting that asks for a part of layers, and whether a layer has that part.
struct PartWish {
  const char* setting;
  bool wanted;
  bool (*is_in)(const LayerChoice&);
};

std::vector<PartWish> part_wishes(const RecomputeConfig& config) {
  using C = const LayerChoice&;
  using M = RecomputeModule;
  const auto has = [&config](M module) { return recomputes_module(config, module); };
  const bool norms = config.norm_num_layers.value_or(1) > 0;  // 0 asks for none
  return {{"--recompute-csa-attention", config.csa_attention, [](C c) { return c.parts.csa; }},
          {"--mhc-recompute", config.mhc, [](C c) { return c.parts.mhc; }},
          {"--recompute-norm", config.norm && norms, [](C c) { return c.layer_norms; }},
          {"--recompute-modules core_attn", has(M::CoreAttn), [](C c) { return c.core_attention; }},
          {"--recompute-modules layernorm",
           has(M::Layernorm) && norms,
           [](C c) { return c.layer_norms; }},
          {"--recompute-modules mla_up_proj", has(M::MlaUpProj), [](C c) { return c.q_up; }},
          {"--recompute-modules moe", has(M::Moe), [](C c) { return c.moe; }},
          {"--recompute-modules shared_experts",
           has(M::SharedExperts),
           [](C c) { return c.shared_expert; }},
          {"--recompute-modules mhc", has(M::Mhc), [](C c) { return c.parts.mhc; }}};
}

class Maker {
 public:
  Maker(const PlanSubject& subject,
        const RecomputeConfig& config,
        const std::vector<std::string>& save_units,
        bool swap_layer_inputs)
      : subject_(subject),
        config_(config),
        save_units_(save_units),
        swap_layer_inputs_(swap_layer_inputs),
        layers_(stage_layers(subject)) {}

  RecomputePlan make() {
    check_matches();
    choices_.resize(layers_.size());
    choose_whole_layers();
    for (size_t i = 0; i < layers_.size(); ++i)
      if (!choices_[i].full) choose_parts(i);
    check_parts_have_layers();
    form_chunks();
    form_blocks();
    if (swap_layer_inputs_) choose_swaps();
    return collect();
  }

 private:
  void check_matches() const {
    const auto refuse = [](const char* flag, std::string_view value, const char* rest) {
      fail<ConfigError>(
          "{} [R6.9]: must name a part that this model keeps, got {}: {}", flag, value, rest);
    };
    const char* modules = "--recompute-modules";
    if (recomputes_module(config_, RecomputeModule::Mlp))
      refuse(modules, "mlp", "every layer of DeepSeek-V4 has experts; name moe");
    if (recomputes_module(config_, RecomputeModule::MoeAct))
      refuse(modules,
             "moe_act",
             "the operator of the experts never saves the result of the activation; leave it out");
    if (config_.vision_ratio.value_or(0) > 0)
      refuse("--vision-recompute-ratio",
             fmt::format("{}", *config_.vision_ratio),
             "DeepSeek-V4 has no vision tower; leave it out");
  }

  [[nodiscard]] bool is_skipped(size_t i) const {
    return layers_[i].kind.mtp && config_.mtp == MtpSelection::Skip;
  }

  /// Of a layer in the order of choosing; MTP blocks follow the main layers of the rank.
  [[nodiscard]] int64_t priority(size_t i) const {
    const StageLayer& layer = layers_[i];
    const bool over_rank = config_.per_pp_rank;
    if (!layer.kind.mtp)
      return get_recompute_priority(subject_.pipeline,
                                    {.p = subject_.pipeline_rank, .v = layer.chunk},
                                    layer.index + 1,
                                    over_rank);
    int64_t before = layer.index - subject_.model.num_layers;
    for (const StageLayer& other : layers_)
      if (!other.kind.mtp && (over_rank || other.chunk == layer.chunk)) ++before;
    return before;
  }

  [[nodiscard]] int64_t num_full_layers() const {
    if (config_.granularity != RecomputeGranularity::Full) return 0;
    const bool uniform = config_.method == RecomputeMethod::Uniform;
    return uniform ? static_cast<int64_t>(layers_.size()) : config_.num_layers.value_or(0);
  }

  void choose_whole_layers() {
    const int64_t full = num_full_layers();
    for (size_t i = 0; i < layers_.size(); ++i)
      choices_[i].full = !is_skipped(i) && priority(i) < full;
    if (config_.ratio) choose_by_ratio(*config_.ratio);
    const std::vector<std::string> writable = writable_units();
    for (LayerChoice& choice : choices_) {
      if (!choice.full) continue;
      choice.save_units = save_units_;
      choice.allow_mutation = writable;
    }
  }

  [[nodiscard]] std::vector<std::string> writable_units() const {
    if (config_.allow_mutation.kind == SaveSelection::Kind::All) return save_units_;
    const std::vector<std::string> wanted = save_unit_words(config_.allow_mutation);
    std::vector<std::string> units;
    std::copy_if(save_units_.begin(),
                 save_units_.end(),
                 std::back_inserter(units),
                 [&wanted](const std::string& unit) {
                   return std::find(wanted.begin(), wanted.end(), unit) != wanted.end();
                 });
    return units;
  }

  /// Without a pipeline: leading layers. With one: the same share of every rank, by priority over
  /// its chunks (R6.5).
  void choose_by_ratio(double ratio) {
    std::vector<std::pair<int64_t, size_t>> order;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (is_skipped(i)) continue;
      const StageLayer& layer = layers_[i];
      const int64_t main =
          layer.kind.mtp ? layer.index
                         : get_recompute_priority(subject_.pipeline,
                                                  {.p = subject_.pipeline_rank, .v = layer.chunk},
                                                  layer.index + 1,
                                                  true);
      order.emplace_back(main, i);
    }
    std::sort(order.begin(), order.end());
    const int64_t last = subject_.model.num_layers + subject_.model.num_mtp - 1;
    const bool has_last = !order.empty() && layers_[order.back().second].index == last;
    const int64_t chosen = num_ratio_layers(static_cast<int64_t>(order.size()), ratio, has_last);
    for (int64_t k = 0; k < chosen; ++k) choices_[order[static_cast<size_t>(k)].second].full = true;
  }

  /// Whole layers among those that are counted together with layer i.
  [[nodiscard]] int64_t num_full_beside(size_t i) const {
    int64_t count = 0;
    for (size_t j = 0; j < layers_.size(); ++j)
      if (choices_[j].full && (config_.per_pp_rank || layers_[j].chunk == layers_[i].chunk))
        ++count;
    return count;
  }

  void choose_parts(size_t i) {
    if (is_skipped(i)) return;
    LayerChoice& choice = choices_[i];
    const bool counted = config_.norm && config_.norm_num_layers;
    const std::optional<int64_t> limit = counted ? config_.norm_num_layers : std::nullopt;
    const bool norms = recomputes_norms(config_) &&
                       layer_window(priority(i), num_full_beside(i), limit) == LayerWindow::Fine;
    choice.parts = enabled_parts(config_, layers_[i].kind.mtp, norms, RunPhase{});
    choice.layer_norms = norms;
    choice.core_attention = recomputes_module(config_, RecomputeModule::CoreAttn);
    choice.q_up = recomputes_module(config_, RecomputeModule::MlaUpProj);
    choice.moe = recomputes_module(config_, RecomputeModule::Moe);
    choice.shared_expert = recomputes_module(config_, RecomputeModule::SharedExperts);
    if (config_.csa_keep_output && choice.parts.csa) choice.attn_keep = AttnKeep::AttnOut;
  }

  /// A layer is recomputed whole or in parts; a part for which no layer is left would do nothing.
  void check_parts_have_layers() const {
    // Another stage of the pipeline may have it.
    if (std::ssize(layers_) < subject_.model.num_layers + subject_.model.num_mtp) return;
    std::vector<const char*> idle;
    for (const PartWish& wish : part_wishes(config_))
      if (wish.wanted && std::none_of(choices_.begin(), choices_.end(), wish.is_in))
        idle.push_back(wish.setting);
    if (idle.empty()) return;
    const bool skips = config_.mtp == MtpSelection::Skip && subject_.model.num_mtp > 0;
    std::vector<std::string> causes;
    if (config_.ratio) causes.push_back(fmt::format("--recompute-ratio {}", *config_.ratio));
    if (config_.granularity == RecomputeGranularity::Full)
      causes.push_back(fmt::format("--recompute-granularity full of {} layers", num_full_layers()));
    if (skips) causes.emplace_back("--recompute-mtp skip");
    fail<ConfigError>(
        "{} [RC9]: must have a layer that takes part and is not recomputed whole, got none of {} "
        "under {}; leave it out, or recompute fewer layers whole{}",
        fmt::join(idle, ", "),
        layers_.size(),
        fmt::join(causes, ", "),
        skips ? ", or give --recompute-mtp include" : "");
  }

  /// Uniform: whole layers that follow each other in one chunk of the pipeline, num_layers at a
  /// time. An MTP block stands alone: its entry lies between it and the layer before.
  void form_chunks() {
    if (config_.method != RecomputeMethod::Uniform) return;
    const auto length = static_cast<size_t>(config_.num_layers.value_or(1));
    size_t in_chunk = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (!choices_[i].full || layers_[i].kind.mtp) continue;
      choices_[i].chunk_begins = in_chunk == 0;
      ++in_chunk;
      if (in_chunk == length || !goes_on(i, [](const LayerChoice& c) { return c.full; }))
        in_chunk = 0;
      choices_[i].chunk_ends = in_chunk == 0;
    }
  }

  void form_blocks() {
    const auto in_block = [](const LayerChoice& c) { return !c.full && c.parts.mhc; };
    int64_t length = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (!in_block(choices_[i])) continue;
      ++length;
      const bool ends = length == config_.mhc_layer_num || !goes_on(i, in_block);
      choices_[i].inner_of_block = !ends;
      if (ends) length = 0;
    }
  }

  void choose_swaps() {
    const auto is_given_back = [this](size_t i) {
      return !choices_[i].chunk_begins || (i > 0 && choices_[i - 1].inner_of_block);
    };
    for (size_t i = 0; i < layers_.size(); ++i)
      choices_[i].swap_input = !layers_[i].kind.mtp && !is_given_back(i);
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (layers_[i].index != subject_.model.num_layers - 1) continue;
      // Backward comes to the last layer first, and with it to where its chunk or block begins.
      size_t source = i;
      while (is_given_back(source)) --source;
      choices_[source].swap_input = false;
    }
  }

  /// The next layer reads this one's output and is of the same sort.
  template <class Sort>
  bool goes_on(size_t i, const Sort& sort) const {
    return i + 1 < layers_.size() && layers_[i + 1].chunk == layers_[i].chunk &&
           !layers_[i + 1].kind.mtp && sort(choices_[i + 1]);
  }

  RecomputePlan collect() const {
    RecomputePlan plan;
    plan.mtp = config_.mtp;
    plan.checks = config_.checks;
    plan.mhc_block = static_cast<uint32_t>(config_.mhc_layer_num);
    if (config_.method == RecomputeMethod::Uniform)
      plan.full_chunk = static_cast<uint32_t>(config_.num_layers.value_or(1));
    for (size_t i = 0; i < layers_.size(); ++i) {
      LayerPlan layer = make_layer_plan(layers_[i].kind, subject_.operators, choices_[i]);
      auto found = std::find_if(plan.classes.begin(), plan.classes.end(), [&](const LayerPlan& c) {
        return c.layer_class == layer.layer_class;
      });
      if (found == plan.classes.end())
        found = plan.classes.insert(plan.classes.end(), std::move(layer));
      plan.layer_to_class.push_back(static_cast<uint16_t>(found - plan.classes.begin()));
    }
    return plan;
  }

  const PlanSubject& subject_;
  const RecomputeConfig& config_;
  const std::vector<std::string>& save_units_;
  const bool swap_layer_inputs_;
  std::vector<StageLayer> layers_;
  std::vector<LayerChoice> choices_;
};

}  // namespace

PlanSubject PlanSubject::of(const ModelConfig& model, const OperatorFacts& operators) {
  PlanSubject subject{.model = model, .operators = operators, .pipeline = {}};
  subject.pipeline.num_layers = model.num_layers;
  return subject;
}

std::vector<StageLayer> stage_layers(const PlanSubject& subject) {
  const ModelConfig& model = subject.model;
  std::vector<StageLayer> layers;
  const auto chunks = chunks_of_rank(subject.pipeline, subject.pipeline_rank);
  for (size_t v = 0; v < chunks.size(); ++v)
    for (const int64_t id : chunks[v])
      layers.push_back({.index = id,
                        .chunk = static_cast<int64_t>(v),
                        .kind = {.ratio = model.ratio(id), .hash = model.is_hash_layer(id)}});
  if (!subject.holds_mtp) return layers;
  for (int64_t j = 0; j < model.num_mtp; ++j)
    layers.push_back({.index = model.num_layers + j,
                      .chunk = static_cast<int64_t>(chunks.size()) - 1,
                      .kind = {.ratio = model.ratio(model.num_layers + j), .mtp = true}});
  return layers;
}

std::string layer_label(const PlanSubject& subject, int64_t index) {
  const int64_t num_layers = subject.model.num_layers;
  return index < num_layers ? fmt::format("L{}", index) : fmt::format("MTP{}", index - num_layers);
}

RecomputePlan make_recompute_plan(const PlanSubject& subject,
                                  const RecomputeConfig& config,
                                  const std::vector<std::string>& save_units,
                                  bool swap_layer_inputs) {
  return Maker(subject, config, save_units, swap_layer_inputs).make();
}

}  // namespace lethe
