#include <algorithm>

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/config/settings_table_impl.h"

// What is recomputed instead of kept: command-line spec 7.4.
namespace lethe::detail {
namespace {

constexpr auto kRecompute = &RunConfig::recompute;
using R = RecomputeConfig;

std::string known_modules(SettingValue& value, std::vector<std::string>&) {
  const auto& words = std::get<std::vector<std::string>>(value);
  const std::vector<std::string>& names = module_names();
  for (const std::string& word : words) {
    if (std::find(names.begin(), names.end(), word) == names.end())
      return fmt::format("each is one of {}", fmt::join(names, ", "));
    if (std::count(words.begin(), words.end(), word) > 1) return "each stands once";
  }
  return words.empty() ? "at least one name" : "";
}

/// Leaves the spelling that save_unit_words gives.
std::string known_units(SettingValue& value, std::vector<std::string>&) {
  try {
    value = save_unit_words(read_save_units(std::get<std::vector<std::string>>(value), "units"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// A selection of save units; reads and prints its words.
void bind_units(SettingTable& t,
                const char* flag,
                SaveSelection R::*field,
                const char* note,
                const char* help) {
  t.row(flag, SettingType::WordList, SettingStatus::Active, help).note(note).refine(known_units);
  Setting& units = t.rows().back();
  units.get = [field](const RunConfig& c) -> std::optional<SettingValue> {
    return save_unit_words(c.recompute.*field);
  };
  units.set = [field](RunConfig& c, const SettingValue& value) {
    c.recompute.*field = read_save_units(std::get<std::vector<std::string>>(value), "units");
  };
}

void add_layers(SettingTable& t) {
  t.section("memory", "Recompute: which layers", command::kTrain, OnResume::FreeTogether);
  t.bind_enum("recompute-granularity",
              kRecompute,
              &R::granularity,
              {"none", "full", "selective"},
              "Recompute whole layers, or the parts of recompute_modules.");
  t.bind_enum("recompute-method",
              kRecompute,
              &R::method,
              {"none", "uniform", "block"},
              "Of full: keep the input of every num_layers layers, or recompute the first ones.");
  t.bind("recompute-num-layers",
         kRecompute,
         &R::num_layers,
         "Layers of a chunk (uniform), or layers that are recomputed (block).")
      .at_least(1);
  t.bind("enable-recompute-layers-per-pp-rank",
         kRecompute,
         &R::per_pp_rank,
         "Numbers of layers count per pipeline rank instead of per virtual stage.");
  t.bind("recompute-ratio",
         kRecompute,
         &R::ratio,
         "Share of the layers that is recomputed whole; the last layer never.")
      .at_least(0)
      .at_most(1);
  t.bind("vision-recompute-ratio",
         kRecompute,
         &R::vision_ratio,
         "Share of the layers of a vision tower that is recomputed whole.")
      .at_least(0)
      .at_most(1);
  t.bind("fsdp-recompute-ratio",
         kRecompute,
         &R::fsdp_ratio,
         "Deprecated place of recompute_ratio; goes with version 1.0.")
      .at_least(0)
      .at_most(1);
  t.bind("fsdp-vision-recompute-ratio",
         kRecompute,
         &R::fsdp_vision_ratio,
         "Deprecated place of vision_recompute_ratio; goes with version 1.0.")
      .at_least(0)
      .at_most(1);
  t.bind_enum("recompute-mtp",
              kRecompute,
              &R::mtp,
              {"include", "skip"},
              "MTP blocks take part in recompute, or keep everything.");
}

void add_parts(SettingTable& t) {
  t.section("memory", "Recompute: which parts of a layer", command::kTrain, OnResume::FreeTogether);
  t.bind("recompute-modules", kRecompute, &R::modules, "Parts that selective recomputes.")
      .note("of " + fmt::format("{}", fmt::join(module_names(), ", ")))
      .refine(known_modules);
  t.bind("recompute-csa-attention",
         kRecompute,
         &R::csa_attention,
         "Recompute the attention: query, indexer, sparse attention, output projection.");
  t.bind("recompute-csa-keep-output",
         kRecompute,
         &R::csa_keep_output,
         "Keep the attention's output in these layers.");
  t.bind("mhc-recompute", kRecompute, &R::mhc, "Recompute mHC pre and the attention's mHC post.");
  t.bind("mhc-recompute-layer-num",
         kRecompute,
         &R::mhc_layer_num,
         "Layers of an mHC block; inner ones release their output and keep the attention's.")
      .at_least(1);
  t.bind("recompute-norm", kRecompute, &R::norm, "Recompute the norms before attention and MLP.");
  t.bind("recompute-norm-num-layers",
         kRecompute,
         &R::norm_num_layers,
         "Layers with recompute_norm, in the order of their priority.")
      .at_least(0);
}

void add_units(SettingTable& t) {
  t.section(
      "memory", "Recompute: units that stay, plan files", command::kTrain, OnResume::FreeTogether);
  bind_units(t,
             "save-units",
             &R::save,
             "none, all, or names of save units",
             "What stays resident inside layers that are recomputed whole.");
  bind_units(t,
             "save-units-allow-mutation",
             &R::allow_mutation,
             "none, all, or some of save_units",
             "Units of save_units whose kept results may be written to before backward, which then "
             "reads what was written; of others that is an error.");
  t.bind_enum("save-units-missing",
              kRecompute,
              &R::missing_units,
              {"error", "warn"},
              "A save unit of which this model has no part ends the start, or is left out.");
  t.bind("recompute-plan", kRecompute, &R::plan_file, "Plan file that replaces these settings.")
      .note("not empty")
      .refine(refuse_empty);
}

void add_reports(SettingTable& t) {
  t.section("memory", "Recompute: what is written and checked", command::kTrain, OnResume::Free);
  t.bind("save-recompute-plan",
         kRecompute,
         &R::save_plan_file,
         "Write the plan to this file; --dry-run does too.")
      .default_note("none")
      .on_resume(OnResume::Session);
  t.bind_enum("recompute-checks",
              kRecompute,
              &R::checks,
              {"off", "checked", "bitwise"},
              "Verify each replay as it runs: shapes, values, random numbers, how often; the bytes "
              "that each part frees and those that come back from a host tier; costs time. bitwise "
              "is checked under the name of its comparison of values.");
  t.bind("recompute-stats",
         kRecompute,
         &R::stats,
         "What recompute does, in OUTPUT: recompute.jsonl, a line per region and step; of steps 2 "
         "and 3, census.jsonl and recompute-trace.json for a trace viewer.");
}

}  // namespace

void add_recompute_settings(SettingTable& t) {
  add_layers(t);
  add_parts(t);
  add_units(t);
  add_reports(t);
}

}  // namespace lethe::detail
