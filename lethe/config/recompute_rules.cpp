#include "lethe/config/recompute_rules.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

namespace lethe {
namespace {

using Granularity = RecomputeGranularity;
using Method = RecomputeMethod;

constexpr const char* kGranularityNames[] = {"none", "full", "selective"};
constexpr const char* kMethodNames[] = {"none", "uniform", "block"};

const char* name_of(Granularity granularity) {
  return kGranularityNames[static_cast<size_t>(granularity)];
}

bool is_full(const RunConfig& c) {
  return c.recompute.granularity == Granularity::Full;
}

std::string full_has_method(const RunConfig& c) {
  if (!is_full(c) || c.recompute.method != Method::None) return "";
  return "must be uniform or block with recompute_granularity = full, got none; choose one";
}

std::string method_is_of_full(const RunConfig& c) {
  const RecomputeConfig& r = c.recompute;
  if (is_full(c) || r.method == Method::None) return "";
  return fmt::format("must be none without recompute_granularity = full, got {}; leave it out",
                     kMethodNames[static_cast<size_t>(r.method)]);
}

std::string full_has_number(const RunConfig& c) {
  if (!is_full(c) || c.recompute.num_layers) return "";
  return "must be given with recompute_granularity = full, got nothing; give 1 or more";
}

std::string number_is_of_full(const RunConfig& c) {
  if (is_full(c) || !c.recompute.num_layers) return "";
  return fmt::format("must not be given with recompute_granularity = {}, got {}; leave it out",
                     name_of(c.recompute.granularity),
                     *c.recompute.num_layers);
}

std::string number_fits(const RunConfig& c) {
  if (!is_full(c) || !c.recompute.num_layers) return "";
  const int64_t layers = c.model.num_layers + c.model.num_mtp;
  if (*c.recompute.num_layers <= layers) return "";
  return fmt::format("must be <= {}, the layers and MTP blocks of the model, got {}; lower it",
                     layers,
                     *c.recompute.num_layers);
}

std::string counts_something(const RunConfig& c) {
  const RecomputeConfig& r = c.recompute;
  if (!r.per_pp_rank || r.num_layers || r.norm_num_layers) return "";
  return "must have recompute_num_layers or recompute_norm_num_layers to count, got neither; leave "
         "it out";
}

std::string modules_are_selective(const RunConfig& c) {
  const RecomputeConfig& r = c.recompute;
  if (r.granularity == Granularity::Selective || r.modules == RecomputeConfig{}.modules) return "";
  return fmt::format("must have recompute_granularity = selective, got {}; give it",
                     name_of(r.granularity));
}

std::string mhc_not_in_mlp(const RunConfig& c) {
  if (!recomputes_module(c.recompute, RecomputeModule::Mlp) || !recomputes_mhc(c.recompute))
    return "";
  return "must not have mlp together with mHC recompute, whose parts lie inside it, got both; "
         "leave "
         "one of them out";
}

std::string shared_experts_not_in_moe(const RunConfig& c) {
  if (!recomputes_module(c.recompute, RecomputeModule::Moe) ||
      !recomputes_module(c.recompute, RecomputeModule::SharedExperts))
    return "";
  return "must not have moe together with shared_experts, which lie inside it, got both; leave one "
         "of them out";
}

int64_t num_taking_part(const RunConfig& c) {
  return c.model.num_layers +
         (c.recompute.mtp == MtpSelection::Include ? c.model.num_mtp : int64_t{0});
}

/// Not every layer is recomputed whole. What a ratio leaves is known where it is rounded
/// (plan/make_plan.h).
bool leaves_layers(const RunConfig& c) {
  const RecomputeConfig& r = c.recompute;
  if (!is_full(c) || !r.num_layers) return true;
  return r.method == Method::Block && *r.num_layers < num_taking_part(c);
}

std::string output_is_of_csa(const RunConfig& c) {
  if (!c.recompute.csa_keep_output || c.recompute.csa_attention) return "";
  return "must have --recompute-csa-attention, whose output it keeps, got it alone; give both";
}

std::string block_is_of_mhc(const RunConfig& c) {
  if (c.recompute.mhc_layer_num == 1 || recomputes_mhc(c.recompute)) return "";
  return fmt::format(
      "must have --mhc-recompute or mhc in --recompute-modules, got {} without; give one of them",
      c.recompute.mhc_layer_num);
}

std::string number_is_of_norm(const RunConfig& c) {
  const std::optional<int64_t> number = c.recompute.norm_num_layers;
  if (!number) return "";
  if (!c.recompute.norm)
    return fmt::format("must have --recompute-norm, got {} without; give both", *number);
  if (*number <= c.model.num_layers) return "";
  return fmt::format("must be <= num_layers = {}, got {}; lower it", c.model.num_layers, *number);
}

std::string units_have_layers(const RunConfig& c) {
  if (c.recompute.save.kind == SaveSelection::Kind::Nothing || recomputes_layers(c.recompute))
    return "";
  return "must have layers that are recomputed whole, got none; give --recompute-ratio above 0 or "
         "--recompute-granularity full";
}

std::string attention_is_not_both(const RunConfig& c) {
  const SaveSelection& save = c.recompute.save;
  const bool keeps =
      save.kind == SaveSelection::Kind::All ||
      std::find(save.units.begin(), save.units.end(), SaveUnit::Attn) != save.units.end();
  if (!keeps || !c.recompute.csa_attention) return "";
  // Whole layers keep, the others drop: no layer is asked for both.
  if (recomputes_layers(c.recompute) && leaves_layers(c)) return "";
  return "must not have attn together with --recompute-csa-attention on the same layers, got both; "
         "one keeps the attention, the other drops it: leave one of them out";
}

std::string mutation_is_of_units(const RunConfig& c) {
  const SaveSelection& kept = c.recompute.save;
  const SaveSelection& written = c.recompute.allow_mutation;
  if (written.kind == SaveSelection::Kind::Nothing) return "";
  const std::vector<std::string> words = save_unit_words(written);
  if (kept.kind == SaveSelection::Kind::Nothing)
    return fmt::format("must have --save-units, got {} without; leave it out",
                       fmt::join(words, " "));
  // Of all, the model decides which units there are (train/recompute_choice.h).
  if (kept.kind == SaveSelection::Kind::All) return "";
  for (const SaveUnit unit : written.units)
    if (std::find(kept.units.begin(), kept.units.end(), unit) == kept.units.end())
      return fmt::format(
          "must name units of --save-units, got {}, which is not kept; keep it too "
          "or leave it out",
          save_unit_name(unit));
  return "";
}

std::string missing_is_of_units(const RunConfig& c) {
  if (c.recompute.missing_units == MissingUnits::Error ||
      c.recompute.save.kind != SaveSelection::Kind::Nothing)
    return "";
  return "must have --save-units, got warn without; leave it out";
}

std::string one_choice_of_layers(const RunConfig& c) {
  if (!c.recompute.ratio || !is_full(c)) return "";
  return fmt::format(
      "must not be given with recompute_granularity = full, which chooses layers too, got {}; give "
      "one of them",
      *c.recompute.ratio);
}

std::string plan_is_alone(const RunConfig& c) {
  if (!c.recompute.plan_file) return "";
  RecomputeConfig rest = c.recompute;
  rest.plan_file.reset();
  rest.save_plan_file.clear();
  rest.checks = PlanChecks::Off;
  rest.stats = false;
  if (rest == RecomputeConfig{} && !c.swap.layer_input) return "";
  return fmt::format(
      "must be the only choice of what is recomputed and swapped, got {} beside others; leave them "
      "or the plan out",
      *c.recompute.plan_file);
}

constexpr std::array<RunRule, 18> kRules{{
    {"RC1", "--recompute-method", "full recompute has a method", full_has_method},
    {"RC2", "--recompute-method", "recompute_method is of full recompute", method_is_of_full},
    {"RC3", "--recompute-num-layers", "full recompute has a number of layers", full_has_number},
    {"RC4",
     "--recompute-num-layers",
     "recompute_num_layers is of full recompute",
     number_is_of_full},
    {"RC5", "--recompute-num-layers", "recompute_num_layers <= layers", number_fits},
    {"RC6",
     "--enable-recompute-layers-per-pp-rank",
     "a number of layers is there to count per rank",
     counts_something},
    {"RC7",
     "--recompute-modules",
     "recompute_modules are of selective recompute",
     modules_are_selective},
    {"RC8", "--recompute-modules", "mlp and mhc are not recomputed together", mhc_not_in_mlp},
    // RC9 is of the plan, which knows what every layer has (plan/make_plan.h).
    {"RC10",
     "--recompute-csa-keep-output",
     "recompute_csa_keep_output has recompute_csa_attention",
     output_is_of_csa},
    {"RC11", "--mhc-recompute-layer-num", "an mHC block has mHC recompute", block_is_of_mhc},
    {"RC12",
     "--recompute-norm-num-layers",
     "recompute_norm_num_layers has recompute_norm and is <= num_layers",
     number_is_of_norm},
    {"RC13", "--save-units", "save units have layers recomputed whole", units_have_layers},
    {"RC14",
     "--save-units",
     "attn is not kept where recompute_csa_attention drops it",
     attention_is_not_both},
    {"RC15", "--save-units-missing", "save_units_missing has save units", missing_is_of_units},
    {"RC16",
     "--recompute-ratio",
     "ratio and full recompute are not both given",
     one_choice_of_layers},
    {"RC17", "--recompute-plan", "a plan file stands alone", plan_is_alone},
    {"RC18",
     "--recompute-modules",
     "moe and shared_experts are not both recomputed",
     shared_experts_not_in_moe},
    {"RC19",
     "--save-units-allow-mutation",
     "units that may be written to are save units",
     mutation_is_of_units},
}};

}  // namespace

std::span<const RunRule> recompute_rules() {
  return kRules;
}

}  // namespace lethe
