#include "lethe/train/recompute_choice.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/base/format.h"
#include "lethe/base/log.h"
#include "lethe/ops/registry.h"
#include "lethe/plan/check_plan.h"
#include "lethe/plan/plan_file.h"
#include "lethe/plan/plan_report.h"

namespace lethe {
namespace {

/// What the classes of a plan keep; errors name the file that it was read from.
SaveSelection units_of(const RecomputePlan& plan, const std::string& file) {
  std::vector<std::string> words;
  for (const LayerPlan& layer : plan.classes)
    for (const std::string& unit : layer.save_units)
      if (std::find(words.begin(), words.end(), unit) == words.end()) words.push_back(unit);
  return read_save_units(words, file);
}

/// What a plan may say and the runtime would quietly not do.
void expect_runnable(const LayerPlan& layer, const OperatorFacts& facts, const std::string& file) {
  LETHE_CHECK(RecomputeError,
              !layer.nested || layer.save_units.empty(),
              "{} [R6.17]: {}: save units must stand in whole layers without regions inside, got "
              "both; leave out one",
              file,
              layer.layer_class);
  const LayerFlow flow = layer_flow(layer.kind, facts);
  for (const RegionRule& region : layer.regions) {
    const auto goes = [&layer](ActId id) { return layer.find(id)->keep == Keep::Release; };
    std::vector<ActId> values = region.outputs;
    std::erase_if(values, [&flow](ActId id) { return flow.find(id)->is_choice; });
    const auto released = std::count_if(values.begin(), values.end(), goes);
    LETHE_CHECK(RecomputeError,
                released == 0 || released == std::ssize(values),
                "{} [plan-outputs]: {}: the outputs of region '{}' must be released together or "
                "kept together, got {} of {} released; change the others",
                file,
                layer.layer_class,
                subgraph_name(region.subgraph),
                released,
                values.size());
  }
}

RecomputePlan read_plan_file(const RecomputeConfig& config, const PlanSubject& subject) {
  RecomputePlan plan = load_plan(*config.plan_file, subject);
  LETHE_CHECK(RecomputeError,
              plan.mode == RecomputeMode::Engine,
              "{} [plan-mode]: must be a plan of mode engine to train with, got reentrant, whose "
              "gradients differ in the last bits; write it anew with --save-recompute-plan",
              *config.plan_file);
  for (const LayerPlan& layer : plan.classes)
    expect_runnable(layer, subject.operators, *config.plan_file);
  plan.checks = std::max(plan.checks, config.checks);
  return plan;
}

bool has_operator(std::string_view name) {
  static const std::set<std::string, std::less<>> names = [] {
    std::set<std::string, std::less<>> all;
    for (const ops::OperatorInfo& op : ops::registered_operators()) all.insert("lethe::" + op.name);
    return all;
  }();
  return names.contains(name);
}

/// Of --save-units all the model decides what is kept: only here it is known what that lacks.
void expect_declared(const SaveSelection& written, const SaveTargetMap& map) {
  for (const SaveUnit unit : written.units) {
    const std::string name(save_unit_name(unit));
    LETHE_CHECK(ConfigError,
                !targets_of(map, {name}).empty(),
                "--save-units-allow-mutation [RC19]: must name units that are kept, got {}, which "
                "{} does not have; leave it out",
                name,
                map.model_type);
  }
}

bool has_region(const RecomputePlan& plan, SubgraphId id) {
  return std::any_of(
      plan.layer_to_class.begin(), plan.layer_to_class.end(), [&plan, id](uint16_t index) {
        return plan.classes.at(index).find(id) != nullptr;
      });
}

/// A share of the layers is rounded down, to none of them where it is less than one.
void warn_of_idle_ratio(const RecomputeConfig& config, RecomputeChoice& choice) {
  if (config.ratio.value_or(0) <= 0 || has_region(choice.plan, SubgraphId::Layer)) return;
  const std::vector<StageLayer> layers = stage_layers(choice.subject);
  const auto total = std::count_if(layers.begin(), layers.end(), [&config](const StageLayer& one) {
    return !one.kind.mtp || config.mtp == MtpSelection::Include;
  });
  const double least = std::ceil(1000.0 / static_cast<double>(total)) / 1000.0;
  choice.warnings.push_back(fmt::format(
      "--recompute-ratio {} has no effect: of {} layers that is none, rounded down and without the "
      "last of the model, which stays; {}",
      *config.ratio,
      total,
      total > 1 ? fmt::format("give {} or more, or leave it out", least) : "leave it out"));
}

bool is_kept(const RecomputePlan& plan, const SaveTarget& target) {
  const auto keeps = [&](uint16_t index) {
    const LayerPlan& layer = plan.classes.at(index);
    const auto& units = layer.save_units;
    return (!target.needs_slots || layer.kind.ratio > 0) &&
           std::find(units.begin(), units.end(), save_unit_name(target.unit)) != units.end();
  };
  return std::any_of(plan.layer_to_class.begin(), plan.layer_to_class.end(), keeps);
}

/// Units of which no layer keeps anything leave the choice. Of --save-units all the rest is told.
void drop_idle_units(const RecomputeConfig& config, RecomputeChoice& choice) {
  std::vector<std::string> idle;
  for (const SaveTarget& target : targets_of(deepseek_v4_save_targets(), choice.units.names()))
    if (!is_kept(choice.plan, target)) idle.emplace_back(save_unit_name(target.unit));
  std::erase_if(choice.units.units, [&idle](const ResolvedUnit& unit) {
    return std::find(idle.begin(), idle.end(), save_unit_name(unit.unit)) != idle.end();
  });
  const bool rest_is_told =
      config.save.kind == SaveSelection::Kind::All && !choice.units.units.empty();
  if (idle.empty() || rest_is_told) return;
  choice.warnings.push_back(
      fmt::format("{} {} has no effect: no layer that is recomputed whole has it; recompute more "
                  "layers whole, or leave it out",
                  config.plan_file ? *config.plan_file + ": save unit" : "--save-units",
                  fmt::join(idle, " ")));
}

/// The output of a layer's MLP half goes and comes back only inside a block [G11].
void warn_of_idle_blocks(const RecomputeConfig& config, RecomputeChoice& choice) {
  if (config.mhc_layer_num <= 1 || has_region(choice.plan, SubgraphId::MlpPost)) return;
  choice.warnings.push_back(
      fmt::format("--mhc-recompute-layer-num {} has no effect: no two layers that recompute mHC "
                  "follow each other, and an MTP block stands alone; leave it out",
                  config.mhc_layer_num));
}

void warn_of_an_idle_plan(const RecomputeConfig& config, RecomputeChoice& choice) {
  if (config.plan_file && choice.plan.is_empty())
    choice.warnings.push_back(*config.plan_file +
                              " has no effect: this plan recomputes and swaps nothing");
  const bool asked = !config.plan_file && recomputes_anything(config);
  if (asked && !choice.plan.recomputes() && choice.warnings.empty())
    choice.warnings.emplace_back(
        "the settings of recompute have no effect: they choose no part of any layer");
}

void tell(const RecomputeChoice& choice) {
  for (const std::string& line : choice.units.warnings) log_warn("{}", line);
  for (const std::string& line : choice.warnings) log_warn("{}", line);
  for (const std::string& line : choice.units.kept_lines()) log_info("{}", line);
}

}  // namespace

OperatorFacts operator_facts(const TrainConfig& train) {
  // The rest is Lethe's own: no bias, no dropout, float32 activations whatever the weights are
  // stored in, a compressor that casts nothing.
  const bool attended_set =
      train.indexer_loss == IndexerLoss::Sparse && train.csa_attention == CsaAttention::Sparse;
  return {.indexer_loss =
              train.indexer_loss != IndexerLoss::Off && train.indexer_loss_coeff.value_or(0) > 0,
          .loss_reads_mass = attended_set && train.indexer_teacher == IndexerTeacher::Joint};
}

MicroBatchShape micro_batch_shape(const RunConfig& config) {
  const TrainConfig& train = config.train;
  const std::vector<int64_t> rows(static_cast<size_t>(train.micro_batch_size), train.seq_length);
  return {.documents = Documents::from_lengths(rows),
          .balanced = train.balance_loss_coeff > 0,
          .balances_hash_layers = train.balance_hash_layers};
}

SaveNames save_names() {
  return {.has_op = has_operator, .has_callable = [](std::string_view) { return false; }};
}

RecomputeChoice choose_recompute(const RunConfig& config) {
  const RecomputeConfig& recompute = config.recompute;
  RecomputeChoice choice{.subject = PlanSubject::of(config.model, operator_facts(config.train)),
                         .plan = {},
                         .units = {},
                         .all_train = !config.train.train_only_indexer,
                         .warnings = {}};
  const auto resolve = [](const SaveSelection& selection, MissingUnits missing) {
    return resolve_save_units(selection, deepseek_v4_save_targets(), save_names(), missing);
  };
  if (recompute.plan_file) {
    choice.plan = read_plan_file(recompute, choice.subject);
    choice.units = resolve(units_of(choice.plan, *recompute.plan_file), MissingUnits::Error);
  } else {
    choice.units = resolve(recompute.save, recompute.missing_units);
    expect_declared(recompute.allow_mutation, deepseek_v4_save_targets());
    choice.plan = make_recompute_plan(
        choice.subject, recompute, choice.units.names(), config.swap.layer_input);
    check_plan(choice.subject, choice.plan);
  }
  warn_of_idle_ratio(recompute, choice);
  drop_idle_units(recompute, choice);
  warn_of_idle_blocks(recompute, choice);
  warn_of_an_idle_plan(recompute, choice);
  if (config.swap != SwapConfig{} && !choice.plan.swaps())
    log_warn(
        "the settings of the host tier are not used: this plan swaps no layer's input (backward "
        "needs that of the last layer first)");
  if (choice.plan.checks != PlanChecks::Off && !choice.all_train)
    log_warn(
        "--recompute-checks: freed bytes are not compared with the plan's prediction [DC5] under "
        "--train-only-indexer, where values without a gradient are saved by nobody");
  tell(choice);
  return choice;
}

void save_chosen_plan(const RunConfig& config, const RecomputeChoice& choice) {
  const std::string& path = config.recompute.save_plan_file;
  if (!path.empty()) save_plan(path, choice.subject, choice.plan);
}

std::optional<RecomputeFacts> recompute_facts(const RunConfig& config,
                                              const RecomputeChoice& choice) {
  if (choice.plan.is_empty()) return std::nullopt;
  RecomputeFacts facts{.plan = plan_hash(choice.subject, choice.plan),
                       .classes = {},
                       .save_units = choice.units.names()};
  for (ClassSummary& row : plan_summary(choice.subject, choice.plan, micro_batch_shape(config)))
    facts.classes.emplace_back(std::move(row.layers), std::move(row.name));
  return facts;
}

std::string plan_lines(const RunConfig& config, const RecomputeChoice& choice) {
  if (choice.plan.is_empty()) return "";
  std::string out;
  for (const ClassSummary& row :
       plan_summary(choice.subject, choice.plan, micro_batch_shape(config))) {
    out += fmt::format("plan    {}  {}", row.layers, row.name);
    if (row.freed_bytes > 0)
      out += fmt::format(", frees {} a layer and micro-batch", bytes_text(row.freed_bytes));
    out += "\n";
  }
  return out;
}

std::string swap_line(const SwapConfig& swap) {
  return fmt::format("swap    inputs of layers, {} of {}\n",
                     bytes_text(swap.offload_budget_mb << 20),
                     swap.offload_folder.empty() ? "memory" : "a file in " + swap.offload_folder);
}

std::string plan_page(const RunConfig& config, const RecomputeChoice& choice) {
  const MicroBatchShape shape = micro_batch_shape(config);
  const std::string report = plan_report(choice.subject, choice.plan, shape);
  if (choice.plan.is_empty()) return "recompute          " + report;
  return fmt::format(
      "recompute plan     bytes of one micro-batch ({} tokens) in each layer of a class\n{}",
      shape.documents.tokens(),
      report);
}

std::string units_page(const RunConfig& config) {
  const PlanSubject subject = PlanSubject::of(config.model);
  const SaveTargetMap& map = deepseek_v4_save_targets();
  return config.units.json ? units_json(subject, map, save_names())
                           : units_report(subject, map, save_names());
}

}  // namespace lethe
