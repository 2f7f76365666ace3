#include "lethe/config/resolve.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "lethe/config/error_list.h"
#include "lethe/config/hub_config.h"
#include "lethe/config/recipe_train.h"
#include "lethe/config/recipes.h"
#include "lethe/config/recompute_rules.h"
#include "lethe/config/run_rules.h"
#include "lethe/config/settings_layer.h"
#include "lethe/config/toml_file.h"
#include "lethe/config/validate.h"

namespace lethe {
namespace {

/// One resolution, step by step; errors are collected until a step needs what an earlier one failed
/// at.
class Resolver {
 public:
  explicit Resolver(const SettingsRequest& request)
      : request_(request), command_(command_bit(request.command)) {
    LETHE_CHECK(ConfigError,
                command_ != 0,
                "lethe [command]: must be one of {}, got '{}'; see lethe --help",
                command_names(command::kAll),
                request.command);
    out_.command = request.command;
    out_.config = built_in_config();
  }

  ResolvedSettings run() {
    for (const std::string& text : request_.errors) errors_.add(text);
    read_sources();
    const bool resumes = add_checkpoint();
    add_recipe(resumes);
    errors_.raise();
    load_hub_config();
    errors_.raise();
    apply();
    complete_ratios();
    move_ratios();
    check_constants();
    check_required();
    errors_.raise();
    check_rules();
    errors_.raise();
    return std::move(out_);
  }

 private:
  void read_sources() {
    for (const std::string& path : request_.config_files) {
      errors_.collect([&] {
        const SettingLayer file = read_layer(command_, read_toml_file(path), errors_, out_.notes);
        merge_layer(given_, file, true, out_.notes);
      });
    }
    const SettingLayer line = read_layer(command_, request_.command_line, errors_, out_.notes);
    merge_layer(given_, line, false, out_.notes);
    errors_.collect([&] { out_.recipe = take_source("recipe"); });
    errors_.collect([&] { out_.hf_config = take_source("hf_config"); });
  }

  /// Sources are not values: they leave the layer once they are read.
  std::string take_source(const std::string& key) {
    const auto found = given_.find(key);
    if (found == given_.end()) return "";
    std::string text = std::get<std::string>(found->second.value);
    LETHE_CHECK(ConfigError,
                !text.empty(),
                "{} [range]: must not be empty, got ''; leave it out",
                found->second.shown);
    out_.provenance[key] = found->second.origin;
    given_.erase(found);
    return text;
  }

  bool given_flag(const std::string& key) const {
    const auto found = given_.find(key);
    return found != given_.end() && std::get<bool>(found->second.value);
  }

  /// Puts the checkpoint's settings below what was given; true where a run goes on.
  bool add_checkpoint() {
    if (!request_.checkpoint) return false;
    const CheckpointSettings& saved = *request_.checkpoint;
    const bool finetune = given_flag("finetune");
    errors_.collect([&] {
      SettingLayer layer =
          read_layer(command_, parse_toml(saved.text, saved.origin), errors_, out_.notes);
      std::erase_if(layer, [&](const auto& entry) {
        const Setting& row = *find_setting(entry.first);
        return row.on_resume == OnResume::Session || (finetune && row.table != "model");
      });
      stay_in_the_loaded_run(layer);
      drop_replaced_choice(layer);
      complete_given_ratios(layer);
      for (auto& [key, assigned] : layer) assigned.origin = kCheckpointOrigin;
      for (const auto& [key, assigned] : given_) {
        if (finetune && find_setting(key)->table != "model") continue;
        const auto found = layer.find(key);
        agree_with_checkpoint(
            key,
            assigned,
            found == layer.end() ? std::nullopt : std::optional(found->second.value),
            saved.origin);
      }
      merge_layer(layer, given_, false, out_.notes);
      given_ = std::move(layer);
    });
    out_.hub_kept = saved.hub_kept;
    return !finetune;
  }

  /// The checkpoint has the list with the entries of the MTP blocks; who repeats it may leave them
  /// out.
  void complete_given_ratios(const SettingLayer& layer) {
    const auto given = given_.find(kRatiosKey);
    const auto layers = layer.find("num_layers"), blocks = layer.find("mtp_num_layers");
    if (given == given_.end() || layers == layer.end() || blocks == layer.end()) return;
    pad_ratios(std::get<std::vector<int64_t>>(given->second.value),
               std::get<int64_t>(layers->second.value),
               std::get<int64_t>(blocks->second.value));
  }

  /// A run that was moved, or is loaded from another working folder, goes on where it lies now.
  void stay_in_the_loaded_run(SettingLayer& layer) {
    const auto load = given_.find("load");
    const auto output = layer.find("output"), save = layer.find("save");
    if (load == given_.end() || output == layer.end() || save == layer.end()) return;
    const std::filesystem::path folder = std::get<std::string>(load->second.value);
    const bool is_default = std::get<std::string>(save->second.value).empty();
    if (is_default && folder.filename() == "checkpoints" && folder.has_parent_path())
      output->second.value = folder.parent_path().string();
  }

  /// What a resume says about recompute is a new choice: mixed with settings of the old one, which
  /// cannot all be unset, it would contradict itself.
  void drop_replaced_choice(SettingLayer& layer) {
    const auto is_of_it = [](const auto& entry) {
      return find_setting(entry.first)->on_resume == OnResume::FreeTogether;
    };
    if (std::none_of(given_.begin(), given_.end(), is_of_it)) return;
    for (const auto& [key, assigned] : layer) {
      const Setting& row = *find_setting(key);
      if (row.on_resume != OnResume::FreeTogether || given_.count(key) != 0) continue;
      if (row.get(built_in_config()) == assigned.value) continue;
      out_.notes.push_back(
          fmt::format("{} = {} of the checkpoint is not taken: recompute is chosen anew",
                      key,
                      value_text(assigned.value)));
    }
    std::erase_if(layer, is_of_it);
  }

  /// saved: nothing where the run had left the setting unset.
  void agree_with_checkpoint(const std::string& key,
                             const AssignedSetting& given,
                             const std::optional<SettingValue>& saved,
                             const std::string& origin) {
    const Setting& row = *find_setting(key);
    const bool changeable = row.on_resume == OnResume::Changeable;
    const bool may_differ =
        row.on_resume == OnResume::Free || row.on_resume == OnResume::FreeTogether ||
        row.on_resume == OnResume::Session || (changeable && given_flag("allow_setting_changes"));
    if (may_differ || given.value == saved) return;
    errors_.add(
        fmt::format("{} [E-CKPT-CONFIG]: must be {} as in {}, got {}; leave it out, {}",
                    given.shown,
                    saved ? fmt::format("{} = {}", key, value_text(*saved)) : key + " not set",
                    origin,
                    value_text(given.value),
                    row.table == "model" ? "its weights have that shape"
                    : changeable         ? "or change it on purpose with --allow-setting-changes"
                                         : "or start a new run with its weights by --finetune"));
  }

  void add_recipe(bool resumes) {
    if (out_.recipe.empty()) return;
    if (resumes) {
      out_.notes.push_back(
          fmt::format("recipe {} is not used: the checkpoint brings the settings", out_.recipe));
      return;
    }
    errors_.collect([&] {
      RunConfig shape;
      shape.model = recipe(out_.recipe);
      SettingLayer layer;
      if (command_ == command::kTrain)
        layer = read_layer(command_, recipe_train_defaults(out_.recipe), errors_, out_.notes);
      const std::string origin = "recipe " + out_.recipe;
      for (const Setting& row : settings()) {
        if (row.status != SettingStatus::Active || row.table != "model") continue;
        if (const auto value = row.get(shape))
          layer[row.key()] = {*value, origin, fmt::format("{} ({})", row.key(), origin)};
      }
      merge_layer(layer, given_, false, out_.notes);
      given_ = std::move(layer);
    });
  }

  void load_hub_config() {
    if (out_.hf_config.empty()) return;
    errors_.collect([&] {
      const std::string path = (std::filesystem::path(out_.hf_config) / "config.json").string();
      HubConfig hub = parse_hub_config(read_config_text(path, "--hf-config"), path);
      out_.config.model = std::move(hub.model);
      out_.hub_kept = std::move(hub.kept);
      out_.notes.insert(out_.notes.end(), hub.messages.begin(), hub.messages.end());
      if (!hub.kept_keys.empty())
        out_.notes.push_back(fmt::format("{}: keys without a meaning here, kept for export: {}",
                                         path,
                                         fmt::join(hub.kept_keys, ", ")));
      for (const Setting& row : settings()) {
        if (row.status != SettingStatus::Active || row.table != "model") continue;
        out_.provenance[row.key()] = path;
        if (row.in_hub_config) agree_with_hub(row, path);
      }
    });
  }

  void agree_with_hub(const Setting& row, const std::string& path) {
    const auto found = given_.find(row.key());
    if (found == given_.end()) return;
    const ModelConfig& hub = out_.config.model;
    if (row.key() == kRatiosKey)
      pad_ratios(std::get<std::vector<int64_t>>(found->second.value), hub.num_layers, hub.num_mtp);
    const std::optional<SettingValue> expected = row.get(out_.config);
    if (expected == found->second.value) return;
    errors_.add(
        fmt::format("{} [E-CONFIG-MISMATCH]: must agree with {}, which says {}, got {}; drop it or "
                    "correct one of the two",
                    found->second.shown,
                    path,
                    expected ? value_text(*expected) : "nothing",
                    value_text(found->second.value)));
  }

  /// In the order of the table: a factor exists before the parameters that hang on it.
  void apply() {
    for (const Setting& row : settings()) {
      if (!row.applies_to(command_) || row.status == SettingStatus::NotBuilt) continue;
      const auto found = given_.find(row.key());
      if (found == given_.end()) continue;
      out_.provenance[row.key()] = found->second.origin;
      if (row.status == SettingStatus::Active) row.set(out_.config, found->second.value);
    }
    for (const Setting& row : settings()) check_effect(row);
  }

  void check_effect(const Setting& row) {
    const auto found = given_.find(row.key());
    if (row.status != SettingStatus::Active || found == given_.end()) return;
    if (row.get(out_.config) == found->second.value) return;
    if (found->second.origin == "recipe " + out_.recipe ||
        found->second.origin == kCheckpointOrigin) {
      out_.provenance.erase(row.key());
      return;
    }
    errors_.add(fmt::format(
        "{} [no-effect]: must not be given beside the other settings, which leave it no "
        "effect, got {}; leave it out",
        found->second.shown,
        value_text(found->second.value)));
  }

  static void pad_ratios(std::vector<int64_t>& ratios, int64_t layers, int64_t blocks) {
    if (std::cmp_equal(ratios.size(), layers) && blocks > 0)
      ratios.resize(static_cast<size_t>(layers + blocks), 0);
  }

  void complete_ratios() {
    ModelConfig& model = out_.config.model;
    const size_t before = model.ratios.size();
    pad_ratios(model.ratios, model.num_layers, model.num_mtp);
    if (model.ratios.size() != before)
      out_.notes.push_back(fmt::format(
          "{}: {} entries for the main layers; MTP blocks get ratio 0", kRatiosKey, before));
  }

  /// Ratios of whole-layer recompute from their deprecated places (spec 3 6.5).
  void move_ratios() {
    const RecomputeConfig given = out_.config.recompute;
    errors_.collect([&] { out_.config.recompute = with_moved_ratios(given, out_.notes); });
    const auto rename = [&](bool moves, const char* from, const char* to) {
      if (!moves) return;
      out_.provenance[to] = out_.provenance[from];
      out_.provenance.erase(from);
    };
    rename(given.fsdp_ratio.has_value(), "fsdp_recompute_ratio", "recompute_ratio");
    rename(given.fsdp_vision_ratio.has_value(),
           "fsdp_vision_recompute_ratio",
           "vision_recompute_ratio");
  }

  void check_constants() {
    for (const Setting& row : settings()) {
      const auto found = given_.find(row.key());
      if (row.status != SettingStatus::Constant || found == given_.end()) continue;
      const SettingValue& value = found->second.value;
      const SettingValue expected = *row.get(out_.config);
      const bool good = row.accepts ? row.accepts(out_.config, value) : value == expected;
      if (!good)
        errors_.add(fmt::format("{} [constant]: must be {}, got {}; {}",
                                found->second.shown,
                                value_text(expected),
                                value_text(value),
                                row.advice));
    }
  }

  void check_required() {
    for (const Setting& row : settings()) {
      if (!row.required || !row.applies_to(command_)) continue;
      if (out_.provenance.count(row.key()) != 0) continue;
      errors_.add(fmt::format(
          "--{} [required]: must be given, got nothing; give it, or start from --recipe tiny{}",
          row.flag,
          row.in_hub_config ? " or --hf-config DIR" : ""));
    }
  }

  void check_rules() {
    if ((command_ & command::kShape) == 0) return;
    for (std::string& broken : model_violations(out_.config.model, "model"))
      errors_.add(std::move(broken));
    if (command_ != command::kTrain) return;
    for (const auto rules : {train_rules(), recompute_rules()}) check_rules(rules);
    check_unused(out_.config, given_, errors_, out_.notes);
  }

  void check_rules(std::span<const RunRule> rules) {
    for (const RunRule& rule : rules) {
      const std::string broken = rule.broken(out_.config);
      if (!broken.empty()) errors_.add(fmt::format("{} [{}]: {}", rule.flag, rule.id, broken));
    }
  }

  static constexpr const char* kRatiosKey = "csa_compress_ratios";

  const SettingsRequest& request_;
  CommandSet command_;
  ResolvedSettings out_;
  ErrorList errors_;
  SettingLayer given_;
};

}  // namespace

CheckpointRequest requested_checkpoint(const SettingsRequest& request) {
  CheckpointRequest wanted;
  const auto look = [&wanted](const std::vector<GivenSetting>& given) {
    for (const GivenSetting& one : given) {
      const Setting* row = find_setting(one.name);
      if (row == nullptr || one.words.empty()) continue;
      if (row->flag == "load") wanted.folder = one.words.front();
      if (row->flag == "allow-fallback-checkpoint")
        wanted.allow_fallback = one.words.front() == "true";
    }
  };
  for (const std::string& path : request.config_files) {
    ErrorList unreadable;  // resolve() reports it
    unreadable.collect([&] { look(read_toml_file(path)); });
  }
  look(request.command_line);
  return wanted;
}

ResolvedSettings resolve(const SettingsRequest& request) {
  return Resolver(request).run();
}

}  // namespace lethe
