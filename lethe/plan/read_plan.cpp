#include <algorithm>
#include <limits>

#include <fmt/ranges.h>

#include "lethe/base/error.h"
#include "lethe/config/json_fields_impl.h"
#include "lethe/plan/check_plan.h"
#include "lethe/plan/plan_file.h"
#include "lethe/plan/plan_names_impl.h"

namespace lethe {
namespace {

constexpr const char* kMakeAnew = "write it anew with --save-recompute-plan";

/// One object of the file; what it does not find becomes a problem and reads as a default.
class PlanReader {
 public:
  PlanReader(const Json& object,
             const std::string& where,
             const std::string& path,
             std::vector<std::string>& problems)
      : where_(where), path_(path), problems_(problems), fields_(object, where, path, problems) {}

  std::string text(const std::string& key) {
    return required(key) ? fields_.word({key.c_str()}).value_or("") : "";
  }

  int64_t count(const std::string& key) {
    return required(key) ? fields_.count({key.c_str()}).value_or(0) : 0;
  }

  bool flag(const std::string& key) { return required(key) && fields_.flag(key).value_or(false); }

  std::vector<std::string> words(const std::string& key) {
    return required(key) ? fields_.words(key).value_or(std::vector<std::string>{})
                         : std::vector<std::string>{};
  }

  std::vector<int64_t> counts(const std::string& key) {
    return required(key) ? fields_.counts(key).value_or(std::vector<int64_t>{})
                         : std::vector<int64_t>{};
  }

  template <class E, size_t N>
  E one_of(const std::string& key, const detail::Words<E, N>& words) {
    return choose(key, text(key), words);
  }

  Event event(const std::string& key) { return event_of(key, text(key)); }

  Trigger trigger(const std::string& key) {
    const std::string word = text(key);
    const size_t space = word.find(' ');
    Trigger trigger;
    trigger.kind = choose(key, word.substr(0, space), detail::kTriggerWords);
    if ((space != std::string::npos) != (trigger.kind != Trigger::Kind::Pull))
      fields_.problem(key, fmt::format("must be 'pull' or a kind and an event, got '{}'", word));
    else if (space != std::string::npos)
      trigger.at = event_of(key, word.substr(space + 1));
    return trigger;
  }

  ActId act(const std::string& key) { return act_of(key, text(key)); }

  std::vector<ActId> acts(const std::string& key) {
    std::vector<ActId> ids;
    for (const std::string& word : words(key)) ids.push_back(act_of(key, word));
    return ids;
  }

  SubgraphId subgraph(const std::string& key) {
    const std::string word = text(key);
    const std::optional<SubgraphId> id = find_subgraph(word);
    if (id && can_be_region(*id)) return *id;
    fields_.problem(key, fmt::format("must be a sub-graph, got '{}'; {}", word, kMakeAnew));
    return SubgraphId::Layer;
  }

  /// Calls read(reader) for every object of a list.
  template <class Read>
  void each(const std::string& key, Read read) {
    const Json* list = required(key) ? fields_.find(key) : nullptr;
    if (list == nullptr) return;
    if (!list->is_array()) {
      fields_.problem(key, fmt::format("must be a list, got {}", list->type_name()));
      return;
    }
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string path = fmt::format("{}{}[{}]", path_, key, i);
      if (!(*list)[i].is_object()) {
        fields_.problem(fmt::format("{}[{}]", key, i), "must be an object");
        continue;
      }
      PlanReader reader((*list)[i], where_, path + ".", problems_);
      read(reader);
      reader.finish();
    }
  }

  const Json* find(const std::string& key) { return required(key) ? fields_.find(key) : nullptr; }

  void finish() {
    for (const std::string& key : fields_.unknown_keys())
      fields_.problem(key, fmt::format("is unknown; {}", kMakeAnew));
  }

 private:
  bool required(const std::string& key) {
    if (fields_.find(key) != nullptr) return true;
    fields_.problem(key, fmt::format("must be given, got nothing; {}", kMakeAnew));
    return false;
  }

  template <class E, size_t N>
  E choose(const std::string& key, const std::string& word, const detail::Words<E, N>& words) {
    std::vector<std::string_view> names;
    for (const auto& [value, name] : words) {
      if (name == word) return value;
      names.push_back(name);
    }
    fields_.problem(key, fmt::format("must be one of {}, got '{}'", fmt::join(names, ", "), word));
    return E{};
  }

  Event event_of(const std::string& key, const std::string& word) {
    const std::optional<Event> event = find_event(word);
    if (event && (*event == Event::Never || is_layer_event(*event))) return *event;
    fields_.problem(key, fmt::format("must be an event of a layer, got '{}'", word));
    return Event::Never;
  }

  ActId act_of(const std::string& key, const std::string& word) {
    const std::optional<ActId> id = find_act(word);
    if (!id) fields_.problem(key, fmt::format("must be an activation, got '{}'", word));
    return id.value_or(ActId{});
  }

  std::string where_, path_;
  std::vector<std::string>& problems_;
  JsonFields fields_;
};

LayerPlan read_class(PlanReader& in) {
  LayerPlan layer;
  layer.layer_class = in.text("class");
  layer.kind = {.ratio = in.count("ratio"), .hash = in.flag("hash"), .mtp = in.flag("mtp")};
  layer.nested = in.flag("nested");
  layer.save_units = in.words("save_units");
  layer.allow_mutation = in.words("allow_mutation");
  in.each("regions", [&layer](PlanReader& r) {
    layer.regions.push_back({.subgraph = r.subgraph("subgraph"),
                             .inputs = r.acts("inputs"),
                             .outputs = r.acts("outputs"),
                             .has_collective = r.flag("has_collective"),
                             .has_rng = r.flag("has_rng"),
                             .stop = r.one_of("stop", detail::kStopWords)});
  });
  in.each("acts", [&layer](PlanReader& r) {
    layer.acts.push_back({.name = r.text("name"),
                          .id = r.act("id"),
                          .keep = r.one_of("keep", detail::kKeepWords),
                          .last_read = r.event("last_read"),
                          .release = r.event("release"),
                          .restore = r.trigger("restore"),
                          .restore_overlap = r.trigger("restore_overlap")});
  });
  return layer;
}

template <class T>
T within(const std::string& where, const char* key, int64_t value) {
  LETHE_CHECK(ConfigError,
              value <= static_cast<int64_t>(std::numeric_limits<T>::max()),
              "{}: '{}' must be at most {}, got {}; {}",
              where,
              key,
              std::numeric_limits<T>::max(),
              value,
              kMakeAnew);
  return static_cast<T>(value);
}

/// The file must be a plan at all before its content is worth reading.
void check_format(PlanReader& in, const std::string& where, std::vector<std::string>& problems) {
  const std::string format = in.text("format");
  const int64_t version = in.count("version");
  LETHE_CHECK(ConfigError,
              problems.empty() && format == detail::kPlanFormat && version == detail::kPlanVersion,
              "{} [plan-file]: must be a {} of version {}, got '{}' of version {}; {}",
              where,
              detail::kPlanFormat,
              detail::kPlanVersion,
              format,
              version,
              kMakeAnew);
}

void check_model(const Json& made_for, const PlanSubject& subject, const std::string& where) {
  std::vector<std::string> differences;
  const Json wanted = detail::model_fingerprint(subject);
  for (const auto& [key, value] : wanted.items()) {
    const auto found = made_for.find(key);
    const std::string theirs = found == made_for.end() ? "nothing" : found->dump();
    if (theirs != value.dump())
      differences.push_back(fmt::format("{} = {} and not {}", key, theirs, value.dump()));
  }
  LETHE_CHECK(RecomputeError,
              differences.empty(),
              "{} [plan-model]: must be a plan of this model and stage, got one for {}; {}",
              where,
              fmt::join(differences, ", "),
              kMakeAnew);
}

}  // namespace

RecomputePlan read_plan(std::string_view text, const PlanSubject& subject, std::string_view where) {
  const std::string name(where);
  const Json json = parse_json_object(text, where);
  std::vector<std::string> problems;
  PlanReader in(json, name, "", problems);
  check_format(in, name, problems);
  if (const Json* model = in.find("model")) check_model(*model, subject, name);
  RecomputePlan plan;
  plan.mode = in.one_of("mode", detail::kModeWords);
  plan.checks = in.one_of("checks", detail::kCheckWords);
  plan.mtp = in.one_of("mtp", detail::kMtpWords);
  plan.mhc_block = within<uint32_t>(name, "mhc_block", in.count("mhc_block"));
  plan.full_chunk = within<uint32_t>(name, "full_chunk", in.count("full_chunk"));
  for (const int64_t index : in.counts("layers"))
    plan.layer_to_class.push_back(within<uint16_t>(name, "layers", index));
  in.each("classes", [&plan](PlanReader& r) { plan.classes.push_back(read_class(r)); });
  in.finish();
  LETHE_CHECK(ConfigError, problems.empty(), "{}", fmt::join(problems, "\n  "));
  check_plan(subject, plan);
  return plan;
}

}  // namespace lethe
