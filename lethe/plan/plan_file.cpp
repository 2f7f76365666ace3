#include "lethe/plan/plan_file.h"

#include <span>

#include "lethe/io/atomic_file.h"
#include "lethe/io/checksum.h"
#include "lethe/plan/plan_names_impl.h"

namespace lethe {
namespace {

using Json = nlohmann::ordered_json;
using detail::word_of;

std::string trigger_text(const Trigger& trigger) {
  std::string text(word_of(detail::kTriggerWords, trigger.kind));
  if (trigger.kind != Trigger::Kind::Pull) text += " " + std::string(event_name(trigger.at));
  return text;
}

Json act_ids(const std::vector<ActId>& ids) {
  Json list = Json::array();
  for (const ActId id : ids) list.push_back(act_text(id));
  return list;
}

Json region_json(const RegionRule& region) {
  return {{"subgraph", subgraph_name(region.subgraph)},
          {"inputs", act_ids(region.inputs)},
          {"outputs", act_ids(region.outputs)},
          {"has_collective", region.has_collective},
          {"has_rng", region.has_rng},
          {"stop", word_of(detail::kStopWords, region.stop)}};
}

Json act_json(const ActRule& rule) {
  return {{"name", rule.name},
          {"id", act_text(rule.id)},
          {"keep", word_of(detail::kKeepWords, rule.keep)},
          {"last_read", event_name(rule.last_read)},
          {"release", event_name(rule.release)},
          {"restore", trigger_text(rule.restore)},
          {"restore_overlap", trigger_text(rule.restore_overlap)}};
}

Json class_json(const LayerPlan& layer) {
  Json regions = Json::array(), acts = Json::array();
  for (const RegionRule& region : layer.regions) regions.push_back(region_json(region));
  for (const ActRule& rule : layer.acts) acts.push_back(act_json(rule));
  return {{"class", layer.layer_class},
          {"ratio", layer.kind.ratio},
          {"hash", layer.kind.hash},
          {"mtp", layer.kind.mtp},
          {"nested", layer.nested},
          {"save_units", layer.save_units},
          {"allow_mutation", layer.allow_mutation},
          {"regions", std::move(regions)},
          {"acts", std::move(acts)}};
}

}  // namespace

Json detail::model_fingerprint(const PlanSubject& subject) {
  const ModelConfig& m = subject.model;
  const PipelineShape& pipeline = subject.pipeline;
  return {{"vocab_size", m.vocab_size},
          {"hidden_size", m.hidden},
          {"num_hidden_layers", m.num_layers},
          {"num_nextn_predict_layers", m.num_mtp},
          {"compress_ratios", m.ratios},
          {"num_hash_layers", m.num_hash_layers},
          {"num_attention_heads", m.heads},
          {"head_dim", m.head_dim},
          {"q_lora_rank", m.q_lora_rank},
          {"o_groups", m.o_groups},
          {"o_lora_rank", m.o_lora_rank},
          {"hc_mult", m.streams},
          {"n_routed_experts", m.num_experts},
          {"num_experts_per_tok", m.experts_per_token},
          {"moe_intermediate_size", m.expert_width},
          {"index_n_heads", m.index_heads},
          {"index_head_dim", m.index_head_dim},
          {"index_topk", m.index_topk},
          {"pipeline_model_parallel_size", pipeline.pipeline_ranks},
          {"virtual_stages", pipeline.virtual_stages.value_or(1)},
          {"pipeline_model_parallel_layout", pipeline.layout ? pipeline.layout->text : ""},
          {"pipeline_rank", subject.pipeline_rank},
          {"holds_mtp", subject.holds_mtp}};
}

std::string plan_text(const PlanSubject& subject, const RecomputePlan& plan) {
  Json classes = Json::array();
  for (const LayerPlan& layer : plan.classes) classes.push_back(class_json(layer));
  const Json json = {{"format", detail::kPlanFormat},
                     {"version", detail::kPlanVersion},
                     {"model", detail::model_fingerprint(subject)},
                     {"mode", word_of(detail::kModeWords, plan.mode)},
                     {"checks", word_of(detail::kCheckWords, plan.checks)},
                     {"mtp", word_of(detail::kMtpWords, plan.mtp)},
                     {"mhc_block", plan.mhc_block},
                     {"full_chunk", plan.full_chunk},
                     {"layers", plan.layer_to_class},
                     {"classes", std::move(classes)}};
  return json.dump(1) + "\n";
}

void save_plan(const std::filesystem::path& path,
               const PlanSubject& subject,
               const RecomputePlan& plan) {
  write_file_atomically(path, plan_text(subject, plan));
}

RecomputePlan load_plan(const std::filesystem::path& path, const PlanSubject& subject) {
  return read_plan(read_text_file(path), subject, path.string());
}

std::string plan_hash(const PlanSubject& subject, const RecomputePlan& plan) {
  const std::string text = plan_text(subject, plan);
  return sha256_hex(std::as_bytes(std::span(text)));
}

}  // namespace lethe
